"""A worker's lease, renewed from a thread with its own event loop and connection, which no busy loop delays."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from ..records import Renewals
from .connections import Endpoint
from .text import NOW_MS

__all__ = ["PostgresLease"]

_GIVE_UP_SECONDS = 5.0
# A claim writes the lease too: the first renewal waits, so that connecting doesn't delay the first run.
_FIRST_SECONDS = 0.25
_RENEW = f"""INSERT INTO workers (id, until, started_at) VALUES ($1, {NOW_MS} + $2, {NOW_MS})
             ON CONFLICT (id) DO UPDATE SET until = excluded.until"""

# The row of a worker with claims stays: dead owners are found by it.
_GIVE_UP = """WITH kept AS (
                  UPDATE workers SET until = 0 WHERE id = $1 AND EXISTS (SELECT 1 FROM threads WHERE claim = $1))
              DELETE FROM workers WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM threads WHERE claim = $1)"""


class PostgresLease:
    """A worker's lease, renewed for as long as the event loop calls `beat`. `on_close` is called at its end."""

    def __init__(self, endpoint: Endpoint, worker_id: str, lease: int, on_close: Callable[[str], None]) -> None:
        self._endpoint = endpoint
        self._on_close = on_close
        self._worker_id = worker_id
        self._lease = lease
        self.renewals = Renewals()
        self._beaten = time.monotonic()
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="wakeful-lease", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """Note that the event loop is alive."""
        self._beaten = time.monotonic()

    async def close(self) -> None:
        """Give the lease up: the worker's threads are free for others."""
        self._on_close(self._worker_id)
        try:
            self._loop.call_soon_threadsafe(self._over.set)
        except RuntimeError:
            return  # Closed already.
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        seconds = self._lease / 1000
        connection: Any = None
        pause = min(_FIRST_SECONDS, seconds / 3)
        while not await self._closing(pause):
            pause = seconds / 3
            if time.monotonic() - self._beaten > seconds / 2:
                self.renewals.stalled += 1
                continue
            try:
                connection = await self._execute(connection, _RENEW, self._worker_id, self._lease)
                self.renewals.ok += 1
            except Exception:
                # Commits report the error. There is time for more tries before the lease ends.
                connection, pause = None, min(seconds / 20, 1.0)
                self.renewals.failed += 1
        try:
            async with asyncio.timeout(_GIVE_UP_SECONDS):
                connection = await self._execute(connection, _GIVE_UP, self._worker_id)
                await connection.close()
        except Exception:
            if connection is not None:  # The lease runs out by itself.
                connection.terminate()

    async def _closing(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._over.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _execute(self, connection: Any, sql: str, *args: Any) -> Any:
        """Execute a statement on the connection, or on a new one, and return the connection."""
        if connection is None or connection.is_closed():
            connection = await self._endpoint.connect()
        try:
            await connection.execute(sql, *args)
        except BaseException:
            connection.terminate()
            raise
        return connection
