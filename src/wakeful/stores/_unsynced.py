"""What was written and isn't synced yet: it is soon, whether something that is synced comes after it or not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Unsynced"]

UNSYNCED_SECONDS = 0.005


class Unsynced:
    """Calls `sync` some milliseconds after something was left unsynced, if it still is then."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._any = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def left(self) -> None:
        """Something was written and not synced."""
        self._any = True
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            loop.call_later(UNSYNCED_SECONDS, self._due)

    def synced(self) -> None:
        """Everything that was written before is synced."""
        self._any = False

    def _due(self) -> None:
        self._loop = None
        if self._any:
            self._sync()
