"""The messages of a Chat Completions request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ...types.content import Text, Thinking, ToolCall, ToolReply
from ..protocol import ModelRequest
from ..shared.history import Entry, Media, build_entries, call_ids, reply_text
from .chat_thoughts import is_fields, reasoning_fields
from .content import chat_part, takes_chat
from .dialect import Dialect

__all__ = ["chat_messages"]


def chat_messages(
    shown: str, vendor: str, request: ModelRequest, detail: str | None, dialect: Dialect
) -> list[dict[str, Any]]:
    """Convert the conversation for `vendor`. `shown` is the model's name in errors, `detail` that of images."""

    def keep(thought: Thinking) -> bool:
        if thought.vendor != vendor:
            return False
        if thought.encrypted is not None:
            return is_fields(thought.encrypted)
        return dialect.thoughts != "none" and bool(thought.text)

    found = build_entries(request.messages, keep, takes_chat, lambda part: not takes_chat(part), signs_behind=True)
    ids = call_ids(found, re.compile(dialect.call_id))
    messages: list[dict[str, Any]] = []
    for entry in found:
        if entry.role == "assistant":
            messages.append(_answer(entry, ids, dialect))
        elif entry.role == "tool":
            messages += [_result(shown, reply, ids) for reply in entry.replies]
        else:
            if dialect.after_tools and messages and messages[-1]["role"] == "tool":
                messages.append({"role": "assistant", "content": dialect.after_tools})
            messages.append({"role": entry.role, "content": _content(shown, entry, detail)})
    return messages


def _content(shown: str, entry: Entry, detail: str | None) -> Any:
    parts = entry.content
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    return [
        {"type": "text", "text": part.text}
        if isinstance(part, Text)
        else chat_part(shown, part, "messages", detail)
        for part in parts
        if isinstance(part, Text | Media)
    ]


def _answer(entry: Entry, ids: dict[str, str], dialect: Dialect) -> dict[str, Any]:
    texts = [part.text for part in entry.content if isinstance(part, Text)]
    calls = [part for part in entry.content if isinstance(part, ToolCall)]
    message: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(texts) or (None if calls else "")}
    _add_thoughts(message, [part for part in entry.content if isinstance(part, Thinking)], dialect)
    if calls:
        message["tool_calls"] = [_call(call, ids[call.id], dialect) for call in calls]
        if dialect.needs_thoughts:
            message.setdefault("reasoning_content", "")
    return message


def _add_thoughts(message: dict[str, Any], thoughts: Sequence[Thinking], dialect: Dialect) -> None:
    """Add the reasoning of an answer in the form of the server."""
    field = dialect.thoughts if dialect.thoughts in ("reasoning_content", "reasoning") else None
    message |= reasoning_fields(thoughts, field)
    text = "\n\n".join([thought.text for thought in thoughts if thought.encrypted is None])
    if text and dialect.thoughts == "tags":
        message["content"] = f"<think>{text}</think>{message['content'] or ''}"
    elif text and dialect.thoughts == "chunks":
        answer = [{"type": "text", "text": message["content"]}] if message["content"] else []
        message["content"] = [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}, *answer]


def _call(call: ToolCall, ident: str, dialect: Dialect) -> dict[str, Any]:
    function = {"name": call.name, "arguments": msgspec.json.encode(call.arguments).decode()}
    made: dict[str, Any] = {"id": ident, "type": "function", "function": function}
    if dialect.signatures and call.signature is not None and not call.signature.startswith("{"):
        made["extra_content"] = {"google": {"thought_signature": call.signature}}
    return made


def _result(shown: str, reply: ToolReply, ids: dict[str, str]) -> dict[str, Any]:
    for part in reply.content:
        if isinstance(part, Media):
            chat_part(shown, part, "results", None)
    return {"role": "tool", "tool_call_id": ids[reply.call_id], "content": reply_text(reply)}
