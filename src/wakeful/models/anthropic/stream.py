"""Reading a Messages API stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...types.events import StopReason
from ...types.runs import Usage
from ..protocol import (
    CallDeltaChunk,
    CallStartChunk,
    Chunk,
    ReasoningChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from ..shared.reader import Reader
from .content import VENDOR
from .request import OUTPUT_TOOL

__all__ = ["MessagesReader"]

_STOPS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "stop_sequence": "stop_sequence",
}


class MessagesReader(Reader):
    """Reads one answer, which may come as a call of the output tool if `answers_by_tool`."""

    __slots__ = ("_answers_by_tool", "_open", "_output", "_seen", "_signature", "_usage")

    def __init__(self, model: str, answers_by_tool: bool) -> None:
        super().__init__(model)
        self._answers_by_tool = answers_by_tool
        self._usage: dict[str, int] = {}
        self._open: int | None = None
        self._seen: set[int] = set()
        self._output: int | None = None
        self._signature: list[str] | None = None

    def read(self, event: Any) -> Sequence[Chunk]:
        """Convert an event."""
        match event.type:
            case "content_block_delta":
                return self._delta(event)
            case "content_block_start":
                return self._start_block(event)
            case "content_block_stop":
                return self._end_block(event)
            case "message_start":
                self._count(event.message.usage)
                return (UsageChunk(self._total()),)
            case "message_delta":
                return self._finish(event)
            case _:
                return ()

    def _start_block(self, event: Any) -> Sequence[Chunk]:
        if self._open is not None or event.index in self._seen:
            raise self.broken(f"it has two blocks under the index {event.index}, or nested ones")
        self._open = event.index
        self._seen.add(event.index)
        block = event.content_block
        if block.type == "tool_use":
            if self._answers_by_tool and block.name == OUTPUT_TOOL:
                self._output = event.index
                return ()
            return (CallStartChunk(event.index, block.name, block.id),)
        if block.type == "text" and block.text:
            return (TextChunk(block.text),)
        if block.type == "thinking":
            self._signature = [block.signature] if block.signature else []
            return (ReasoningChunk(block.thinking),) if block.thinking else ()
        if block.type == "redacted_thinking":
            return (ReasoningChunk("", None, block.data, VENDOR),)
        return ()

    def _delta(self, event: Any) -> Sequence[Chunk]:
        delta = event.delta
        if event.index != self._open:
            raise self.broken(f"it has a delta for the block {event.index}, which isn't open")
        match delta.type:
            case "text_delta":
                return (TextChunk(delta.text),) if delta.text else ()
            case "input_json_delta":
                if not delta.partial_json:
                    return ()
                if event.index == self._output:
                    return (TextChunk(delta.partial_json),)
                return (CallDeltaChunk(event.index, delta.partial_json),)
            case "thinking_delta":
                return (ReasoningChunk(delta.thinking),) if delta.thinking else ()
            case "signature_delta":
                if self._signature is not None:
                    self._signature.append(delta.signature)
                return ()
            case _:
                return ()

    def _end_block(self, event: Any) -> Sequence[Chunk]:
        self._open = None
        signature, self._signature = self._signature, None
        return (ReasoningChunk("", "".join(signature), None, VENDOR),) if signature else ()

    def _finish(self, event: Any) -> Sequence[Chunk]:
        self._count(event.usage)
        usage = UsageChunk(self._total())
        reason = event.delta.stop_reason
        if reason is None:
            return (usage,)
        if reason == "refusal":
            details = event.delta.stop_details
            why = (
                getattr(details, "explanation", None) or getattr(details, "category", None) or "it doesn't say why"
            )
            raise self.filtered(f"stopped the answer: {why}")
        self.is_complete = True
        stop = _STOPS.get(reason, "unknown")
        if stop == "tool_use" and self._output is not None:
            stop = "end_turn"
        return (usage, StopChunk(stop))

    def _count(self, usage: Any) -> None:
        """Update the counts. They are cumulative; an event may omit unchanged ones."""
        for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
            if (value := getattr(usage, name, None)) is not None:
                self._usage[name] = value
        if (details := getattr(usage, "output_tokens_details", None)) is not None:
            self._usage["thinking_tokens"] = details.thinking_tokens or 0

    def _total(self) -> Usage:
        get = self._usage.get
        cached, written = get("cache_read_input_tokens", 0), get("cache_creation_input_tokens", 0)
        return Usage(
            input_tokens=get("input_tokens", 0) + cached + written,
            output_tokens=get("output_tokens", 0),
            cached_tokens=cached,
            cache_write_tokens=written,
            reasoning_tokens=get("thinking_tokens", 0),
        )
