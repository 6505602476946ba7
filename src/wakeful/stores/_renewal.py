"""A worker's lease in Postgres, renewed from a thread with a connection of its own, which no busy loop delays."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from ._connections import Connections
from ._protocol import Renewals

__all__ = ["PostgresLease"]

_GIVE_UP_SECONDS = 5.0
# What claims writes the lease too: connecting has time until the first run has begun, which it would delay.
_FIRST_SECONDS = 0.25
_NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_RENEW = f"""INSERT INTO workers (id, until, started_at) VALUES ($1, {_NOW} + $2, {_NOW})
             ON CONFLICT (id) DO UPDATE SET until = excluded.until"""

# While the worker has claims its row stays, by which they are found.
_GIVE_UP = """WITH kept AS (
                  UPDATE workers SET until = 0 WHERE id = $1 AND EXISTS (SELECT 1 FROM threads WHERE claim = $1))
              DELETE FROM workers WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM threads WHERE claim = $1)"""


class PostgresLease:
    """A worker's sign of life: renewed for as long as the event loop gives signs too."""

    def __init__(self, connections: Connections, worker_id: str, lease: int) -> None:
        self._connections = connections
        self._worker_id = worker_id
        self._lease = lease
        self.renewals = Renewals()
        self._beaten = time.monotonic()
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="wakeful-lease", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """The event loop is alive."""
        self._beaten = time.monotonic()

    async def close(self) -> None:
        """Give the lease up: claims of this worker count no more."""
        try:
            self._loop.call_soon_threadsafe(self._over.set)
        except RuntimeError:
            return  # It is closed.
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
                # Whoever commits hears of it. There is time for some more tries before the lease is over.
                connection, pause = None, min(seconds / 20, 1.0)
                self.renewals.failed += 1
        try:
            async with asyncio.timeout(_GIVE_UP_SECONDS):
                connection = await self._execute(connection, _GIVE_UP, self._worker_id)
                await connection.close()
        except Exception:
            if connection is not None:  # It wasn't told, and finds out when the lease is over.
                connection.terminate()

    async def _closing(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._over.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _execute(self, connection: Any, sql: str, *args: Any) -> Any:
        """Run a statement on the connection, or on a new one; returns the one that it ran on."""
        if connection is None or connection.is_closed():
            connection = await self._connections.connect()
        try:
            await connection.execute(sql, *args)
        except BaseException:
            connection.terminate()
            raise
        return connection
