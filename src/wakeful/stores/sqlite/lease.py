"""A worker's lease in a SQLite file."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import suppress

from ...errors import StoreError
from ...types.ids import now_ms
from ..records import Renewals
from .database import Database

__all__ = ["SqliteLease"]

_RENEW = """INSERT INTO workers (id, until, started_at) VALUES (?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET until = excluded.until"""


class SqliteLease:
    """A lease that a thread of its own renews, as long as the event loop beats."""

    def __init__(self, database: Database, worker_id: str, lease: int) -> None:
        self._database = database
        self._worker_id = worker_id
        self._lease = lease
        self.renewals = Renewals()
        self._last_beat = time.monotonic()
        self._closing = threading.Event()
        database.owners.hold(worker_id)
        self._renew()
        self._thread = threading.Thread(target=self._serve, name="wakeful-lease", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """Note that the event loop is alive."""
        self._last_beat = time.monotonic()

    def _serve(self) -> None:
        seconds = self._lease / 1000
        while not self._closing.wait(seconds / 3):
            if time.monotonic() - self._last_beat <= seconds / 2:
                try:
                    self._database.owners.hold(self._worker_id)
                except StoreError as error:
                    self._count(error)
                else:
                    self._renew()
            else:
                self._database.owners.drop(self._worker_id)  # The lease may end now.
                self.renewals.stalled += 1

    def _renew(self) -> None:
        now = now_ms()
        row = (self._worker_id, now + self._lease, now)
        self._database.writer.post(lambda db: db.execute(_RENEW, row), self._count)

    def _count(self, error: BaseException | None) -> None:
        if error is None:
            self.renewals.ok += 1
        else:
            self.renewals.failed += 1

    async def close(self) -> None:
        """End the lease, and with it the claims of this worker."""
        self._closing.set()
        await asyncio.to_thread(self._thread.join)
        self._database.owners.drop(self._worker_id)
        if not self._database.is_closed:
            with suppress(StoreError):  # Then it ends by itself.
                await self._database.writer.write(lambda db: _end_lease(db, self._worker_id))


def _end_lease(db: sqlite3.Connection, worker_id: str) -> None:
    """End a lease. The row of a worker with claims stays: they are found by it."""
    db.execute("UPDATE workers SET until = 0 WHERE id = ?", (worker_id,))
    sql = "DELETE FROM workers WHERE id = ? AND NOT EXISTS (SELECT 1 FROM threads WHERE claim = ?)"
    db.execute(sql, (worker_id, worker_id))
