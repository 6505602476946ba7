"""Compact bodies for the events of every run and step.

An event about a message refers to it: ids, the call's name and its arguments are taken from there. A compact body
is JSON that isn't an object, by which a reader tells it from a full one. The full body is written if the event has
other fields, or if its message differs or isn't in the same commit.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from ...errors import CorruptRow
from ...types.codec import decode, encode
from ...types.content import ToolCall, ToolReply
from ...types.events import (
    InferenceComplete,
    RunFinish,
    RunStart,
    StepEnd,
    StepStart,
    ToolCallDone,
    ToolCallReady,
)
from ...types.messages import Message
from ...types.runs import NaturalEnd, Usage

__all__ = ["COMPACT", "NUMBERS", "References", "expand", "kind_of"]

# Kinds of events that are numbered where they follow another entry in its row.
_NUMBERED = (
    "inference_complete",
    "tool_call_ready",
    "tool_call_done",
    "step_start",
    "step_end",
    "run_start",
    "run_finish",
)
NUMBERS: dict[str, int] = {kind: number for number, kind in enumerate(_NUMBERED)}

# The fields of compact bodies. All but the first are optional.
_FIELDS = {
    "inference_complete": ("model", "stop", "usage", "duration_ms", "request_digest", "tools"),
    "tool_call_ready": ("place",),
    "tool_call_done": ("outcome", "error"),
    "step_start": ("step",),
    "step_end": ("step",),
    "run_start": ("trigger",),
    "run_finish": ("steps", "usage"),
}
# Kinds that refer to no message.
_ALONE = ("step_start", "step_end", "run_start", "run_finish")
_NATURAL_END = NaturalEnd()
_NO_USAGE = Usage()
_NO_REQUEST = ("", ())


class References(Struct):
    """Messages of a commit that its events may refer to.

    `places` has the log numbers of messages and of the calls in them, by id; `calls` the number, the index and the
    name of each call; `replies` the number and the reply of each tool message.
    """

    places: dict[str, int]
    calls: dict[str, tuple[int, int, str]]
    replies: dict[str, tuple[int, ToolReply]]

    def add(self, message: Message, number: int) -> None:
        """Add a message."""
        message_id = message.id
        self.places[message_id] = number
        for place, part in enumerate(message.content):
            if type(part) is ToolCall:
                self.places[part.id] = number
                self.calls[part.id] = (number, place, part.name)
            elif type(part) is ToolReply:
                self.replies[message_id] = (number, part)


# -- writing -------------------------------------------------------------------------------------------------

_Row = tuple[str, int | None, bytes]


def _step_start(event: Any, known: References) -> _Row:
    return "step_start", None, b"%d" % event.step


def _step_end(event: Any, known: References) -> _Row:
    return "step_end", None, b"%d" % event.step


def _run_start(event: Any, known: References) -> _Row | None:
    return None if event.changed else ("run_start", None, encode(event.trigger))


def _run_finish(event: Any, known: References) -> _Row | None:
    if event.termination != _NATURAL_END or event.status != "done" or event.waiting or event.backend:
        return None
    body = event.steps if event.usage == _NO_USAGE else (event.steps, event.usage)
    return "run_finish", None, encode(body)


def _call_ready(event: Any, known: References) -> _Row | None:
    number, place, name = known.calls.get(event.call_id, (0, 0, None))
    return ("tool_call_ready", number, b"%d" % place) if name == event.name else None


def _call_done(event: Any, known: References) -> _Row | None:
    number, reply = known.replies.get(event.message_id, (0, None))
    if reply is None or reply.call_id != event.call_id or reply.name != event.name:
        return None
    return "tool_call_done", number, encode(event.outcome if event.error is None else (event.outcome, event.error))


def _complete(event: Any, known: References) -> _Row | None:
    number = known.places.get(event.message_id)
    if number is None or event.message_id in known.calls or event.instructions:
        return None
    own, request = (event.model, event.stop), (event.request_digest, event.tools)
    if request == _NO_REQUEST:
        is_bare = not event.duration_ms and event.usage == _NO_USAGE
        return "inference_complete", number, encode(own if is_bare else (*own, event.usage, event.duration_ms))
    return "inference_complete", number, encode((*own, event.usage, event.duration_ms, *request))


# By type: a function to the event's kind, the number of its message, and the compact body; None for a full body.
COMPACT: dict[type, Any] = {
    StepStart: _step_start,
    StepEnd: _step_end,
    RunStart: _run_start,
    RunFinish: _run_finish,
    ToolCallReady: _call_ready,
    ToolCallDone: _call_done,
    InferenceComplete: _complete,
}


# -- reading ----------------------------------------------------------------------------------------------------


def kind_of(kind: str | int) -> str:
    """The kind of an event, from its name or its number."""
    if isinstance(kind, str):
        return kind
    if not 0 <= kind < len(_NUMBERED):
        raise CorruptRow(f"an event has the kind {kind}, which no version wrote")
    return _NUMBERED[kind]


def expand(kind: str, compact: bytes, message: bytes | None) -> bytes:
    """The full body of an event, from its compact body and its message."""
    values = msgspec.json.decode(compact if compact[:1] == b"[" else b"[%s]" % compact, type=list[Any])
    body: dict[str, Any] = dict(zip(_FIELDS.get(kind, ()), values, strict=False))
    if kind == "run_finish":
        body |= {"status": "done", "termination": _NATURAL_END, "usage": body.get("usage", {})}
    if kind not in _ALONE:
        rest = None if message is None else _fields_from(kind, decode(message, Message), body)
        if rest is None:
            raise CorruptRow("the message that it refers to is missing, or another one")
        body |= rest
    return encode(body)


def _fields_from(kind: str, message: Message, body: dict[str, Any]) -> dict[str, Any] | None:
    """The fields of an event that come from its message."""
    if kind == "inference_complete":
        return {"message_id": message.id, "usage": body.get("usage", {})}
    if kind == "tool_call_ready":
        call = dict(enumerate(message.content)).get(body.pop("place"))
        return {"call_id": call.id, "name": call.name} if isinstance(call, ToolCall) else None
    replies = [part for part in message.content if isinstance(part, ToolReply)]
    return (
        {"call_id": replies[-1].call_id, "name": replies[-1].name, "message_id": message.id} if replies else None
    )
