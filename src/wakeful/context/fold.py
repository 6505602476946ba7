"""Preparing a conversation for a model: summaries replace the messages they cover, calls get their results."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..types.content import Text, ToolCall, ToolReply
from ..types.messages import Message

__all__ = ["fold", "is_summary", "make_note", "pair_results"]


def fold(messages: Sequence[Message]) -> list[Message]:
    """Replace the messages that a summary covers by the summary, and the content of rewritten ones.

    Of nested summaries the largest is used.

    Idempotent. Messages that aren't in the log, such as context messages, keep their position.
    """
    messages = _rewrite(messages)
    summaries = _outermost([m for m in messages if is_summary(m)])
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
        if (own := message.covers) is not None and is_summary(message):
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


def _rewrite(messages: Sequence[Message]) -> Sequence[Message]:
    rewritten = {m.rewrites: m.content for m in messages if m.rewrites is not None}
    if not rewritten:
        return messages
    kept = [m for m in messages if m.rewrites is None]
    return [replace(m, content=rewritten[m.seq]) if m.seq in rewritten else m for m in kept]


def is_summary(message: Message) -> bool:
    """Whether the message is a summary. A message that would cover itself isn't."""
    if message.covers is None:
        return False
    first, last = message.covers
    return first <= last and (message.seq == 0 or message.seq > last)


def _outermost(summaries: list[Message]) -> list[Message]:
    """The summaries that no larger one covers; of two with the same span the newer."""
    found: list[Message] = []
    spans: list[tuple[int, int]] = []
    for _, message in sorted(enumerate(summaries), key=_span_size, reverse=True):
        first, last = message.covers or (0, 0)
        if not any(low <= first and last <= high for low, high in spans):
            found.append(message)
            spans.append((first, last))
    return sorted(found, key=lambda m: m.covers or (0, 0))


def _span_size(placed: tuple[int, Message]) -> tuple[int, int]:
    place, message = placed
    first, last = message.covers or (0, 0)
    return last - first, place


_MISSING_RESULT = "No result of this call was recorded."
_EARLIER = "[The beginning of the conversation is not shown.]"


def pair_results(messages: Sequence[Message]) -> list[Message]:
    """Order messages as every vendor requires: a user message first, results directly after their calls.

    A call without a result gets one that says so. A result without a call is dropped.
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
            found += [results.pop(call.id, None) or _missing_result(message, call) for call in message.calls]
    start = next((place for place, m in enumerate(found) if m.role != "system"), len(found))
    if start == len(found) or found[start].role != "user":
        found.insert(start, make_note("context-earlier", _EARLIER))
    return found


def _missing_result(message: Message, call: ToolCall) -> Message:
    reply = ToolReply(call.id, call.name, (Text(_MISSING_RESULT),), "interrupted")
    return Message(f"lost-{call.id}", "tool", (reply,), message.created_at)


def make_note(name: str, text: str) -> Message:
    """Make an internal message for one request. It has a fixed id and is never in a log."""
    return Message(name, "user", (Text(text),), 0, visibility="internal")
