"""A store in one SQLite file: one thread that writes, in groups, and one that reads.

Whatever queued up while the last transaction was syncing goes into the next one, each commit under a savepoint of
its own, so that one which is refused fails alone. Several processes may share the file.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from ..errors import StoreError, StoreFull, StoreRefused, StoreUnavailable, WakefulError
from ..types.ids import now_ms
from . import _apply, _dispatching
from ._checkup import checkup
from ._claiming import Asked
from ._files import open_database
from ._overview import WorkerSeen, lost
from ._owners import Owners
from ._protocol import LEASE_MS, Claims, Commit, Committed, Due, Renewals, ThreadView
from ._rows import Codec, Packer
from ._sql import Row, Script, SqlStore
from ._threads import Job, JobThread, settled

__all__ = ["SqliteStore", "Synchronous"]

T = TypeVar("T")

Synchronous = Literal["FULL", "NORMAL"]

_NOW = "now_ms()"  # One clock for what is written and what is asked: SQLite's own rounds otherwise.
_queries: dict[str, str] = {}


def _sql(text: str) -> str:
    found = _queries.get(text)
    if found is None:
        # The writer has the whole file: there is nothing to lock.
        found = _queries[text] = text.replace("NOW_MS", _NOW).replace("FOR_UPDATE", "").replace("IF_FREE", "")
    return found


class _Database:
    """One file, open: its connections, its threads and its owner files. Shared by the handles of all tenants."""

    def __init__(self, path: Path, synchronous: Synchronous, busy_seconds: float) -> None:
        self.path = path
        self._writing = open_database(path, synchronous, busy_seconds)
        self._reading = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
        self._reading.execute("PRAGMA query_only = ON")
        for db in (self._writing, self._reading):
            db.create_function("now_ms", 0, now_ms)
        self.owners = Owners(path)
        rows = self._writing.execute("SELECT id FROM workers WHERE until > ?", (now_ms(),)).fetchall()
        ended = [row for row in rows if self.owners.dead(row[0])]
        self._writing.executemany("UPDATE workers SET until = 0 WHERE id = ?", ended)
        self.owners.sweep({worker_id for (worker_id,) in rows if (worker_id,) not in ended})
        self.batches: list[int] = [0, 0]
        self._writer = JobThread("wakeful-sqlite-writer", self._write_batch)
        self._reader = JobThread("wakeful-sqlite-reader", self._read_batch)
        self.closed = False

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
                job.error = _explained(error, self.path)
            except Exception as error:
                job.error = error

    # -- writing ---------------------------------------------------------------------------------------------

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work inside a transaction, with whatever else is waiting; it is synced when this returns."""
        self._check_open()
        return await settled(self._writer.submit(lambda: work(self._writing)))

    def post(
        self,
        work: Callable[[sqlite3.Connection], Any],
        then: Callable[[BaseException | None], None] | None = None,
    ) -> None:
        """Run work inside a transaction, from any thread, without waiting for it; `then` hears what went wrong."""
        if not self.closed:
            self._writer.post(lambda: work(self._writing), then)

    def _write_batch(self, batch: list[Job]) -> None:
        self.batches[0] += 1
        self.batches[1] += len(batch)
        db = self._writing
        try:
            db.execute("BEGIN IMMEDIATE")
            for job in batch:
                self._attempt(db, job, alone=len(batch) == 1)
            db.execute("COMMIT")
        except sqlite3.Error as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            for job in batch:
                job.error = job.error or _explained(error, self.path)

    def _attempt(self, db: sqlite3.Connection, job: Job, *, alone: bool) -> None:
        if not alone:
            db.execute("SAVEPOINT one")
        try:
            job.result = job.work()
        except sqlite3.OperationalError:
            raise  # The disk or the file, not this job: the whole group fails.
        except Exception as error:
            job.error = _explained(error, self.path) if isinstance(error, sqlite3.Error) else error
            if alone:
                db.execute("ROLLBACK")
                db.execute("BEGIN")
            else:
                db.execute("ROLLBACK TO one")
        if not alone:
            db.execute("RELEASE one")

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
            raise StoreUnavailable(f"the store {self.path} was closed; open it again")

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._writer.close()
        self._reader.close()
        self._reading.close()
        self._writing.close()
        self.owners.close()


class SqliteStore(SqlStore):
    """Threads, runs and everything else in one file. The file is made if it isn't there.

    `synchronous="FULL"` loses nothing that was committed, whatever happens. `"NORMAL"` is faster and
    safe against a killed process, but after a power loss the last commits may be gone. `codec` stands between
    payloads and the disk. The handle sees what belongs to `tenant`.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        tenant: str = "default",
        synchronous: Synchronous = "FULL",
        codec: Codec | None = None,
        busy_seconds: float = 30,
    ) -> None:
        super().__init__(tenant, Packer(codec))
        self._database = _Database(Path(path), synchronous, busy_seconds)

    @property
    def path(self) -> Path:
        """The file."""
        return self._database.path

    @property
    def batches(self) -> tuple[int, int]:
        """How many transactions were made, and how many commits they held together."""
        transactions, commits = self._database.batches
        return transactions, commits

    async def commit(self, commit: Commit) -> Committed:
        """Write the commit, or nothing of it."""
        database, tenant, packer = self._database, self._tenant, self._packer
        return await database.write(lambda db: _apply.apply(db, tenant, packer, commit, database.alive))

    async def _query(self, sql: str, *args: Any) -> list[Row]:
        text = _sql(sql)
        return await self._database.read(lambda db: db.execute(text, args).fetchall())

    async def _transact(self, script: Callable[[], Script[T]]) -> T:
        return await self._database.write(lambda db: _run_script(db, script()))

    async def load(self, thread_id: str) -> ThreadView | None:
        """The thread's view, or None if it doesn't exist."""
        view = await super().load(thread_id)
        if view is not None and (owner := view.thread.owner) is not None:
            database = self._database
            if not await database.write(lambda _: database.alive(owner)):
                return await super().load(thread_id)
        return view

    async def due(self, *, limit: int = 100) -> list[Due]:
        """Dispatches of all tenants that nobody alive has claimed: the first due first, then those of later."""
        if await self._query("SELECT 1 FROM workers WHERE until > ? LIMIT 1", now_ms()):
            await self._database.write(self._database.reap)
        return await super().due(limit=limit)

    async def _claim(self, asked: Asked) -> Claims:
        database = self._database

        def claim(db: sqlite3.Connection) -> Claims:
            database.reap(db)
            return _dispatching.claim(db, asked, database.alive)

        return await database.write(claim)

    async def workers(self, *, limit: int = 50) -> tuple[WorkerSeen, ...]:
        """Those who have a lease, and those who left claims when theirs was over or they ended, of all tenants."""
        seen = await super().workers(limit=limit)
        return lost(seen, {one.id for one in seen if self._database.owners.dead(one.id)})

    def keep(self, worker_id: str, lease: int = LEASE_MS) -> SqliteLease:
        """Keep the claims of this worker alive until the lease is closed."""
        return SqliteLease(self._database, worker_id, lease)

    def tenant(self, name: str) -> SqliteStore:
        """A handle on the same file for another tenant."""
        other = SqliteStore.__new__(SqliteStore)
        SqlStore.__init__(other, name, self._packer)
        other._database = self._database
        return other

    async def backup(self, target: str | Path) -> None:
        """Copy the whole file, with all tenants, while it is in use. The target must not be there yet."""
        path = Path(target)

        def copy(db: sqlite3.Connection) -> None:
            if path.exists():
                raise StoreUnavailable(f"{path} is there already; back up into a new file")
            into = sqlite3.connect(path)
            try:
                db.backup(into)
            finally:
                into.close()

        await self._database.read(copy)

    async def check(self) -> list[str]:
        """What is wrong with the file and the ledger of all tenants; nothing, if all is well."""
        try:
            rows = await self._query("PRAGMA integrity_check(20)")
        except StoreRefused as error:  # So damaged that it can't even be looked through.
            return [f"the file is damaged: {error.__cause__}; restore a backup"]
        damage = [f"the file is damaged: {row[0]}" for row in rows if row[0] != "ok"]
        return damage or await checkup(self._query)

    async def version(self) -> int:
        """The version of the file's tables."""
        return (await self._query("PRAGMA user_version"))[0][0]

    async def size(self) -> Mapping[str, int]:
        """How many bytes the file has, and how many of them are free."""
        rows = await self._query(
            "SELECT p.page_size * c.page_count, p.page_size * f.freelist_count "
            "FROM pragma_page_size p, pragma_page_count c, pragma_freelist_count f"
        )
        return {"bytes": rows[0][0], "free": rows[0][1]}

    async def close(self) -> None:
        """Let go of the file. Handles of all tenants are closed with it."""
        await asyncio.to_thread(self._database.close)


class SqliteLease:
    """A worker's sign of life: renewed by a thread of its own, for as long as the event loop gives signs too."""

    def __init__(self, database: _Database, worker_id: str, lease: int) -> None:
        self._database = database
        self._worker_id = worker_id
        self._lease = lease
        self.renewals = Renewals()
        self._beaten = time.monotonic()
        self._over = threading.Event()
        database.owners.hold(worker_id)
        self._renew()
        self._thread = threading.Thread(target=self._serve, name="wakeful-lease", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """The event loop is alive."""
        self._beaten = time.monotonic()

    def _serve(self) -> None:
        seconds = self._lease / 1000
        while not self._over.wait(seconds / 3):
            if time.monotonic() - self._beaten <= seconds / 2:
                self._renew()
            else:
                self.renewals.stalled += 1

    def _renew(self) -> None:
        until, now, worker_id = now_ms() + self._lease, now_ms(), self._worker_id
        self._database.post(
            lambda db: db.execute(
                """INSERT INTO workers (id, until, started_at) VALUES (?, ?, ?)
                   ON CONFLICT (id) DO UPDATE SET until = excluded.until""",
                (worker_id, until, now),
            ),
            self._renewed,
        )

    def _renewed(self, error: BaseException | None) -> None:
        if error is None:
            self.renewals.ok += 1
        else:
            self.renewals.failed += 1

    async def close(self) -> None:
        """Give the lease up: claims of this worker count no more."""
        self._over.set()
        database, worker_id = self._database, self._worker_id
        if not database.closed:
            await database.write(lambda db: _give_up(db, worker_id))
        database.owners.drop(worker_id)
        await asyncio.to_thread(self._thread.join)


def _give_up(db: sqlite3.Connection, worker_id: str) -> None:
    """End a lease. While the worker has claims its row stays, by which they are found."""
    db.execute("UPDATE workers SET until = 0 WHERE id = ?", (worker_id,))
    sql = "DELETE FROM workers WHERE id = ? AND NOT EXISTS (SELECT 1 FROM threads WHERE claim = ?)"
    db.execute(sql, (worker_id, worker_id))


def _run_script(db: sqlite3.Connection, script: Script[T]) -> T:
    try:
        sql, args = next(script)
        while True:
            sql, args = script.send(db.execute(_sql(sql), args).fetchall())
    except StopIteration as done:
        return done.value


def _explained(error: BaseException, path: Path) -> BaseException:
    """A database's error in words that say what to do."""
    if isinstance(error, WakefulError):
        return error
    text = str(error)
    if "disk is full" in text:
        found: StoreError = StoreFull(
            f"no room left for {path}; nothing was written: free some space and try again"
        )
    elif "locked" in text or "busy" in text:
        found = StoreUnavailable(f"{path} was locked by another process for too long; nothing was written")
    elif "readonly" in text:
        found = StoreUnavailable(f"{path} is read-only; nothing was written: check its rights and its folder's")
    elif "malformed" in text or "not a database" in text:
        found = StoreRefused(f"{path} is damaged ({text}); run `wakeful store check`, or restore a backup")
    else:
        found = StoreError(f"{path}: {text}")
    found.__cause__ = error
    return found
