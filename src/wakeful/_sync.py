"""An event loop in a thread of its own, for programs that have none."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

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
        quiet = threading.Event()
        future = asyncio.run_coroutine_threadsafe(_then(work(), quiet), self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            quiet.wait(grace + 1)
            raise


async def _then(work: Coroutine[Any, Any, T], quiet: threading.Event) -> T:
    try:
        return await work
    finally:
        quiet.set()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
