"""Reading a Converse stream."""

from __future__ import annotations

import base64
from collections.abc import Iterator
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
from .request import VENDOR

__all__ = ["EventReader"]

_STOPS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "stop_sequence": "stop_sequence",
}
_FILTERED = ("guardrail_intervened", "content_filtered")
# Failures of the model that a retry may fix.
_MALFORMED = ("malformed_model_output", "malformed_tool_use")


class EventReader(Reader):
    """Reads one answer."""

    __slots__ = ("_calls", "_reasoning")

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._calls: set[int] = set()
        self._reasoning: set[int] = set()

    def read(self, event: dict[str, Any]) -> Iterator[Chunk]:
        """Convert an event."""
        for kind, body in event.items():
            match kind:
                case "contentBlockDelta":
                    yield from self._delta(body["contentBlockIndex"], body.get("delta") or {})
                case "contentBlockStart":
                    yield from self._start(body["contentBlockIndex"], body.get("start") or {})
                case "contentBlockStop":
                    yield from self._end_block(body["contentBlockIndex"])
                case "messageStop":
                    yield self._stop(body["stopReason"])
                case "metadata":
                    yield UsageChunk(_usage(body["usage"]))
                case _:
                    pass

    def _start(self, index: int, start: dict[str, Any]) -> Iterator[Chunk]:
        if (call := start.get("toolUse")) is not None:
            if index in self._calls:
                raise self.broken(f"it has two calls under the index {index}")
            self._calls.add(index)
            yield CallStartChunk(index, call["name"], call["toolUseId"])

    def _delta(self, index: int, delta: dict[str, Any]) -> Iterator[Chunk]:
        if text := delta.get("text"):
            yield TextChunk(text)
        if (call := delta.get("toolUse")) is not None:
            if index not in self._calls:
                raise self.broken(f"it has arguments for no call ({index})")
            if piece := call.get("input"):
                yield CallDeltaChunk(index, piece)
        if (thought := delta.get("reasoningContent")) is not None:
            if thought.get("text"):
                self._reasoning.add(index)
                yield ReasoningChunk(thought["text"])
            if thought.get("signature"):
                self._reasoning.discard(index)
                yield ReasoningChunk("", thought["signature"], None, VENDOR)
            if thought.get("redactedContent"):
                hidden = base64.b64encode(thought["redactedContent"]).decode()
                yield ReasoningChunk("", None, hidden, VENDOR)

    def _end_block(self, index: int) -> Iterator[Chunk]:
        if index in self._reasoning:  # Models without signatures need their reasoning back, too.
            self._reasoning.discard(index)
            yield ReasoningChunk("", "", None, VENDOR)

    def _stop(self, reason: str) -> StopChunk:
        if reason in _FILTERED:
            raise self.filtered(f"refused the answer ({reason})")
        if reason in _MALFORMED:
            raise self.broken(reason)
        self.is_complete = True
        return StopChunk(_STOPS.get(reason, "unknown"))


def _usage(usage: dict[str, Any]) -> Usage:
    read, write = usage.get("cacheReadInputTokens", 0), usage.get("cacheWriteInputTokens", 0)
    return Usage(usage["inputTokens"] + read + write, usage["outputTokens"], read, write)
