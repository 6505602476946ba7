"""The assembler: chunks of a model's stream become the parts of a message, and deltas for live readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ...bus import Channel
from ...clock import Clock
from ...errors import ModelError
from ...models import (
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
from ...types.content import Citation, Content, Logprobs, ServerTool, Text, Thinking, ToolCall, clean_text
from ...types.events import (
    PartialOutput,
    ReasoningDelta,
    ReasoningEncrypted,
    ServerToolUpdate,
    StopReason,
    TextDelta,
    ToolCallCancel,
    ToolCallDelta,
    ToolCallStart,
)
from ...types.ids import new_id
from ...types.runs import Identity, Usage
from .partial import PartialReader
from .pieces import (
    OpenCall,
    arguments_fault,
    check_part,
    check_usage,
    clean_optional,
    decode_object,
    join_surrogates,
)

__all__ = ["APPEND", "NO_PROBLEMS", "NO_USAGE", "Assembler"]


NO_USAGE = Usage()
_NOTES = (Citation, Logprobs)

NO_PROBLEMS: Mapping[str, str] = MappingProxyType({})


class Assembler(Struct, eq=False):
    """The streamed parts of an answer, in the order in which the model sends them."""

    run: Identity
    _seq: int
    _channel: Channel
    _clock: Clock
    message_id: str = field(default_factory=new_id)
    attempt: int = 0
    usage: Usage = NO_USAGE
    stop: StopReason = "unknown"
    # Problems of calls, by call id.
    problems: Mapping[str, str] = NO_PROBLEMS
    calls: Sequence[ToolCall] = ()
    is_truncated: bool = False
    # Whether the vendor paused the answer, and continues it with the next request.
    is_paused: bool = False
    _parts: list[Content | OpenCall] = []
    # The open text and reasoning, if there are any; `half` is a high surrogate at their end.
    _text: list[str] | None = None
    _size: int = 0
    _half: str = ""
    _reasoning: list[str] | None = None
    _reasoning_size: int = 0
    _reasoning_half: str = ""
    _calls: dict[int, OpenCall] = {}
    # The usage of earlier requests, whose answers broke.
    spent: Usage = NO_USAGE
    # The numbers of parts and characters that are in the checkpoints.
    _saved: int = 0
    _saved_text: int = 0
    _saved_reasoning: int = 0
    # Where the text broke, and whether readers must be shown the kept parts again.
    _broke_at: int = -1
    _unshown: bool = False
    # The typed output of the answer, for readers who see it grow.
    partial: PartialReader | None = None
    # Characters of text before the present request, which counts the spans of its citations from its own start.
    _began_at: int = 0

    @property
    def total(self) -> Usage:
        """The usage of all requests for the answer."""
        return self.usage if self.spent is NO_USAGE else self.spent + self.usage

    def add(self, chunk: Chunk) -> None:
        """Append a chunk."""
        APPEND[type(chunk)](self, chunk)

    def add_text(self, chunk: TextChunk) -> None:
        """Append a piece of text."""
        text = chunk.text
        if self._reasoning or self._reasoning_half:
            self._close_reasoning(None, None)
        if self._half or not text.isascii():
            text, self._half = join_surrogates(self._half, text)
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
        """Append a complete part. Notes about the text leave it open; a server tool replaces its earlier state."""
        part = check_part(chunk.part)
        if not isinstance(part, _NOTES):
            self._close_text()
        elif isinstance(part, Citation) and part.start is not None and part.end is not None:
            part = replace(part, start=part.start + self._began_at, end=part.end + self._began_at)
        if isinstance(part, ServerTool):
            self._put_server_tool(part)
        else:
            self._parts.append(part)

    def _put_server_tool(self, tool: ServerTool) -> None:
        for index, part in enumerate(self._parts):
            if isinstance(part, ServerTool) and part.id == tool.id:
                self._parts[index] = tool
                self._saved = min(self._saved, index)
                break
        else:
            self._parts.append(tool)
        if self._channel.is_watched():
            at = self._clock.now()
            self._channel.publish(ServerToolUpdate(self.run, self._seq, at, self.message_id, tool))

    def add_stop(self, chunk: StopChunk) -> None:
        """Set the reason why the model stopped."""
        known = isinstance(chunk.reason, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        self.stop = chunk.reason if known else "unknown"

    def add_usage(self, chunk: UsageChunk) -> None:
        """Set the usage of the present request."""
        self.usage = check_usage(chunk.usage)

    def refuse(self, chunk: Any) -> None:
        """Refuse a value that isn't a chunk."""
        raise ModelError(f"the model streamed something that is no chunk: {chunk!r:.200}")

    def _show_text(self, text: str) -> None:
        channel, size = self._channel, self._size
        if channel.readers or channel.is_watched():
            at = self._clock.now()
            channel.publish(TextDelta(self.run, self._seq, at, self.message_id, self.attempt, size, text))
            if self.partial is not None:
                self._show_partial(self.partial, size, text)
        self._size = size + len(text)

    def _show_partial(self, partial: PartialReader, start: int, text: str) -> None:
        if partial.size == start and start:
            partial.add(text)
        else:  # The answer starts over, or nobody has read its beginning.
            texts = [part.text for part in self._parts if type(part) is Text]
            partial.restart("".join([*texts, *(self._text or ())])[: start + len(text)] if start else text)
        if (output := partial.look()) is not None:
            at, end = self._clock.now(), start + len(text)
            self._channel.publish(
                PartialOutput(self.run, self._seq, at, self.message_id, self.attempt, end, output)
            )

    def add_reasoning(self, chunk: ReasoningChunk) -> None:
        """Append a piece of reasoning."""
        if self._size != self._broke_at:
            # Broken text stays open: reasoning before its continuation must not split it.
            self._close_text_part()
        text, self._reasoning_half = join_surrogates(self._reasoning_half, chunk.text)
        if text:
            if self._reasoning is None:
                self._reasoning = []
            self._reasoning.append(text)
            self._show_reasoning(text)
        signature, encrypted = clean_optional(chunk.signature), clean_optional(chunk.encrypted)
        if encrypted is not None and self._channel.is_watched():
            at = self._clock.now()
            self._channel.publish(ReasoningEncrypted(self.run, self._seq, at, self.message_id, encrypted))
        if signature is not None or encrypted is not None:
            self._close_reasoning(signature, encrypted, chunk.vendor)

    def _show_reasoning(self, text: str) -> None:
        offset, self._reasoning_size = self._reasoning_size, self._reasoning_size + len(text)
        if self._channel.is_watched():
            at = self._clock.now()
            self._channel.publish(
                ReasoningDelta(self.run, self._seq, at, self.message_id, self.attempt, offset, text)
            )

    def start_call(self, chunk: CallStartChunk) -> None:
        """Start a call."""
        if self._text or self._half or self._reasoning or self._reasoning_half:
            self._close_text()
        index, name, vendor_id = chunk.index, chunk.name, chunk.vendor_id
        if index in self._calls:
            raise ModelError(f"the model streamed two tool calls under the index {index}")
        if not (name.isascii() and (vendor_id is None or vendor_id.isascii())):
            name, vendor_id = clean_text(name), clean_optional(vendor_id)
        call = self._calls[index] = OpenCall(name, vendor_id, signature=clean_optional(chunk.signature))
        self._parts.append(call)
        channel = self._channel
        if channel.readers or channel.above:
            self._announce(call.id, name)

    def add_call_delta(self, chunk: CallDeltaChunk) -> None:
        """Append a piece of a call's arguments."""
        call, piece = self._calls.get(chunk.index), chunk.json
        if call is None:
            raise ModelError(f"the model streamed arguments for a tool call it never began ({chunk.index})")
        if call.half or not piece.isascii():
            piece, call.half = join_surrogates(call.half, piece)
            if not piece:
                return
        call.pieces.append(piece)
        channel = self._channel
        if (channel.readers or channel.above) and channel.is_watched():
            at = self._clock.now()
            channel.publish(
                ToolCallDelta(self.run, self._seq, at, self.message_id, self.attempt, call.size, piece, call.id)
            )
        call.size += len(piece)

    def add_call(self, chunk: CallChunk) -> None:
        """Append a complete call."""
        self._close_text()
        arguments, call_id = chunk.arguments, new_id()
        if (problem := arguments_fault(arguments)) is not None:
            self._add_problem(call_id, problem)
            arguments = {}
        name, vendor_id, signature = (
            clean_text(chunk.name),
            clean_optional(chunk.vendor_id),
            clean_optional(chunk.signature),
        )
        call = ToolCall(call_id, name, arguments, vendor_id, signature)
        self._parts.append(call)
        self._announce(call.id, call.name)

    def _add_problem(self, call_id: str, problem: str) -> None:
        self.problems = {**self.problems, call_id: problem}

    def _announce(self, call_id: str, name: str) -> None:
        if self._channel.is_watched():
            self._channel.publish(ToolCallStart(self.run, self._seq, self._clock.now(), call_id, name))

    def _close_text(self) -> None:
        self._close_text_part()
        if self._reasoning or self._reasoning_half:
            self._close_reasoning(None, None)

    def _close_text_part(self) -> None:
        if self._half:
            # The low surrogate never came.
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
        """The parts of the finished answer; also sets `calls`.

        A call that was cut off at the output limit is dropped; one whose arguments aren't JSON gets a problem.
        """
        if self._text or self._half or self._reasoning or self._reasoning_half:
            self._close_text()
        parts: list[Any] = []
        calls: list[ToolCall] = []
        notes: list[Content] = []
        for part in self._parts:
            if type(part) is OpenCall:
                call = self._complete(part) if keep_calls else None
            elif type(part) is ToolCall:
                call = part if keep_calls else None
            else:
                (notes if isinstance(part, _NOTES) else parts).append(cast(Content, part))
                continue
            if call is not None:
                calls.append(call)
                parts.append(call)
        self.calls = calls
        return (*parts, *notes)

    def _complete(self, call: OpenCall) -> ToolCall | None:
        text = call.text if call.half else "".join(call.pieces)
        arguments: dict[str, Any] = {}
        if text and not text.isspace():
            try:
                arguments = decode_object(text)
            except (msgspec.DecodeError, RecursionError):
                if not self._record_fault(call, text):
                    return None
        return ToolCall(call.id, call.name, arguments, call.vendor_id, call.signature)

    def _record_fault(self, call: OpenCall, text: str) -> bool:
        """Record the problem of a call's arguments; False if the call was cut off and is dropped."""
        try:
            msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            if self.stop == "max_tokens":
                self.is_truncated = True
                self._cancel(call, "cut off at the output limit")
                return False
            self._add_problem(call.id, f"arguments are not valid JSON ({error}): {text:.200}")
        else:
            self._add_problem(call.id, f"arguments must be an object, not {text:.200}")
        return True

    def _cancel(self, call: OpenCall, reason: str) -> None:
        if self._channel.is_watched():
            at = self._clock.now()
            self._channel.publish(ToolCallCancel(self.run, self._seq, at, call.id, call.name, reason))


class _Appenders(dict[type[Any], Callable[[Assembler, Any], None]]):
    def __missing__(self, kind: type[Any]) -> Callable[[Assembler, Any], None]:
        return Assembler.refuse


# Looked up by the reader of the stream, which saves a call for each chunk.
APPEND: Mapping[type[Any], Callable[[Assembler, Any], None]] = _Appenders(
    {
        TextChunk: Assembler.add_text,
        ReasoningChunk: Assembler.add_reasoning,
        CallStartChunk: Assembler.start_call,
        CallDeltaChunk: Assembler.add_call_delta,
        CallChunk: Assembler.add_call,
        PartChunk: Assembler.add_part,
        UsageChunk: Assembler.add_usage,
        StopChunk: Assembler.add_stop,
    }
)
