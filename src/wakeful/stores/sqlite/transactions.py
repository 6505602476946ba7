"""Transactions of the connection that writes to a SQLite file, as long as that file is still there."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from ...errors import StoreLost
from .file import CHECKPOINT_PAGES, is_busy

__all__ = ["Transactions"]

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


class OpenFiles:
    """A database file, its WAL and its shared memory, as they were when they were opened.

    SQLite writes to the open files, wherever their names went: a commit to a deleted file succeeds, and is gone
    with the process. Without the shared memory, processes overwrite each other's part of the WAL.
    """

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        # The process may change its working directory. SQLite names the others after the target of a link.
        target = path.resolve()
        self._names = (str(path.absolute()), f"{target}-wal", f"{target}-shm")
        # The others are there from the first transaction on.
        self._opened: list[os.stat_result | None] = [path.stat() if path.exists() else None, None, None]

    def check(self) -> None:
        """Raise `StoreLost` if one of them was deleted, replaced or truncated. Outside of transactions."""
        for index, name in enumerate(self._names):
            opened = self._opened[index]
            try:
                found = os.stat(name)
            except OSError:
                found = None
            if opened is not None:
                if found is None:
                    raise _lost(f"{name} was deleted or moved")
                if found.st_ino != opened.st_ino or found.st_dev != opened.st_dev:
                    raise _lost(f"{name} was replaced")
                if found.st_size < opened.st_size and self._is_truncated(index, opened.st_size):
                    raise _lost(f"{name} was truncated")
            self._opened[index] = found

    def _is_truncated(self, index: int, size: int) -> bool:
        """Whether a file that is smaller now was cut off, and not made smaller by VACUUM or a checkpoint."""
        try:
            if index == 0:
                ((pages,),) = self._db.execute("PRAGMA page_count")
                ((page_size,),) = self._db.execute("PRAGMA page_size")
                return pages * page_size >= size or os.path.getsize(self._names[0]) == 0
            ((_, frames, _),) = self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")
            return frames > 0 and os.path.getsize(self._names[1]) == 0
        except (OSError, sqlite3.Error):
            return True


def _lost(loss: str) -> StoreLost:
    return StoreLost(
        f"{loss} while it was open; what is written here is lost: stop this process, put the file or a backup "
        "back, and start again"
    )
