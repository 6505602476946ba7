"""The window of one request: previews of long results, and the newest messages that fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from msgspec.structs import replace

from ..types.base import Data
from ..types.content import Part, Text, text_of
from ..types.messages import Message, newest_turn
from .fold import make_note

__all__ = ["READ_RESULT", "Fit", "blocks_of", "leading", "preview", "truncate"]

READ_RESULT = "read_result"

Weigh = Callable[[Message], int]


# -- previews of long results ---------------------------------------------------------------------------------

# Characters of a preview.
_SHOWN = 2000


def preview(message: Message, tokens: int, *, readable: bool) -> Message:
    """Shorten a tool message to the start and end of its text, with a hint how to read the rest."""
    reply = message.reply
    if reply is None:
        return message
    text = text_of(reply.content)
    shown = min(_SHOWN, tokens * 2)
    if len(text) <= shown:
        return message
    head, tail = _cut_at_line(text[: shown * 3 // 4]), text[len(text) - shown // 4 :]
    how = f"; read on with {READ_RESULT}(call_id={reply.call_id!r})" if readable else ""
    cut = f"\n[… {len(text) - len(head) - len(tail):,} of {len(text):,} characters are not shown{how} …]\n"
    parts: list[Part] = [part for part in reply.content if type(part) is not Text]
    shorter = replace(reply, content=(Text(head + cut + tail), *parts))
    return replace(message, content=tuple([shorter if part is reply else part for part in message.content]))


def _cut_at_line(text: str) -> str:
    end = text.rfind("\n", len(text) // 2)
    return text if end < 0 else text[:end]


# -- truncation ----------------------------------------------------------------------------------------------


class Fit(Data):
    """The remaining messages and their weight. `fits` is False if even the minimum is too long."""

    messages: list[Message]
    weight: int
    fits: bool


def leading(messages: Sequence[Message]) -> int:
    """Count the leading messages that are never cut: system messages, context and summaries."""
    for place, message in enumerate(messages):
        context = message.visibility == "internal" and not message.seq
        if message.role != "system" and message.covers is None and not (message.role == "user" and context):
            return place
    return len(messages)


def blocks_of(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Group messages that stay together, as index ranges: an answer and the results of its calls, or one message.

    The messages come from `pair_results`, so results follow their calls.
    """
    found: list[tuple[int, int]] = []
    start = 0
    while start < len(messages):
        end = start + 1
        while end < len(messages) and messages[end].role == "tool":
            end += 1
        found.append((start, end))
        start = end
    return found


_LEFT_OUT = "[Earlier messages of the conversation are not shown.]"


def truncate(messages: list[Message], weigh: Weigh, most: int, recent: int) -> Fit:
    """Cut messages to the weight `most`: the leading ones, the newest user message and the newest others remain.

    The cut moves in steps of a quarter of the room, so that requests of several turns share a prefix in the
    vendors' caches. It doesn't reach the newest `recent` messages while those fit.
    """
    weights = [weigh(message) for message in messages]
    before = [0, *accumulate(weights)]
    if (total := before[-1]) <= most:
        return Fit(messages, total, True)
    lead, gap = leading(messages), make_note("context-left-out", _LEFT_OUT)
    pinned = _pinned(messages, lead)
    starts = [start for start, _ in blocks_of(messages) if start >= lead] or [lead]

    def weight_from(start: int) -> int:
        kept = sum([weights[place] for place in pinned if place < start])
        return before[lead] + weigh(gap) + kept + total - before[start]

    least = next((start for start in starts if weight_from(start) <= most), starts[-1])
    step = max(most // 4, 1)
    left_out = before[lead] + -(-(before[least] - before[lead]) // step) * step
    start = next((one for one in starts if before[one] >= left_out), starts[-1])
    if start > len(messages) - recent:
        start = max(least, next((one for one in starts if one >= len(messages) - recent), least))
    kept = [*[place for place in pinned if place < start], *range(start, len(messages))]
    if len(kept) == len(messages) - lead:
        return Fit(messages, total, False)  # Nothing can be cut.
    weight = weight_from(start)
    shown = [messages[place] for place in kept]
    hole = next((n for n, place in enumerate(kept) if place != lead + n), len(kept))
    return Fit([*messages[:lead], *shown[:hole], gap, *shown[hole:]], weight, weight <= most)


def _pinned(messages: list[Message], lead: int) -> list[int]:
    """The indexes of the newest user message and of the context messages right before it."""
    if (newest := newest_turn(messages)) is None or newest < lead:
        return []
    first = newest
    while first > lead and messages[first - 1].visibility == "internal" and not messages[first - 1].seq:
        first -= 1
    return list(range(first, newest + 1))
