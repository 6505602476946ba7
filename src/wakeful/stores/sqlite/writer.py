"""The one connection that writes to a SQLite file.

Commits that wait are written in one transaction, with one fsync. The event loop decides on them and executes their
statements; a small batch it also commits, as long as fsync is fast. Larger batches and slow disks are left to the
writer thread, which releases the GIL while it waits for the disk. The thread writes whole batches while another
process has the file locked, and does everything else that is written: claims, leases, deletions.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from ...errors import StoreLost, StoreUnavailable
from ...types.ids import now_ms
from ..codec.packer import Packer
from ..heads import NeedFacts
from ..jobs import Job, JobThread, Promise, hand_back, settled
from ..records import Commit, Committed
from ..rules import Refusal, decide_group
from ..sql.operations import SQLITE
from ..sql.rows import group_rows
from ..writes import GroupWrites, number_items
from .file import explained
from .heads import HeadCache
from .transactions import Transactions

__all__ = ["Writer"]

T = TypeVar("T")

# The most commits of one transaction.
MAX_BATCH = 64
# The event loop commits batches smaller than this, as long as an fsync takes less than that.
SMALL_BATCH = 8
FAST_SYNC_SECONDS = 0.001
# So many transactions in a row are committed by event loops. The thread commits the next one and checkpoints the
# WAL if it has grown.
LOOP_TRANSACTIONS = 64
# Each of so many leaves other tasks of the loop a turn.
TURN_TRANSACTIONS = 16


class CommitJob(Struct, eq=False):
    """A commit that waits to be written. It ends with `group` or `error`."""

    tenant: str
    packer: Packer
    commit: Commit
    future: Promise[Committed]
    group: GroupWrites | None = None
    error: BaseException | None = None


class Writer:
    """Writes commits in batches, and other work one by one. Shared by the handles of all tenants."""

    def __init__(
        self,
        db: sqlite3.Connection,
        path: Path,
        *,
        is_synced: bool,
        busy_seconds: float,
        is_alive: Callable[[str], bool],
    ) -> None:
        self.batches = [0, 0]
        self.is_closed = False
        self._path = path
        self._transactions = Transactions(db, path, is_synced=is_synced, busy_seconds=busy_seconds)
        self._heads = HeadCache(db, is_alive)
        # Held while the connection is used.
        self._lock = threading.Lock()
        # A batch in an open transaction, which the thread is to commit before anything else.
        self._begun: list[CommitJob] | None = None
        # Commits that wait, and the event loop that will write them. Both are guarded by `_queue_lock`.
        self._queue_lock = threading.Lock()
        self._queue: list[CommitJob] = []
        self._flushing: asyncio.AbstractEventLoop | None = None
        self._loop_transactions = 0
        self._last_thread = ("", "")
        self._thread = JobThread("wakeful-sqlite-writer", self._run_jobs, self._refuse_jobs)

    async def commit(self, tenant: str, packer: Packer, commit: Commit) -> Committed:
        """Write a commit with those that wait beside it. A cancellation is delivered once it is written."""
        loop = asyncio.get_running_loop()
        job = CommitJob(tenant, packer, commit, Promise(loop=loop))
        with self._queue_lock:
            if self.is_closed:
                raise self.closed_error()
            self._queue.append(job)
            is_first = self._flushing is None or self._flushing.is_closed()
            if is_first:
                self._flushing = loop
            is_alone = self._is_alone(tenant, commit) and is_first
        if is_alone:
            self._flush(loop)
        elif is_first:
            loop.call_soon(self._flush, loop)  # With the commits that others add in this turn of the loop.
        return job.future.result() if job.future.done() else await settled(job.future)

    def _is_alone(self, tenant: str, commit: Commit) -> bool:
        """Whether the last commit was of this thread, and other tasks had a turn lately."""
        last, self._last_thread = self._last_thread, (tenant, commit.thread_id)
        return last == self._last_thread and self._loop_transactions % TURN_TRANSACTIONS != TURN_TRANSACTIONS - 1

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work in a transaction of its own, in the thread."""
        if self.is_closed:
            raise self.closed_error()
        return await settled(self._thread.promise(lambda: self._transact(work)))

    def post(
        self, work: Callable[[sqlite3.Connection], Any], on_end: Callable[[BaseException | None], None]
    ) -> None:
        """Run work in a transaction of its own, from any thread, without waiting; `on_end` gets its error."""
        if not self.is_closed:
            self._thread.post(lambda: self._transact(work), on_end)

    def close(self) -> None:
        """Commit the open transaction and refuse waiting commits. Blocks."""
        with self._queue_lock:
            self.is_closed = True
        self._thread.close()
        with self._lock:
            self._commit_begun()
        self._refuse_waiting()
        with self._lock:
            # SQLite closes a connection, and removes the WAL, once no cursor has a statement.
            self._transactions.cursor.close()
            self._heads.close()

    def trace(self, callback: Callable[[str], None] | None) -> None:
        """Call a function with every statement that this connection executes; None ends that."""
        self._transactions.db.set_trace_callback(callback)

    def closed_error(self) -> StoreUnavailable:
        """The error of a store that was closed."""
        return StoreUnavailable(f"the store {self._path} was closed; open it again")

    # -- batches -------------------------------------------------------------------------------------------------

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write the commits that wait. Runs in the event loop and never waits for a lock."""
        if self.is_closed:
            self._refuse_waiting()
            return
        with self._queue_lock:
            batch, self._queue = self._queue[:MAX_BATCH], self._queue[MAX_BATCH:]
            if not batch:
                self._flushing = None
                return
        if not self._take_connection():
            self._hand_over(batch)
            return
        try:
            is_written = self._transactions.begin_now() and self._put_batch(batch)
            if is_written and not self._is_quick(batch):
                self._begun = batch
            elif is_written:
                self._commit(batch, checkpoints=False)
        finally:
            self._lock.release()
        if not is_written:
            self._hand_over(batch)
        elif self._begun is batch:
            self._thread.post(lambda: None)
        else:
            self._end(batch, loop)

    def _take_connection(self) -> bool:
        """Take the connection for the event loop, if nobody uses it."""
        if not self._lock.acquire(blocking=False):
            return False
        if self._begun is not None or self.is_closed:
            self._lock.release()
            return False
        return True

    def _is_quick(self, batch: list[CommitJob]) -> bool:
        """Whether the event loop commits a batch itself: without an fsync there is nothing to wait for."""
        if self._loop_transactions >= LOOP_TRANSACTIONS:
            return False
        is_fast = self._transactions.sync_seconds < FAST_SYNC_SECONDS
        return not self._transactions.is_synced or (is_fast and len(batch) < SMALL_BATCH)

    def _hand_over(self, batch: list[CommitJob]) -> None:
        """Have the thread write a batch."""

        def end(error: BaseException | None) -> None:
            if error is not None:  # The thread has ended.
                self._fail(batch, error)
            self._end(batch, None)

        self._thread.post(lambda: self._write_batch(batch), end)

    def _write_batch(self, batch: list[CommitJob]) -> None:
        """Write a batch in the thread. If one of its commits can't be executed, each gets a transaction."""
        if not self._try_batch(batch):
            for job in batch:
                self._try_batch([job])

    def _try_batch(self, batch: list[CommitJob]) -> bool:
        """Write a batch in one transaction; False if one of several commits can't be executed."""
        try:
            self._transactions.begin()
        except (sqlite3.Error, StoreLost) as error:
            self._fail(batch, error)
            return True
        if not self._put_batch(batch):
            return False
        self._commit(batch, checkpoints=True)
        return True

    def _put_batch(self, batch: list[CommitJob]) -> bool:
        """Decide on commits and execute their statements in the open transaction.

        Rolls the transaction back and returns False if one of several can't be executed.
        """
        try:
            self._heads.validate()
            now = now_ms()
            for job in batch:
                self.put(job, now)
        except BaseException as error:
            self._roll_back()
            if len(batch) > 1 and not isinstance(error, sqlite3.OperationalError):
                for job in batch:
                    job.group = job.error = None
                return False
            self._fail(batch, error)
        return True

    def put(self, job: CommitJob, now: int) -> None:
        """Decide on a commit and execute its statements. A refusal is the job's error, and executes none."""
        heads, commit = self._heads, job.commit
        try:
            facts = heads.facts_for(job.tenant, commit)
            while isinstance(group := decide_group(facts, commit, now), NeedFacts):
                facts = heads.load(job.tenant, facts, group)
            if isinstance(group, Refusal):
                job.error = group.error
                return
            rows = group_rows(job.tenant, job.packer, facts, group)
        except sqlite3.Error:
            raise
        except BaseException as error:  # Whatever a codec raises.
            job.error = error
            return
        cursor = self._transactions.cursor
        for name, found in rows.items():
            if len(found) == 1:
                cursor.execute(SQLITE[name], found[0])
            else:
                cursor.executemany(SQLITE[name], found)
        heads.keep(job.tenant, group)
        job.group = group

    def _end(self, batch: list[CommitJob], loop: asyncio.AbstractEventLoop | None) -> None:
        """Resolve the futures of a batch, and schedule later commits. `loop` is the running loop, if any."""
        with self._queue_lock:
            self._flushing = self._queue[0].future.get_loop() if self._queue else None
            following = self._flushing
        loops: dict[asyncio.AbstractEventLoop, list[CommitJob]] = {}
        for job in batch:
            loops.setdefault(job.future.get_loop(), []).append(job)
        for its_loop, jobs in loops.items():
            if its_loop is loop:
                _resolve(jobs)
            else:
                _call_soon(its_loop, _resolve, jobs)
        if following is None:
            return
        # One turn later: those whose commits ended may have the next one by then.
        if following is loop:
            following.call_soon(self._flush, following)
        elif not _call_soon(following, following.call_soon, self._flush, following):
            with self._queue_lock:
                self._queue.pop(0)  # Its event loop was closed: nobody waits for it.
            self._end([], loop)

    # -- transactions --------------------------------------------------------------------------------------------

    def _commit(self, batch: list[CommitJob], *, checkpoints: bool) -> None:
        """Commit the open transaction of a batch; there is none if it was rolled back."""
        transactions = self._transactions
        if not transactions.db.in_transaction:
            return
        has_changes = any(job.group is not None for job in batch)
        try:
            if checkpoints:
                self._loop_transactions = 0
                transactions.commit_and_checkpoint(has_changes=has_changes)
            else:
                self._loop_transactions += 1
                transactions.commit(has_changes=has_changes)
        except BaseException as error:
            self._roll_back()
            self._fail(batch, error)
            return
        self.batches[0] += 1
        self.batches[1] += len(batch)

    def _commit_begun(self) -> None:
        """Commit the batch that an event loop left. With the lock held."""
        batch, self._begun = self._begun, None
        if batch is not None:
            self._commit(batch, checkpoints=True)
            self._end(batch, None)

    def _roll_back(self) -> None:
        """Undo the open transaction and drop cached heads."""
        self._heads.clear()
        self._transactions.roll_back()

    def _fail(self, batch: list[CommitJob], error: BaseException) -> None:
        """Tell the commits of a batch why they weren't written; a refused one keeps its own error."""
        if isinstance(error, sqlite3.Error):
            error = explained(error, self._path)
        for job in batch:
            job.group, job.error = None, job.error or error

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        transactions = self._transactions
        try:
            transactions.begin()
            result = work(transactions.db)
            transactions.commit_and_checkpoint(has_changes=False)
            return result
        except sqlite3.Error as error:
            raise explained(error, self._path) from error
        finally:
            transactions.roll_back()

    # -- the thread ----------------------------------------------------------------------------------------------

    def _run_jobs(self, jobs: list[Job]) -> None:
        for job in jobs:
            with self._lock:
                self._commit_begun()
                try:
                    job.result = job.work()
                except BaseException as error:
                    job.error = error

    def _refuse_jobs(self, jobs: list[Job]) -> None:
        for job in jobs:
            job.error = self.closed_error()
        hand_back(jobs)

    def _refuse_waiting(self) -> None:
        """Refuse the commits that wait: the store was closed."""
        with self._queue_lock:
            batch, self._queue = self._queue, []
        for job in batch:
            job.error = self.closed_error()
        if batch:
            self._end(batch, None)


def _resolve(jobs: list[CommitJob]) -> None:
    for job in jobs:
        if job.future.done():
            continue  # The store was closed meanwhile, and its writer was told.
        if job.group is not None:
            for writes in job.group.writes:
                number_items(writes)
            job.future.set_result(job.group.committed)
        else:
            job.future.set_exception(job.error or StoreUnavailable("the commit wasn't written"))


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *args: Any) -> bool:
    """Call a function in an event loop, unless that was closed."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        return False
    return True
