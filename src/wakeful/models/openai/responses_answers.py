"""Answers of a conversation as items of a Responses API request: messages, reasoning, calls, server tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...types.content import ServerTool, Text, Thinking, ToolCall
from ..shared.history import Entry
from .responses_items import call_item

__all__ = ["answer_items", "is_phase", "phase_of"]

_PHASE = '{"phase":'


def phase_of(phase: str) -> str:
    """The opaque value of a `Thinking` that keeps the phase of the message before it."""
    return msgspec.json.encode({"phase": phase}).decode()


def is_phase(thought: Thinking) -> bool:
    """Whether a part only keeps the phase of a message."""
    return thought.encrypted is not None and thought.encrypted.startswith(_PHASE)


def answer_items(entry: Entry, ids: Mapping[str, str]) -> list[dict[str, Any]]:
    """The items of one answer. `ids` are the vendor's ids of the calls."""
    items: list[dict[str, Any]] = []
    for part in entry.content:
        if isinstance(part, Text):
            # Plain text: content parts would need the id of a stored message.
            items.append({"type": "message", "role": "assistant", "content": part.text})
        elif isinstance(part, ToolCall):
            items.append(call_item(part, ids[part.id]))
        elif isinstance(part, ServerTool):
            items += part.raw
        elif isinstance(part, Thinking) and is_phase(part):
            if items and items[-1].get("role") == "assistant":
                items[-1]["phase"] = msgspec.json.decode(part.encrypted or "")["phase"]
        elif isinstance(part, Thinking):
            _add_thought(part, items)
    return [item for index, item in enumerate(items) if _is_sent(item, items[index + 1 :])]


def _add_thought(part: Thinking, items: list[dict[str, Any]]) -> None:
    """Add a reasoning item, or another part of the summary of the last one."""
    last: dict[str, Any] = items[-1] if items else {}
    if last.get("type") != "reasoning" or last["id"] != part.signature or "encrypted_content" in last:
        last = {"type": "reasoning", "id": part.signature or "", "summary": []}
        items.append(last)
    if part.encrypted is not None and part.encrypted.startswith("{"):
        last |= {"summary": [], **msgspec.json.decode(part.encrypted, type=dict[str, Any])}
        return
    if text := part.text.removeprefix("\n\n"):
        last["summary"].append({"type": "summary_text", "text": text})
    if part.encrypted is not None:
        last["encrypted_content"] = part.encrypted


def _is_sent(item: Mapping[str, Any], after: Sequence[Mapping[str, Any]]) -> bool:
    """Whether an item is sent: reasoning must be complete and followed by its result.

    A continued answer has one text, so only the last reasoning before it counts; before a call several in a row
    do.
    """
    if item.get("type") != "reasoning":
        return True
    if "encrypted_content" not in item and "content" not in item:
        return False
    result = next((other for other in after if other.get("type") != "reasoning"), None)
    return result is not None and (result is after[0] or result.get("role") != "assistant")
