"""Buses by name: a URL, or `local` for the runtimes of one process."""

from __future__ import annotations

from typing import Any

from ..errors import ConfigurationError
from ._protocol import Bus

__all__ = ["open_bus"]

_local: dict[str, Bus] = {}


def open_bus(given: Bus | str | None) -> Bus | None:
    """The bus that a runtime is given: an object, a server's URL, `local`, or None for none."""
    if given is None:
        return None
    if not isinstance(given, str):
        return _checked(given)
    scheme = given.partition("://")[0]
    if scheme == "local":
        from ._memory import MemoryBus

        return _local.setdefault(given, MemoryBus())
    if scheme in ("postgres", "postgresql"):
        from ._postgres import PostgresBus

        return PostgresBus(given)
    if scheme in ("nats", "tls"):
        from ._nats import NatsBus

        return NatsBus(given)
    raise ConfigurationError("a bus is nats://..., postgres://... or local; for anything else give a Bus object")


def _checked(bus: Any) -> Bus:
    if not hasattr(bus, "join"):
        raise ConfigurationError(f"bus must be a Bus, a URL or None, not a {type(bus).__name__}")
    return bus
