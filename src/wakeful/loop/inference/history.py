"""The history that a model is shown: loaded from the head of the log backwards, until its window is full."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from ...agents import ResolvedAgent
from ...context import Gauges, SummaryState, Tally, fold, is_summary, left_out_note, room_of
from ...errors import WakefulError
from ...models import Model, ModelRegistry
from ...stores import Store
from ...types.messages import Message
from .digest import RequestDigests

__all__ = ["Fingerprint", "History", "HistoryCache", "Reach", "load_history", "reach_of"]

# Messages of the first and of the longest page. Decoding a long one takes about a millisecond.
_FIRST_PAGE, _LONGEST_PAGE = 16, 256

# The most tokens of the preview of a long result.
_PREVIEW = 600


class History(Struct, eq=False):
    """The messages of a thread for a model, with summaries in place.

    `cut` is the weight at which loading ended; None if nothing was left out. `tally` has the totals of `messages`,
    `size` the bytes of the first `counted` ones, and `digests` the hash of the last request that showed them.
    """

    messages: list[Message]
    cut: int | None = None
    tally: Tally | None = None
    counted: int = 0
    size: int = 0
    digests: RequestDigests | None = None


class Reach(Struct, frozen=True, eq=False):
    """How far back a history is loaded: a number of messages, or a weight; without both, to the beginning."""

    turns: int | None = None
    weight: int | None = None
    weigh: Callable[[Message], int] | None = None


def reach_of(agent: ResolvedAgent, model: Model | None, models: ModelRegistry, gauges: Gauges) -> Reach:
    """How much of a history an agent's model is shown; `model` replaces the agent's."""
    policy, turns = agent.agent.window, agent.agent.limits.history
    if turns is not None or policy is None or agent.backend is not None:
        return Reach(turns)
    try:
        model = model or models.resolve(agent.agent.model)
        facts = models.facts_of(model)
    except WakefulError:
        return Reach()  # The step that needs the model reports it.
    known = gauges.known.get(model.name)
    room = room_of(policy, agent.agent.settings, facts, None if known is None else known.refused)
    if room is None:
        return Reach()
    gauge, offload = gauges.get(model), room.offload

    def weigh(message: Message) -> int:
        weight = gauge.weigh(message)
        return min(weight, _PREVIEW) if weight > offload and message.role == "tool" else weight

    return Reach(None, gauge.unscaled(room.tokens), weigh)


async def load_history(
    store: Store, thread_id: str, reach: Reach, mark: SummaryState, run_start: int | None = None
) -> History:
    """Load a thread's messages as far back as `reach` says.

    `mark` names the latest summary: messages that it covers aren't read. The newest user message of a run that
    began at `run_start` is loaded in any case.
    """
    if reach.turns is not None:
        return History(fold(await _last_turns(store, thread_id, reach.turns)))
    found, is_whole = await _read_back(store, thread_id, reach, mark.last, run_start)
    if mark.last and not any(_is_marked(message, mark) for message in found):
        summary = None if is_whole else await _find_summary(store, thread_id, mark)
        if summary is not None:
            found.insert(0, summary)
        elif is_whole:
            found, is_whole = await _read_back(store, thread_id, reach, 0, run_start)
    messages = fold(found)
    if is_whole:
        return History(messages)
    first = next((n for n, message in enumerate(messages) if message.covers is None), len(messages))
    messages.insert(first, left_out_note())
    return History(messages, reach.weight)


async def _read_back(
    store: Store, thread_id: str, reach: Reach, after: int, run_start: int | None
) -> tuple[list[Message], bool]:
    """Read pages from the head backwards; returns the messages, and whether those are all after `after`."""
    pages: list[list[Message]] = []
    spans: list[tuple[int, int]] = []
    count = weight = 0
    has_user, before, size = run_start is None, None, _FIRST_PAGE
    while True:
        page = await store.messages(thread_id, after=after, before=before, newest=size)
        pages.append(page)
        for message in reversed(page):
            if message.covers is not None and is_summary(message):
                spans.append(message.covers)
            if reach.weigh is not None and not _is_covered(message.seq, spans):
                weight += reach.weigh(message)
            has_user = has_user or (message.role == "user" and message.visibility == "all")
        if len(page) < size:
            return _joined(pages), True
        before = min([page[0].seq, *[first for first, last in spans if first < page[0].seq <= last + 1]])
        if before <= after + 1:
            return _joined(pages), True
        is_full = reach.weight is not None and weight > reach.weight
        if is_full and (has_user or run_start is None or before <= run_start):
            return _joined(pages), False
        count += len(page)
        size = _page_size(count, weight, reach.weight)
        await asyncio.sleep(0)  # A store in memory doesn't yield to the event loop.


def _joined(pages: Sequence[Sequence[Message]]) -> list[Message]:
    """The messages of pages that were read backwards, in order."""
    return [message for page in reversed(pages) for message in page]


def _page_size(count: int, weight: int, limit: int | None) -> int:
    """The size of the next page after `count` messages of this weight: as many as the window probably lacks."""
    size = min(2 * count, _LONGEST_PAGE)
    if limit is None or not weight:
        return size
    missing = max(limit - weight, 0) * count // weight + 1
    return max(min(size, missing), _FIRST_PAGE)


def _is_covered(seq: int, spans: Sequence[tuple[int, int]]) -> bool:
    return any(first <= seq <= last for first, last in spans)


def _is_marked(message: Message, mark: SummaryState) -> bool:
    return message.id == mark.message_id and message.covers == (1, mark.last)


async def _find_summary(store: Store, thread_id: str, mark: SummaryState) -> Message | None:
    """Find the latest summary, which was written soon after the last message that it covers."""
    after = mark.last
    while page := await store.messages(thread_id, after=after, limit=_FIRST_PAGE):
        for message in page:
            if _is_marked(message, mark):
                return message
        after = page[-1].seq
    return None


async def _last_turns(store: Store, thread_id: str, limit: int) -> list[Message]:
    wanted = limit
    while True:
        found = await store.messages(thread_id, newest=wanted)
        turns = [place for place, m in enumerate(found) if m.role == "user" and m.covers is None]
        whole = [place for place in turns if place >= len(found) - limit]
        if whole or turns or len(found) < wanted:
            return found[whole[0] if whole else turns[-1] if turns else 0 :]
        wanted *= 2  # A turn is never cut: its start is further back.


# -- the cache -----------------------------------------------------------------------------------------------

# A shorter history is one page, and read as fast.
_SHORTEST = _FIRST_PAGE
_MAX_BYTES = 64 * 1024 * 1024
# Bytes that a message takes beside its content.
_OVERHEAD = 512


class Fingerprint(Struct, frozen=True):
    """The state of a thread that a cached history belongs to."""

    run_id: str | None
    version: int
    head: int


class HistoryCache:
    """The histories of the threads that ran here last, up to a number of bytes.

    The run that uses an entry takes it out, and puts it back when it ends.
    """

    def __init__(self, most: int = _MAX_BYTES) -> None:
        self._entries: dict[tuple[str, str], tuple[Fingerprint, History]] = {}
        self._most = most
        self.size = 0

    def take(self, key: tuple[str, str], fingerprint: Fingerprint) -> History | None:
        """Remove and return the history of a thread, unless the thread has changed since."""
        found = self._entries.pop(key, None)
        if found is None:
            return None
        self.size -= found[1].size
        return found[1] if found[0] == fingerprint else None

    def put(self, key: tuple[str, str], fingerprint: Fingerprint, history: History) -> None:
        """Keep the history of a thread, in place of the ones that weren't used for the longest time."""
        if (old := self._entries.pop(key, None)) is not None:
            self.size -= old[1].size
        messages = history.messages
        if len(messages) <= _SHORTEST:
            return
        if history.counted > len(messages):
            history.counted = history.size = 0
        for message in messages[history.counted :]:
            history.size += len(msgspec.msgpack.encode(message)) + _OVERHEAD
        history.counted = len(messages)
        if history.size > self._most // 4:
            return
        self._entries[key] = fingerprint, history
        self.size += history.size
        while self.size > self._most:
            self.size -= self._entries.pop(next(iter(self._entries)))[1].size
