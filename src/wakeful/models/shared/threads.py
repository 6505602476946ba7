"""Streams of blocking libraries: a thread reads them and passes the items to the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar, cast

__all__ = ["ReaderThreads", "ThreadStream", "stream_in_thread"]

T = TypeVar("T")


class ThreadStream(Generic[T]):
    """The thread's end of a stream."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._abandoned = threading.Event()
        self.queue: asyncio.Queue[tuple[T | None, BaseException | None]] = asyncio.Queue()

    @property
    def is_abandoned(self) -> bool:
        """Whether the consumer has stopped reading."""
        return self._abandoned.is_set()

    def put(self, item: T | None, error: BaseException | None = None) -> bool:
        """Pass an item to the event loop; returns whether to stop reading."""
        if not self._abandoned.is_set():
            try:
                self._loop.call_soon_threadsafe(self.queue.put_nowait, (item, error))
            except RuntimeError:  # The loop is closed.
                self._abandoned.set()
        return self._abandoned.is_set()

    def abandon(self) -> None:
        """Stop reading."""
        self._abandoned.set()


class ReaderThreads:
    """The reader threads of one model."""

    def __init__(self) -> None:
        self.running: set[threading.Thread] = set()

    async def join(self, within: float | None = None) -> None:
        """Wait up to `within` seconds for abandoned threads to end."""
        until = None if within is None else time.monotonic() + within
        for thread in [*self.running]:
            await asyncio.to_thread(thread.join, None if until is None else max(0.0, until - time.monotonic()))
            if not thread.is_alive():
                self.running.discard(thread)


async def stream_in_thread(
    read: Callable[[ThreadStream[T]], None],
    readers: ReaderThreads,
    name: str,
    abandon: Callable[[], None] = lambda: None,
) -> AsyncGenerator[T, None]:
    """Run `read` in a thread and yield its items.

    If the consumer stops early, `abandon` is called to make the thread end; it isn't waited for.
    """
    stream = ThreadStream[T]()

    def work() -> None:
        try:
            read(stream)
        except BaseException as error:
            stream.put(None, error)
        else:
            stream.put(None)

    thread = threading.Thread(target=work, name=name, daemon=True)
    readers.running = {thread, *[each for each in readers.running if each.is_alive()]}
    thread.start()
    ended = False
    try:
        while True:
            item, error = await stream.queue.get()
            ended = error is not None or item is None
            if error is not None:
                raise error
            if ended:
                return
            yield cast(T, item)
    finally:
        stream.abandon()
        if ended:
            thread.join()  # It has passed its last item.
            readers.running.discard(thread)
        else:
            abandon()
