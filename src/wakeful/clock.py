"""The clock protocol and the system clock. Tests replace it with a fake clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import time_ns
from typing import Any, Protocol

__all__ = ["Clock", "SystemClock", "Timer", "sleep"]


class Timer(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Cancel the callback."""
        ...


class Clock(Protocol):
    """The runtime's source of time."""

    def now(self) -> int:
        """Milliseconds since the epoch, UTC."""
        ...

    def call_later(self, seconds: float, callback: Callable[..., Any], *args: Any) -> Timer:
        """Schedule `callback` on the running event loop in `seconds`."""
        ...


class SystemClock:
    """The clock of the operating system."""

    def now(self) -> int:
        """Milliseconds since the epoch, UTC."""
        return time_ns() // 1_000_000

    def call_later(self, seconds: float, callback: Callable[..., Any], *args: Any) -> Timer:
        """Schedule `callback` on the running event loop in `seconds`."""
        return asyncio.get_running_loop().call_later(seconds, callback, *args)


async def sleep(clock: Clock, seconds: float) -> None:
    """Sleep for `seconds` of the given clock; returns at once if not positive."""
    if seconds <= 0:
        return
    elapsed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, _resolve, elapsed)
    try:
        await elapsed
    finally:
        timer.cancel()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
