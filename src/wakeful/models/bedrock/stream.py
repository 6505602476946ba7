"""Reading an answer of Converse: its events, or a whole answer."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ...errors import ModelError
from ...types.content import Audio, Base64, Image, Part, Unknown, Url, Video
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
from ..shared.reader import Reader
from .system_tools import SERVER_TOOL, VENDOR, SystemTools, citation

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


# The deltas of a block that the reader knows.
_KNOWN = ("text", "citation", "toolResult", "reasoningContent", "image")
_MEDIA: dict[str, type[Image | Audio | Video]] = {
    "image": Image,
    "audio": Audio,
    "video": Video,
}


class _Block(Struct, eq=False):
    """An open block: its kind, its start, its pieces, and its place in the text."""

    kind: str
    raw: dict[str, Any]
    began: int
    pieces: list[Any] = []


class EventReader(Reader):
    """Reads one answer."""

    __slots__ = ("_blocks", "_is_called", "_reason", "_seen", "_size", "_tools", "_trace")

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._blocks: dict[int, _Block] = {}
        self._seen: set[int] = set()
        self._tools = SystemTools()
        self._is_called = False
        # Why the answer failed: the usage comes after it. And what the guardrails say.
        self._reason = ""
        self._trace: Mapping[str, Any] = {}
        self._size = 0

    def is_answer(self, body: Mapping[str, Any]) -> bool:
        """Whether a JSON body is an answer of Converse."""
        return "output" in body and "stopReason" in body

    def read(self, event: dict[str, Any]) -> Iterator[Chunk]:
        """Convert an event. Events of an unknown type are ignored."""
        if self.is_answer(event):
            yield from self._read_message(event)
            return
        for kind, body in event.items():
            match kind:
                case "contentBlockDelta":
                    yield from self._delta(body["contentBlockIndex"], body.get("delta") or {})
                case "contentBlockStart":
                    yield from self._start(body["contentBlockIndex"], body.get("start") or {})
                case "contentBlockStop":
                    yield from self._end_block(body["contentBlockIndex"])
                case "messageStop":
                    yield from self._stop(body["stopReason"])
                case "metadata":
                    yield from self._count(body)
                case _:
                    pass

    def end(self) -> Iterator[Chunk]:
        """Finish the answer; raises the error of one that a guardrail stopped or the model broke."""
        if self._reason:
            raise self._failure()
        yield from super().end()

    def _read_message(self, body: dict[str, Any]) -> Iterator[Chunk]:
        for index, block in enumerate(body["output"]["message"]["content"]):
            for kind, value in block.items():
                match kind:
                    case "toolUse":
                        yield from self._start(index, {"toolUse": value})
                        given = msgspec.json.encode(value.get("input") or {}).decode()
                        yield from self._delta(index, {"toolUse": {"input": given}})
                    case "toolResult":
                        yield from self._start(index, {"toolResult": value})
                        yield from self._delta(index, {"toolResult": value.get("content") or ()})
                    case "reasoningContent":
                        plain = {**value, **value.get("reasoningText", {})}
                        yield from self._delta(index, {"reasoningContent": plain})
                    case "citationsContent":
                        for text in value.get("content") or ():
                            yield from self._delta(index, text)
                        for cited in value.get("citations") or ():
                            yield from self._delta(index, {"citation": cited})
                    case "image":
                        yield from self._start(index, {"image": value})
                        yield from self._delta(index, {"image": value})
                    case "audio" | "video":
                        yield from self._media(kind, value, value.get("format"))
                    case _:
                        yield from self._delta(index, {kind: value})
            yield from self._end_block(index)
        yield from self._count(body)
        yield from self._stop(body["stopReason"])

    def _start(self, index: int, start: dict[str, Any]) -> Iterator[Chunk]:
        for kind, raw in start.items():
            if kind in ("toolUse", "toolResult") and index in self._seen:
                raise self.broken(f"it has two calls under the index {index}")
            block = self._open(index, kind, raw)
            if kind == "toolUse" and raw.get("type") == SERVER_TOOL:
                block.kind = SERVER_TOOL
                yield PartChunk(self._tools.started(raw, ""))
            elif kind == "toolUse":
                self._is_called = True
                yield CallStartChunk(index, _checked(raw["name"]), _checked(raw["toolUseId"]))

    def _open(self, index: int, kind: str, raw: dict[str, Any]) -> _Block:
        self._seen.add(index)
        block = self._blocks[index] = _Block(kind, raw, self._size)
        return block

    def _delta(self, index: int, delta: dict[str, Any]) -> Iterator[Chunk]:
        block = self._blocks.get(index)
        if (call := delta.get("toolUse")) is not None:
            if block is None or block.kind not in ("toolUse", SERVER_TOOL):
                raise self.broken(f"it has arguments for no call ({index})")
            if piece := call.get("input"):
                block.pieces.append(_checked(piece))
                if block.kind == "toolUse":
                    yield CallDeltaChunk(index, piece)
            return
        if block is None:
            block = self._open(index, "text", {})
        if text := delta.get("text"):
            self._size += len(text)
            yield TextChunk(_checked(text))
        if (cited := delta.get("citation")) is not None:
            block.pieces.append(cited)
        if results := delta.get("toolResult"):
            block.pieces += results
        if (thought := delta.get("reasoningContent")) is not None:
            yield from self._thought(block, thought)
        if (image := delta.get("image")) is not None:
            yield from self._media("image", image, block.raw.get("format") or "png")
        for kind, value in delta.items():
            if kind not in _KNOWN:
                yield PartChunk(Unknown(kind, {kind: value}))

    def _thought(self, block: _Block, thought: dict[str, Any]) -> Iterator[Chunk]:
        if text := thought.get("text"):
            block.kind = "reasoning"
            yield ReasoningChunk(_checked(text))
        if signature := thought.get("signature"):
            block.kind = "signed"
            yield ReasoningChunk("", _checked(signature), None, VENDOR)
        if hidden := thought.get("redactedContent"):
            block.kind = "signed"
            yield ReasoningChunk("", None, _base64(hidden), VENDOR)

    def _media(self, kind: str, media: dict[str, Any], form: str | None) -> Iterator[Chunk]:
        if error := media.get("error"):
            raise self.broken(f"the {kind} failed: {error.get('message') or 'no reason given'}")
        source: dict[str, Any] = media.get("source") or {}
        media_type = f"{kind}/{form or '*'}"
        part: Part | None = None
        if data := source.get("bytes"):
            part = _MEDIA[kind](Base64(media_type, _base64(data)))
        elif location := source.get("s3Location"):
            part = _MEDIA[kind](Url(_checked(location.get("uri")), media_type))
        elif source:
            part = Unknown(kind, {kind: media})
        if part is not None:
            yield PartChunk(part)

    def _end_block(self, index: int) -> Iterator[Chunk]:
        block = self._blocks.pop(index, None)
        match block:
            case None:
                return
            case _Block(kind="reasoning"):  # Models without signatures need their reasoning back, too.
                yield ReasoningChunk("", "", None, VENDOR)
            case _Block(kind="text"):
                for raw in block.pieces:
                    yield PartChunk(citation(raw, block.began, self._size))
            case _Block(kind="toolResult"):
                yield PartChunk(self._tools.finished(block.raw, block.pieces))
            case _ if block.kind == SERVER_TOOL:
                yield PartChunk(self._tools.started(block.raw, "".join(block.pieces)))
            case _:
                pass

    def _stop(self, reason: str) -> Iterator[Chunk]:
        for index in [*self._blocks]:
            yield from self._end_block(index)
        stop = _STOPS.get(reason, "unknown")
        is_empty = not self._seen and stop in ("unknown", "tool_use")
        if reason in _FILTERED or reason in _MALFORMED or is_empty:
            self._reason = reason
            return
        self.is_complete = True
        is_over = stop == "tool_use" and not self._is_called  # The vendor ran the tools itself.
        yield StopChunk("end_turn" if is_over else stop)

    def _count(self, metadata: Mapping[str, Any]) -> Iterator[Chunk]:
        trace: dict[str, Any] = metadata.get("trace") or {}
        self._trace = trace.get("guardrail") or {}
        if usage := metadata.get("usage"):
            yield UsageChunk(_usage(usage))

    def _failure(self) -> ModelError:
        if self._reason in _MALFORMED:
            return self.broken(self._reason)
        if self._reason not in _FILTERED:
            return self.empty(self._reason)
        why = self._trace.get("actionReason")
        return self.filtered(f"refused the answer ({self._reason})" + (f": {why}" if why else ""))


def _checked(text: Any) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{text!r:.80} isn't a text")
    return text


def _base64(data: bytes | str) -> str:
    """Binary data, which the SDK decodes in a stream and JSON has as base64."""
    return base64.b64encode(data).decode() if isinstance(data, bytes) else data


def _usage(usage: Mapping[str, Any]) -> Usage:
    def count(name: str) -> int:
        return usage.get(name) or 0

    read, written = count("cacheReadInputTokens"), count("cacheWriteInputTokens")
    return Usage(count("inputTokens") + read + written, count("outputTokens"), read, written)
