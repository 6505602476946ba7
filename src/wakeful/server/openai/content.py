"""Content of OpenAI's APIs as content parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...types.content import Audio, Base64, Content, Document, Image, MediaSource, Text, Url
from .errors import Unsupported

__all__ = ["parts_of", "plain_text"]

_AUDIO = {"wav": "audio/wav", "mp3": "audio/mpeg"}


def parts_of(content: str | Sequence[dict[str, Any]] | None) -> tuple[Content, ...]:
    """Content parts of a text or of a list of OpenAI's parts; raises `Unsupported` for other kinds."""
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),) if content else ()
    return tuple([_part(each) for each in content])


def plain_text(content: str | Sequence[dict[str, Any]] | None) -> str:
    """The text of a message's content."""
    return "".join([part.text for part in parts_of(content) if isinstance(part, Text)])


def _part(part: dict[str, Any]) -> Content:
    match part:
        case {"type": "text" | "input_text" | "output_text", "text": str(text)}:
            return Text(text)
        case {"type": "refusal", "refusal": str(text)}:
            return Text(text)
        case {"type": "image_url", "image_url": {"url": str(url)}} | {
            "type": "input_image",
            "image_url": str(url),
        }:
            return Image(_source(url))
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(kind)}} if kind in _AUDIO:
            return Audio(Base64(_AUDIO[kind], data))
        case {"type": "file", "file": {"file_data": str(data), **rest}}:
            return Document(_source(data), title=_name(rest))
        case {"type": "input_file", "file_data": str(data), **rest}:
            return Document(_source(data), title=_name(rest))
        case {"type": "input_file", "file_url": str(url), **rest}:
            return Document(Url(url), title=_name(rest))
        case _:
            kind = part.get("type")
            raise Unsupported(
                f"a content part of type {kind!r:.40} with the fields {', '.join(sorted(part))!s:.80} can't be "
                "read; give text, image_url, input_audio (wav, mp3) or file with file_data"
            )


def _name(rest: dict[str, Any]) -> str | None:
    name = rest.get("filename")
    return name if isinstance(name, str) else None


def _source(url: str) -> MediaSource:
    """A URL, or the media inside a `data:` URL."""
    if not url.startswith("data:"):
        return Url(url)
    head, comma, data = url[len("data:") :].partition(",")
    kind, _, encoding = head.partition(";")
    if not comma or encoding != "base64" or not kind:
        raise Unsupported("a data: URL has a media type and base64: data:image/png;base64,...")
    return Base64(kind, data)
