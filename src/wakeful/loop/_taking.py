"""Taking in the chunks that a model streams, with deltas for whoever watches, up to the parts of a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct, field

from ..bus import Channel
from ..clock import Clock
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
    TextDelta,
    ToolCallCancel,
    ToolCallDelta,
    ToolCallStart,
)
from ..types.ids import new_id
from ..types.runs import Identity, Usage
from ._pieces import OpenCall, cleaned, kept_part, kept_usage, object_of, paired, unfit

__all__ = ["FINE", "NO_USAGE", "TAKE", "Taking"]


NO_USAGE = Usage()

FINE: Mapping[str, str] = MappingProxyType({})


class Taking(Struct, eq=False, gc=False):
    """What a model sends of an answer. Parts keep the order in which it sends them."""

    run: Identity
    _seq: int
    _channel: Channel
    _clock: Clock
    message_id: str = field(default_factory=new_id)
    attempt: int = 0
    usage: Usage = NO_USAGE
    stop: StopReason = "unknown"
    # What is wrong with calls, by their ids; most have nothing, and so most answers no dict of their own.
    problems: Mapping[str, str] = FINE
    calls: Sequence[ToolCall] = ()
    truncated: bool = False
    _parts: list[Content | OpenCall] = []
    # Words and thoughts that aren't closed yet, if there are any.
    _text: list[str] | None = None
    _size: int = 0
    _half: str = ""
    _reasoning: list[str] | None = None
    _reasoning_size: int = 0
    _reasoning_half: str = ""
    _calls: dict[int, OpenCall] = {}
    # What earlier requests for it cost, whose answer broke off.
    spent: Usage = NO_USAGE
    # What of it is in the checkpoints: so many parts, so much text and so much reasoning.
    _saved: int = 0
    _saved_text: int = 0
    _saved_reasoning: int = 0
    # Where the text broke off, if it did; and whether readers must be shown again what was kept of it.
    _broke_at: int = -1
    _unshown: bool = False

    @property
    def total(self) -> Usage:
        """What all requests for it cost."""
        return self.usage if self.spent is NO_USAGE else self.spent + self.usage

    def add(self, chunk: Chunk) -> None:
        """Take in one chunk."""
        TAKE[type(chunk)](self, chunk)

    def add_text(self, chunk: TextChunk) -> None:
        """Take in a piece of text."""
        text = chunk.text
        if self._reasoning or self._reasoning_half:
            self._close_reasoning(None, None)
        if self._half or not text.isascii():
            text, self._half = paired(self._half, text)
            if not text:
                return
        if self._text is None:
            self._text = [text]
        else:
            self._text.append(text)
        channel = self._channel
        if channel.readers or channel.above:
            self._show_text(text)
        else:
            self._size += len(text)

    def add_part(self, chunk: PartChunk) -> None:
        """Take in a whole part."""
        self._close_text()
        self._parts.append(kept_part(chunk.part))

    def add_stop(self, chunk: StopChunk) -> None:
        """Take in why the model stopped."""
        known = isinstance(chunk.reason, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        self.stop = chunk.reason if known else "unknown"

    def add_usage(self, chunk: UsageChunk) -> None:
        """Take in what it cost."""
        self.usage = kept_usage(chunk.usage)

    def refuse(self, chunk: Any) -> None:
        """Refuse what is no chunk."""
        raise ModelError(f"the model streamed something that is no chunk: {chunk!r:.200}")

    def _show_text(self, text: str) -> None:
        channel, size = self._channel, self._size
        if channel.readers or channel.watched():
            at = self._clock.now()
            channel.publish(TextDelta(self.run, self._seq, at, self.message_id, self.attempt, size, text))
        self._size = size + len(text)

    def add_reasoning(self, chunk: ReasoningChunk) -> None:
        """Take in a piece of reasoning."""
        if self._size != self._broke_at:
            # Text that broke off stays open: a model that thinks before it goes on doesn't make two texts of it.
            self._close_words()
        text, self._reasoning_half = paired(self._reasoning_half, chunk.text)
        if text:
            if self._reasoning is None:
                self._reasoning = []
            self._reasoning.append(text)
            self._show_reasoning(text)
        signature, encrypted = cleaned(chunk.signature), cleaned(chunk.encrypted)
        if encrypted is not None and self._channel.watched():
            at = self._clock.now()
            self._channel.publish(ReasoningEncrypted(self.run, self._seq, at, self.message_id, encrypted))
        if signature is not None or encrypted is not None:
            self._close_reasoning(signature, encrypted, chunk.vendor)

    def _show_reasoning(self, text: str) -> None:
        offset, self._reasoning_size = self._reasoning_size, self._reasoning_size + len(text)
        if self._channel.watched():
            at = self._clock.now()
            self._channel.publish(
                ReasoningDelta(self.run, self._seq, at, self.message_id, self.attempt, offset, text)
            )

    def start_call(self, chunk: CallStartChunk) -> None:
        """Take in that a call begins."""
        if self._text or self._half or self._reasoning or self._reasoning_half:
            self._close_text()
        index, name, vendor_id = chunk.index, chunk.name, chunk.vendor_id
        if index in self._calls:
            raise ModelError(f"the model streamed two tool calls under the index {index}")
        if not (name.isascii() and (vendor_id is None or vendor_id.isascii())):
            name, vendor_id = clean_text(name), cleaned(vendor_id)
        call = self._calls[index] = OpenCall(name, vendor_id)
        self._parts.append(call)
        channel = self._channel
        if channel.readers or channel.above:
            self._announce(call.id, name)

    def add_call_delta(self, chunk: CallDeltaChunk) -> None:
        """Take in a piece of a call's arguments."""
        call, piece = self._calls.get(chunk.index), chunk.json
        if call is None:
            raise ModelError(f"the model streamed arguments for a tool call it never began ({chunk.index})")
        if call.half or not piece.isascii():
            piece, call.half = paired(call.half, piece)
            if not piece:
                return
        call.pieces.append(piece)
        channel = self._channel
        if (channel.readers or channel.above) and channel.watched():
            at = self._clock.now()
            channel.publish(
                ToolCallDelta(self.run, self._seq, at, self.message_id, self.attempt, call.size, piece, call.id)
            )
        call.size += len(piece)

    def add_call(self, chunk: CallChunk) -> None:
        """Take in a whole call."""
        self._close_text()
        arguments, call_id = chunk.arguments, new_id()
        if (problem := unfit(arguments)) is not None:
            self._blame(call_id, problem)
            arguments = {}
        name, vendor_id, signature = clean_text(chunk.name), cleaned(chunk.vendor_id), cleaned(chunk.signature)
        call = ToolCall(call_id, name, arguments, vendor_id, signature)
        self._parts.append(call)
        self._announce(call.id, call.name)

    def _blame(self, call_id: str, problem: str) -> None:
        self.problems = {**self.problems, call_id: problem}

    def _announce(self, call_id: str, name: str) -> None:
        if self._channel.watched():
            self._channel.publish(ToolCallStart(self.run, self._seq, self._clock.now(), call_id, name))

    def _close_text(self) -> None:
        self._close_words()
        if self._reasoning or self._reasoning_half:
            self._close_reasoning(None, None)

    def _close_words(self) -> None:
        if self._half:
            # Its other half never came.
            self._text = [*(self._text or ()), clean_text(self._half)]
            self._show_text(self._text[-1])
            self._half = ""
        if self._text:
            if text := "".join(self._text):
                self._parts.append(Text(text))
            self._text = None

    def _close_reasoning(self, signature: str | None, encrypted: str | None, vendor: str | None = None) -> None:
        if self._reasoning_half:
            self._reasoning = [*(self._reasoning or ()), clean_text(self._reasoning_half)]
            self._show_reasoning(self._reasoning[-1])
            self._reasoning_half = ""
        self._parts.append(Thinking("".join(self._reasoning or ()), signature, encrypted, vendor))
        self._reasoning = None

    def content(self, *, keep_calls: bool = True) -> tuple[Content, ...]:
        """The finished parts, of which `calls` are the tool calls. A call cut off in the middle is dropped, one
        that is no JSON gets a problem."""
        if self._text or self._half or self._reasoning or self._reasoning_half:
            self._close_text()
        parts: list[Any] = []
        calls: list[ToolCall] = []
        for part in self._parts:
            if type(part) is OpenCall:
                call = self._whole(part) if keep_calls else None
            elif type(part) is ToolCall:
                call = part if keep_calls else None
            else:
                parts.append(part)
                continue
            if call is not None:
                calls.append(call)
                parts.append(call)
        self.calls = calls
        return tuple(parts)

    def _whole(self, call: OpenCall) -> ToolCall | None:
        text = call.text if call.half else "".join(call.pieces)
        arguments: dict[str, Any] = {}
        if text and not text.isspace():
            try:
                arguments = object_of(text)
            except (msgspec.DecodeError, RecursionError):
                if not self._told_wrong(call, text):
                    return None
        return ToolCall(call.id, call.name, arguments, call.vendor_id)

    def _told_wrong(self, call: OpenCall, text: str) -> bool:
        """Note what is wrong with a call's arguments; False if the call was cut off, and is none."""
        try:
            msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            if self.stop == "max_tokens":
                self.truncated = True
                self._cancel(call, "cut off at the output limit")
                return False
            self._blame(call.id, f"arguments are not valid JSON ({error}): {text:.200}")
        else:
            self._blame(call.id, f"arguments must be an object, not {text:.200}")
        return True

    def _cancel(self, call: OpenCall, reason: str) -> None:
        if self._channel.watched():
            at = self._clock.now()
            self._channel.publish(ToolCallCancel(self.run, self._seq, at, call.id, call.name, reason))


class _Take(dict[type[Any], Callable[[Taking, Any], None]]):
    def __missing__(self, kind: type[Any]) -> Callable[[Taking, Any], None]:
        return Taking.refuse


# How chunks are taken in. Whoever reads a stream looks here itself: a chunk costs a call less.
TAKE: Mapping[type[Any], Callable[[Taking, Any], None]] = _Take(
    {
        TextChunk: Taking.add_text,
        ReasoningChunk: Taking.add_reasoning,
        CallStartChunk: Taking.start_call,
        CallDeltaChunk: Taking.add_call_delta,
        CallChunk: Taking.add_call,
        PartChunk: Taking.add_part,
        UsageChunk: Taking.add_usage,
        StopChunk: Taking.add_stop,
    }
)
