"""The events of every run and step in few words, as rows of the log hold them.

Those about a message refer to it, and it says the rest: ids, the call's name and its arguments. The words are JSON
that isn't an object: so a reader knows them from what earlier versions wrote, and from what is written in full
because there is more to say, or the message says otherwise or isn't in the same commit.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from ..errors import CorruptRow
from ..types.codec import decode, encode
from ..types.content import ToolCall, ToolReply
from ..types.events import (
    InferenceComplete,
    RunFinish,
    RunStart,
    StepEnd,
    StepStart,
    ToolCallDone,
    ToolCallReady,
)
from ..types.messages import Message
from ..types.runs import NaturalEnd, Usage

__all__ = ["NUMBERS", "SPOKEN", "Said", "kind_of", "whole"]

# What stands for the kind of an event that follows another entry in its row.
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

# What the words are. Those behind the first may be left out.
_WORDS = {
    "inference_complete": ("model", "stop", "usage", "duration_ms"),
    "tool_call_ready": ("place",),
    "tool_call_done": ("outcome", "error"),
    "step_start": ("step",),
    "step_end": ("step",),
    "run_start": ("trigger",),
    "run_finish": ("steps", "usage"),
}
# Those that refer to no message.
_ALONE = ("step_start", "step_end", "run_start", "run_finish")
_NATURAL_END = NaturalEnd()
_NO_USAGE = Usage()


class Said(Struct, gc=False):
    """What the messages of a commit have: their numbers and those of the calls in them, by their ids; and with its
    message's number, the place and the name of each call, and the reply of each tool message."""

    places: dict[str, int]
    calls: dict[str, tuple[int, int, str]]
    replies: dict[str, tuple[int, ToolReply]]

    def hear(self, message: Message, number: int) -> None:
        """Take down what events may refer to."""
        message_id = message.id
        self.places[message_id] = number
        for place, part in enumerate(message.content):
            if type(part) is ToolCall:
                self.places[part.id] = number
                self.calls[part.id] = (number, place, part.name)
            elif type(part) is ToolReply:
                self.replies[message_id] = (number, part)


# -- written -------------------------------------------------------------------------------------------------

_Row = tuple[str, int | None, bytes]


def _step_start(event: Any, said: Said) -> _Row:
    return "step_start", None, b"%d" % event.step


def _step_end(event: Any, said: Said) -> _Row:
    return "step_end", None, b"%d" % event.step


def _run_start(event: Any, said: Said) -> _Row | None:
    return None if event.changed else ("run_start", None, encode(event.trigger))


def _run_finish(event: Any, said: Said) -> _Row | None:
    """In few words only if it came to its natural end."""
    if event.termination != _NATURAL_END or event.status != "done" or event.waiting or event.backend:
        return None
    words = event.steps if event.usage == _NO_USAGE else (event.steps, event.usage)
    return "run_finish", None, encode(words)


def _call_ready(event: Any, said: Said) -> _Row | None:
    number, place, name = said.calls.get(event.call_id, (0, 0, None))
    return ("tool_call_ready", number, b"%d" % place) if name == event.name else None


def _call_done(event: Any, said: Said) -> _Row | None:
    number, reply = said.replies.get(event.message_id, (0, None))
    if reply is None or reply.call_id != event.call_id or reply.name != event.name:
        return None
    return "tool_call_done", number, encode(event.outcome if event.error is None else (event.outcome, event.error))


def _complete(event: Any, said: Said) -> _Row | None:
    number = said.places.get(event.message_id)
    if number is None or event.message_id in said.calls:
        return None
    bare = not event.duration_ms and event.usage == _NO_USAGE
    words = (event.model, event.stop) if bare else (event.model, event.stop, event.usage, event.duration_ms)
    return "inference_complete", number, encode(words)


# By the event's type: its kind, the number of its message, and its words; None, if it has to be written in full.
SPOKEN: dict[type, Any] = {
    StepStart: _step_start,
    StepEnd: _step_end,
    RunStart: _run_start,
    RunFinish: _run_finish,
    ToolCallReady: _call_ready,
    ToolCallDone: _call_done,
    InferenceComplete: _complete,
}


# -- read ----------------------------------------------------------------------------------------------------


def kind_of(kind: str | int) -> str:
    """The kind, whether it is there in full or as a number."""
    if isinstance(kind, str):
        return kind
    if not 0 <= kind < len(_NUMBERED):
        raise CorruptRow(f"an event has the kind {kind}, which no version wrote")
    return _NUMBERED[kind]


def whole(kind: str, words: bytes, message: bytes | None) -> bytes:
    """The body of an event that was written in few words: with what its message says."""
    values = msgspec.json.decode(words if words[:1] == b"[" else b"[%s]" % words, type=list[Any])
    body: dict[str, Any] = dict(zip(_WORDS.get(kind, ()), values, strict=False))
    if kind == "run_finish":
        body |= {"status": "done", "termination": _NATURAL_END, "usage": body.get("usage", {})}
    if kind not in _ALONE:
        rest = None if message is None else _rest(kind, decode(message, Message), body)
        if rest is None:
            raise CorruptRow("the message that it refers to is missing, or another one")
        body |= rest
    return encode(body)


def _rest(kind: str, message: Message, body: dict[str, Any]) -> dict[str, Any] | None:
    """What a message says of the event that refers to it."""
    if kind == "inference_complete":
        return {"message_id": message.id, "usage": body.get("usage", {})}
    if kind == "tool_call_ready":
        call = dict(enumerate(message.content)).get(body.pop("place"))
        return {"call_id": call.id, "name": call.name} if isinstance(call, ToolCall) else None
    replies = [part for part in message.content if isinstance(part, ToolReply)]
    return (
        {"call_id": replies[-1].call_id, "name": replies[-1].name, "message_id": message.id} if replies else None
    )
