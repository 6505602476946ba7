"""Transactions on the connection that writes to a SQLite file: how they begin and end, and what fails in them."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ._files import explained, is_busy
from ._plain import VIEW, Known, write_together
from ._protocol import Committed
from ._threads import Job
from ._writing import Writing

__all__ = ["Transactions"]

T = TypeVar("T")

# A sync that was slow is remembered for a while.
_REMEMBERED = 0.8

# How often it is tried to begin while another process is in the middle of a transaction. SQLite itself would ask
# ten times a second, and one that writes without a break is hardly ever met between two of its transactions.
PAUSE_SECONDS = 0.002


class Transactions:
    """One at a time: whoever calls has seen to that. `on_sync` hears that all which was written is synced."""

    def __init__(
        self, db: sqlite3.Connection, path: Path, busy_seconds: float, on_sync: Callable[[], None]
    ) -> None:
        self.db = db
        self.cursor = db.cursor()  # A new one for each statement takes longer than many statements.
        self.known = Known(self.cursor)
        self.sync_seconds = 0.0
        self._path = path
        self._busy_seconds = busy_seconds
        self._on_sync = on_sync
        self._changes = db.total_changes
        self._tuned: tuple[int | None, bool | None] = None, None
        # What a statement may have to undo is kept in memory: there may be no room for files elsewhere.
        for statement in ("PRAGMA temp_store = MEMORY", *VIEW, "PRAGMA busy_timeout = 0"):
            self.cursor.execute(statement)

    # -- from the beginning to the end -----------------------------------------------------------------------

    def tune(self, checkpoint: int, synced: bool) -> None:
        """Say how the next one is committed: from how many pages on it brings the log home, and whether it is
        synced."""
        if self._tuned == (checkpoint, synced):
            return
        before, self._tuned = self._tuned, (checkpoint, synced)
        if checkpoint != before[0]:
            self.cursor.execute(f"PRAGMA wal_autocheckpoint = {checkpoint}")
        if synced != before[1]:
            self.cursor.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")

    def begin(self) -> None:
        """Begin one, if there is none; waits for another process that is in the middle of one."""
        if not self.db.in_transaction:
            self._patiently(lambda: self.cursor.execute("BEGIN IMMEDIATE"))

    def begun(self) -> bool:
        """Begin one, unless another process is in the middle of one, or something is wrong."""
        try:
            self.cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        return True

    def commit(self) -> None:
        """Commit it, if there is one: what was alone in it may have been refused."""
        if self.db.in_transaction:
            began = time.perf_counter()
            self.cursor.execute("COMMIT")
            self._committed(began)

    def roll_back(self) -> None:
        """End it, if there is one, and leave nothing of it."""
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")
        self._changes = self.db.total_changes  # They are undone.

    def _committed(self, began: float | None) -> None:
        before, self._changes = self._changes, self.db.total_changes
        if not self._tuned[1] or self._changes == before:  # What wrote nothing syncs nothing.
            return
        if began is not None:
            self.sync_seconds = max(time.perf_counter() - began, _REMEMBERED * self.sync_seconds)
        self._on_sync()

    def _patiently(self, work: Callable[[], T]) -> T:
        until = time.monotonic() + self._busy_seconds
        while True:
            try:
                return work()
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= until:
                    raise
                time.sleep(PAUSE_SECONDS)

    # -- what is in it ---------------------------------------------------------------------------------------

    def by_itself(self, writing: Writing) -> Committed | None:
        """Write what takes one statement, which is a transaction then. None, and nothing is written, if there is
        more to it, or it can't be: who begins a transaction for it hears why."""
        if (plain := writing.plain()) is None:
            return None
        began = time.perf_counter()
        try:
            written = write_together(self.cursor, [plain])
        except sqlite3.OperationalError:
            return None
        if written is None:
            return None
        self._committed(began)
        return written[0]

    def together(self, ready: list[Job], on_begin: Callable[[], None]) -> None:
        """Write what owners add to their threads, in one statement; one by one, if that isn't how the threads are
        any more, or one can't be written: it has to be found out which. If there is no transaction, it is one.
        `on_begin` is called right before it: soon it needs the interpreter no more."""
        works = [job.work.plain() for job in ready if isinstance(job.work, Writing)]
        plains = [plain for plain in works if plain is not None]
        on_begin()
        began, within, written = time.perf_counter(), self.db.in_transaction, None
        if len(plains) == len(ready):
            try:
                written = self._patiently(lambda: write_together(self.cursor, plains))
            except Exception as error:
                if isinstance(error, sqlite3.OperationalError) or (within and not self.db.in_transaction):
                    raise  # All that was in the transaction is gone with it.
        if written is None:
            self.begin()
            self.attempt(ready, alone=False)
            return
        for job, done in zip(ready, written, strict=True):
            job.result = done
        if not within:
            self._committed(began if len(ready) == 1 else None)  # With many it isn't the sync that takes its time.

    def attempt(self, jobs: list[Job], *, alone: bool) -> None:
        """Do them one by one, each under a savepoint, so that one which is refused fails alone. One that is alone
        in its transaction needs none."""
        execute = self.cursor.execute
        for job in jobs:
            if not alone:
                execute("SAVEPOINT one")
            try:
                job.result = job.work()
            except sqlite3.OperationalError:
                raise  # The disk or the file, not this job: the whole group fails.
            except BaseException as error:  # Of a codec's, who knows.
                job.error = self._explained(error)
                if alone:
                    self.roll_back()
                else:
                    execute("ROLLBACK TO one")
            if not alone:
                execute("RELEASE one")

    def undo(self, batch: list[Job], error: BaseException) -> None:
        """Nothing of a batch was written."""
        self.known.clear()
        for job in batch:
            job.error = job.error or self._explained(error)
        self.roll_back()

    def _explained(self, error: BaseException) -> BaseException:
        return explained(error, self._path) if isinstance(error, sqlite3.Error) else error
