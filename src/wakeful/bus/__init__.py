"""The bus: hints and live events between processes, and between runs and readers of one process."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .local import Channel as Channel
from .local import LocalBus as LocalBus
from .local import Reader as Reader
from .local import Subscription as Subscription
from .protocol import INTEREST_SECONDS as INTEREST_SECONDS
from .protocol import Bus as Bus
from .protocol import Link as Link
from .protocol import Listener as Listener
from .protocol import LiveUpdate as LiveUpdate
from .protocol import LogAdvanced as LogAdvanced
from .protocol import StreamAdvanced as StreamAdvanced
from .protocol import Update as Update
from .protocol import Wake as Wake
from .urls import open_bus as open_bus

if TYPE_CHECKING:
    from .memory import MemoryBus as MemoryBus
    from .nats_bus import NatsBus as NatsBus
    from .postgres_bus import PostgresBus as PostgresBus

_LAZY = {"MemoryBus": ".memory", "NatsBus": ".nats_bus", "PostgresBus": ".postgres_bus"}


def __getattr__(name: str) -> Any:
    """Import a bus implementation on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name], __name__), name)
