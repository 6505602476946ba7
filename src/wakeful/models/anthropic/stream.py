"""Reading an answer of the Messages API: its events, or a whole message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ...types.content import ServerTool
from ...types.events import StopReason
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
from .request import OUTPUT_TOOL
from .server_tools import RESULT, USES, VENDOR, call_signature, citation, decoded, finished, other, started
from .usage import Counts

__all__ = ["MessagesReader"]

_STOPS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "stop_sequence": "stop_sequence",
    "pause_turn": "pause_turn",
    # The conversation was compacted before the answer, which the next request continues.
    "compaction": "pause_turn",
}


class _Block(Struct, eq=False):
    """An open block: its start, the pieces of its input and signature, its citations, its place in the text."""

    raw: dict[str, Any]
    kind: str
    began: int
    pieces: list[str] = []
    signature: list[str] = []
    citations: list[dict[str, Any]] = []


class MessagesReader(Reader):
    """Reads one answer, which may come as a call of the output tool if `answers_by_tool`.

    `paused` are the server tools without a result of a paused answer that the request continues, `running` those
    of earlier messages.
    """

    __slots__ = (
        "_answers_by_tool",
        "_blocks",
        "_called",
        "_counts",
        "_id",
        "_paused",
        "_reason",
        "_running",
        "_seen",
        "_size",
    )

    def __init__(
        self,
        model: str,
        answers_by_tool: bool,
        paused: Mapping[str, ServerTool],
        running: Mapping[str, ServerTool],
    ) -> None:
        super().__init__(model)
        self._answers_by_tool = answers_by_tool
        self._paused, self._running = dict(paused), running
        self._counts = Counts()
        self._blocks: dict[int, _Block] = {}
        self._seen: set[int] = set()
        self._id = ""
        self._called = False
        # The reason of a message that has it from its start.
        self._reason: str | None = None
        # Characters of text so far.
        self._size = 0

    def is_answer(self, body: Mapping[str, Any]) -> bool:
        """Whether a JSON body is a message."""
        return body.get("type") == "message" and isinstance(body.get("content"), list)

    def read(self, event: dict[str, Any]) -> Iterator[Chunk]:
        """Convert an event. Events of an unknown type are ignored."""
        match event.get("type"):
            case "content_block_delta":
                yield from self._delta(event["index"], event["delta"])
            case "content_block_start":
                yield from self._start_block(event["index"], event["content_block"])
            case "content_block_stop":
                yield from self._end_block(event["index"])
            case "message_start":
                yield from self._start(event["message"])
            case "message_delta":
                yield from self._finish(event["delta"], event.get("usage"))
            case "message_stop":
                if not self.is_complete and self._seen:  # The vendor ended it without a reason.
                    reason = self._reason or ("tool_use" if self._called else "end_turn")
                    yield from self._finish({"stop_reason": reason}, None)
            case "message":
                yield from self._read_message(event)
            case "error":
                raise to_error(self.model, parse_fault(None, event))
            case _:
                pass

    def _start(self, message: dict[str, Any]) -> Iterator[Chunk]:
        """Read the start of a message, which has content after a pause for a tool that code called."""
        self._id, self._reason = message.get("id") or "", message.get("stop_reason")
        yield UsageChunk(self._counts.add(message.get("usage")))
        for index, block in enumerate(message.get("content") or (), 1):
            yield from self._start_block(-index, block)
            yield from self._end_block(-index)

    def _read_message(self, message: dict[str, Any]) -> Iterator[Chunk]:
        self._id = message.get("id") or ""
        for index, block in enumerate(message["content"]):
            yield from self._start_block(index, block)
            yield from self._end_block(index)
        yield from self._finish({"stop_reason": "end_turn", **message}, message.get("usage"))

    def _start_block(self, index: int, raw: dict[str, Any]) -> Iterator[Chunk]:
        if index in self._seen:
            raise self.broken(f"it has two blocks under the index {index}")
        self._seen.add(index)
        kind = raw["type"]
        block = self._blocks[index] = _Block(raw, kind, self._size)
        if kind == "text":
            block.citations += raw.get("citations") or ()
            yield from self._text(raw.get("text"))
        elif kind == "thinking":
            if signature := raw.get("signature"):
                block.signature.append(signature)
            yield from self._thought(raw.get("thinking"))
        elif kind == "redacted_thinking":
            yield ReasoningChunk("", None, _checked(raw["data"]), VENDOR)
        elif kind == "tool_use":
            if self._answers_by_tool and raw["name"] == OUTPUT_TOOL:
                block.kind = "output"
            else:
                self._called = True
                yield CallStartChunk(index, _checked(raw["name"]), _checked(raw["id"]), call_signature(raw))
        elif kind in USES:
            yield PartChunk(started(raw))

    def _text(self, text: str | None) -> Iterator[Chunk]:
        if text:
            self._size += len(text)
            yield TextChunk(_checked(text))

    def _thought(self, text: str | None) -> Iterator[Chunk]:
        if text:
            yield ReasoningChunk(_checked(text))

    def _delta(self, index: int, delta: dict[str, Any]) -> Iterator[Chunk]:
        block = self._blocks.get(index)
        if block is None:
            raise self.broken(f"it has a delta for the block {index}, which isn't open")
        match delta.get("type"):
            case "text_delta":
                yield from self._text(delta["text"])
            case "citations_delta":
                block.citations.append(delta["citation"])
            case "input_json_delta":
                yield from self._input(index, block, delta["partial_json"])
            case "thinking_delta":
                yield from self._thought(delta["thinking"])
            case "signature_delta":
                block.signature.append(delta["signature"])
            case _:
                _merge(block.raw, delta)

    def _input(self, index: int, block: _Block, piece: str) -> Iterator[Chunk]:
        if piece:
            block.pieces.append(_checked(piece))
            if block.kind == "output":
                yield from self._text(piece)
            elif block.kind == "tool_use":
                yield CallDeltaChunk(index, piece)

    def _end_block(self, index: int) -> Iterator[Chunk]:
        block = self._blocks.pop(index, None)
        if block is None:
            return
        raw = block.raw
        match block.kind:
            case "text":
                for each in block.citations:
                    yield PartChunk(citation(each, block.began, self._size))
            case "thinking":
                if signature := "".join(block.signature):
                    yield ReasoningChunk("", signature, None, VENDOR)
            case "tool_use" | "output":
                if not block.pieces and (given := raw.get("input")):  # It came whole.
                    whole = given if isinstance(given, str) else msgspec.json.encode(given).decode()
                    yield from self._input(index, block, whole)
            case kind if kind in USES:
                tool = self._paused[raw["id"]] = started(raw, "".join(block.pieces))
                yield PartChunk(tool)
            case kind if kind.endswith(RESULT):
                of = raw["tool_use_id"]
                yield PartChunk(finished(raw, self._paused.get(of), self._running.get(of)))
            case "redacted_thinking":
                pass
            case _:
                given = {"input": decoded("".join(block.pieces))} if block.pieces else {}
                yield PartChunk(other({**raw, **given}, f"{self._id}/{index}"))

    def _finish(self, delta: dict[str, Any], usage: dict[str, Any] | None) -> Iterator[Chunk]:
        yield UsageChunk(self._counts.add(usage))
        reason = delta.get("stop_reason")
        if reason is None:
            return
        if reason == "refusal":
            details: dict[str, Any] = delta.get("stop_details") or {}
            why = details.get("explanation") or details.get("category") or "it doesn't say why"
            raise self.filtered(f"stopped the answer: {why}")
        for index in [*self._blocks]:
            yield from self._end_block(index)
        if not self._seen and (reason not in _STOPS or reason == "tool_use"):
            raise self.empty(str(reason))
        if reason == "tool_use" and not self._called:
            reason = "end_turn"  # The call was the answer.
        yield from self._stop(_STOPS.get(reason, "unknown"))

    def _stop(self, reason: StopReason) -> Iterator[Chunk]:
        self.is_complete = True
        yield StopChunk(reason)


def _checked(text: Any) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{text!r:.80} isn't a text")
    return text


def _merge(raw: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add the fields of a delta of another type, such as a compaction's, to its block."""
    for name, value in delta.items():
        if name != "type" and value is not None:
            before = raw.get(name)
            raw[name] = before + value if isinstance(before, str) and isinstance(value, str) else value
