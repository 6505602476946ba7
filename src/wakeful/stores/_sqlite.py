"""A store in one SQLite file, which several processes may share."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar, get_args

from ..errors import ConfigurationError, StoreError, StoreRefused, StoreUnavailable
from ..types.codec import cleaned
from ..types.ids import now_ms
from . import _dispatching
from ._checkup import checkup
from ._claiming import Asked
from ._database import Database, Synchronous
from ._files import explained
from ._overview import WorkerSeen, lost
from ._packing import Codec, Packer
from ._protocol import LEASE_MS, ChildPolicy, Claims, Commit, Committed, Due, Renewals, ThreadView
from ._sql import SqlStore
from ._sql_base import Row, Script, checked_seconds

__all__ = ["SqliteStore", "Synchronous"]

T = TypeVar("T")

_NOW = "now_ms()"  # One clock for what is written and what is asked: SQLite's own rounds otherwise.
_queries: dict[str, str] = {}

# What is copied is only read: these are about the copy.
_OF_COPIES = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY)


def _sql(text: str) -> str:
    found = _queries.get(text)
    if found is None:
        # The writer has the whole file: there is nothing to lock.
        found = _queries[text] = text.replace("NOW_MS", _NOW).replace("FOR_UPDATE", "").replace("IF_FREE", "")
    return found


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
        if synchronous not in get_args(Synchronous):
            raise ConfigurationError(f'synchronous is "FULL" or "NORMAL", not {synchronous!r:.80}')
        self._database = Database(Path(path), synchronous, checked_seconds(busy_seconds, "busy_seconds"))

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
        try:
            return await self._commit(commit)
        except UnicodeEncodeError:
            return await self._commit(cleaned(commit))

    def _commit(self, commit: Commit) -> Awaitable[Committed]:
        writing = self._database.writing(self._tenant, self._packer, commit)
        if commit.fence is None and commit.claim is None:
            return self._database.write(lambda _: writing())
        # The owner of a thread wrote to the same few pages a moment ago; what others write to may not be at hand.
        return self._database.write_soon(writing)

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

    async def delete(self, thread_id: str, *, children: ChildPolicy = "reject") -> int:
        """Remove threads and everything of theirs; returns how many. Children are threads of delegated runs. The
        owner of what ran on the thread is told."""
        await self._database.write(self._database.reap)
        return await super().delete(thread_id, children=children)

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
            try:
                with closing(sqlite3.connect(path)) as into:
                    db.backup(into)
            except sqlite3.Error as error:
                path.unlink(missing_ok=True)
                if error.sqlite_errorcode & 0xFF in _OF_COPIES:
                    raise explained(error, path) from error
                raise StoreError(f"{self.path} couldn't be copied into {path}: {error}") from error

        await self._database.read(copy)

    async def check(self) -> list[str]:
        """What is wrong with the file and the ledger of all tenants, and which rows can't be read; nothing, if all
        is well."""
        try:
            rows = await self._query("PRAGMA integrity_check(20)")
        except StoreRefused as error:  # So damaged that it can't even be looked through.
            return [f"the file is damaged: {error.__cause__}; restore a backup"]
        damage = [f"the file is damaged: {row[0]}" for row in rows if row[0] != "ok"]
        return damage or [*await checkup(self._query), *await self._unreadable()]

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

    def __init__(self, database: Database, worker_id: str, lease: int) -> None:
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
