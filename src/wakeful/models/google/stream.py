"""Reading a Gemini stream."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from ...errors import ContentFiltered
from ...types.content import Audio, Base64, Document, Image, Part, Video
from ...types.events import StopReason
from ...types.runs import Usage
from ..protocol import CallChunk, Chunk, PartChunk, ReasoningChunk, StopChunk, TextChunk, UsageChunk
from ..shared.reader import Reader
from .request import VENDOR

__all__ = ["ResponseReader"]

_STOPS: dict[str, StopReason] = {"STOP": "end_turn", "MAX_TOKENS": "max_tokens"}
_FILTERED = {
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
}
# Failures of the model that a retry may fix.
_MALFORMED = {"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"}

_MEDIA: dict[str, type[Image | Audio | Video]] = {"image": Image, "audio": Audio, "video": Video}


class ResponseReader(Reader):
    """Reads one answer."""

    __slots__ = ("_called", "_stop")

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._stop = ""
        self._called = False

    def read(self, event: Any) -> Iterator[Chunk]:
        """Convert a response."""
        self.request_id = event.response_id or self.request_id
        if (feedback := event.prompt_feedback) is not None and feedback.block_reason:
            reason = _enum_value(feedback.block_reason)
            raise self._refused("the request", reason, feedback.block_reason_message)
        for candidate in event.candidates or ():
            for part in (candidate.content and candidate.content.parts) or ():
                yield from self._part(part)
            if candidate.finish_reason is not None:
                self._stop = _enum_value(candidate.finish_reason)
                self._check(self._stop, candidate.finish_message)
        if (usage := event.usage_metadata) is not None:
            yield UsageChunk(_usage(usage))

    def end(self) -> Iterator[Chunk]:
        """Return the stop reason. Some models send one with each response, so the answer is complete only now."""
        self.is_complete = bool(self._stop)
        yield from super().end()
        if self._called and self._stop == "STOP":
            yield StopChunk("tool_use")
        else:
            yield StopChunk(_STOPS.get(self._stop, "unknown"))

    def _part(self, part: Any) -> Iterator[Chunk]:
        signature = base64.b64encode(part.thought_signature).decode() if part.thought_signature else None
        if (call := part.function_call) is not None:
            self._called = True
            yield CallChunk(call.name, dict(call.args or {}), call.id, signature)
        elif part.thought:
            yield ReasoningChunk(part.text or "", signature, None, VENDOR if signature else None)
        else:
            if part.text:
                yield TextChunk(part.text)
            elif (blob := part.inline_data) is not None and blob.data:
                yield PartChunk(_media(blob))
            if signature is not None:
                yield ReasoningChunk("", signature, None, VENDOR)

    def _check(self, stop: str, message: str | None) -> None:
        if stop in _FILTERED:
            raise self._refused("the answer", stop, message)
        if stop in _MALFORMED:
            raise self.broken(f"{stop}: {message or 'no reason given'}")

    def _refused(self, what: str, reason: str, message: str | None) -> ContentFiltered:
        return self.filtered(f"refused {what} ({reason})" + (f": {message}" if message else ""))


def _enum_value(value: Any) -> str:
    return str(getattr(value, "value", value))


def _media(blob: Any) -> Part:
    kind = blob.mime_type or "application/octet-stream"
    source = Base64(kind, base64.b64encode(blob.data).decode())
    made = _MEDIA.get(kind.partition("/")[0])
    return Document(source) if made is None else made(source)


def _usage(usage: Any) -> Usage:
    thoughts = usage.thoughts_token_count or 0
    return Usage(
        (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0),
        (usage.candidates_token_count or 0) + thoughts,
        usage.cached_content_token_count or 0,
        0,
        thoughts,
    )
