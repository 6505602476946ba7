"""Following a thread that another process runs: by its log, its stream checkpoints, and the news of the bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from typing import cast

from ._partial import PartialAnswer
from .bus import Grown, Moved, News, Shown
from .loop import Environment
from .stores import Chunk
from .types.copies import own_event
from .types.events import AnyEvent, Delta, Event, LiveEvent, StreamReset
from .types.runs import Identity

__all__ = ["Follower"]

# How often a thread that another process runs is looked at, in seconds: without a bus, the more rarely the longer
# nothing happened there; with one that works; and while an answer is streamed of which the bus doesn't show all.
POLL, POLL_IDLE = 0.1, 1.0
POLL_WITH_BUS = 2.0
POLL_STREAM = 0.25


class Follower:
    """What other processes show one reader of a thread: in order, each event once, and gaps filled from the store.

    `last` is the place in the thread's log up to which the reader was shown everything, and `left_at` that in the
    answer behind it. With `roots` it is shown those runs and what is below them only.
    """

    def __init__(
        self,
        env: Environment,
        thread: str,
        last: int = 0,
        left_at: tuple[int, int] | None = None,
        *,
        roots: set[str] | None = None,
    ) -> None:
        self.last = last
        # Whether others had to be asked: there may be more in the log than was shown.
        self.elsewhere = False
        self._env = env
        self._thread = thread
        self._roots = roots
        self._below: dict[str, int] = {}
        self._own = PartialAnswer(left_at)
        self._partials: dict[str, PartialAnswer] = {thread: self._own}
        self._known: set[str] = set()
        self._streams_until = 0.0
        self._seen_at = 0.0

    def pause(self, *, bus: bool) -> float:
        """How long to wait for news before looking."""
        if not bus:
            now = asyncio.get_running_loop().time()
            self._seen_at = self._seen_at or now
            return min(max(POLL, (now - self._seen_at) / 10), POLL_IDLE)
        streams = self._streams_until > asyncio.get_running_loop().time()
        return POLL_STREAM if streams or any(p.waits for p in self._partials.values()) else POLL_WITH_BUS

    def seen(self, event: Event) -> StreamReset | None:
        """Take note of an event of the thread that the reader is shown by its own process. Gives what it has to be
        shown before that."""
        if event.durable:
            self.last = event.seq
            if self._own.left_at is not None:
                self._own.committed(cast(AnyEvent, event))
        elif isinstance(event, Delta):
            return self._own.seen(event)
        elif isinstance(event, StreamReset):
            self._own.left_at = None
        return None

    def join(self, run: Identity, chunks: Sequence[Chunk]) -> Iterator[AnyEvent]:
        """What this process has streamed of an answer and the reader wasn't shown."""
        self._own.run = run
        return self._own.grown(chunks, self.last, self._env.clock.now())

    async def look(self, waiting: Collection[object]) -> AsyncIterator[AnyEvent]:
        """What others wrote to the thread's log, and what they have streamed of the next answer. Nothing more once
        something is `waiting` that this process shows: it comes first, behind what was `missed`."""
        self.elsewhere = True
        async for event in self.log(waiting=waiting):
            self._seen_at = asyncio.get_running_loop().time()
            yield event
        for thread, partial in list(self._partials.items()):
            if thread == self._thread or partial.waits:
                async for event in self._grown(thread, partial, waiting):
                    self._seen_at = asyncio.get_running_loop().time()
                    yield event

    def missed(self, event: Event) -> bool:
        """Whether the log has something before an event of the thread that its own process shows the reader."""
        return self.last < event.seq - event.durable

    async def gone(self) -> bool:
        """Whether the thread that the reader was shown something of is deleted."""
        return self.last > 0 and await self._env.store.head(self._thread) < self.last

    async def heard(self, news: News) -> AsyncIterator[AnyEvent]:
        """What can be shown now that this was heard."""
        self.elsewhere = True
        match news:
            case Grown():
                self._streams_until = asyncio.get_running_loop().time() + 4 * POLL_STREAM
            case Moved(thread_id=thread, after=after, head=head):
                async for event in self._moved(thread, after, head):
                    yield event
            case Shown(event=event):
                if await self._is_ours(event):
                    async for shown in self._live(cast(LiveEvent, event)):
                        yield shown

    async def _moved(self, thread: str, after: int, head: int) -> AsyncIterator[AnyEvent]:
        if thread == self._thread:
            if head > self.last:
                async for event in self.log(head):
                    yield event
            return
        after = self._below.get(thread, after)
        while after < head and (page := await self._env.store.events(thread, after=after)):
            for event in page:
                if event.seq > head:
                    return
                after = self._below[thread] = event.seq
                if self._shows(event):
                    self._partial(thread).committed(cast(AnyEvent, event))
                    yield own_event(cast(AnyEvent, event))

    async def _live(self, event: LiveEvent) -> AsyncIterator[AnyEvent]:
        thread = event.run.thread_id
        if thread == self._thread and event.seq > self.last:
            async for logged in self.log(event.seq):
                yield logged
        if event.seq < (self.last if thread == self._thread else self._below.get(thread, 0)):
            return  # The log has what became of it.
        if isinstance(event, Delta):
            for shown in self._partial(thread).take(event):
                yield shown
        elif isinstance(event, StreamReset):
            for shown in self._partial(thread).withdraw(event):
                yield shown
        else:
            yield cast(AnyEvent, event)

    async def _is_ours(self, event: Event) -> bool:
        """Whether the store has the event's run: processes on another store may share the bus by mistake."""
        if event.durable or not self._shows(event):
            return False
        run = event.run
        if run.run_id not in self._known:
            found = await self._env.store.run(run.run_id)
            if found is None or found.thread_id != run.thread_id:
                return False
            self._known.add(run.run_id)
        return True

    def _shows(self, event: Event) -> bool:
        return self._roots is None or event.run.root_run_id in self._roots

    def _partial(self, thread: str) -> PartialAnswer:
        return self._partials.setdefault(thread, PartialAnswer())

    async def log(self, until: int | None = None, *, waiting: Collection[object] = ()) -> AsyncIterator[AnyEvent]:
        """What the thread's log has that wasn't shown: all of it, or up to where live events come next, or those
        that are `waiting`."""
        store, partial = self._env.store, self._own
        after = self.last
        if self._roots is not None:
            runs = [run for run in [await store.run(root) for root in self._roots] if run is not None]
            if not runs:
                return
            after = max(after, min(run.first_seq for run in runs) - 1)
        while page := await store.events(self._thread, after=after):
            for event in page:
                if waiting or (until is not None and event.seq > until):
                    return
                after = self.last = event.seq
                if self._shows(event):
                    partial.committed(cast(AnyEvent, event))
                    yield own_event(cast(AnyEvent, event))

    async def _grown(
        self, thread: str, partial: PartialAnswer, waiting: Collection[object]
    ) -> AsyncIterator[AnyEvent]:
        chunks = await self._env.store.chunks(thread)
        if chunks and partial.run is None:
            stored = await self._env.store.load(thread)
            partial.run = stored.run.identity if stored is not None and stored.run is not None else None
        if waiting:
            return
        if partial.run is not None and (self._roots is None or partial.run.root_run_id in self._roots):
            last = self.last if thread == self._thread else self._below.get(thread, 0)
            for event in partial.grown(chunks, last, self._env.clock.now()):
                yield event
