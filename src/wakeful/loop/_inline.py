"""Running one coroutine inside the task that awaits it, with the freedom to walk away from it.

A step with a single call needs no task of its own: its tool runs right here, and one that never waits costs no
turn of the event loop. What a task would give is kept: context variables of its own, cancellation, and, for a
tool that won't stop, being left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any

__all__ = ["Inline", "LeftBehind"]


class LeftBehind(Exception):
    """The coroutine didn't stop in time and goes on without its awaiter."""


class Inline:
    """Awaitable that drives a coroutine. `told` is called when a cancellation first passes through."""

    __slots__ = ("_context", "_coroutine", "_error", "_told", "leave")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], told: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._context: Context = copy_context()
        self._told = told
        self._error: BaseException | None = None
        self.leave = False

    def __await__(self) -> Generator[Any, Any, Any]:
        run, coroutine, error = self._context.run, self._coroutine, self._error
        try:
            while True:
                waits_for = run(coroutine.send, None) if error is None else run(coroutine.throw, error)
                error = None
                try:
                    yield waits_for
                except BaseException as raised:
                    error = raised
                    if self.leave:
                        self._error = raised
                        raise LeftBehind from None
                    if isinstance(raised, asyncio.CancelledError):
                        self._told()
        except StopIteration as stop:
            return stop.value

    async def rest(self) -> None:
        """Drive on what was left behind, in a task of its own; nobody hears how it ends."""
        self.leave = False
        with suppress(Exception, asyncio.CancelledError):
            await self
