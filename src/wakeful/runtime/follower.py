"""Events of a thread that another process runs: from its log, its stream checkpoints, and the bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from typing import cast

from ..bus import LiveUpdate, LogAdvanced, StreamAdvanced, Update
from ..loop import Environment
from ..stores import Chunk
from ..types.copies import copy_event
from ..types.events import AnyEvent, Delta, Event, LiveEvent, MessageAdded, StepStart, StreamReset
from ..types.messages import Message
from ..types.runs import Identity
from .partial_answer import PartialAnswer

__all__ = ["Follower"]

# Poll intervals in seconds for a thread of another process: without a bus, growing from POLL to POLL_IDLE while
# nothing happens; with a healthy bus; and during an answer that the bus doesn't carry in full.
POLL, POLL_IDLE = 0.1, 1.0
POLL_WITH_BUS = 2.0
POLL_STREAM = 0.25


class Follower:
    """One reader's position in a thread: yields each event once, in order, and fills gaps from the store.

    `last` is the offset in the log up to which the reader has all events, `left_at` the position in the answer
    after it. With `roots`, only events of those runs and of runs below them are yielded.
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
        # Whether other processes may have written log entries that the reader lacks.
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

    @property
    def has_begun(self) -> bool:
        """Whether the reader's runs exist."""
        return self._roots is None or bool(self._roots)

    def follows(self, run: Identity) -> bool:
        """Whether the reader is shown the events of a run."""
        return self._roots is None or run.root_run_id in self._roots

    def poll_interval(self, *, bus: bool) -> float:
        """The seconds to wait for an update before polling the store."""
        if not bus:
            now = asyncio.get_running_loop().time()
            self._seen_at = self._seen_at or now
            return min(max(POLL, (now - self._seen_at) / 10), POLL_IDLE)
        streams = self._streams_until > asyncio.get_running_loop().time()
        return POLL_STREAM if streams or any(p.waits for p in self._partials.values()) else POLL_WITH_BUS

    def record(self, event: AnyEvent) -> tuple[AnyEvent, ...]:
        """Record a live event of this process; returns the events to yield for it, none if the reader has it."""
        if event.seq < self.last + event.durable:
            return ()
        if event.durable:
            self.last = event.seq
            self._own.committed(event)
        elif isinstance(event, Delta):
            if (reset := self._own.seen(event)) is not None:
                return reset, copy_event(event)
        elif isinstance(event, StreamReset):
            self._own.withdrawn(event)
        return (copy_event(event),)

    async def look_back(self) -> None:
        """Find out whether a reader whose cursor is a log entry may have pieces of an answer that is streamed.

        It has none after the start of a step or an answer; any other entry may have come between the pieces.
        """
        if not self.last or self._own.left_at is not None:
            return
        page = await self._env.store.events(self._thread, after=self.last - 1, limit=1)
        if page and page[0].seq == self.last:
            match page[0]:
                case StepStart() | MessageAdded(message=Message(role="assistant")):
                    return
                case _:
                    pass
        self._own.left_at = (0, 0)

    def join_answer(self, run: Identity, chunks: Sequence[Chunk]) -> Iterator[AnyEvent]:
        """The part of an answer that this process has streamed and the reader lacks."""
        self._own.run = run
        return self._own.grown(chunks, self.last, self._env.clock.now())

    async def poll(self, waiting: Collection[object]) -> AsyncIterator[AnyEvent]:
        """Poll the store: new log entries, and new pieces of the next answer. Stops once live events of this
        process are `waiting`, which come first."""
        self.elsewhere = True
        async for event in self.log(waiting=waiting):
            self._seen_at = asyncio.get_running_loop().time()
            yield event
        for thread, partial in list(self._partials.items()):
            if thread == self._thread or partial.waits:
                async for event in self._grown(thread, partial, waiting):
                    self._seen_at = asyncio.get_running_loop().time()
                    yield event

    def lacks_before(self, event: Event) -> bool:
        """Whether the reader lacks deltas before a live event of this process."""
        return isinstance(event, Delta) and event.seq >= self.last and self._own.lacks_before(event)

    def has_gap(self, event: Event) -> bool:
        """Whether the log has entries before a live event of this process that the reader lacks.

        A reader of a run begins with the run's first event, not with the log before it.
        """
        is_start = self._roots is not None and not self.last and not self.elsewhere
        return not is_start and self.last < event.seq - event.durable

    async def remaining(self) -> AsyncIterator[AnyEvent]:
        """The end of the log, if other processes may have written it."""
        if self.elsewhere or not self.last:
            async for event in self.log():
                yield event

    async def is_deleted(self) -> bool:
        """Whether the thread was deleted since the reader's last event."""
        return self.last > 0 and await self._env.store.head(self._thread) < self.last

    async def apply_update(self, news: Update) -> AsyncIterator[AnyEvent]:
        """The events that an update from the bus makes available."""
        self.elsewhere = True
        match news:
            case StreamAdvanced():
                self._streams_until = asyncio.get_running_loop().time() + 4 * POLL_STREAM
            case LogAdvanced(thread_id=thread, after=after, head=head):
                async for event in self._moved(thread, after, head):
                    yield event
            case LiveUpdate(event=event):
                if not event.durable and self.follows(event.run) and await self._is_ours(event.run):
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
                if self.follows(event.run) and await self._is_ours(event.run):
                    self._partial(thread).committed(cast(AnyEvent, event))
                    yield copy_event(cast(AnyEvent, event))

    async def _live(self, event: LiveEvent) -> AsyncIterator[AnyEvent]:
        thread = event.run.thread_id
        if thread == self._thread and event.seq > self.last:
            async for logged in self.log(event.seq):
                yield logged
        if event.seq < (self.last if thread == self._thread else self._below.get(thread, 0)):
            return  # The log has the committed message.
        if isinstance(event, Delta):
            for shown in self._partial(thread).take(event):
                yield shown
        elif isinstance(event, StreamReset):
            for shown in self._partial(thread).withdraw(event):
                yield shown
        else:
            yield cast(AnyEvent, event)

    async def _is_ours(self, run: Identity) -> bool:
        """Whether the store has a run, on the reader's thread or below it. The bus may name any run: processes of
        another store may share it by mistake, and others may forge what is on it."""
        path, run_id = list[str](), run.run_id
        while run_id not in self._known:
            found = await self._env.store.run(run_id)
            if found is None or (not path and found.thread_id != run.thread_id):
                return False
            path.append(run_id)
            if found.thread_id == self._thread:
                break
            if found.identity.parent_run_id is None:
                return False
            run_id = found.identity.parent_run_id
        self._known.update(path)
        return True

    def _partial(self, thread: str) -> PartialAnswer:
        return self._partials.setdefault(thread, PartialAnswer())

    async def log(self, until: int | None = None, *, waiting: Collection[object] = ()) -> AsyncIterator[AnyEvent]:
        """The log entries that the reader lacks: all of them, or those up to the offset `until`, or until live
        events are `waiting`."""
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
                if self.follows(event.run):
                    partial.committed(cast(AnyEvent, event))
                    yield copy_event(cast(AnyEvent, event))

    async def _grown(
        self, thread: str, partial: PartialAnswer, waiting: Collection[object]
    ) -> AsyncIterator[AnyEvent]:
        chunks = await self._env.store.chunks(thread)
        if chunks and partial.run is None:
            stored = await self._env.store.load(thread)
            partial.run = stored.run.identity if stored is not None and stored.run is not None else None
        if waiting:
            return
        if partial.run is not None and self.follows(partial.run):
            last = self.last if thread == self._thread else self._below.get(thread, 0)
            for event in partial.grown(chunks, last, self._env.clock.now()):
                yield event
