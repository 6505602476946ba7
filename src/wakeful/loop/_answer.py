"""From the chunks that a model streams to the message that is committed, with deltas for whoever watches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import Struct, field

from ..bus import Channel
from ..errors import ModelError
from ..models import (
    CallChunk,
    CallDeltaChunk,
    CallStartChunk,
    Chunk,
    PartChunk,
    ReasoningChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from ..types.content import Content, Text, Thinking, ToolCall, clean_text
from ..types.events import (
    ReasoningDelta,
    ReasoningEncrypted,
    StopReason,
    StreamReset,
    TextDelta,
    ToolCallCancel,
    ToolCallDelta,
    ToolCallStart,
)
from ..types.ids import new_id
from ..types.runs import Identity, Usage

__all__ = ["NO_USAGE", "Answer"]


NO_USAGE = Usage()


class _OpenCall(Struct, eq=False, gc=False):
    name: str
    vendor_id: str | None
    id: str = field(default_factory=new_id)
    pieces: list[str] = []
    size: int = 0


class Answer(Struct, eq=False, gc=False):
    """One answer in the making. Parts keep the order in which the model sent them."""

    run: Identity
    _seq: int
    _channel: Channel
    _clock: Callable[[], int]
    message_id: str = field(default_factory=new_id)
    attempt: int = 0
    usage: Usage = NO_USAGE
    stop: StopReason = "unknown"
    problems: dict[str, str] = {}
    truncated: bool = False
    _parts: list[Content | _OpenCall] = []
    _text: list[str] = []
    _size: int = 0
    _reasoning: list[str] = []
    _reasoning_size: int = 0
    _calls: dict[int, _OpenCall] = {}

    def add(self, chunk: Chunk) -> None:
        """Take in one chunk."""
        if type(chunk) is TextChunk:
            self._add_text(chunk.text)
        elif type(chunk) is CallDeltaChunk:
            self._add_call_delta(chunk)
        elif type(chunk) is CallStartChunk:
            self._close_text()
            self._start_call(chunk)
        elif type(chunk) is StopChunk:
            self.stop = chunk.reason
        elif type(chunk) is UsageChunk:
            self.usage = chunk.usage
        elif type(chunk) is ReasoningChunk:
            self._add_reasoning(chunk)
        elif type(chunk) is CallChunk:
            self._close_text()
            self._add_call(chunk)
        elif type(chunk) is PartChunk:
            self._close_text()
            self._parts.append(chunk.part)
        else:
            raise ModelError(f"the model streamed something that is no chunk: {chunk!r:.200}")

    def _add_text(self, text: str) -> None:
        if self._reasoning:
            self._close_reasoning(None, None)
        self._text.append(text)
        channel = self._channel
        if channel.readers or channel.above:
            delta = TextDelta(self.run, self._seq, self._clock(), self.message_id, self.attempt, self._size, text)
            channel.publish(delta)
        self._size += len(text)

    def _add_reasoning(self, chunk: ReasoningChunk) -> None:
        self._close_text()
        at = self._clock()
        if chunk.text:
            self._reasoning.append(chunk.text)
            offset, self._reasoning_size = self._reasoning_size, self._reasoning_size + len(chunk.text)
            if self._channel.watched():
                self._channel.publish(
                    ReasoningDelta(self.run, self._seq, at, self.message_id, self.attempt, offset, chunk.text)
                )
        if chunk.encrypted is not None and self._channel.watched():
            self._channel.publish(ReasoningEncrypted(self.run, self._seq, at, self.message_id, chunk.encrypted))
        if chunk.signature is not None or chunk.encrypted is not None:
            self._close_reasoning(chunk.signature, chunk.encrypted, chunk.vendor)

    def _start_call(self, chunk: CallStartChunk) -> None:
        if chunk.index in self._calls:
            raise ModelError(f"the model streamed two tool calls under the index {chunk.index}")
        call = self._calls[chunk.index] = _OpenCall(chunk.name, chunk.vendor_id)
        self._parts.append(call)
        self._announce(call.id, call.name)

    def _add_call_delta(self, chunk: CallDeltaChunk) -> None:
        call = self._calls.get(chunk.index)
        if call is None:
            raise ModelError(f"the model streamed arguments for a tool call it never began ({chunk.index})")
        call.pieces.append(chunk.json)
        if self._channel.readers or self._channel.above:
            at = self._clock()
            self._channel.publish(
                ToolCallDelta(
                    self.run, self._seq, at, self.message_id, self.attempt, call.size, call.id, chunk.json
                )
            )
        call.size += len(chunk.json)

    def _add_call(self, chunk: CallChunk) -> None:
        call = ToolCall(new_id(), chunk.name, chunk.arguments, chunk.vendor_id, chunk.signature)
        if (problem := _unfit(chunk.arguments)) is not None:
            self.problems[call.id] = problem
            call = ToolCall(call.id, chunk.name, {}, chunk.vendor_id, chunk.signature)
        self._parts.append(call)
        self._announce(call.id, call.name)

    def _announce(self, call_id: str, name: str) -> None:
        if self._channel.readers or self._channel.above:
            self._channel.publish(ToolCallStart(self.run, self._seq, self._clock(), call_id, name))

    def _close_text(self) -> None:
        if self._text:
            if text := "".join(self._text):
                self._parts.append(Text(clean_text(text)))
            self._text = []
        if self._reasoning:
            self._close_reasoning(None, None)

    def _close_reasoning(self, signature: str | None, encrypted: str | None, vendor: str | None = None) -> None:
        self._parts.append(Thinking(clean_text("".join(self._reasoning)), signature, encrypted, vendor))
        self._reasoning = []

    def content(self, *, keep_calls: bool = True) -> tuple[Content, ...]:
        """The finished parts. A call cut off in the middle is dropped, one that is no JSON gets a problem."""
        self._close_text()
        parts: list[Content] = []
        for part in self._parts:
            if type(part) is _OpenCall:
                if keep_calls and (call := self._whole(part)) is not None:
                    parts.append(call)
            elif keep_calls or type(part) is not ToolCall:
                parts.append(cast(Content, part))
        return tuple(parts)

    def _whole(self, call: _OpenCall) -> ToolCall | None:
        text = "".join(call.pieces)
        arguments: Any = {}
        if text.strip():
            try:
                arguments = msgspec.json.decode(clean_text(text))
            except (msgspec.DecodeError, RecursionError) as error:
                if self.stop == "max_tokens":
                    self.truncated = True
                    self._cancel(call, "cut off at the output limit")
                    return None
                self.problems[call.id] = f"arguments are not valid JSON ({error}): {text:.200}"
        if not isinstance(arguments, dict):
            self.problems[call.id] = f"arguments must be an object, not {text:.200}"
            arguments = {}
        return ToolCall(call.id, call.name, cast(dict[str, Any], arguments), call.vendor_id)

    def withdraw(self, reason: str) -> None:
        """Tell readers that what they saw of this answer doesn't count."""
        seen = self._size or self._reasoning_size or self._calls or self._parts
        if seen and self._channel.watched():
            at = self._clock()
            self._channel.publish(StreamReset(self.run, self._seq, at, self.message_id, self.attempt, reason))

    def _cancel(self, call: _OpenCall, reason: str) -> None:
        if self._channel.watched():
            at = self._clock()
            self._channel.publish(ToolCallCancel(self.run, self._seq, at, call.id, call.name, reason))


def _unfit(arguments: Any) -> str | None:
    """What is wrong with the arguments of a whole call: they must be an object that a store can keep."""
    if not isinstance(arguments, dict):
        return f"arguments must be an object, not {arguments!r:.200}"
    try:
        msgspec.json.encode(arguments)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return f"arguments are not valid JSON ({error})"
    return None
