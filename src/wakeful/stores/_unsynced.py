"""What was written and isn't synced yet: it is soon, whether something that is synced comes after it or not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

__all__ = ["Unsynced"]

UNSYNCED_SECONDS = 0.005


class Unsynced:
    """Calls `sync` once something has been unsynced for some milliseconds."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._since: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def left(self) -> None:
        """Something was written and not synced."""
        if self._since is None:
            self._since = monotonic()  # As event loops count.
        if self._loop is None or self._loop.is_closed():
            loop = self._loop = asyncio.get_running_loop()
            loop.call_later(UNSYNCED_SECONDS, self._due, loop)

    def synced(self, began: float | None = None) -> None:
        """Everything is synced that was written before, or before the time at which that began."""
        since = self._since
        if began is None or (since is not None and since <= began):
            self._since = None

    def _due(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = None
        since = self._since
        if since is None:
            return
        left = since + UNSYNCED_SECONDS - loop.time()
        if left > 0:  # What was unsynced when the timer was set is synced; this is what came after it.
            self._loop = loop
            loop.call_later(left, self._due, loop)
        else:
            self._since = None
            self._sync()
