"""An event loop in its own thread, for programs without one."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from ..errors import UsageError

__all__ = ["OwnLoop"]

T = TypeVar("T")


class OwnLoop:
    """The loop starts with the first call and stops when its owner is garbage-collected."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, owner: object, work: Callable[[], Coroutine[Any, Any, T]], grace: float) -> T:
        """Run a coroutine on the loop and wait for it. Ctrl-C cancels it and waits up to `grace` seconds."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise UsageError("the sync calls can't be used inside an event loop; await the others instead")
        if self._loop is None:
            loop = self._loop = asyncio.new_event_loop()
            threading.Thread(target=_serve, args=(loop,), name="wakeful-loop", daemon=True).start()
            # The thread holds no reference to the owner.
            weakref.finalize(owner, _stop, loop)
        job = _Job(work())
        try:
            return asyncio.run_coroutine_threadsafe(job.run(), self._loop).result()
        except KeyboardInterrupt:
            # The interrupt may come before there is a future to cancel.
            self._loop.call_soon_threadsafe(job.cancel)
            job.ended.wait(grace + 1)
            raise


class _Job(Generic[T]):
    """A coroutine for the loop that can be cancelled before it starts."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False
        self.ended = threading.Event()

    async def run(self) -> T:
        self._task = asyncio.current_task()
        try:
            if self._cancelled:
                self._work.close()
                raise asyncio.CancelledError
            return await self._work
        finally:
            self.ended.set()

    def cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
