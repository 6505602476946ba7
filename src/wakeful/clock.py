"""Time: the system's, or a test's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import time_ns
from typing import Any, Protocol

__all__ = ["Clock", "SystemClock", "Timer", "sleep"]


class Timer(Protocol):
    """Something that will happen unless it is cancelled."""

    def cancel(self) -> None:
        """Don't."""
        ...


class Clock(Protocol):
    """Where the runtime takes its time from."""

    def now(self) -> int:
        """Milliseconds since the epoch, UTC."""
        ...

    def call_later(self, seconds: float, callback: Callable[..., Any], *args: Any) -> Timer:
        """Call back on the event loop when so many seconds have passed."""
        ...


class SystemClock:
    """The time it is."""

    def now(self) -> int:
        """Milliseconds since the epoch, UTC."""
        return time_ns() // 1_000_000

    def call_later(self, seconds: float, callback: Callable[..., Any], *args: Any) -> Timer:
        """Call back on the running event loop."""
        return asyncio.get_running_loop().call_later(seconds, callback, *args)


async def sleep(clock: Clock, seconds: float) -> None:
    """Wait for so many seconds of the clock."""
    if seconds <= 0:
        return
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, _set, over)
    try:
        await over
    finally:
        timer.cancel()


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
