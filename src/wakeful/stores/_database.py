"""One SQLite file, open: one thread that writes, in groups, and one that reads.

Whatever queued up while the last transaction was syncing goes into the next one: what owners add to their threads
in the same few statements, the rest each under a savepoint of its own, so that one which is refused fails alone.
What takes less than going to the thread and back, the event loop writes itself: what needn't be synced yet, and
what a run writes that is alone, as long as the disk is fast. What many runs have it puts into one transaction too,
but leaves the commit to the thread, and goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

from ..errors import StoreUnavailable
from ..types.ids import now_ms
from ._apply import Writing
from ._files import CHECKPOINT_PAGES, explained, is_busy, open_database
from ._owners import Owners
from ._packing import Packer
from ._plain import Known, Plain, write_together
from ._protocol import Commit, Committed
from ._threads import Job, JobThread, Promise, hand_back, settled
from ._unsynced import Unsynced

__all__ = ["Database", "Synchronous"]

T = TypeVar("T")

Synchronous = Literal["FULL", "NORMAL"]

# So many transactions in a row are made by event loops. The next one is the thread's, which brings the log home if
# it has grown: that is synced, and takes its time.
LOOP_TRANSACTIONS = 128

# An event loop syncs what it writes while syncs take less than this. A slow one is remembered for a while.
FAST_SYNC_SECONDS = 0.001
_REMEMBERED = 0.8

# How often it is tried to begin while another process is in the middle of a transaction. SQLite itself would ask
# ten times a second, and one that writes without a break is hardly ever met between two of its transactions.
PAUSE_SECONDS = 0.002

# So many commits an event loop puts into one transaction: whatever else it has to do waits meanwhile.
MAX_GATHERED = 64

# With so many the loop waits until the thread commits them: for some microseconds, and so long at most.
MANY = 8
HANDING_SECONDS = 0.001


class Database:
    """The connections to a file, its threads and its owner files. Shared by the handles of all tenants."""

    def __init__(self, path: Path, synchronous: Synchronous, busy_seconds: float) -> None:
        self.path = path
        self._busy_seconds = busy_seconds
        self._writing = open_database(path, synchronous, busy_seconds)
        self._reading = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
        self._reading.execute("PRAGMA query_only = ON")
        for db in (self._writing, self._reading):
            db.create_function("now_ms", 0, now_ms)
        place = path.absolute()  # The process may go to another folder.
        self.owners, self._log = Owners(place), f"{place}-wal"
        try:
            self._sweep()
        except sqlite3.Error as error:
            self._reading.close()
            self._writing.close()
            raise explained(error, path) from error
        self.batches: list[int] = [0, 0]
        self._cursor = self._writing.cursor()  # A new one for each statement takes longer than many statements.
        self.known = Known(self._cursor)
        self._free = threading.Lock()
        self._loops_left = LOOP_TRANSACTIONS
        self._full = synchronous == "FULL"
        self._sync_seconds = 0.0
        self._changes = self._writing.total_changes
        self._last_owner: tuple[str, str] | None = None
        # What runs have for the next transaction, and the event loop that makes it; and what is in a transaction
        # that the thread has yet to commit.
        self._gathered: deque[Job] = deque()
        self._gathers: asyncio.AbstractEventLoop | None = None
        self._begun_here: list[Job] = []
        self._handed = threading.Event()
        self._unsynced = Unsynced(lambda: self.post(self._sync))
        self._tuned: tuple[int | None, bool | None] = None, None
        self._cursor.execute("PRAGMA busy_timeout = 0")
        self._writer = JobThread("wakeful-sqlite-writer", self._write_batch)
        self._reader = JobThread("wakeful-sqlite-reader", self._read_batch)
        self.closed = False

    def _sweep(self) -> None:
        """Take the leases of workers whose processes ended, and remove their owner files."""
        rows = self._writing.execute("SELECT id FROM workers WHERE until > ?", (now_ms(),)).fetchall()
        ended = [row for row in rows if self.owners.dead(row[0])]
        self._writing.executemany("UPDATE workers SET until = 0 WHERE id = ?", ended)
        self.owners.sweep({worker_id for (worker_id,) in rows if (worker_id,) not in ended})

    # -- reading ---------------------------------------------------------------------------------------------

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work on the reading connection."""
        self._check_open()
        return await self._reader.submit(lambda: work(self._reading))

    def _read_batch(self, batch: list[Job]) -> None:
        for job in batch:
            try:
                job.result = job.work()
            except sqlite3.Error as error:
                job.error = explained(error, self.path)
            except Exception as error:
                job.error = error

    # -- writing ---------------------------------------------------------------------------------------------

    def writing(self, tenant: str, packer: Packer, commit: Commit) -> Writing:
        """A commit to be written to this file."""
        return Writing(self._writing, tenant, packer, commit, self.alive, self.known)

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work inside a transaction, with whatever else is waiting; it is synced when this returns."""
        self._check_open()
        return await settled(self._writer.promise(lambda: work(self._writing)))

    async def write_soon(self, writing: Writing) -> Committed:
        """Write what a thread's owner has. If nobody else is writing, and a sync is fast or needn't be waited for,
        it is done here and now; else together with what others have."""
        synced = self._full and not writing.commit.unsynced
        here = self._alone(writing.owner) if synced else self._gathers is None
        if here and self._loops_left and not self.closed and self._take():
            try:
                self._tune(0, synced)
                if self._begun():
                    self._loops_left -= 1
                    self._count(1)
                    return self._written_here(writing, synced)
            finally:
                self._free.release()
        self._check_open()
        loop = asyncio.get_running_loop()
        gathers = self._gathers
        if gathers is not None and gathers is not loop and not gathers.is_closed():
            return await settled(self._writer.promise(writing))
        future: Promise[Committed] = Promise(loop=loop)
        writing.make_ready()
        self._gathered.append(Job(writing, future))
        if gathers is not loop:
            self._gathers = loop
            loop.call_soon(self._write_gathered, loop)  # What others have in this turn of the loop comes along.
        return await settled(future)

    def _take(self) -> bool:
        """Keep others from beginning a transaction, if there is none."""
        if not self._free.acquire(blocking=False):
            return False
        if self._begun_here:
            self._free.release()
            return False
        return True

    def _alone(self, owner: tuple[str, str]) -> bool:
        """Whether no other thread is claimed here, or nobody else wrote since this owner did, and a sync takes a
        moment. Those in company share one."""
        again, self._last_owner = owner == self._last_owner, owner
        return (again or not self.known.others(owner)) and self._sync_seconds < FAST_SYNC_SECONDS

    def _written_here(self, writing: Writing, synced: bool) -> Committed:
        try:
            written = writing()
            self._commit(synced)
        except sqlite3.Error as error:
            self._roll_back()
            self.known.clear()
            raise explained(error, self.path) from error
        except BaseException:
            self._roll_back()
            raise
        if self._full and not synced:
            self._unsynced.left()
        return written

    def _write_gathered(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write what was gathered, but for the commit. When the thread has made that, it goes on with what was
        gathered meanwhile."""
        gathered, most = self._gathered, MAX_GATHERED if not self.closed else len(self._gathered)
        batch = [gathered.popleft() for _ in range(min(len(gathered), most))]
        if self.closed or not batch:
            self._gathers = None
            for job in batch:
                job.error = self._was_closed()
            hand_back(batch)
            return
        self._handed.clear()
        begun = self._left_begun(batch)
        then = Job(_nothing, then=lambda _: _soon(loop, self._write_gathered, loop))
        self._writer.put(*([] if begun else batch), then)
        if begun and len(batch) >= MANY:
            # The thread needs the interpreter to begin, and the loop won't let go of it as long as runs go on.
            self._handed.wait(HANDING_SECONDS)

    def _left_begun(self, batch: list[Job]) -> bool:
        """Put a batch into a transaction that the thread commits; False if it has to do all of it."""
        if not self._take():
            return False
        try:
            self._tune(CHECKPOINT_PAGES, self._full)
            if not self._begun() or (rest := self._together(batch)) is None:
                return False
            self._attempt_all(rest, alone=len(batch) == 1)
            if self._writing.in_transaction:
                self._begun_here = batch
            else:
                hand_back(batch)  # It was refused: there is nothing to commit.
        except sqlite3.Error as error:
            self._undo(batch, error)
            hand_back(batch)
        finally:
            self._free.release()
        return True

    def _commit(self, synced: bool) -> None:
        began, changes = time.perf_counter(), self._writing.total_changes
        self._cursor.execute("COMMIT")
        written, self._changes = changes > self._changes, changes
        if synced and written:  # What wrote nothing syncs nothing.
            spent = time.perf_counter() - began
            self._sync_seconds = max(spent, _REMEMBERED * self._sync_seconds)
            self._unsynced.synced()

    def _sync(self, _: sqlite3.Connection) -> None:
        """Sync the log. If that fails, the next commit's own sync fails too, and its writer hears of it."""
        log = os.open(self._log, os.O_RDWR)
        try:
            os.fsync(log)
        finally:
            os.close(log)

    def post(
        self,
        work: Callable[[sqlite3.Connection], Any],
        then: Callable[[BaseException | None], None] | None = None,
    ) -> None:
        """Run work inside a transaction, from any thread, without waiting for it; `then` hears what went wrong."""
        if not self.closed:
            self._writer.post(lambda: work(self._writing), then)

    def _write_batch(self, batch: list[Job]) -> None:
        with self._free:
            begun, self._begun_here = self._begun_here, []
            jobs = [job for job in batch if job.work is not _nothing]
            if not (begun or jobs):
                return
            self._count(len(begun) + len(jobs))
            batch += begun
            try:
                if not begun:
                    self._begin()
                    if (rest := self._together(jobs)) is None:
                        self._begin()
                    else:
                        jobs = rest
                self._attempt_all(jobs, alone=len(batch) == 1)
                self._handed.set()
                self._end()
            except sqlite3.Error as error:
                self._undo(batch, error)

    def _together(self, batch: list[Job]) -> list[Job] | None:
        """Write what owners add to their threads, in a few statements: what has yet to be done. None, and no
        transaction, if that isn't how the threads are any more, or one can't be written: it has to be found out
        which."""
        ready: list[Job] = []
        plains: list[Plain] = []
        rest: list[Job] = []
        for job in batch if len(batch) > 1 else ():
            plain = job.work.plain() if isinstance(job.work, Writing) else None
            if plain is None:
                rest.append(job)
            else:
                ready.append(job)
                plains.append(plain)
        if len(ready) < 2:
            return batch
        try:
            written = write_together(self._cursor, plains)
        except sqlite3.OperationalError:
            raise
        except (sqlite3.Error, UnicodeEncodeError):
            written = None
        if written is None:
            self._roll_back()
            return None
        for job, done in zip(ready, written, strict=True):
            job.result = done
        return rest

    def _count(self, commits: int) -> None:
        self.batches[0] += 1
        self.batches[1] += commits

    def _begin(self) -> None:
        """Begin a transaction; waits for another process that is in the middle of one."""
        self._tune(CHECKPOINT_PAGES, self._full)
        until = time.monotonic() + self._busy_seconds
        while True:
            try:
                self._cursor.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= until:
                    raise
                time.sleep(PAUSE_SECONDS)
            else:
                return

    def _begun(self) -> bool:
        """Begin a transaction, unless another process is in the middle of one, or something is wrong."""
        try:
            self._cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        return True

    def _attempt_all(self, jobs: list[Job], *, alone: bool) -> None:
        for job in jobs:
            self._attempt(job, alone=alone)

    def _end(self) -> None:
        """Commit the transaction with what was done, and bring the log home if it has grown."""
        self._loops_left = LOOP_TRANSACTIONS
        if self._writing.in_transaction:  # What was alone in it may have been refused.
            self._commit(self._full)

    def _tune(self, checkpoint: int, synced: bool) -> None:
        """Say how the next transaction is committed: from how many pages on it brings the log home, and whether
        it is synced."""
        if self._tuned == (checkpoint, synced):
            return
        before, self._tuned = self._tuned, (checkpoint, synced)
        if checkpoint != before[0]:
            self._cursor.execute(f"PRAGMA wal_autocheckpoint = {checkpoint}")
        if synced != before[1]:
            self._cursor.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")

    def _undo(self, batch: list[Job], error: sqlite3.Error) -> None:
        """Nothing of a batch was written."""
        self._roll_back()
        self.known.clear()
        for job in batch:
            job.error = job.error or explained(error, self.path)

    def _roll_back(self) -> None:
        if self._writing.in_transaction:
            self._writing.execute("ROLLBACK")
        self._changes = self._writing.total_changes  # They are undone.

    def _attempt(self, job: Job, *, alone: bool) -> None:
        execute = self._cursor.execute
        if not alone:
            execute("SAVEPOINT one")
        try:
            job.result = job.work()
        except sqlite3.OperationalError:
            raise  # The disk or the file, not this job: the whole group fails.
        except Exception as error:
            job.error = explained(error, self.path) if isinstance(error, sqlite3.Error) else error
            if alone:
                self._roll_back()
            else:
                execute("ROLLBACK TO one")
        if not alone:
            execute("RELEASE one")

    # -- who is alive ----------------------------------------------------------------------------------------

    def alive(self, worker_id: str) -> bool:
        """Whether the worker has a lease and, as far as its owner file tells, a process. Inside a transaction."""
        sql = "SELECT 1 FROM workers WHERE id = ? AND until > ?"
        if self._writing.execute(sql, (worker_id, now_ms())).fetchone() is None:
            return False
        if not self.owners.dead(worker_id):
            return True
        self._writing.execute("UPDATE workers SET until = 0 WHERE id = ?", (worker_id,))
        return False

    def reap(self, db: sqlite3.Connection) -> None:
        """Take the leases of workers whose processes ended."""
        for (worker_id,) in db.execute("SELECT id FROM workers WHERE until > ?", (now_ms(),)).fetchall():
            if self.owners.dead(worker_id):
                db.execute("UPDATE workers SET until = 0 WHERE id = ?", (worker_id,))

    def _check_open(self) -> None:
        if self.closed:
            raise self._was_closed()

    def _was_closed(self) -> StoreUnavailable:
        return StoreUnavailable(f"the store {self.path} was closed; open it again")

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._writer.close()
        left: list[Job] = []
        self._write_batch(left)  # An event loop may have begun something in the last moment.
        hand_back(left)
        self._reader.close()
        self._reading.close()
        self._cursor.close()
        self._writing.close()
        self.owners.close()


def _nothing() -> None:
    """No work: that the thread comes to it is all that is wanted."""


def _soon(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: Any) -> None:
    with suppress(RuntimeError):  # It is closed: nobody waits any more.
        loop.call_soon_threadsafe(function, *args)
