"""Running coroutines that were begun by hand: in the task that awaits them, or in one that is made for them.

A step with a single call needs no task of its own: its tool runs right here, and one that never waits costs no
turn of the event loop. What a task would give is kept: context variables of its own, cancellation, and, for a
tool that won't stop, being left behind. Of several calls each is begun in the name of a task, and only one that
waits needs it: the next one has the same.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from contextvars import Context
from types import coroutine
from typing import Any, cast

__all__ = ["Inline", "LeftBehind", "as_task", "first_turn"]


_GROUP_WAITS: Any = asyncio.TaskGroup.__aexit__.__code__ if sys.version_info < (3, 13) else None


class LeftBehind(Exception):
    """The coroutine didn't stop in time and goes on without its awaiter."""


class Inline:
    """Drives on a coroutine that was begun in a context of its own and `waits_for` something, or has `raised`.

    `told` is called when a cancellation passes through; `forgotten` are the task groups in it that cancelled the
    awaiter's task to end their wait, and won't take that back.
    """

    __slots__ = (
        "_begun",
        "_context",
        "_coroutine",
        "_late",
        "_raised",
        "_thrown",
        "_waits_for",
        "forgotten",
        "leave",
        "told",
    )

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        context: Context,
        waits_for: Any,
        raised: BaseException | None,
    ) -> None:
        self._coroutine = coroutine
        self._context = context
        self._begun = True
        self._waits_for = waits_for
        self._raised = raised
        self._thrown: BaseException | None = None
        self._late: BaseException | None = None
        self.told: Callable[[], None] | None = None
        self.leave = False
        self.forgotten: set[asyncio.TaskGroup] = set()

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._raised is not None:
            raise self._raised
        run, coroutine, thrown = self._context.run, self._coroutine, self._thrown
        begun, waits_for, late = self._begun, self._waits_for, self._late
        self._begun, self._waits_for, self._late = False, None, None
        try:
            while True:
                if not begun:
                    waits_for = run(coroutine.send, None) if thrown is None else run(coroutine.throw, thrown)
                begun, thrown = False, None
                try:
                    yield waits_for
                except BaseException as raised:
                    thrown = raised
                    if self.leave:
                        self._thrown = raised
                        raise LeftBehind from None
                    if isinstance(raised, asyncio.CancelledError) and self.told is not None:
                        if _GROUP_WAITS is not None:
                            self.forgotten |= _groups_that_forget(coroutine)
                        self.told()
                if late is not None:
                    thrown, late = late, None
        except StopIteration as stop:
            return stop.value

    def interrupt(self, error: asyncio.CancelledError) -> None:
        """The task that goes on with it was cancelled before its first turn: as by a task, what is waited for is
        cancelled, else the coroutine hears of it; where that won't be cancelled, once it is there."""
        waits_for = self._waits_for
        if not asyncio.isfuture(waits_for) or waits_for.done():
            self._begun, self._thrown = False, error
        elif not waits_for.cancel(*error.args):
            self._late = error

    async def rest(self) -> None:
        """Drive on what was left behind, in a task of its own; nobody hears how it ends."""
        self.leave = False
        with suppress(Exception, asyncio.CancelledError):
            await self


@coroutine
def first_turn() -> Generator[None, None, None]:
    """Where a coroutine stands that was begun by hand, until its task has its first turn."""
    yield


@contextmanager
def as_task(task: asyncio.Task[Any], loop: asyncio.AbstractEventLoop) -> Generator[None, None, None]:
    """Be another task than the present one: whoever asks which one runs is told that."""
    own = asyncio.current_task(loop)
    if own is not None:
        _leave(loop, own)
    _enter(loop, task)
    try:
        yield
    finally:
        _leave(loop, task)
        if own is not None:
            _enter(loop, own)


# For whoever implements tasks, as asyncio's documentation has it.
_enter: Callable[[Any, Any], None] = cast(Any, asyncio)._enter_task
_leave: Callable[[Any, Any], None] = cast(Any, asyncio)._leave_task


def _groups_that_forget(coroutine: Any) -> set[asyncio.TaskGroup]:
    """The task groups that a coroutine waits for and that have failed. Before Python 3.13 such a group cancels its
    task, swallows the cancellation, and leaves the task's count of them as it is."""
    found: set[asyncio.TaskGroup] = set()
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        if frame.f_code is _GROUP_WAITS and frame.f_locals["self"]._parent_cancel_requested:
            found.add(frame.f_locals["self"])
        coroutine = coroutine.cr_await
    return found
