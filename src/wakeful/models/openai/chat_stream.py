"""Reading a Chat Completions answer: a stream of chunks, or one completion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from ...errors import ContentFiltered, ModelError
from ...types.content import Logprob, Logprobs
from ...types.events import StopReason
from ..protocol import Chunk, PartChunk, StopChunk, TextChunk, UsageChunk
from ..shared.faults import parse_fault, to_error
from ..shared.reader import Reader
from ..shared.sse import DONE
from .chat_calls import CallReader
from .chat_content import AudioReader, image_of, list_chunks
from .chat_sources import SourceReader
from .chat_thoughts import ReasoningReader
from .failed_calls import is_failed_call, repaired_call
from .logprobs import logprobs_of
from .usage import chat_usage

__all__ = ["ChatReader"]

_STOPS: dict[str, StopReason] = {
    "stop": "end_turn",
    "eos": "end_turn",
    "eos_token": "end_turn",
    "end_turn": "end_turn",
    "stop_sequence": "stop_sequence",
    "tool_calls": "tool_use",
    "tool_use": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "model_length": "max_tokens",
}
# Filters: OpenAI's and others'; Z.ai's; Anthropic's and Google's through gateways.
_FILTERED = (
    *("content_filter", "sensitive", "refusal", "safety", "recitation", "blocklist"),
    *("prohibited_content", "spii", "image_safety", "content_filtered", "guardrail_intervened"),
)
# The server gave up: OpenRouter and Mistral; vLLM and SGLang; DeepSeek; Z.ai; Gemini.
_FAILED = (
    *("error", "abort", "aborted", "cancelled", "insufficient_system_resource", "network_error"),
    *("malformed_function_call", "model_error"),
)

# Where a choice has its content: chunks, completions, and both in the older API of completions.
_SHAPES = ("delta", "message", "text")
# The fields of errors without an envelope.
_BARE_ERRORS = ("message", "detail", "errors", "error_code")


class ChatReader(Reader):
    """Reads one answer of `vendor`. If it must be `typed`, a refusal is an error."""

    __slots__ = (
        "_audio",
        "_calls",
        "_has_content",
        "_has_delta",
        "_has_shape",
        "_images",
        "_is_body",
        "_late_error",
        "_logprobs",
        "_reasoning",
        "_refusal",
        "_sources",
        "_typed",
        "_unread",
        "_vendor",
    )

    def __init__(self, model: str, vendor: str, typed: bool) -> None:
        super().__init__(model)
        self._vendor = vendor
        self._typed = typed
        # What came instead of an answer, for the error.
        self._unread = ""
        # An error after the end of an answer without content.
        self._late_error: ModelError | None = None
        self._refusal: list[str] = []
        self._images: list[Any] = []
        self._has_delta = self._has_content = False
        # Whether a choice had a place for content, which may be empty.
        self._has_shape = False
        # Whether the answer came as one completion, which some servers give no reason for its end.
        self._is_body = False
        self._logprobs: list[Logprob] = []
        self._calls = CallReader(self.broken)
        self._reasoning = ReasoningReader(vendor)
        self._sources = SourceReader(vendor)
        self._audio = AudioReader()

    def is_answer(self, body: Mapping[str, Any]) -> bool:
        """Whether a JSON body is a completion."""
        return isinstance(body.get("choices"), list)

    def read(self, event: Any) -> Sequence[Chunk]:
        """Convert a chunk of the server, or a whole completion."""
        if event is DONE:
            return self._end_without_reason()
        if not isinstance(event, dict):
            raise self.broken(f"a chunk is no object ({event!r:.80})")
        found, chunks = cast(dict[str, Any], event), list[Chunk]()
        choice: Any = None
        is_error = _is_error(found)
        for choice in found.get("choices") or ():
            if not choice.get("index"):  # Only the first of several alternatives.
                self._read_choice(choice, chunks)
                if not is_error:
                    self._read_reason(choice, chunks)
        usage = _usage_in(found, choice)
        if usage is not None:
            chunks.append(UsageChunk(chat_usage(usage)))
        if is_error:
            chunks += self._fail(found)
        elif len(found) > 2:
            self._sources.read_event(found)
        if choice is None and usage is None:
            self._unread = f"{found!r:.200}"
        return chunks

    def end(self) -> Iterable[Chunk]:
        """Return sources and the recording, if any; raises `ContentFiltered` for a refusal of a typed answer."""
        if not self.is_complete and self._unread:
            raise self.broken(f"it ended before the vendor said why it stopped; it said {self._unread}")
        super().end()
        if self._late_error is not None:
            raise self._late_error
        self._calls.check()
        if self._refusal and self._typed:
            raise ContentFiltered(f"{self.model} refuses to answer: {''.join(self._refusal)}")
        logprobs = [PartChunk(Logprobs(tuple(self._logprobs)))] if self._logprobs else []
        return [*logprobs, *self._sources.end(), *self._audio.end()]

    def _read_choice(self, choice: Mapping[str, Any], chunks: list[Chunk]) -> None:
        delta: Any = choice.get("delta")
        if not self._has_shape:
            self._has_shape = any(name in choice for name in _SHAPES)
        if delta:
            self._has_delta = True
            self._read_delta(delta, chunks)
        elif not self._has_delta and (message := choice.get("message")):
            self._read_delta(message, chunks)
            self._is_body = True
        elif not self._has_delta and (text := choice.get("text")):
            self._read_delta({"content": text}, chunks)
        if isinstance(logprobs := choice.get("logprobs"), dict):
            self._logprobs += logprobs_of(cast(dict[str, Any], logprobs).get("content"))

    def _read_reason(self, choice: Mapping[str, Any], chunks: list[Chunk]) -> None:
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason not in ("", "null"):
            if choice.get("error"):
                raise to_error(self.model, parse_fault(None, {"error": choice["error"]}))
            self._finish(reason.lower(), chunks)
        elif self._is_body:
            chunks += self._end_without_reason()

    def _read_delta(self, delta: Mapping[str, Any], chunks: list[Chunk]) -> None:
        content: Any = delta.get("content")
        is_alone = len(delta) == 1 and bool(content)
        if not is_alone and self._reasoning.read(delta, chunks):
            content = None
        if content and isinstance(content, str):
            self._add_text(content, chunks)
        elif content:
            self._has_content = True
            parts = cast(list[Any], content if isinstance(content, list) else [content])
            list_chunks(parts, self._reasoning, chunks)
        if not is_alone:
            self._read_rest(delta, chunks)

    def _read_rest(self, delta: Mapping[str, Any], chunks: list[Chunk]) -> None:
        """Read what a delta has beside reasoning and text."""
        if refusal := delta.get("refusal"):
            self._refusal.append(str(refusal))
            if not self._typed:
                self._add_text(str(refusal), chunks)
        if audio := delta.get("audio"):
            self._has_content = True
            self._audio.read(audio, chunks)
        for item in delta.get("images") or ():
            image = image_of(item)
            if image is not None and image not in self._images:
                self._has_content = True
                self._images.append(image)
                chunks.append(PartChunk(image))
        self._sources.read_delta(delta, chunks)
        calls = delta.get("tool_calls")
        if (call := delta.get("function_call")) and not calls:
            calls = [{"index": "function_call", "function": call}]
        if calls and self._reasoning.is_open:
            self._reasoning.close(chunks)
        for place, call in enumerate(calls or ()):
            self._calls.read(call, chunks, index=None if self._has_delta else place)

    def _add_text(self, text: str, chunks: list[Chunk]) -> None:
        if self._reasoning.is_open:
            self._reasoning.close(chunks)
        self._has_content = True
        chunks.append(TextChunk(text))

    def _finish(self, reason: str, chunks: list[Chunk]) -> None:
        if reason in _FILTERED:
            raise self.filtered(f"stopped the answer ({reason})")
        if reason in _FAILED:
            raise self.broken(f"the vendor says that it failed ({reason})")
        stop = _STOPS.get(reason, "unknown")
        is_odd = stop in ("unknown", "tool_use") or not self._has_shape
        if is_odd and not (self._has_content or len(self._calls) or self._refusal):
            raise self.empty(reason)
        self._reasoning.close(chunks)
        self.is_complete = True
        chunks.append(StopChunk("tool_use" if stop == "end_turn" and len(self._calls) else stop))

    def _end_without_reason(self) -> list[Chunk]:
        """End an answer whose server marks the end without a reason."""
        chunks: list[Chunk] = []
        if not self.is_complete and (self._has_content or len(self._calls)):
            self._finish("stop", chunks)
        return chunks

    def _fail(self, event: Mapping[str, Any]) -> Iterable[Chunk]:
        """Raise the error that an event holds, unless it is about the end of a complete answer."""
        is_call = is_failed_call(event)
        if is_call and (call := repaired_call(event, has_text=self._has_content)) is not None:
            return self.read(call)
        error = to_error(self.model, parse_fault(None, event))
        error.transient = error.transient or is_call
        if not self.is_complete:
            raise error
        if not (self._has_content or len(self._calls) or self._refusal):
            self._late_error = error
        return ()


def _is_error(event: Mapping[str, Any]) -> bool:
    """Whether an event is an error: OpenAI's, vLLM's, or one without the envelope."""
    if event.get("error") or event.get("object") == "error":
        return True
    return "choices" not in event and any(event.get(name) for name in _BARE_ERRORS)


def _usage_in(event: Mapping[str, Any], choice: Any) -> Mapping[str, Any] | None:
    """The usage of an event; Groq and Moonshot have it in other places, too."""
    places: tuple[Any, ...] = (event, event.get("x_groq"), choice)
    for place in places:
        usage: Any = cast(dict[str, Any], place).get("usage") if isinstance(place, dict) else None
        if isinstance(usage, dict):
            return cast(dict[str, Any], usage)
    return None
