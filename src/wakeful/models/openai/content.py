"""Media in the formats of OpenAI's two APIs."""

from __future__ import annotations

from typing import Any

from ...types.content import Audio, Base64, Document, Image, Url
from ..shared.history import Media
from ..shared.vendor import document_text, media_type_of, unsupported

__all__ = ["as_document_text", "chat_part", "responses_part", "takes_chat", "takes_responses"]

_AUDIO = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}


def takes_responses(part: Media) -> bool:
    """Whether the Responses API accepts the part."""
    return isinstance(part, Image | Document)


def takes_chat(part: Media) -> bool:
    """Whether Chat Completions accepts the part."""
    if isinstance(part, Audio):
        return media_type_of(part) in _AUDIO
    return isinstance(part, Image) or (isinstance(part, Document) and isinstance(part.source, Base64))


def responses_part(model: str, part: Media, where: str, detail: str | None) -> dict[str, Any]:
    """Convert a part for the Responses API."""
    if isinstance(part, Image):
        return {"type": "input_image", "image_url": _address(part), "detail": detail or "auto"}
    if isinstance(part, Document):
        if (text := document_text(part)) is not None:
            return {"type": "input_text", "text": as_document_text(part, text)}
        if isinstance(part.source, Url):
            return {"type": "input_file", "file_url": part.source.url}
        return {"type": "input_file", "filename": _file_name(part), "file_data": _address(part)}
    raise unsupported(model, part, where)


def chat_part(model: str, part: Media, where: str, detail: str | None) -> dict[str, Any]:
    """Convert a part for Chat Completions."""
    if isinstance(part, Image):
        return {
            "type": "image_url",
            "image_url": {"url": _address(part), **({"detail": detail} if detail else {})},
        }
    if isinstance(part, Audio) and isinstance(part.source, Base64):
        if (kind := _AUDIO.get(media_type_of(part))) is None:
            raise unsupported(model, part, where, "it takes WAV and MP3")
        return {"type": "input_audio", "input_audio": {"data": part.source.data, "format": kind}}
    if isinstance(part, Document) and isinstance(part.source, Base64):
        if (text := document_text(part)) is not None:
            return {"type": "text", "text": as_document_text(part, text)}
        return {"type": "file", "file": {"filename": _file_name(part), "file_data": _address(part)}}
    raise unsupported(model, part, where)


def as_document_text(part: Media, text: str) -> str:
    """Format a textual document as text with its title."""
    title = getattr(part, "title", None) or "document"
    return f"[{title}]\n{text}"


def _address(part: Media) -> str:
    source = part.source
    if isinstance(source, Url):
        return source.url
    return f"data:{source.media_type};base64,{source.data}" if isinstance(source, Base64) else ""


def _file_name(part: Document) -> str:
    kind = media_type_of(part).rpartition("/")[2] or "bin"
    ending = {"plain": "txt", "octet-stream": "bin"}.get(kind, kind)
    title = part.title or "document"
    return title if "." in title[1:] else f"{title}.{ending}"
