"""A conversation as a model may be shown it: summaries in place of what they cover, every call with its result."""

from __future__ import annotations

from collections.abc import Sequence

from ..types.content import Text, ToolCall, ToolReply
from ..types.messages import Message

__all__ = ["fold", "mended", "note"]


def fold(messages: Sequence[Message]) -> list[Message]:
    """The messages with each summary where what it covers was; of nested ones the largest, disjoint ones in order.

    Folding again changes nothing. What isn't in the log, such as a context message, stays where it is.
    """
    summaries = _kept([m for m in messages if _marked(m)])
    if not summaries:
        return list(messages)
    spans = [span for m in summaries if (span := m.covers) is not None]
    kept = {m.id for m in summaries}
    found: list[Message] = []
    due = 0

    def emit(up_to: int) -> None:
        nonlocal due
        while due < len(summaries) and spans[due][0] <= up_to:
            found.append(summaries[due])
            due += 1

    for message in messages:
        if (own := message.covers) is not None and _marked(message):
            if message.id in kept:
                emit(own[0])
            continue
        if message.seq:
            emit(message.seq)
            if any(first <= message.seq <= last for first, last in spans):
                continue
        found.append(message)
    emit(spans[-1][0])
    return found


def _marked(message: Message) -> bool:
    """Whether the message stands for others. One that would cover itself is like any other message."""
    if message.covers is None:
        return False
    first, last = message.covers
    return first <= last and (message.seq == 0 or message.seq > last)


def _kept(summaries: list[Message]) -> list[Message]:
    """The summaries that no larger one covers; of two of the same the newer."""
    found: list[Message] = []
    spans: list[tuple[int, int]] = []
    for _, message in sorted(enumerate(summaries), key=_size, reverse=True):
        first, last = message.covers or (0, 0)
        if not any(low <= first and last <= high for low, high in spans):
            found.append(message)
            spans.append((first, last))
    return sorted(found, key=lambda m: m.covers or (0, 0))


def _size(placed: tuple[int, Message]) -> tuple[int, int]:
    place, message = placed
    first, last = message.covers or (0, 0)
    return last - first, place


_LOST = "No result of this call was recorded."
_EARLIER = "[The beginning of the conversation is not shown.]"


def mended(messages: Sequence[Message]) -> list[Message]:
    """The messages in an order that every vendor takes: a user's first, and results directly after their calls.

    A call without a result gets one that says so, a result without its call is left out.
    """
    results: dict[str, Message] = {}
    for message in messages:
        if message.role == "tool" and (reply := message.reply) is not None:
            results.setdefault(reply.call_id, message)
    found: list[Message] = []
    for message in messages:
        if message.role == "tool":
            continue
        found.append(message)
        if message.role == "assistant":
            found += [results.pop(call.id, None) or _lost(message, call) for call in message.calls]
    start = next((place for place, m in enumerate(found) if m.role != "system"), len(found))
    if start == len(found) or found[start].role != "user":
        found.insert(start, note("context-earlier", _EARLIER))
    return found


def _lost(message: Message, call: ToolCall) -> Message:
    reply = ToolReply(call.id, call.name, (Text(_LOST),), "interrupted")
    return Message(f"lost-{call.id}", "tool", (reply,), message.created_at)


def note(name: str, text: str) -> Message:
    """Something that the model is told in one request; always under the same id, and never in a log."""
    return Message(name, "user", (Text(text),), 0, visibility="internal")
