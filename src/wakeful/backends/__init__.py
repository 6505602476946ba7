"""Execution backends: the contract, the local backend and A2A. Names are imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..agents import BackendConfig as BackendConfig
    from ..errors import AgentNotFound as AgentNotFound
    from ..errors import BackendError as BackendError
    from ..errors import ExecutionFailed as ExecutionFailed
    from ..errors import InvalidConfig as InvalidConfig
    from ..errors import RemoteError as RemoteError
    from ..types.content import Artifact as Artifact
    from .contract import AbortRequest as AbortRequest
    from .contract import BackendFactory as BackendFactory
    from .contract import BackendOutput as BackendOutput
    from .contract import BackendResult as BackendResult
    from .contract import Cancellation as Cancellation
    from .contract import Capabilities as Capabilities
    from .contract import Control as Control
    from .contract import DelegatePolicy as DelegatePolicy
    from .contract import DelegateRequest as DelegateRequest
    from .contract import ExecutionBackend as ExecutionBackend
    from .contract import Parent as Parent
    from .contract import PollRequest as PollRequest
    from .contract import Question as Question
    from .contract import RootRequest as RootRequest
    from .contract import can_abort as can_abort
    from .contract import check_delegate as check_delegate
    from .contract import check_root as check_root
    from .contract import is_cooperative as is_cooperative
    from .emitter import Emitter as Emitter
    from .local import LocalBackend as LocalBackend
    from .status import BackendStatus as BackendStatus
    from .status import CancelledStatus as CancelledStatus
    from .status import Completed as Completed
    from .status import FailedStatus as FailedStatus
    from .status import Suspended as Suspended
    from .status import TimedOut as TimedOut
    from .status import WaitingAuth as WaitingAuth
    from .status import WaitingInput as WaitingInput
    from .status import durable_reason as durable_reason
    from .status import durable_status as durable_status
    from .status import label as label

_HOMES = {
    "..agents": "BackendConfig",
    "..errors": "AgentNotFound BackendError ExecutionFailed InvalidConfig RemoteError",
    "..types.content": "Artifact",
    ".contract": "AbortRequest BackendFactory BackendOutput BackendResult Cancellation Capabilities Control "
    "DelegatePolicy DelegateRequest ExecutionBackend Parent PollRequest Question RootRequest can_abort "
    "check_delegate check_root is_cooperative",
    ".emitter": "Emitter",
    ".local": "LocalBackend",
    ".status": "BackendStatus CancelledStatus Completed FailedStatus Suspended TimedOut WaitingAuth WaitingInput "
    "durable_reason durable_status label",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'wakeful.backends' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home, __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
