"""How agents execute: the contract that every backend keeps, and the backends that come with wakeful.

A name is loaded when it is first used.
"""

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
    from ._contract import AbortRequest as AbortRequest
    from ._contract import BackendFactory as BackendFactory
    from ._contract import BackendOutput as BackendOutput
    from ._contract import BackendResult as BackendResult
    from ._contract import Cancellation as Cancellation
    from ._contract import Capabilities as Capabilities
    from ._contract import Control as Control
    from ._contract import DelegatePolicy as DelegatePolicy
    from ._contract import DelegateRequest as DelegateRequest
    from ._contract import ExecutionBackend as ExecutionBackend
    from ._contract import Parent as Parent
    from ._contract import Question as Question
    from ._contract import RootRequest as RootRequest
    from ._contract import can_abort as can_abort
    from ._contract import check_delegate as check_delegate
    from ._contract import check_root as check_root
    from ._contract import is_cooperative as is_cooperative
    from ._local import LocalBackend as LocalBackend
    from ._local import backend_of as backend_of
    from ._status import BackendStatus as BackendStatus
    from ._status import CancelledStatus as CancelledStatus
    from ._status import Completed as Completed
    from ._status import FailedStatus as FailedStatus
    from ._status import Suspended as Suspended
    from ._status import TimedOut as TimedOut
    from ._status import WaitingAuth as WaitingAuth
    from ._status import WaitingInput as WaitingInput
    from ._status import durable_reason as durable_reason
    from ._status import durable_status as durable_status
    from ._status import label as label

_HOMES = {
    "..agents": "BackendConfig",
    "..errors": "AgentNotFound BackendError ExecutionFailed InvalidConfig RemoteError",
    "..types.content": "Artifact",
    "._contract": "AbortRequest BackendFactory BackendOutput BackendResult Cancellation Capabilities Control "
    "DelegatePolicy DelegateRequest ExecutionBackend Parent Question RootRequest can_abort check_delegate "
    "check_root is_cooperative",
    "._local": "LocalBackend backend_of",
    "._status": "BackendStatus CancelledStatus Completed FailedStatus Suspended TimedOut WaitingAuth WaitingInput "
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
