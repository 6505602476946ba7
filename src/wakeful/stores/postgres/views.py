"""Views of threads, read in batches: concurrent reads share a query and few connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from ..sql.base import Row

__all__ = ["Views"]

MAX_IN_FLIGHT = 2
MAX_BATCH = 64

Key = tuple[str, str]
# From a tenant and ids of its threads to the rows of each thread that exists.
Read = Callable[[str, list[str]], Awaitable[dict[str, list[Row]]]]


class Views:
    """A queue of reads. Reads that arrive while queries are in flight share the next query."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._waiting: dict[Key, list[asyncio.Future[list[Row]]]] = {}
        self._lanes: set[asyncio.Task[None]] = set()
        self._starting = False

    async def rows(self, tenant: str, thread_id: str) -> list[Row]:
        """The rows of a thread's view, read from now on; none if the thread doesn't exist."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Row]] = loop.create_future()
        self._waiting.setdefault((tenant, thread_id), []).append(future)
        # The task starts in the next turn of the loop, so that reads of this turn share its first query.
        if not self._starting and len(self._lanes) < MAX_IN_FLIGHT:
            self._starting = True
            self._lanes.add(loop.create_task(self._serve(), name="wakeful-postgres-views"))
        return await future

    async def _serve(self) -> None:
        self._starting = False
        try:
            while batch := self._next():
                await self._send(*batch)
        finally:
            # In the turn that found the queue empty: a later read starts another task.
            self._lanes.discard(cast(asyncio.Task[None], asyncio.current_task()))

    def _next(self) -> tuple[str, dict[str, list[asyncio.Future[list[Row]]]]] | None:
        """The next batch: threads of one tenant, each with the futures that wait for it."""
        if not self._waiting:
            return None
        tenant = next(iter(self._waiting))[0]
        keys = [key for key in self._waiting if key[0] == tenant][:MAX_BATCH]
        return tenant, {key[1]: self._waiting.pop(key) for key in keys}

    async def _send(self, tenant: str, asked: dict[str, list[asyncio.Future[list[Row]]]]) -> None:
        found: dict[str, list[Row]] = {}
        failure: Exception | None = None
        try:
            found = await self._read(tenant, list(asked))
        except Exception as error:
            failure = error
        for thread_id, futures in asked.items():
            for future in futures:
                if future.done():
                    continue  # Cancelled.
                if failure is not None:
                    future.set_exception(failure)
                else:
                    future.set_result(found.get(thread_id, []))
