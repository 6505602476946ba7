"""From the events that Converse streams to chunks."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from ...errors import ContentFiltered
from ...types.events import StopReason
from ...types.runs import Usage
from .._faults import broken
from .._protocol import (
    CallDeltaChunk,
    CallStartChunk,
    Chunk,
    ReasoningChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from ._request import VENDOR

__all__ = ["EventReader"]

_STOPS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "stop_sequence": "stop_sequence",
}
_FILTERED = ("guardrail_intervened", "content_filtered")
# The model lost its way; asked again, it may find it.
_LOST = ("malformed_model_output", "malformed_tool_use")


class EventReader:
    """Reads one answer; `begun` is True once there is one, `whole` once it is known why the model stopped."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: set[int] = set()
        self._reasoning: set[int] = set()
        self.begun = False
        self.whole = False
        self.request_id: str | None = None

    def read(self, event: dict[str, Any]) -> Iterator[Chunk]:
        """What the next event adds."""
        for kind, said in event.items():
            match kind:
                case "contentBlockDelta":
                    yield from self._delta(said["contentBlockIndex"], said.get("delta") or {})
                case "contentBlockStart":
                    yield from self._start(said["contentBlockIndex"], said.get("start") or {})
                case "contentBlockStop":
                    yield from self._end_block(said["contentBlockIndex"])
                case "messageStop":
                    yield self._stop(said["stopReason"])
                case "metadata":
                    yield UsageChunk(_usage(said["usage"]))
                case _:
                    pass

    def end(self) -> None:
        """Raise if the answer isn't whole."""
        if not self.whole:
            raise broken(self._name, "it ended before the vendor said why it stopped", request_id=self.request_id)

    def _start(self, index: int, start: dict[str, Any]) -> Iterator[Chunk]:
        if (call := start.get("toolUse")) is not None:
            if index in self._calls:
                raise broken(self._name, f"it has two calls under the index {index}", request_id=self.request_id)
            self._calls.add(index)
            yield CallStartChunk(index, call["name"], call["toolUseId"])

    def _delta(self, index: int, delta: dict[str, Any]) -> Iterator[Chunk]:
        if text := delta.get("text"):
            yield TextChunk(text)
        if (call := delta.get("toolUse")) is not None:
            if index not in self._calls:
                raise broken(self._name, f"it has arguments for no call ({index})", request_id=self.request_id)
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
        if index in self._reasoning:  # Models without signatures want their reasoning back as well.
            self._reasoning.discard(index)
            yield ReasoningChunk("", "", None, VENDOR)

    def _stop(self, reason: str) -> StopChunk:
        if reason in _FILTERED:
            raise ContentFiltered(
                f"{self._name}: the vendor's filter refused the answer ({reason})", request_id=self.request_id
            )
        if reason in _LOST:
            raise broken(self._name, reason, request_id=self.request_id)
        self.whole = True
        return StopChunk(_STOPS.get(reason, "unknown"))


def _usage(usage: dict[str, Any]) -> Usage:
    read, write = usage.get("cacheReadInputTokens", 0), usage.get("cacheWriteInputTokens", 0)
    return Usage(usage["inputTokens"] + read + write, usage["outputTokens"], read, write)
