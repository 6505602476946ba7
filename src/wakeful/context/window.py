"""The window of one request: previews of long results, and the newest messages that fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from msgspec.structs import replace

from ..types.base import Data
from ..types.content import Part, Text, text_of
from ..types.messages import Message, newest_turn
from .fold import make_note

__all__ = [
    "READ_RESULT",
    "Fit",
    "blocks_of",
    "is_left_out_note",
    "leading",
    "left_out_note",
    "preview",
    "truncate",
]

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


_LEFT_OUT_ID, _LEFT_OUT = "context-left-out", "[Earlier messages of the conversation are not shown.]"


def left_out_note() -> Message:
    """Make the note that stands for the messages that a model isn't shown."""
    return make_note(_LEFT_OUT_ID, _LEFT_OUT)


def is_left_out_note(message: Message) -> bool:
    """Whether a message stands for others that a model isn't shown."""
    return message.id == _LEFT_OUT_ID


def truncate(messages: list[Message], weigh: Weigh, most: int, recent: int) -> Fit:
    """Cut messages to the weight `most`: the leading ones, the newest user message and the newest others remain.

    The cut leaves out up to a quarter of the room more than it must, and is then kept for several turns, so that
    their requests share a prefix in the vendors' caches. It doesn't reach the newest `recent` messages while those
    fit.
    """
    given, whole = messages, sum([weigh(message) for message in messages])
    if whole <= most:
        return Fit(given, whole, True)
    gap = left_out_note()
    messages = [message for message in given if not is_left_out_note(message)]
    weights = [weigh(message) for message in messages]
    before = [0, *accumulate(weights)]
    lead, total = leading(messages), before[-1]
    pinned = _pinned(messages, lead)
    starts = [start for start, _ in blocks_of(messages) if start >= lead] or [lead]

    def weight_from(start: int) -> int:
        kept = sum([weights[place] for place in pinned if place < start])
        return before[lead] + weigh(gap) + kept + total - before[start]

    least = next((start for start in starts if weight_from(start) <= most), starts[-1])
    near = [one for one in starts if one >= least and before[one] - before[least] <= most // 4]
    start = max(near, key=lambda one: _rank(messages, one), default=least)
    if start > len(messages) - recent:
        start = max(least, next((one for one in starts if one >= len(messages) - recent), least))
    kept = [*[place for place in pinned if place < start], *range(start, len(messages))]
    if len(kept) == len(messages) - lead:
        return Fit(given, whole, False)  # Nothing can be cut.
    weight = weight_from(start)
    shown = [messages[place] for place in kept]
    hole = next((n for n, place in enumerate(kept) if place != lead + n), len(kept))
    return Fit([*messages[:lead], *shown[:hole], gap, *shown[hole:]], weight, weight <= most)


def _rank(messages: list[Message], start: int) -> int:
    """The rank of a cut: higher ones are rarer, so that the highest of a range stays so while the range moves on.

    It depends on the log alone, and not on the part of it that was loaded.
    """
    first, second = messages[start - 1].seq if start else 0, messages[start].seq
    return (first ^ second).bit_length() if first and second else 0


def _pinned(messages: list[Message], lead: int) -> list[int]:
    """The indexes of the newest user message and of the context messages right before it."""
    if (newest := newest_turn(messages)) is None or newest < lead:
        return []
    first = newest
    while first > lead and messages[first - 1].visibility == "internal" and not messages[first - 1].seq:
        first -= 1
    return list(range(first, newest + 1))
