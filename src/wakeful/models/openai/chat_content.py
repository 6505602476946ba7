"""The content of Chat Completions beside plain text: lists of parts, images, recordings."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any, cast

from ...types.content import Audio, Base64, Citation, Image, Unknown, Url
from ..protocol import Chunk, PartChunk, TextChunk
from .chat_thoughts import THINKING, ReasoningReader

__all__ = ["AudioReader", "image_of", "list_chunks"]

# How recordings begin. OpenAI streams samples without a header.
_FORMATS = (
    *((start, "audio/mpeg") for start in (b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2")),
    *((b"RIFF", "audio/wav"), (b"OggS", "audio/ogg"), (b"fLaC", "audio/flac")),
)
_SAMPLES = "audio/pcm;rate=24000"


def list_chunks(items: Iterable[Any], reasoning: ReasoningReader, chunks: list[Chunk]) -> None:
    """Read content that is a list of parts, as Mistral's: thinking, text, references."""
    for item in items:
        if isinstance(item, str):
            item = {"type": "text", "text": item}
        part = cast(dict[str, Any], item)
        kind = str(part.get("type"))
        if kind == "thinking":
            pieces: Any = part.get("thinking")
            for piece in cast(list[Any], pieces) if isinstance(pieces, list) else [pieces]:
                text = cast(dict[str, Any], piece).get("text") if isinstance(piece, dict) else piece
                if isinstance(text, str):
                    reasoning.add(text, THINKING, chunks)
            continue
        text = part.get("text") or part.get("refusal")
        if kind in ("text", "output_text", "refusal") and not text:
            continue
        if reasoning.is_open:
            reasoning.close(chunks)
        if kind in ("text", "output_text", "refusal") and isinstance(text, str):
            chunks.append(TextChunk(text))
        else:
            chunks.append(PartChunk(_part(kind, part, reasoning.vendor)))


def _part(kind: str, part: dict[str, Any], vendor: str) -> Any:
    if (image := image_of(part)) is not None:
        return image
    if kind == "reference":
        ids: Any = part.get("reference_ids") or ()
        source = ", ".join(map(str, ids))
        return Citation("search", source=source, location={"reference_ids": [*ids]}, vendor=vendor, raw=part)
    if kind == "tool_reference" and isinstance(part.get("url"), str):
        title = part.get("title") if isinstance(part.get("title"), str) else None
        return Citation("url", url=part["url"], title=title, vendor=vendor, raw=part)
    return Unknown(kind, part)


def image_of(part: Any) -> Image | None:
    """The image of a part, as OpenRouter also lists them beside the content; None if it has none."""
    found: Any = cast(dict[str, Any], part).get("image_url") if isinstance(part, dict) else None
    if isinstance(found, dict):
        found = cast(dict[str, Any], found).get("url")
    if not isinstance(found, str) or not found:
        return None
    if not found.startswith("data:"):
        return Image(Url(found))
    head, _, data = found[5:].partition(",")
    return Image(Base64(head.partition(";")[0] or "image/png", data))


class AudioReader:
    """Collects the recording of an answer."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def read(self, audio: Any, chunks: list[Chunk]) -> None:
        """Read a piece of the recording, and of its transcript."""
        found = cast(dict[str, Any], audio)
        if data := found.get("data"):
            self._pieces.append(b64decode(data))
        if isinstance(text := found.get("transcript"), str) and text:
            chunks.append(TextChunk(text))

    def end(self) -> list[Chunk]:
        """The whole recording, if there is one."""
        if not self._pieces:
            return []
        data = b"".join(self._pieces)
        kind = next((kind for start, kind in _FORMATS if data.startswith(start)), _SAMPLES)
        return [PartChunk(Audio(Base64(kind, b64encode(data).decode())))]
