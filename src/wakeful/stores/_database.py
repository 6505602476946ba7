"""One SQLite file, open: one thread that writes, in groups, and one that reads.

Whatever queued up while the last transaction was syncing goes into the next one: what owners add to their threads
in one statement, the rest each under a savepoint of its own, so that one which is refused fails alone. What takes
less than going to the thread and back, the event loop writes itself: what needn't be synced yet, and what a run
writes that is alone, as long as the disk is fast. What many runs have goes to the thread, which for that one
statement needs the interpreter only to begin. Where there is more to it, as when a run begins or ends, the event
loop writes that before, and leaves the transaction to the thread.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

from msgspec import Struct

from ..errors import StoreUnavailable
from ..types.ids import now_ms
from ._files import CHECKPOINT_PAGES, explained, open_database
from ._owners import Owners
from ._packing import Packer
from ._plain import MAX_ROWS
from ._protocol import Commit, Committed
from ._threads import Job, JobThread, Promise, hand_back, next_turn, settled
from ._transactions import Transactions
from ._unsynced import Unsynced
from ._writing import Writing

__all__ = ["Database", "Synchronous"]

T = TypeVar("T")

Synchronous = Literal["FULL", "NORMAL"]

# So many transactions in a row are made by event loops. The next one is the thread's, which brings the log home if
# it has grown: that is synced, and takes its time.
LOOP_TRANSACTIONS = 128
# Before each of so many the others on the loop have their turn: who waits for nothing else would keep them from
# beginning.
TURN_TRANSACTIONS = 16

# An event loop syncs what it writes while syncs take less than this.
FAST_SYNC_SECONDS = 0.001

# So many commits of an event loop go into one transaction. While the thread writes them, the loop goes on with the
# runs that wait for nothing any more.
MAX_GATHERED = 64

# With so many the loop waits until the thread has begun: for some microseconds, and so long at most.
MANY = 8
HANDING_SECONDS = 0.001


class Database:
    """The connections to a file, its threads and its owner files. Shared by the handles of all tenants."""

    def __init__(self, path: Path, synchronous: Synchronous, busy_seconds: float) -> None:
        self.path = path
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
        self._unsynced = Unsynced(lambda: self.post(self._sync))
        self._transactions = Transactions(self._writing, path, busy_seconds, self._unsynced.synced)
        self.known = self._transactions.known
        self._free = threading.Lock()
        self._loops_left = LOOP_TRANSACTIONS
        self._full = synchronous == "FULL"
        self._last_owner: tuple[str, str] | None = None
        # What runs have for the next transaction, and their event loop; and what is in a transaction already that
        # the thread has yet to commit.
        self._gathered: deque[Job] = deque()
        self._gathers: asyncio.AbstractEventLoop | None = None
        self._begun_here: list[Job] = []
        self._handed = threading.Event()
        self._writer = JobThread("wakeful-sqlite-writer", self._write_batch, self._refuse)
        self._reader = JobThread("wakeful-sqlite-reader", self._read_batch, self._refuse)
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
        if (here := self._may_write_here(writing, synced)) and self._loops_left % TURN_TRANSACTIONS == 0:
            await next_turn()
            here = self._may_write_here(writing, synced)
        if here and self._loops_left and self._take():
            try:
                self._transactions.tune(0, synced)
                if (written := self._written_here(writing, synced)) is not None:
                    return written
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

    def _may_write_here(self, writing: Writing, synced: bool) -> bool:
        """Whether nobody else is writing, and it need not be synced, or its owner is alone and a sync is fast:
        those in company share one."""
        if self._gathers is not None:
            self._last_owner = None
            return False
        if not synced:
            return True
        owner = writing.owner
        again, self._last_owner = owner == self._last_owner, owner
        return (again or not self.known.others(owner)) and self._transactions.sync_seconds < FAST_SYNC_SECONDS

    def _take(self) -> bool:
        """Keep others from beginning a transaction, or closing the file, if nobody has."""
        if not self._free.acquire(blocking=False):
            return False
        if self._begun_here or self.closed:
            self._free.release()
            return False
        return True

    def _written_here(self, writing: Writing, synced: bool) -> Committed | None:
        """None, and nothing is written, if another process is in the middle of a transaction."""
        transactions = self._transactions
        try:
            written = transactions.by_itself(writing)
            if written is None:
                if not transactions.begun():
                    return None
                written = writing()
                transactions.commit()
        except sqlite3.Error as error:
            transactions.roll_back()
            self.known.clear()
            raise explained(error, self.path) from error
        except BaseException:
            transactions.roll_back()
            raise
        self._loops_left -= 1
        self._count(1)
        if self._full and not synced:
            self._unsynced.left()
        return written

    def _write_gathered(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the thread write what was gathered. When it has, it goes on with what was gathered meanwhile."""
        batch = self._next(MAX_GATHERED if not self.closed else len(self._gathered))
        if self.closed or not batch:
            self._gathers = None
            self._refuse(batch)
            return
        self._handed.clear()
        ready, rest = _split(batch)
        if rest and self._begun_with(rest):
            rest = []
        self._hand_over(loop, ready, rest)
        if len(batch) >= MANY:
            # The thread needs the interpreter to begin, and the loop won't let go of it as long as runs go on.
            self._handed.wait(HANDING_SECONDS)

    def _next(self, most: int) -> list[Job]:
        batch: list[Job] = []
        with suppress(IndexError):
            while len(batch) < most:
                batch.append(self._gathered.popleft())
        return batch

    def _hand_over(self, loop: asyncio.AbstractEventLoop, ready: list[Job], rest: list[Job]) -> None:
        self._writer.put(*rest, Job(_Handed(ready), then=lambda _: self._go_on(loop)))

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """The thread goes on with what was gathered meanwhile, without waiting for the loop, if one statement is
        enough for that."""
        ready, rest = _split([*self._gathered][:MAX_GATHERED])  # In one piece: a loop may be adding to it.
        if ready and not rest and not self.closed:
            self._hand_over(loop, self._next(len(ready)), [])
        else:
            _soon(loop, self._write_gathered, loop)

    def _begun_with(self, rest: list[Job]) -> bool:
        """Write what takes more than one statement, in a transaction that is left to the thread; False if that has
        to do all of it."""
        if not self._take():
            return False
        transactions = self._transactions
        try:
            transactions.tune(CHECKPOINT_PAGES, self._full)
            if not transactions.begun():
                return False
            transactions.attempt(rest, alone=len(rest) == 1)
            if self._writing.in_transaction:
                self._begun_here = rest
            else:
                hand_back(rest)  # It was refused: there is nothing to commit.
        except BaseException as error:
            try:
                transactions.undo(rest, error)
            finally:
                hand_back(rest)
        finally:
            self._free.release()
        return True

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
        transactions = self._transactions
        with self._free:
            begun, self._begun_here = self._begun_here, []
            groups = [job.work.jobs for job in batch if isinstance(job.work, _Handed) and job.work.jobs]
            rest = [job for job in batch if not isinstance(job.work, _Handed)]
            batch += begun
            for ready in groups:
                batch += ready
            if not (begun or groups or rest):
                return
            self._count(len(begun) + len(rest) + sum([len(ready) for ready in groups]))
            self._loops_left = LOOP_TRANSACTIONS
            try:
                transactions.tune(CHECKPOINT_PAGES, self._full)
                if rest or len(groups) > 1:
                    transactions.begin()
                transactions.attempt(rest, alone=not begun and not groups and len(rest) == 1)
                for ready in groups:
                    transactions.together(ready, self._handed.set)
                self._handed.set()
                transactions.commit()
            except BaseException as error:
                transactions.undo(batch, error)

    def _count(self, commits: int) -> None:
        self.batches[0] += 1
        self.batches[1] += commits

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

    def _refuse(self, batch: list[Job]) -> None:
        """It came too late: the file is closed, or is being closed."""
        for job in batch:
            job.error = self._was_closed()
            if isinstance(job.work, _Handed):
                self._refuse(job.work.jobs)
        hand_back(batch)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._writer.close()
        left: list[Job] = []
        self._write_batch(left)  # An event loop may have begun something in the last moment.
        hand_back(left)
        self._reader.close()
        with self._free:
            self._reading.close()
            self._transactions.cursor.close()
            self._writing.close()
        self.owners.close()


def _split(batch: list[Job]) -> tuple[list[Job], list[Job]]:
    """What owners add to their threads, as much as one statement takes, and the rest."""
    ready: list[Job] = []
    rest: list[Job] = []
    room = MAX_ROWS
    for job in batch:
        writing: Any = job.work
        if 0 < (rows := writing.rows) <= room:
            ready.append(job)
            room -= rows
        else:
            rest.append(job)
    return ready, rest


class _Handed(Struct):
    """What the thread is to write in one statement. That it comes to it is wanted even if that is nothing."""

    jobs: list[Job]

    def __call__(self) -> None:
        """Nothing: it is written together."""


def _soon(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: Any) -> None:
    with suppress(RuntimeError):  # It is closed: nobody waits any more.
        loop.call_soon_threadsafe(function, *args)
