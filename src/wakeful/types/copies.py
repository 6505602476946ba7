"""Copies for readers: structs are frozen, but a reader could change the dicts and lists inside."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from msgspec import Raw, Struct
from msgspec.structs import replace

from .content import Text
from .events import (
    ActivityDelta,
    ActivitySnapshot,
    ArtifactAdded,
    MessageAdded,
    MessagesSnapshot,
    PartialOutput,
    RunFinish,
    ServerToolUpdate,
    StateDelta,
    TicketChanged,
    ToolCallReady,
    ToolCallResumed,
    ToolCallSuspended,
    UnknownEvent,
)
from .messages import Producer
from .runs import Identity, Usage

__all__ = ["copy_event", "copy_mutable"]

T = TypeVar("T")

# Frequent types without mutable values inside.
_FIXED = frozenset(
    {str, int, float, bool, bytes, type(None), Raw, Text, Identity, Producer, Usage},
)
# The events that may hold mutable values. Most events don't, and skip the copy.
_OPEN = frozenset(
    {
        ActivityDelta,
        ActivitySnapshot,
        ArtifactAdded,
        MessageAdded,
        MessagesSnapshot,
        PartialOutput,
        RunFinish,
        ServerToolUpdate,
        StateDelta,
        TicketChanged,
        ToolCallReady,
        ToolCallResumed,
        ToolCallSuspended,
        UnknownEvent,
    }
)


def copy_mutable(value: T) -> T:
    """Copy the mutable values inside `value`. Returns the same object if it has none."""
    kind, found = type(value), cast(Any, value)
    if kind in _FIXED:
        return value
    if kind is dict:
        return cast(T, {key: copy_mutable(item) for key, item in found.items()})
    if kind is list:
        return cast(T, [copy_mutable(item) for item in found])
    if kind is tuple:
        items = [copy_mutable(item) for item in found]
        return value if all(a is b for a, b in zip(items, found, strict=True)) else cast(T, tuple(items))
    if not isinstance(value, Struct) or not kind.__module__.startswith("wakeful."):
        return value  # Constructors of an application's own types may have side effects.
    changed: dict[str, Any] = {}
    for name in value.__struct_fields__:
        item = getattr(value, name)
        if type(item) not in _FIXED and (copy := copy_mutable(item)) is not item:
            changed[name] = copy
    return replace(value, **changed) if changed else value


def copy_event(event: T) -> T:
    """Copy the mutable values inside an event."""
    return copy_mutable(event) if type(event) in _OPEN else event
