"""A fake clock that a test advances."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import Any

__all__ = ["FakeClock"]


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
        """Advance the time: due timers fire in order, and tasks run after each."""
        await settle()
        until = self._now + round(seconds * 1000)
        while self._timers and self._timers[0][0] <= until:
            due, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, due)
            if timer.fire():
                await settle()
        self._now = until
        await settle()


async def settle(rounds: int = 20) -> None:
    """Yield to the event loop so often that ready tasks come to rest."""
    for _ in range(rounds):
        await asyncio.sleep(0)
