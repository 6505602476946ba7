"""Transactions of the connection that writes to a SQLite file."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from ...errors import StoreLost
from .file import CHECKPOINT_PAGES, is_busy
from .presence import OpenFiles

__all__ = ["Transactions"]

# The event loop commits by itself as long as an fsync takes less than this.
FAST_SYNC_SECONDS = 0.001
# A slow fsync is remembered, less with every faster one.
SYNC_DECAY = 0.8
# The pause between attempts to begin while another process has the file locked.
BUSY_PAUSE_SECONDS = 0.002


class Transactions:
    """Begins and ends transactions, one at a time. The caller sees to that."""

    def __init__(self, db: sqlite3.Connection, path: Path, *, is_synced: bool, busy_seconds: float) -> None:
        self.db = db
        self._files = OpenFiles(db, path)
        self.cursor = db.cursor()
        self.sync_seconds = 0.0
        self.is_synced = is_synced
        self._busy_seconds = busy_seconds
        # The rollback journal of statements is kept in memory: the disk may be full. `begin` waits for locks.
        for name, value in (("temp_store", "MEMORY"), ("busy_timeout", "0"), ("wal_autocheckpoint", "0")):
            self.cursor.execute(f"PRAGMA {name} = {value}")

    @property
    def is_fast(self) -> bool:
        """Whether commits are fast enough for an event loop."""
        return self.sync_seconds < FAST_SYNC_SECONDS

    def begin_now(self) -> bool:
        """Begin a transaction, unless another process has the file locked, or it is lost: `begin` says so."""
        try:
            self._files.check()
            self.cursor.execute("BEGIN IMMEDIATE")
        except (StoreLost, sqlite3.OperationalError):
            return False
        return True

    def begin(self) -> None:
        """Begin a transaction; waits while another process has the file locked, up to the busy timeout.

        Raises `StoreLost` if the file was deleted, replaced or truncated.
        """
        self._files.check()
        until = time.monotonic() + self._busy_seconds
        while True:
            try:
                self.cursor.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= until:
                    raise
                time.sleep(BUSY_PAUSE_SECONDS)

    def commit(self, *, has_changes: bool) -> None:
        """Commit the transaction, and measure the fsync if there were changes. Doesn't checkpoint the WAL.

        Raises `StoreLost` if the file was deleted, replaced or truncated before.
        """
        began = time.perf_counter()
        self.cursor.execute("COMMIT")
        if self.is_synced and has_changes:
            self.sync_seconds = max(time.perf_counter() - began, SYNC_DECAY * self.sync_seconds)
        self._files.check()

    def commit_and_checkpoint(self, *, has_changes: bool) -> None:
        """Commit the transaction, and checkpoint the WAL if it has grown."""
        self.cursor.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        try:
            self.commit(has_changes=has_changes)
        finally:
            self.cursor.execute("PRAGMA wal_autocheckpoint = 0")

    def roll_back(self) -> None:
        """Undo the transaction, if there is one."""
        if self.db.in_transaction:
            self.cursor.execute("ROLLBACK")
