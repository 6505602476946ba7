"""Streams that are read in a thread, for libraries that block: their pieces, on the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar, cast

__all__ = ["Readers", "Reading", "pieces_of"]

T = TypeVar("T")


class Reading(Generic[T]):
    """What the thread holds: where its pieces go, and whether anybody still wants them."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = threading.Event()
        self.queue: asyncio.Queue[tuple[T | None, BaseException | None]] = asyncio.Queue()

    @property
    def left(self) -> bool:
        """Whether whoever asked is gone."""
        return self._left.is_set()

    def tell(self, piece: T | None, error: BaseException | None = None) -> bool:
        """Pass a piece on; returns whether to stop."""
        if not self._left.is_set():
            try:
                self._loop.call_soon_threadsafe(self.queue.put_nowait, (piece, error))
            except RuntimeError:  # The loop is closed.
                self._left.set()
        return self._left.is_set()

    def leave(self) -> None:
        """Want no more."""
        self._left.set()


class Readers:
    """The threads that read for one owner."""

    def __init__(self) -> None:
        self.running: set[threading.Thread] = set()

    async def join(self, within: float | None = None) -> None:
        """Wait until those that were left have come to their end, or so many seconds; they end by themselves."""
        until = None if within is None else time.monotonic() + within
        for thread in [*self.running]:
            await asyncio.to_thread(thread.join, None if until is None else max(0.0, until - time.monotonic()))
            if not thread.is_alive():
                self.running.discard(thread)


async def pieces_of(
    read: Callable[[Reading[T]], None], readers: Readers, name: str, leave: Callable[[], None] = lambda: None
) -> AsyncGenerator[T, None]:
    """What `read` tells from a thread of its own. Leaving doesn't wait for the thread: `leave` is called, which
    makes it come to its end if it can."""
    reading = Reading[T]()

    def work() -> None:
        try:
            read(reading)
        except BaseException as error:
            reading.tell(None, error)
        else:
            reading.tell(None)

    thread = threading.Thread(target=work, name=name, daemon=True)
    readers.running = {thread, *[each for each in readers.running if each.is_alive()]}
    thread.start()
    ended = False
    try:
        while True:
            piece, error = await reading.queue.get()
            ended = error is not None or piece is None
            if error is not None:
                raise error
            if ended:
                return
            yield cast(T, piece)
    finally:
        reading.leave()
        if ended:
            thread.join()  # It has told all that it had to tell.
            readers.running.discard(thread)
        else:
            leave()
