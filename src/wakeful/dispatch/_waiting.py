"""Waiting for what another process does: by the bus where there is one, else by looking, ever more rarely."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..bus import Moved, News

if TYPE_CHECKING:
    from ._local import Dispatcher

__all__ = ["Watch", "pause_after"]

# How long to wait before looking again, in seconds: a part of what was waited so far, between these.
PART = 0.25
SOONEST = 0.02
LATEST, LATEST_WITH_BUS = 1.0, 2.0
# However much is heard, there is so much time between two looks.
GAP = 0.025


def pause_after(waited: float, *, bus: bool) -> float:
    """How long to wait before looking again, after so many seconds: who waited long can wait a little longer."""
    return max(SOONEST, min(waited * PART, LATEST_WITH_BUS if bus else LATEST))


class Watch:
    """One who waits for something on a thread that may run in another process. Enter it, and `news` returns when
    there may be something to see; what is heard over the bus is only a hint."""

    def __init__(self, dispatch: Dispatcher, thread_id: str | None) -> None:
        self._dispatch = dispatch
        self._thread_id = thread_id
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._looked = self._began
        self._heard = asyncio.Event()

    def __enter__(self) -> Watch:
        self._join()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread_id is not None:
            self._dispatch.signals.leave(self._dispatch.tenant, self._thread_id, self)

    def on(self, thread_id: str) -> None:
        """Say which thread it is, once that is known."""
        if self._thread_id is None:
            self._thread_id = thread_id
            self._join()

    def _join(self) -> None:
        if self._thread_id is not None and self._dispatch.env.store.durable:
            self._dispatch.signals.watch(self._dispatch.tenant, self._thread_id, self)

    def push(self, event: News) -> None:
        """Hear that something was written; what is streamed meanwhile is nothing to wait for."""
        if isinstance(event, Moved):
            self._heard.set()

    async def news(self, until: asyncio.Future[Any] | None = None) -> None:
        """Wait until there may be something new, or the future is done."""
        wait = pause_after(self._loop.time() - self._began, bus=self._dispatch.signals.healthy)
        hearing = asyncio.ensure_future(self._hear())
        try:
            waiting = {hearing} if until is None else {hearing, until}
            await asyncio.wait(waiting, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hearing.cancel()
        self._looked = self._loop.time()

    async def _hear(self) -> None:
        await self._heard.wait()
        await asyncio.sleep(self._looked + GAP - self._loop.time())
        self._heard.clear()
