"""From the chunks that a model streams to the message that is committed, with deltas for whoever watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

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
from ..stores import Chunk as Kept
from ..types.codec import encode
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
from ._pieces import OpenCall, cleaned, kept_part, kept_usage, object_of, paired, unfit

__all__ = ["NO_USAGE", "TAKE", "Answer"]


NO_USAGE = Usage()

_FINE: Mapping[str, str] = MappingProxyType({})


class Answer(Struct, eq=False, gc=False):
    """One answer in the making. Parts keep the order in which the model sent them."""

    run: Identity
    _seq: int
    _channel: Channel
    _clock: Clock
    message_id: str = field(default_factory=new_id)
    attempt: int = 0
    usage: Usage = NO_USAGE
    stop: StopReason = "unknown"
    # What is wrong with calls, by their ids; most have nothing, and so most answers no dict of their own.
    problems: Mapping[str, str] = _FINE
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

    # -- an answer that broke off ------------------------------------------------------------------------------

    def restore(
        self, message_id: str, attempt: int, text: str, parts: Sequence[tuple[int, Content, str | None]]
    ) -> None:
        """Be what another process kept of this answer: its text, and the parts in it with the place where each
        stands. A call whose arguments were streamed comes with their text."""
        self.message_id, self.attempt = message_id, attempt
        self._size = len(text)
        place = 0
        for at, part, streamed in parts:
            if at > place:
                self._parts.append(Text(text[place:at]))
                place = at
            if streamed is not None and type(part) is ToolCall:
                self._parts.append(OpenCall(part.name, part.vendor_id, part.id, [streamed], len(streamed)))
            else:
                self._parts.append(part)
        self._text = [text[place:]] if place < len(text) else None

    def whole(self) -> bool:
        """Whether what came is an answer, though it broke off: the model had stopped, or a call is complete."""
        return self.stop != "unknown" or self.has_calls()

    def has_calls(self) -> bool:
        """Whether a call is complete."""
        for part in self._parts:
            if type(part) is ToolCall or (type(part) is OpenCall and part.arguments() is not None):
                return True
        return False

    def end_here(self, reason: str) -> list[str]:
        """Be done with what came. Returns the names of the calls that are dropped, being incomplete."""
        if self.stop != "unknown":
            return []
        self.stop = "tool_use"
        self._reasoning, self._reasoning_half = None, ""
        return self._drop_calls(reason)

    def break_off(self, reason: str, *, anew: bool = False, reshow: bool = False) -> None:
        """Keep what another request can go on from: the text, and the reasoning that was closed before it. Without
        text the answer begins anew, and so it does with `anew`; with `reshow` readers begin with what is kept."""
        self.spent, self.usage, self.stop = self.total, NO_USAGE, "unknown"
        lost, self._reasoning = bool(self._reasoning), None
        # Nobody saw it, and no other request goes on with half a character.
        self._half = self._reasoning_half = ""
        shown = bool(self._size or self._reasoning_size or self._calls or self._parts)
        self._drop_calls(reason)
        kept = not anew and bool(self._so_far().strip())
        if kept and not self._text and type(last := self._parts[-1]) is Text:
            self._parts.pop()
            self._text = [last.text]  # What had closed it is gone.
        if kept and not lost and not reshow:
            self._broke_at, self._saved = self._size, len(self._parts)
            return
        if shown:
            self._reset(reason)
            self.attempt += 1
        if not kept:
            self._parts, self._text = [], None
            self.problems = _FINE
        self._size, self._reasoning_size, self._broke_at = 0, 0, -1
        self._saved = self._saved_text = self._saved_reasoning = 0
        self._unshown = kept

    def go_on(self, seq: int) -> None:
        """Another request is made for it: readers who were told to forget what they saw are shown what was
        kept."""
        self._seq = seq
        if not self._unshown:
            return
        self._unshown = False
        for part in self._parts:
            if type(part) is Text:
                self._show_text(part.text)
            elif type(part) is Thinking:
                self._show_reasoning(part.text)
        self._show_text("".join(self._text or ()))
        self._broke_at = self._size

    def prefix(self) -> tuple[Content, ...]:
        """What the next request goes on from."""
        text = "".join(self._text or ())
        return (*cast(list[Content], self._parts), *([Text(text)] if text else []))

    @property
    def seq(self) -> int:
        """The place in the log behind which it is streamed."""
        return self._seq

    def shown(self) -> list[Kept]:
        """What readers were shown of it so far, or would have been."""
        return [] if self._unshown else self._pieces(0, 0, 0, anew=True)

    def unsaved(self) -> list[Kept]:
        """What the checkpoints don't have yet; from now on they do."""
        kept = self._pieces(self._saved, self._saved_text, self._saved_reasoning)
        self._saved, self._saved_text = len(self._parts), len(self._so_far())
        self._saved_reasoning = len(self._thought_so_far())
        for part in self._parts:
            if type(part) is OpenCall:
                part.saved = part.size
        return kept

    def _pieces(self, parts: int, text_from: int, thought_from: int, *, anew: bool = False) -> list[Kept]:
        """What it has besides its first so many parts, so much text and so much reasoning."""
        kept: list[Kept] = []
        place, text, thought = (self.message_id, self.attempt), self._so_far(), self._thought_so_far()
        if len(thought) > thought_from:
            kept.append(Kept(*place, thought_from, "reasoning", thought[thought_from:]))
        if len(text) > text_from:
            kept.append(Kept(*place, text_from, "text", text[text_from:]))
        at = 0
        for number, part in enumerate(self._parts):
            if type(part) is Text:
                at += len(part.text)
                continue
            if number >= parts and (whole := self._kept_part(part)) is not None:
                streamed = part.id if type(part) is OpenCall else None
                kept.append(Kept(*place, at, "part", encode(whole).decode(), streamed))
            if type(part) is OpenCall and part.size > (start := 0 if anew else part.saved):
                kept.append(Kept(*place, start, "call", "".join(part.pieces)[start:], part.id))
        return kept

    def _kept_part(self, part: Content | OpenCall) -> Content | None:
        """A part as the checkpoints have it: of a call whose arguments are streamed, all but these; nothing of one
        that is wrong."""
        if type(part) is OpenCall:
            return ToolCall(part.id, part.name, {}, part.vendor_id)
        return None if getattr(part, "id", None) in self.problems else cast(Content, part)

    def _thought_so_far(self) -> str:
        return "".join([*[part.text for part in self._parts if type(part) is Thinking], *(self._reasoning or ())])

    def _so_far(self) -> str:
        return "".join([*[part.text for part in self._parts if type(part) is Text], *(self._text or ())])

    def _drop_calls(self, reason: str) -> list[str]:
        """Withdraw the calls that the model hadn't written to their end."""
        dropped = [part for part in self._parts if type(part) is OpenCall and part.arguments() is None]
        for call in dropped:
            self._cancel(call, reason)
        self._parts = [part for part in self._parts if all(part is not call for call in dropped)]
        self._calls = {}
        return [call.name for call in dropped]

    def withdraw(self, reason: str) -> None:
        """Tell readers that what they saw of this answer doesn't count."""
        if self._size or self._reasoning_size or self._calls or self._parts:
            self._reset(reason)

    def _reset(self, reason: str) -> None:
        if self._channel.watched():
            at = self._clock.now()
            self._channel.publish(StreamReset(self.run, self._seq, at, self.message_id, self.attempt, reason))

    def _cancel(self, call: OpenCall, reason: str) -> None:
        if self._channel.watched():
            at = self._clock.now()
            self._channel.publish(ToolCallCancel(self.run, self._seq, at, call.id, call.name, reason))


class _Take(dict[type[Any], Callable[[Answer, Any], None]]):
    def __missing__(self, kind: type[Any]) -> Callable[[Answer, Any], None]:
        return Answer.refuse


# How chunks are taken in. Whoever reads a stream looks here itself: a chunk costs a call less.
TAKE: Mapping[type[Any], Callable[[Answer, Any], None]] = _Take(
    {
        TextChunk: Answer.add_text,
        ReasoningChunk: Answer.add_reasoning,
        CallStartChunk: Answer.start_call,
        CallDeltaChunk: Answer.add_call_delta,
        CallChunk: Answer.add_call,
        PartChunk: Answer.add_part,
        UsageChunk: Answer.add_usage,
        StopChunk: Answer.add_stop,
    }
)
