"""A clock that stands still until a test moves it."""

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
        """Don't call back."""
        self.cancelled = True

    def fire(self) -> bool:
        """Call back, unless that was cancelled."""
        if not self.cancelled:
            self.callback(*self.args)
        return not self.cancelled


class FakeClock:
    """Give it to `Runtime(clock=...)`; `await clock.advance(seconds)` lets time pass."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self._now = now
        self._timers: list[tuple[int, int, _Timer]] = []
        self._order = count()

    def now(self) -> int:
        """The time this clock shows, in milliseconds."""
        return self._now

    def call_later(self, seconds: float, callback: Callable[..., Any], *args: Any) -> _Timer:
        """Call back once the clock was advanced so far; at once, as any clock does, if no time is left."""
        timer = _Timer(callback, args)
        if seconds <= 0:
            asyncio.get_running_loop().call_soon(timer.fire)
            return timer
        heapq.heappush(self._timers, (self._now + round(seconds * 1000), next(self._order), timer))
        return timer

    async def advance(self, seconds: float) -> None:
        """Let time pass: what falls due on the way happens in its order, and tasks get to run after each."""
        await settle()  # What can happen now happens before.
        until = self._now + round(seconds * 1000)
        while self._timers and self._timers[0][0] <= until:
            due, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, due)
            if timer.fire():
                await settle()
        self._now = until
        await settle()


async def settle(rounds: int = 20) -> None:
    """Let every task that can run do so."""
    for _ in range(rounds):
        await asyncio.sleep(0)
