"""Reading a Chat Completions stream."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ...errors import ContentFiltered
from ...types.content import Audio, Base64
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

__all__ = ["ChatReader"]

_STOPS: dict[str, StopReason] = {
    "stop": "end_turn",
    "eos": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
}


class ChatReader(Reader):
    """Reads one answer. If it must be `typed`, a refusal is an error."""

    __slots__ = ("_audio", "_call_count", "_ids", "_indexes", "_refusal", "_typed")

    def __init__(self, model: str, typed: bool) -> None:
        super().__init__(model)
        self._typed = typed
        self._refusal: list[str] = []
        self._audio: list[bytes] = []
        # Our index of each call by the server's. Some servers use one index for all, or none, or repeat the id.
        self._indexes: dict[int, int] = {}
        self._ids: dict[int, str | None] = {}
        self._call_count = 0

    def read(self, event: Any) -> Sequence[Chunk]:
        """Convert a chunk of the server."""
        if not event.choices:
            return (UsageChunk(_usage(event.usage)),) if event.usage is not None else ()
        choice = event.choices[0]
        delta = choice.delta
        if choice.finish_reason is None and delta.content and not delta.tool_calls and event.usage is None:
            return (TextChunk(delta.content),)
        return self._read_all(event, choice, delta)

    def end(self) -> Iterable[Chunk]:
        """Return the audio of the answer, if any; raises `ContentFiltered` for a refusal of a typed answer."""
        super().end()
        if self._refusal and self._typed:
            raise ContentFiltered(f"{self.model} refuses to answer: {''.join(self._refusal)}")
        if not self._audio:
            return ()
        data = b64encode(b"".join(self._audio)).decode()
        return (PartChunk(Audio(Base64("audio/pcm;rate=24000", data))),)

    def _read_all(self, event: Any, choice: Any, delta: Any) -> Sequence[Chunk]:
        chunks: list[Chunk] = []
        if delta is not None:
            # DeepSeek and vLLM use the first name; Ollama, Groq and OpenRouter the second.
            if thought := getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None):
                chunks.append(ReasoningChunk(thought))
            if delta.content:
                chunks.append(TextChunk(delta.content))
            if delta.refusal:
                self._refusal.append(delta.refusal)
                if not self._typed:
                    chunks.append(TextChunk(delta.refusal))
            if (audio := delta.audio) is not None:
                if getattr(audio, "data", None):
                    self._audio.append(b64decode(audio.data))
                if getattr(audio, "transcript", None):
                    chunks.append(TextChunk(audio.transcript))
            for call in delta.tool_calls or ():
                self._add_call(call, chunks)
        if event.usage is not None:
            chunks.append(UsageChunk(_usage(event.usage)))
        if choice.finish_reason is not None:
            chunks.append(StopChunk(self._stop(choice.finish_reason)))
        return chunks

    def _add_call(self, call: Any, chunks: list[Chunk]) -> None:
        index = call.index if call.index is not None else -1
        function = call.function
        position = self._indexes.get(index)
        name = function.name if function is not None else None
        known = None if position is None else self._ids[position]
        if position is None or (call.id and known and call.id != known):
            if not name:
                raise self.broken("it has arguments for a tool call that never started")
            position = self._indexes[index] = self._call_count
            self._ids[position] = call.id or None
            self._call_count += 1
            chunks.append(CallStartChunk(position, name, call.id or None))
        arguments = function.arguments if function is not None else None
        if arguments:
            text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
            chunks.append(CallDeltaChunk(position, text))

    def _stop(self, reason: str) -> StopReason:
        if reason == "content_filter":
            raise self.filtered("stopped the answer")
        if reason == "error":
            raise self.broken("the vendor says that it failed")
        self.is_complete = True
        stop = _STOPS.get(reason, "unknown")
        return "tool_use" if stop == "end_turn" and self._call_count else stop


def _usage(usage: Any) -> Usage:
    before, after = usage.prompt_tokens_details, usage.completion_tokens_details
    cached = getattr(before, "cached_tokens", None) or getattr(usage, "prompt_cache_hit_tokens", None)
    return Usage(
        input_tokens=usage.prompt_tokens or 0,
        output_tokens=usage.completion_tokens or 0,
        cached_tokens=cached or 0,
        cache_write_tokens=getattr(before, "cache_write_tokens", None) or 0,
        reasoning_tokens=getattr(after, "reasoning_tokens", None) or 0,
    )
