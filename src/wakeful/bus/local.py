"""Live events inside one process. Publishing never waits for a reader."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from msgspec import Struct

from ..types.events import Delta, Event, StreamReset
from .protocol import Update

__all__ = ["Channel", "LocalBus", "Reader", "Subscription"]

MAX_BACKLOG = 8192

_OfAnswer = Delta | StreamReset


class Reader(Protocol):
    """A reader of a thread's live events."""

    def push(self, event: Event) -> None:
        """Take an event; never blocks."""
        ...

    def end(self) -> None:
        """Note that no more events follow."""
        ...


class Subscription:
    """A buffered reader of a thread's live events.

    If the buffer overflows it is cleared and `lagged` is set; the reader then continues from the log.
    """

    __slots__ = ("_channel", "_waiter", "closed", "events", "lagged")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiter: asyncio.Future[None] | None = None
        # Events of this process, and updates from the bus.
        self.events: deque[Event | Update] = deque()
        self.lagged = False
        self.closed = False

    def push(self, event: Event | Update) -> None:
        """Buffer an event; never blocks."""
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
        """Drop the buffered deltas and resets of a message: the reader already has its present text."""
        kept = [e for e in self.events if not (isinstance(e, _OfAnswer) and e.message_id == message_id)]
        self.events.clear()
        self.events.extend(kept)

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait for an event or the end of the stream. Returns False after `seconds`."""
        if self.events or self.closed:
            return True
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, _resolve, waiter)
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
        """End the subscription: no more events follow."""
        self.closed = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Channel(Struct, eq=False):
    """The readers of one thread.

    Published events also reach the current readers of the threads `above` it. The bus drops a channel without
    publishers and readers.
    """

    _bus: LocalBus
    _thread_id: str
    above: tuple[str, ...] = ()
    readers: tuple[Reader, ...] = ()
    # Number of runs that publish to it.
    holders: int = 0

    @property
    def path(self) -> tuple[str, ...]:
        """The thread and the threads above it, nearest first."""
        return (self._thread_id, *self.above)

    def is_watched(self) -> bool:
        """Whether the thread, or one above it, has readers."""
        if self.readers:
            return True
        return self._bus.readers > 0 and bool(self._bus.readers_of(self.above))

    def publish(self, event: Event) -> None:
        """Pass the event to every reader."""
        for reader in self.readers:
            reader.push(event)
        if self.above:
            for reader in self._bus.readers_of(self.above):
                reader.push(event)

    def watch(self) -> Subscription:
        """Subscribe to the channel."""
        subscription = Subscription(self)
        self.join(subscription)
        return subscription

    def join(self, reader: Reader) -> None:
        """Add a reader until it leaves."""
        self.readers = (*self.readers, reader)
        self._bus.readers += 1

    def leave(self, leaving: Reader) -> None:
        """Remove a reader."""
        left = tuple([reader for reader in self.readers if reader is not leaving])
        self._bus.readers -= len(self.readers) - len(left)
        self.readers = left
        self._bus.drop_if_unused(self._thread_id)


class LocalBus:
    """The channels of the threads with runs or readers in this process."""

    def __init__(self) -> None:
        self._channels: dict[str, Channel] = {}
        # Number of readers of all channels.
        self.readers = 0

    def hold(self, thread_id: str, above: tuple[str, ...] = ()) -> Channel:
        """Open a thread's channel for publishing, until `release`.

        `above` are the threads of the parent runs, nearest first.
        """
        channel = self._channels.get(thread_id)
        if channel is None:
            channel = self._channels[thread_id] = Channel(self, thread_id, above, holders=1)
            return channel
        if above:
            channel.above = above
        channel.holders += 1
        return channel

    def readers_of(self, thread_ids: tuple[str, ...]) -> list[Reader]:
        """The readers of these threads."""
        found = [self._channels.get(thread_id) for thread_id in thread_ids]
        return [reader for channel in found if channel is not None for reader in channel.readers]

    def release(self, thread_id: str) -> None:
        """Release a channel that `hold` opened."""
        channel = self._channels[thread_id]
        channel.holders -= 1
        if not channel.holders and not channel.readers:
            del self._channels[thread_id]

    def watch(self, thread_id: str) -> Subscription:
        """Subscribe to a thread."""
        return self.channel(thread_id).watch()

    def channel(self, thread_id: str) -> Channel:
        """Get or create a thread's channel. Without a holder it is dropped with its last reader."""
        channel = self._channels.get(thread_id)
        if channel is None:
            channel = self._channels[thread_id] = Channel(self, thread_id)
        return channel

    def drop_if_unused(self, thread_id: str) -> None:
        """Drop a channel without holders and readers."""
        channel = self._channels.get(thread_id)
        if channel is not None and not channel.readers and not channel.holders:
            del self._channels[thread_id]

    def end(self, thread_id: str) -> None:
        """End the subscriptions of a deleted thread."""
        for reader in self.readers_of((thread_id,)):
            reader.end()

    def close(self) -> None:
        """End all subscriptions."""
        for channel in self._channels.values():
            for reader in channel.readers:
                reader.end()
