"""Content blocks of ACP as content parts, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...types.content import Audio, Base64, Content, Document, Image, Text, Url

__all__ = ["Block", "blocks_of", "parts_of", "text_block"]

Block = dict[str, Any]


def parts_of(blocks: Sequence[Block]) -> tuple[Content, ...]:
    """Content parts of the blocks of a prompt."""
    return tuple([_part(block) for block in blocks])


def _part(block: Block) -> Content:
    match block:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "image", "data": str(data), "mimeType": str(kind)}:
            return Image(Base64(kind, data))
        case {"type": "audio", "data": str(data), "mimeType": str(kind)}:
            return Audio(Base64(kind, data))
        case {"type": "resource_link", "uri": str(uri), "name": str(name)}:
            return Text(f"[{name}]({uri})")
        case {"type": "resource", "resource": {"text": str(text), "uri": str(uri)}}:
            return Text(f'<resource uri="{uri}">\n{text}\n</resource>')
        case {"type": "resource", "resource": {"blob": str(blob), "uri": str(uri), **rest}}:
            kind = rest.get("mimeType") or "application/octet-stream"
            return Document(Base64(kind, blob), title=uri)
        case _:
            raise ValueError(f"a content block of type {block.get('type')!r:.40} can't be read")


def text_block(text: str) -> Block:
    """A block of text."""
    return {"type": "text", "text": text}


def blocks_of(parts: Sequence[Content]) -> list[Block]:
    """The blocks of a message's parts; reasoning and calls aren't blocks."""
    return [block for part in parts if (block := _block(part)) is not None]


def _block(part: Content) -> Block | None:
    match part:
        case Text(text) if text:
            return text_block(text)
        case Image(Base64(kind, data)):
            return {"type": "image", "data": data, "mimeType": kind}
        case Audio(Base64(kind, data)):
            return {"type": "audio", "data": data, "mimeType": kind}
        case Document(Base64(kind, data), title):
            return {
                "type": "resource",
                "resource": {"uri": f"attachment:{title or 'file'}", "blob": data, "mimeType": kind},
            }
        case Image(Url(url)) | Audio(Url(url)) | Document(Url(url)):
            return {"type": "resource_link", "uri": url, "name": url.rpartition("/")[2] or url}
        case _:
            return None
