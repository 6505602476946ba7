"""Opening a bus from a URL."""

from __future__ import annotations

from typing import Any

from ..errors import ConfigurationError
from .protocol import Bus

__all__ = ["open_bus"]

_local: dict[str, Bus] = {}


def open_bus(bus: Bus | str | None) -> Bus | None:
    """Open the bus of a runtime: an object, a server's URL, `local` for this process, or None."""
    if bus is None:
        return None
    if not isinstance(bus, str):
        return _check_bus(bus)
    scheme = bus.partition("://")[0]
    if scheme == "local":
        from .memory import MemoryBus

        return _local.setdefault(bus, MemoryBus())
    if scheme in ("postgres", "postgresql"):
        from .postgres_bus import PostgresBus

        return PostgresBus(bus)
    if scheme in ("nats", "tls"):
        from .nats_bus import NatsBus

        return NatsBus(bus)
    raise ConfigurationError("a bus is nats://..., postgres://... or local; for anything else give a Bus object")


def _check_bus(bus: Any) -> Bus:
    if not hasattr(bus, "join"):
        raise ConfigurationError(f"bus must be a Bus, a URL or None, not a {type(bus).__name__}")
    return bus
