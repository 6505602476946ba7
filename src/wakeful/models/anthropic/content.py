"""Content in the format of the Messages API."""

from __future__ import annotations

import re
from typing import Any

from ...types.content import Base64, Document, Image, ServerTool, Text, Thinking, ToolCall, ToolReply, Url
from ..protocol import ModelRequest
from ..shared.history import (
    CitedText,
    Entry,
    Media,
    build_entries,
    call_ids,
    found_tools,
    mark_system,
    take_system_text,
)
from ..shared.vendor import document_text, media_type_of, unsupported
from .server_tools import VENDOR, signed_fields

__all__ = ["convert_messages"]

_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def convert_messages(
    shown: str, request: ModelRequest, takes_system_messages: bool
) -> tuple[str, list[dict[str, Any]]]:
    """Convert the conversation to its system text and its messages. `shown` is the model's name in errors."""
    found = build_entries(request.messages, _is_own, _accepts, _accepts, vendor=VENDOR)
    ids = call_ids(found, _CALL_ID)
    deferred = frozenset([spec.name for spec in request.tools if spec.deferred])
    head = take_system_text(request.system, found)
    messages: list[dict[str, Any]] = []
    for place, entry in enumerate(found):
        blocks = _blocks(shown, entry, ids, deferred)
        role = "assistant" if entry.role == "assistant" else "user"
        if entry.role == "system":
            if takes_system_messages and _fits_system(found, place):
                messages.append({"role": "system", "content": blocks})
                continue
            for block in blocks:
                block["text"] = mark_system(block["text"])
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        elif blocks:
            messages.append({"role": role, "content": blocks})
    if (
        messages
        and messages[-1]["role"] == "assistant"
        and (last := messages[-1]["content"][-1])["type"] == "text"
    ):
        last["text"] = last["text"].rstrip()  # The API refuses to continue an answer that ends in whitespace.
    return head, messages


def _fits_system(found: list[Entry], place: int) -> bool:
    """Whether a system message may stand here: behind a user's turn, and at the end or before an answer."""
    after = found[place + 1 : place + 2]
    return place > 0 and found[place - 1].role in ("user", "tool") and all(e.role == "assistant" for e in after)


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


def _blocks(shown: str, entry: Entry, ids: dict[str, str], deferred: frozenset[str]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for part in entry.content:
        if isinstance(part, Text):
            cited = {"citations": [_sent(one) for one in part.citations]} if isinstance(part, CitedText) else {}
            blocks.append({"type": "text", "text": part.text, **cited})
        elif isinstance(part, ToolReply):
            blocks.append(_result(shown, part, ids, deferred))
        elif isinstance(part, ToolCall):
            call = {"id": ids[part.id], "name": part.name, "input": part.arguments}
            blocks.append({"type": "tool_use", **call, **signed_fields(part.signature)})
        elif isinstance(part, ServerTool):
            blocks += part.raw
        elif isinstance(part, Thinking):
            blocks.append(_thinking_block(part))
        elif isinstance(part, Media):
            blocks.append(_media(shown, part, "messages"))
    return blocks


def _sent(raw: dict[str, Any]) -> dict[str, Any]:
    """A citation as the API takes it back: without the file's id, and with its title."""
    title = "title" if "document_index" not in raw else "document_title"
    return {title: None} | {name: value for name, value in raw.items() if name != "file_id"}


def _thinking_block(part: Thinking) -> dict[str, Any]:
    if part.signature is not None:
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}
    return {"type": "redacted_thinking", "data": part.encrypted}


def _result(shown: str, reply: ToolReply, ids: dict[str, str], deferred: frozenset[str]) -> dict[str, Any]:
    if deferred and (names := [name for name in found_tools(reply) if name in deferred]):
        content = [{"type": "tool_reference", "tool_name": name} for name in names]
        return {"type": "tool_result", "tool_use_id": ids[reply.call_id], "content": content}
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
