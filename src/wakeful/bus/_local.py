"""Live events inside one process: whoever watches a thread gets them at once, and nobody is waited for."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from msgspec import Struct

from ..types.events import Delta, Event
from ._protocol import News

__all__ = ["Channel", "LocalBus", "Reader", "Subscription"]

MAX_BACKLOG = 8192


class Reader(Protocol):
    """Whoever listens to a thread."""

    def push(self, event: Event) -> None:
        """Take an event in; never blocks."""
        ...

    def end(self) -> None:
        """Hear that nothing will come any more."""
        ...


class Subscription:
    """One reader of a thread's live events. One that falls too far behind is told by `lagged`, and reads on
    from the log."""

    __slots__ = ("_channel", "_waiter", "closed", "events", "lagged")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiter: asyncio.Future[None] | None = None
        # Events of this process, and with a bus the news of others.
        self.events: deque[Event | News] = deque()
        self.lagged = False
        self.closed = False

    def push(self, event: Event | News) -> None:
        """Take an event in; never blocks."""
        events = self.events
        if len(events) >= MAX_BACKLOG:
            events.clear()
            self.lagged = True
        events.append(event)
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def skip(self, message_id: str) -> None:
        """Forget the pieces of an answer that wait to be taken: the reader gets them in another way."""
        kept = [e for e in self.events if not (isinstance(e, Delta) and e.message_id == message_id)]
        self.events.clear()
        self.events.extend(kept)

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until there is an event to take, or nothing will come any more; False if that took too long."""
        if self.events or self.closed:
            return True
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, _wake, waiter)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
        return bool(self.events) or self.closed

    def close(self) -> None:
        """Stop watching."""
        self._channel.leave(self)

    def end(self) -> None:
        """Say that nothing will come any more."""
        self.closed = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Channel(Struct, eq=False, gc=False):
    """The readers of one thread. What is published reaches the readers of the threads `above` it too, whoever they
    are by then: those threads may wait, and their readers come and go. Its bus lets go of it when nobody publishes
    to it or reads any more, so that the garbage collector needn't."""

    _bus: LocalBus
    _thread_id: str
    above: tuple[str, ...] = ()
    readers: tuple[Reader, ...] = ()
    # How many runs publish to it.
    holders: int = 0

    @property
    def path(self) -> tuple[str, ...]:
        """The thread and those above it: what is above its children."""
        return (self._thread_id, *self.above)

    def watched(self) -> bool:
        """Whether anybody listens."""
        if self.readers:
            return True
        return self._bus.listeners > 0 and bool(self._bus.readers_of(self.above))

    def publish(self, event: Event) -> None:
        """Give the event to every reader."""
        for reader in self.readers:
            reader.push(event)
        if self.above:
            for reader in self._bus.readers_of(self.above):
                reader.push(event)

    def watch(self) -> Subscription:
        """Listen from now on."""
        subscription = Subscription(self)
        self.join(subscription)
        return subscription

    def join(self, reader: Reader) -> None:
        """Give a reader what comes from now on, until it leaves."""
        self.readers = (*self.readers, reader)
        self._bus.listeners += 1

    def leave(self, leaving: Reader) -> None:
        """Stop listening."""
        left = tuple([reader for reader in self.readers if reader is not leaving])
        self._bus.listeners -= len(self.readers) - len(left)
        self.readers = left
        self._bus.drop_if_unused(self._thread_id)


class LocalBus:
    """The channels of the threads that somebody runs or watches in this process."""

    def __init__(self) -> None:
        self._channels: dict[str, Channel] = {}
        # How many readers all channels have together.
        self.listeners = 0

    def hold(self, thread_id: str, above: tuple[str, ...] = ()) -> Channel:
        """The thread's channel, kept until `release`: what a running run publishes to. `above` are the threads of
        the runs above it, the nearest first."""
        channel = self._channels.get(thread_id)
        if channel is None:
            channel = self._channels[thread_id] = Channel(self, thread_id, above, holders=1)
            return channel
        if above:
            channel.above = above
        channel.holders += 1
        return channel

    def readers_of(self, thread_ids: tuple[str, ...]) -> list[Reader]:
        """Whoever watches one of these threads."""
        found = [self._channels.get(thread_id) for thread_id in thread_ids]
        return [reader for channel in found if channel is not None for reader in channel.readers]

    def release(self, thread_id: str) -> None:
        """Let go of a held channel."""
        channel = self._channels[thread_id]
        channel.holders -= 1
        if not channel.holders and not channel.readers:
            del self._channels[thread_id]

    def watch(self, thread_id: str) -> Subscription:
        """Listen to a thread."""
        return self.channel(thread_id).watch()

    def channel(self, thread_id: str) -> Channel:
        """The thread's channel, which goes with its last reader if nobody holds it."""
        channel = self._channels.get(thread_id)
        if channel is None:
            channel = self._channels[thread_id] = Channel(self, thread_id)
        return channel

    def drop_if_unused(self, thread_id: str) -> None:
        """Forget a channel that nobody holds or watches."""
        channel = self._channels.get(thread_id)
        if channel is not None and not channel.readers and not channel.holders:
            del self._channels[thread_id]

    def end(self, thread_id: str) -> None:
        """Let a thread's readers go: there is no such thread any more."""
        for reader in self.readers_of((thread_id,)):
            reader.end()

    def close(self) -> None:
        """Let every reader go."""
        for channel in self._channels.values():
            for reader in channel.readers:
                reader.end()
