"""Copies for whoever reads: data is frozen, but for the dicts and lists in it, which a reader could change."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from msgspec import Raw, Struct
from msgspec.structs import replace

from .content import Text
from .events import (
    ActivityDelta,
    ActivitySnapshot,
    MessageAdded,
    MessagesSnapshot,
    RunFinish,
    StateDelta,
    TicketReassigned,
    ToolCallReady,
    ToolCallResumed,
    ToolCallSuspended,
    UnknownEvent,
)
from .messages import Producer
from .runs import Identity, Usage

__all__ = ["own", "own_event"]

T = TypeVar("T")

# What has nothing in it that could be changed, and is often met.
_FIXED = frozenset(
    {str, int, float, bool, bytes, type(None), Raw, Text, Identity, Producer, Usage},
)
# The events that may have something in them. All of them are looked at, and most have not.
_OPEN = frozenset(
    {
        ActivityDelta,
        ActivitySnapshot,
        MessageAdded,
        MessagesSnapshot,
        RunFinish,
        StateDelta,
        TicketReassigned,
        ToolCallReady,
        ToolCallResumed,
        ToolCallSuspended,
        UnknownEvent,
    }
)


def own(value: T) -> T:
    """The value, for its reader alone: what can be changed in it is copied, and all else is as it is."""
    kind, found = type(value), cast(Any, value)
    if kind in _FIXED:
        return value
    if kind is dict:
        return cast(T, {key: own(item) for key, item in found.items()})
    if kind is list:
        return cast(T, [own(item) for item in found])
    if kind is tuple:
        items = [own(item) for item in found]
        return value if all(a is b for a, b in zip(items, found, strict=True)) else cast(T, tuple(items))
    if not isinstance(value, Struct) or not kind.__module__.startswith("wakeful."):
        return value  # What an application's own types do when they are made is not known here.
    changed: dict[str, Any] = {}
    for name in value.__struct_fields__:
        item = getattr(value, name)
        if type(item) not in _FIXED and (copy := own(item)) is not item:
            changed[name] = copy
    return replace(value, **changed) if changed else value


def own_event(event: T) -> T:
    """An event, for its reader alone."""
    return own(event) if type(event) in _OPEN else event
