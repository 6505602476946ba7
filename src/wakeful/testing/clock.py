"""A fake clock that a test advances."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from types import CoroutineType
from typing import Any

__all__ = ["FakeClock"]

# Tasks have come to rest after this many turns of the event loop without an operation of a store.
QUIET_TURNS = 20
# How often to look whether the store has answered, and how long to wait for that at most, in seconds.
POLL_SECONDS = 0.0005
SETTLE_SECONDS = 60


class _Timer:
    __slots__ = ("args", "callback", "cancelled")

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.callback = callback
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        """Drop the callback."""
        self.cancelled = True

    def fire(self) -> bool:
        """Call back unless cancelled; returns whether it did."""
        if self.cancelled:
            return False
        self.callback(*self.args)
        return True


class FakeClock:
    """A clock for `Runtime(clock=...)` that stands still until `await clock.advance(seconds)`."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self._now = now
        self._timers: list[tuple[int, int, _Timer]] = []
        self._order = count()

    def now(self) -> int:
        """The clock's time in milliseconds."""
        return self._now

    def call_later(self, seconds: float, callback: Callable[..., Any], *args: Any) -> _Timer:
        """Call back once the clock has advanced by `seconds`; on the next loop iteration if that is 0 or less."""
        timer = _Timer(callback, args)
        if seconds <= 0:
            asyncio.get_running_loop().call_soon(timer.fire)
            return timer
        heapq.heappush(self._timers, (self._now + round(seconds * 1000), next(self._order), timer))
        return timer

    async def advance(self, seconds: float) -> None:
        """Advance the time: due timers fire in order. After each, tasks run until they come to rest.

        Raises `TimeoutError` if they keep their store busy for a minute.
        """
        await settle()
        until = self._now + round(seconds * 1000)
        while self._timers and self._timers[0][0] <= until:
            due, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, due)
            if timer.fire():
                await settle()
        self._now = until
        await settle()


async def settle() -> None:
    """Wait until tasks have come to rest: no operation of a store is under way, nor was one for a while.

    A store answers from a thread or a socket, which turns of the event loop don't wait for.
    """
    loop, quiet = asyncio.get_running_loop(), 0
    until = loop.time() + SETTLE_SECONDS
    while quiet < QUIET_TURNS:
        if (busy := _find_store_operation()) is None:
            quiet += 1
            await asyncio.sleep(0)
            continue
        if loop.time() > until:
            raise TimeoutError(
                f"the clock can't advance: {busy} or others kept the store busy for {SETTLE_SECONDS} s, and may "
                "set the next timer; end runs that never wait, or test them on a store in memory"
            )
        quiet = 0
        await asyncio.sleep(POLL_SECONDS)


def _find_store_operation() -> str | None:
    """The name of a coroutine of a store that a task of the running loop waits in, or None."""
    for task in asyncio.all_tasks():
        waits_in: Any = task.get_coro()
        while isinstance(waits_in, CoroutineType):
            frame = waits_in.cr_frame
            if frame is not None and frame.f_globals.get("__name__", "").startswith("wakeful.stores."):
                return waits_in.__qualname__
            waits_in = waits_in.cr_await
    return None
