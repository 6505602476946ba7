"""Reading a Responses API stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...errors import ContentFiltered
from ...types.content import Base64, Image
from ...types.events import StopReason
from ...types.runs import Usage
from ..protocol import (
    CallDeltaChunk,
    CallStartChunk,
    Chunk,
    PartChunk,
    ReasoningChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from ..shared.faults import parse_fault, to_error
from ..shared.reader import Reader
from .responses_request import VENDOR

__all__ = ["ResponsesReader"]


class ResponsesReader(Reader):
    """Reads one answer. If it must be `typed`, a refusal is an error."""

    __slots__ = ("_calls", "_refusal", "_typed")

    def __init__(self, model: str, typed: bool) -> None:
        super().__init__(model)
        self._typed = typed
        self._calls: dict[int, bool] = {}
        self._refusal: list[str] = []

    def read(self, event: Any) -> Sequence[Chunk]:
        """Convert an event."""
        match event.type:
            case "response.output_text.delta":
                return (TextChunk(event.delta),) if event.delta else ()
            case "response.function_call_arguments.delta":
                self._calls[event.output_index] = True
                return (CallDeltaChunk(event.output_index, event.delta),)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return (ReasoningChunk(event.delta),)
            case "response.reasoning_summary_part.added":
                return (ReasoningChunk("\n\n"),) if event.summary_index else ()
            case "response.refusal.delta":
                self._refusal.append(event.delta)
                return () if self._typed else (TextChunk(event.delta),)
            case "response.output_item.added":
                return self._start_item(event)
            case "response.function_call_arguments.done":
                return () if self._calls.get(event.output_index) else self._all_arguments(event)
            case "response.output_item.done":
                return _item(event.item)
            case "response.completed" | "response.incomplete":
                return self._finish(event.response)
            case "response.failed":
                raise to_error(self.model, parse_fault(None, {"error": _error_fields(event.response.error)}))
            case "error":
                raise to_error(self.model, parse_fault(None, _error_fields(event)))
            case _:
                return ()

    def end(self) -> Iterable[Chunk]:
        """Raise `ContentFiltered` for a refusal of a typed answer."""
        super().end()
        if self._refusal and self._typed:
            raise ContentFiltered(f"{self.model} refuses to answer: {''.join(self._refusal)}")
        return ()

    def _start_item(self, event: Any) -> Sequence[Chunk]:
        if event.item.type != "function_call":
            return ()
        if event.output_index in self._calls:
            raise self.broken(f"it has two tool calls under the index {event.output_index}")
        self._calls[event.output_index] = False
        return (CallStartChunk(event.output_index, event.item.name, event.item.call_id),)

    def _all_arguments(self, event: Any) -> Sequence[Chunk]:
        self._calls[event.output_index] = True
        return (CallDeltaChunk(event.output_index, event.arguments),)

    def _finish(self, response: Any) -> Sequence[Chunk]:
        reason: StopReason = "tool_use" if self._calls else "end_turn"
        if response.status == "incomplete":
            why = getattr(response.incomplete_details, "reason", None)
            if why == "content_filter":
                raise self.filtered("stopped the answer")
            reason = "max_tokens" if why == "max_output_tokens" else "unknown"
        self.is_complete = True
        stop = StopChunk(reason)
        return (stop,) if response.usage is None else (UsageChunk(_usage(response.usage)), stop)


def _item(item: Any) -> Sequence[Chunk]:
    if item.type == "reasoning":
        return (ReasoningChunk("", item.id, item.encrypted_content, VENDOR),)
    if item.type == "image_generation_call" and item.result:
        kind = getattr(item, "output_format", None) or "png"
        return (PartChunk(Image(Base64(f"image/{kind}", item.result))),)
    return ()


def _usage(usage: Any) -> Usage:
    before = usage.input_tokens_details
    after = usage.output_tokens_details
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=getattr(before, "cached_tokens", 0) or 0,
        cache_write_tokens=getattr(before, "cache_write_tokens", 0) or 0,
        reasoning_tokens=getattr(after, "reasoning_tokens", 0) or 0,
    )


def _error_fields(error: Any) -> dict[str, Any]:
    if error is None:
        return {}
    kind = getattr(error, "type", None)
    found = {"code": error.code, "message": error.message, "type": None if kind == "error" else kind}
    return {name: value for name, value in found.items() if value}
