"""The open parts of one run's answer in a stream of AG-UI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..growth import Grown
from .messages import reasoning_id

__all__ = ["CallTrack", "Owner", "TextTrack"]

_encode = msgspec.json.Encoder().encode


class TextTrack:
    """A text message, or a message with reasoning, as far as it was sent.

    `lags` says that the client has less than `grown`: it is sent with the next piece.
    """

    __slots__ = ("_head", "grown", "id", "is_open", "kind", "lags", "message_id")

    def __init__(self, message_id: str, an_id: str, kind: str, text: str, tagged: Mapping[str, str]) -> None:
        self.message_id = message_id
        self.kind = kind
        self.grown = Grown(text)
        self.is_open = False
        self.lags = False
        self.rename(an_id, tagged)

    def rename(self, an_id: str, tagged: Mapping[str, str]) -> None:
        """Show it as the message of another id."""
        self.id = an_id
        head = _encode({"type": f"{self.kind}_MESSAGE_CONTENT", "messageId": an_id, **tagged})
        self._head = b"data: " + head[:-1] + b',"delta":'

    def extension(self, text: str) -> bytes:
        """The frame of a piece; none for no text."""
        return b"%s%s}\n\n" % (self._head, _encode(text)) if text else b""


class CallTrack:
    """A tool call with its arguments as far as they were sent."""

    __slots__ = ("grown", "is_open", "name")

    def __init__(self, name: str, grown: Grown) -> None:
        self.name = name
        self.grown = grown
        self.is_open = False


class Owner:
    """The run of the request, or a subagent with its `tag`: its steps, texts and calls that are open."""

    def __init__(self, tag: str | None) -> None:
        self.tag = tag
        self.tagged: Mapping[str, str] = {} if tag is None else {"subagentRunId": tag}
        self.text: TextTrack | None = None
        self.reasoning: TextTrack | None = None
        self.calls: dict[str, CallTrack] = {}
        # The calls that were started in this stream.
        self.started: set[str] = set()
        self._steps: list[int] = []
        self._restarts = 0

    def _frame(self, kind: str, **fields: Any) -> bytes:
        return b"data: %s\n\n" % _encode({"type": kind, **fields, **self.tagged})

    # -- texts -----------------------------------------------------------------------------------------------

    def text_of(self, message_id: str, known: Mapping[str, str]) -> TextTrack:
        """The text of an answer; the client may have its beginning."""
        if self.text is None or self.text.message_id != message_id:
            sent = known.get(message_id, "")
            self.text = TextTrack(message_id, message_id, "TEXT", sent, self.tagged)
        return self.text

    def reasoning_of(self, message_id: str, known: Mapping[str, str]) -> TextTrack:
        """The reasoning of an answer."""
        if self.reasoning is None or self.reasoning.message_id != message_id:
            an_id = reasoning_id(message_id)
            self.reasoning = TextTrack(message_id, an_id, "REASONING", known.get(an_id, ""), self.tagged)
        return self.reasoning

    def show(self, track: TextTrack, new: str) -> list[bytes]:
        """Send a piece of a text, and open it if it isn't."""
        out: list[bytes] = []
        if track.lags:
            track.lags, new = False, track.grown.text
        if not new:
            return out
        if not track.is_open:
            other = self.reasoning if track is self.text else self.text
            if other is not None:
                out += self._end(other)
            track.is_open = True
            if track.kind == "REASONING":
                out.append(self._frame("REASONING_START", messageId=track.id))
                out.append(self._frame("REASONING_MESSAGE_START", messageId=track.id, role="reasoning"))
            else:
                out.append(self._frame("TEXT_MESSAGE_START", messageId=track.id, role="assistant"))
        return [*out, track.extension(new)]

    def restart(self, track: TextTrack, text: str | None = None) -> list[bytes]:
        """Send a text again as another message: what was sent of it is no longer a part of the answer."""
        out = self._end(track)
        self._restarts += 1
        track.rename(f"{track.message_id}~{self._restarts}", self.tagged)
        track.lags = True
        return out if text is None else [*out, *self.show(track, track.grown.complete(text))]

    def _end(self, track: TextTrack) -> list[bytes]:
        if not track.is_open:
            return []
        track.is_open = False
        out = [self._frame(f"{track.kind}_MESSAGE_END", messageId=track.id)]
        return [*out, self._frame("REASONING_END", messageId=track.id)] if track.kind == "REASONING" else out

    def end_answer(self, message_id: str) -> list[bytes]:
        """The answer is complete."""
        out: list[bytes] = []
        for track in (self.reasoning, self.text):
            if track is not None and track.message_id == message_id:
                out += self._end(track)
        self.text = self.reasoning = None
        return out

    # -- calls -----------------------------------------------------------------------------------------------

    def start_call(self, call_id: str, track: CallTrack) -> list[bytes]:
        """Open a call, which ends the texts before it."""
        if track.is_open:
            return []
        out: list[bytes] = []
        for text in (self.reasoning, self.text):
            if text is not None:
                out += self._end(text)
        track.is_open = True
        self.calls[call_id] = track
        self.started.add(call_id)
        named: dict[str, Any] = {"toolCallId": call_id, "toolCallName": track.name}
        if self.text is not None and self.text.grown.size:
            named["parentMessageId"] = self.text.id
        return [*out, self._frame("TOOL_CALL_START", **named)]

    def arguments(self, call_id: str, text: str) -> bytes:
        """A piece of a call's arguments."""
        return self._frame("TOOL_CALL_ARGS", toolCallId=call_id, delta=text) if text else b""

    def end_call(self, call_id: str) -> list[bytes]:
        """Close a call."""
        track = self.calls.pop(call_id, None)
        return [self._frame("TOOL_CALL_END", toolCallId=call_id)] if track is not None and track.is_open else []

    # -- steps -----------------------------------------------------------------------------------------------

    def start_step(self, step: int) -> list[bytes]:
        """Open a step."""
        if step in self._steps:
            return []
        self._steps.append(step)
        return [self._frame("STEP_STARTED", stepName=f"step-{step}")]

    def end_step(self, step: int) -> list[bytes]:
        """Close a step."""
        if step not in self._steps:
            return []
        self._steps.remove(step)
        return [self._frame("STEP_FINISHED", stepName=f"step-{step}")]

    def close(self, *, keep_steps: bool = False) -> list[bytes]:
        """Close everything that is open."""
        out: list[bytes] = []
        for track in (self.reasoning, self.text):
            if track is not None:
                out += self._end(track)
        for call_id, call in self.calls.items():
            if call.is_open:
                call.is_open = False
                out.append(self._frame("TOOL_CALL_END", toolCallId=call_id))
        for step in [] if keep_steps else [*self._steps]:
            out += self.end_step(step)
        return out

    def forget(self) -> None:
        """Note that the client has lost the messages of the open answer."""
        for track in (self.reasoning, self.text):
            if track is not None:
                track.lags = track.grown.size > 0
        self.calls = {}
