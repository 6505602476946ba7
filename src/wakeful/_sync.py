"""An event loop in a thread of its own, for programs that have none."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from .errors import UsageError

__all__ = ["OwnLoop"]

T = TypeVar("T")


class OwnLoop:
    """Begun with the first call; it ends once nobody holds its owner any more."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, owner: object, work: Callable[[], Coroutine[Any, Any, T]], grace: float) -> T:
        """Do the work there, and wait for it; ctrl-C cancels it, and waits so many seconds until it is quiet."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise UsageError("the sync calls can't be used inside an event loop; await the others instead")
        if self._loop is None:
            loop = self._loop = asyncio.new_event_loop()
            threading.Thread(target=_serve, args=(loop,), name="wakeful-loop", daemon=True).start()
            # The thread doesn't know the owner.
            weakref.finalize(owner, _stop, loop)
        given = _Given(work())
        try:
            return asyncio.run_coroutine_threadsafe(given.do(), self._loop).result()
        except KeyboardInterrupt:
            # It may come at any moment, and so before there is a future to cancel.
            self._loop.call_soon_threadsafe(given.cancel)
            given.quiet.wait(grace + 1)
            raise


class _Given(Generic[T]):
    """Work for the loop, which can be cancelled from the moment on in which it is given."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False
        self.quiet = threading.Event()

    async def do(self) -> T:
        self._task = asyncio.current_task()
        try:
            if self._cancelled:
                self._work.close()
                raise asyncio.CancelledError
            return await self._work
        finally:
            self.quiet.set()

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
