"""One SQLite file, open: the connection that writes, one that reads, and the owner files beside it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from ...types.ids import now_ms
from ..jobs import Job, JobThread, hand_back
from ..records import LEASE_MS
from .file import explained, open_database
from .owners import Owners
from .writer import Writer

__all__ = ["Database", "Synchronous"]

T = TypeVar("T")

Synchronous = Literal["FULL", "NORMAL"]


class Database:
    """The connections to a file, their threads, and its owner files. Shared by the handles of all tenants."""

    def __init__(self, path: Path, synchronous: Synchronous, busy_seconds: float) -> None:
        self.path = path
        self._writing = open_database(path, synchronous, busy_seconds)
        self._reading = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
        self._reading.execute("PRAGMA query_only = ON")
        for db in (self._writing, self._reading):
            db.create_function("now_ms", 0, now_ms)
        self.owners = Owners(path.resolve())  # One place, whichever way processes name the file.
        try:
            self._sweep()
        except sqlite3.Error as error:
            self._reading.close()
            self._writing.close()
            raise explained(error, path) from error
        self.writer = Writer(
            self._writing,
            path,
            is_synced=synchronous == "FULL",
            busy_seconds=busy_seconds,
            is_alive=self.is_alive,
        )
        self._reader = JobThread("wakeful-sqlite-reader", self._read_batch, self._refuse)

    @property
    def is_closed(self) -> bool:
        """Whether the file was closed."""
        return self.writer.is_closed

    def _sweep(self) -> None:
        """End the leases of workers whose processes ended, and remove their owner files."""
        rows = self._writing.execute("SELECT id FROM workers WHERE until > ?", (now_ms(),)).fetchall()
        ended = [row for row in rows if self.owners.is_locked(row[0]) is False]
        self._writing.executemany("UPDATE workers SET until = 0 WHERE id = ?", ended)
        self.owners.sweep({worker_id for (worker_id,) in rows if (worker_id,) not in ended})

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work on the reading connection."""
        if self.writer.is_closed:
            raise self.writer.closed_error()
        return await self._reader.submit(partial(work, self._reading))

    def _read_batch(self, batch: list[Job]) -> None:
        for job in batch:
            try:
                job.result = job.work()
            except sqlite3.Error as error:
                job.error = explained(error, self.path)
            except Exception as error:
                job.error = error

    def _refuse(self, batch: list[Job]) -> None:
        for job in batch:
            job.error = self.writer.closed_error()
        hand_back(batch)

    # -- workers -------------------------------------------------------------------------------------------------

    def is_alive(self, worker_id: str) -> bool:
        """Whether a worker's process lives: by its owner file, or by its lease if it has none. Inside a write
        transaction."""
        row = self._writing.execute("SELECT until FROM workers WHERE id = ?", (worker_id,)).fetchone()
        return row is not None and self._settle_lease(self._writing, worker_id, row[0])

    def settle_leases(self, db: sqlite3.Connection) -> None:
        """End the leases of workers whose processes ended, and extend those of processes that live."""
        for worker_id, until in db.execute("SELECT id, until FROM workers WHERE until > 0").fetchall():
            self._settle_lease(db, worker_id, until)

    def _settle_lease(self, db: sqlite3.Connection, worker_id: str, until: int) -> bool:
        """Let a lease agree with the owner file; returns whether it lasts.

        A lease may be over though its process lives and renews it: the wall clock was set.
        """
        now = now_ms()
        is_locked = self.owners.is_locked(worker_id) if until else False  # 0: the worker itself ended it.
        if is_locked is None:
            return until > now
        if is_locked and until <= now:
            db.execute("UPDATE workers SET until = ? WHERE id = ?", (now + LEASE_MS, worker_id))
        elif until and not is_locked:
            db.execute("UPDATE workers SET until = 0 WHERE id = ?", (worker_id,))
        return is_locked

    def close(self) -> None:
        """Close both connections and remove the owner files. Blocks until the open transaction is committed."""
        if self.is_closed:
            return
        self.writer.close()
        self._reader.close()
        self._reading.close()
        self._writing.close()  # The last one: it checkpoints the WAL and removes it.
        self.owners.close()
