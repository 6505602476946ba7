"""Content in the format of the Messages API."""

from __future__ import annotations

import re
from typing import Any

from ...types.content import Base64, Document, Image, Text, Thinking, ToolCall, ToolReply, Url
from ..protocol import ModelRequest
from ..shared.history import Entry, Media, build_entries, call_ids
from ..shared.vendor import document_text, media_type_of, unsupported

__all__ = ["VENDOR", "convert_messages"]

VENDOR = "anthropic"
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def convert_messages(shown: str, request: ModelRequest) -> list[dict[str, Any]]:
    """Convert the conversation. `shown` is the model's name in errors."""
    found = build_entries(request.messages, _is_own, _accepts, _accepts)
    ids = call_ids(found, _CALL_ID)
    messages: list[dict[str, Any]] = []
    for entry in found:
        role = "assistant" if entry.role == "assistant" else "user"
        blocks = _blocks(shown, entry, ids)
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        elif blocks:
            messages.append({"role": role, "content": blocks})
    return messages


def _is_own(thought: Thinking) -> bool:
    return thought.vendor == VENDOR and bool(thought.signature or thought.encrypted)


def _accepts(part: Media) -> bool:
    if isinstance(part, Image):
        return isinstance(part.source, Url) or media_type_of(part) in _IMAGES
    if not isinstance(part, Document):
        return False
    return (
        isinstance(part.source, Url) or media_type_of(part) == "application/pdf" or document_text(part) is not None
    )


def _blocks(shown: str, entry: Entry, ids: dict[str, str]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for part in entry.content:
        if isinstance(part, Text):
            # A system text within the conversation: not all models have a role for it.
            text = f"<system>\n{part.text}\n</system>" if entry.role == "system" else part.text
            blocks.append({"type": "text", "text": text})
        elif isinstance(part, ToolReply):
            blocks.append(_result(shown, part, ids))
        elif isinstance(part, ToolCall):
            call = {"id": ids[part.id], "name": part.name, "input": part.arguments}
            blocks.append({"type": "tool_use", **call})
        elif isinstance(part, Thinking):
            blocks.append(_thinking_block(part))
        elif isinstance(part, Media):
            blocks.append(_media(shown, part, "messages"))
    if entry.role == "assistant" and blocks and blocks[-1]["type"] == "text":
        # The API refuses a final answer that ends in whitespace.
        blocks[-1]["text"] = blocks[-1]["text"].rstrip()
    return blocks


def _thinking_block(part: Thinking) -> dict[str, Any]:
    if part.signature is not None:
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}
    return {"type": "redacted_thinking", "data": part.encrypted}


def _result(shown: str, reply: ToolReply, ids: dict[str, str]) -> dict[str, Any]:
    content = [
        {"type": "text", "text": part.text} if isinstance(part, Text) else _media(shown, part, "results")
        for part in reply.content
        if isinstance(part, Media) or (isinstance(part, Text) and part.text and not part.text.isspace())
    ]
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": ids[reply.call_id], "content": content}
    if reply.error is not None:
        block["is_error"] = True
        if not content:
            block["content"] = [{"type": "text", "text": reply.error}]
    return block


def _media(shown: str, part: Media, where: str) -> dict[str, Any]:
    if not _accepts(part):
        hint = "it takes JPEG, PNG, GIF and WebP" if isinstance(part, Image) else ""
        raise unsupported(shown, part, where, hint)
    source = part.source
    if isinstance(part, Image):
        return {"type": "image", "source": _source(source)}
    if (text := document_text(part)) is not None:
        block: dict[str, Any] = {"type": "text", "media_type": "text/plain", "data": text}
    else:
        block = _source(source)
    title = getattr(part, "title", None)
    return {"type": "document", "source": block, **({"title": title} if title else {})}


def _source(source: Any) -> dict[str, Any]:
    if isinstance(source, Base64):
        kind = source.media_type.partition(";")[0].strip().lower()
        return {"type": "base64", "media_type": kind, "data": source.data}
    return {"type": "url", "url": source.url}
