"""Frames of events for server-sent streams."""

from __future__ import annotations

import msgspec

from ..types.events import Event
from .sse import frame

__all__ = ["end_frame", "event_frame"]

_encode = msgspec.json.Encoder().encode


def event_frame(event: Event) -> bytes:
    """The frame of an event, whose id is the cursor to resume from."""
    return frame(event.type, _encode(event), event.cursor)


def end_frame(reason: str) -> bytes:
    """The last frame of a stream, with the reason for the end."""
    return frame("end", _encode({"reason": reason}))
