"""Reading an answer of Gemini: its responses as JSON, streamed or whole."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import InvalidRequest, ModelError, RateLimited
from ...types.content import Audio, Base64, Document, Image, Logprob, Logprobs, Part, Unknown, Url, Video
from ...types.events import StopReason
from ...types.runs import Usage
from ..protocol import Chunk, PartChunk, ReasoningChunk, StopChunk, TextChunk, UsageChunk
from ..shared.faults import Fault, parse_fault, to_error
from ..shared.reader import Reader
from .partial_calls import PartialCalls, text_or_none
from .sources import Sources
from .tools import VENDOR, ServerTools

__all__ = ["ResponseReader", "error_of"]

_STOPS: dict[str, StopReason] = {"STOP": "end_turn", "MAX_TOKENS": "max_tokens", "CONTINUATION": "pause_turn"}
_FILTERED = {
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "MODEL_ARMOR",
    "JAILBREAK",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
}
# Failures of the model that a retry may fix.
_MALFORMED = {"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"}
# The fields of a part that the reader knows, with those that describe it and those of requests.
_KNOWN = {
    *("text", "thought", "thoughtSignature", "inlineData", "fileData", "audioTranscription", "functionResponse"),
    *("mediaResolution", "videoMetadata", "partMetadata", "mediaProcessing", "speechMetadata"),
}
# What a thought may be besides a text.
_HELD = (
    *("functionCall", "executableCode", "codeExecutionResult", "toolCall", "toolResponse"),
    *("inlineData", "fileData"),
)
_MEDIA: dict[str, type[Image | Audio | Video]] = {"image": Image, "audio": Audio, "video": Video}


class ResponseReader(Reader):
    """Reads one answer."""

    __slots__ = (
        "_calls",
        "_counts",
        "_has_content",
        "_is_called",
        "_logprobs",
        "_sources",
        "_stop",
        "_tools",
        "_why",
    )

    def __init__(self, model: str) -> None:
        super().__init__(model)
        # The reason why the model stopped, and the vendor's words on it.
        self._stop = self._why = ""
        self._is_called = self._has_content = False
        self._counts: dict[str, Any] = {}
        self._logprobs: list[Logprob] = []
        self._calls = PartialCalls()
        self._sources = Sources()
        self._tools = ServerTools()

    def is_answer(self, body: Mapping[str, Any]) -> bool:
        """Whether a JSON body is a response."""
        return any(name in body for name in ("candidates", "promptFeedback", "usageMetadata"))

    def read(self, event: dict[str, Any]) -> Iterator[Chunk]:
        """Convert a response."""
        if event.get("error"):
            raise error_of(self.model, parse_fault(None, event), event)
        if isinstance(response_id := event.get("responseId"), str):
            self.request_id = response_id
        if usage := event.get("usageMetadata"):
            self._counts |= {name: value for name, value in usage.items() if value is not None}
            yield UsageChunk(_usage(self._counts, 0))
        feedback: dict[str, Any] = event.get("promptFeedback") or {}
        if reason := feedback.get("blockReason"):
            raise self._refused("the request", reason, feedback.get("blockReasonMessage"))
        for candidate in event.get("candidates") or ():
            if not candidate.get("index"):  # The others are alternatives.
                yield from self._candidate(candidate)

    def _candidate(self, candidate: dict[str, Any]) -> Iterator[Chunk]:
        content: dict[str, Any] = candidate.get("content") or {}
        for part in content.get("parts") or ():
            yield from self._part(part)
        self._sources.add(candidate)
        self._logprobs += _logprobs(candidate.get("logprobsResult") or {})
        if reason := candidate.get("finishReason"):
            self._stop, self._why = reason, candidate.get("finishMessage") or ""
            self._check()

    def end(self) -> Iterator[Chunk]:
        """Return sources and the stop reason.

        Some models send a reason with each response, so the answer is complete only now.
        """
        self.is_complete = bool(self._stop)
        yield from super().end()
        for call in self._calls.end():
            self._has_content = self._is_called = True
            yield call
        if self._stop not in _STOPS and not self._has_content:
            raise self.broken(f"{self._stop}: {self._why or 'it has no content'}")
        for part in (*self._tools.end(), *self._sources.end()):
            yield PartChunk(part)
        if searches := self._sources.searches:
            yield UsageChunk(_usage(self._counts, searches))
        if self._logprobs:
            yield PartChunk(Logprobs(tuple(self._logprobs)))
        is_call = self._is_called and self._stop == "STOP"
        yield StopChunk("tool_use" if is_call else _STOPS.get(self._stop, "unknown"))

    def _part(self, part: dict[str, Any]) -> Iterator[Chunk]:
        signature, text = text_or_none(part.get("thoughtSignature")), _text(part)
        if part.get("thought") and (text or not any(name in part for name in _HELD)):
            if text or signature:
                yield ReasoningChunk(text, signature, None, VENDOR if signature else None)
            return
        if (call := part.get("functionCall")) is not None:
            for chunk in self._calls.add(call, signature):
                self._has_content = self._is_called = True
                yield chunk
            return
        if (tool := self._tools.add(part, self.request_id or "")) is not None:
            self._has_content = True
            yield PartChunk(tool)
            return  # Its signature is in the part, which goes back as it came.
        if text:
            self._has_content = True
            self._sources.add_text(text)
            yield TextChunk(text)
        if (media := _media(part) or _unknown(part)) is not None:
            self._has_content = True
            yield PartChunk(media)
        if signature is not None:
            yield ReasoningChunk("", signature, None, VENDOR)

    def _check(self) -> None:
        if self._stop in _FILTERED:
            raise self._refused("the answer", self._stop, self._why)
        if self._stop in _MALFORMED:
            raise self.broken(f"{self._stop}: {self._why or 'no reason given'}")
        if self._stop == "MISSING_THOUGHT_SIGNATURE":
            raise InvalidRequest(f"{self.model}: the vendor misses a thought signature: {self._why}", status=200)

    def _refused(self, what: str, reason: str, message: str | None) -> ModelError:
        return self.filtered(f"refused {what} ({reason})" + (f": {message}" if message else ""))


def error_of(model: str, fault: Fault, body: Any) -> ModelError:
    """Convert a fault of Google's APIs, which call every limit a quota; the details say which one it was."""
    made = to_error(model, fault)
    if isinstance(made, RateLimited) and fault.status == 429:
        made.transient = "PerDay" not in str(body)
    return made


def _text(part: Mapping[str, Any]) -> str:
    """The text of a part, or the transcript of its recording."""
    transcript: dict[str, Any] = part.get("audioTranscription") or {}
    return text_or_none(part.get("text") or transcript.get("text")) or ""


def _unknown(part: Mapping[str, Any]) -> Unknown | None:
    """The part as it is, if it has a field that the reader doesn't know."""
    kind = next((name for name, value in part.items() if name not in _KNOWN and value), None)
    return None if kind is None else Unknown(kind, dict(part))


def _media(part: Mapping[str, Any]) -> Part | None:
    """The media of a part: inside it, or by a URL."""
    blob: dict[str, Any] = part.get("inlineData") or {}
    file: dict[str, Any] = part.get("fileData") or {}
    kind = blob.get("mimeType") or file.get("mimeType") or "application/octet-stream"
    if data := blob.get("data"):
        # The URL-safe alphabet is allowed, too.
        source = Base64(kind, base64.b64encode(base64.b64decode(data.translate(_URL_SAFE))).decode())
    elif uri := file.get("fileUri"):
        source = Url(uri, kind)
    else:
        return None
    made = _MEDIA.get(kind.partition("/")[0])
    return Document(source) if made is None else made(source)


_URL_SAFE = str.maketrans("-_", "+/")


def _logprobs(found: Mapping[str, Any]) -> list[Logprob]:
    tops = [
        tuple(
            (one.get("token") or "", float(one.get("logProbability") or 0)) for one in top.get("candidates") or ()
        )
        for top in found.get("topCandidates") or ()
    ]
    return [
        Logprob(
            one.get("token") or "", float(one.get("logProbability") or 0), tops[index] if index < len(tops) else ()
        )
        for index, one in enumerate(found.get("chosenCandidates") or ())
    ]


def _usage(counts: Mapping[str, Any], searches: int) -> Usage:
    def count(name: str) -> int:
        return counts.get(name) or 0

    thoughts = count("thoughtsTokenCount")
    return Usage(
        count("promptTokenCount") + count("toolUsePromptTokenCount"),
        count("candidatesTokenCount") + thoughts,
        count("cachedContentTokenCount"),
        0,
        thoughts,
        searches=searches,
    )
