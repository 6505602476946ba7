"""A store in one SQLite file, which several processes may share."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args

from ...errors import ConfigurationError, InvalidStore, StoreError, StoreUnavailable
from ...types.codec import clean_value
from ..codec.packer import Codec, Packer
from ..memories import is_whole
from ..overview import WorkerSeen, lost
from ..records import LEASE_MS, ChildPolicy, Claims, Commit, Committed, Due, Records, ThreadView
from ..relays import Relay
from ..sql.base import Row, Script, checked_seconds
from ..sql.checkup import checkup
from ..sql.store import SqlStore
from ..turns import ClaimRequest
from .claims import claim_dispatches
from .database import Database, Synchronous
from .file import check_rights, check_room, create_private, explained
from .lease import SqliteLease

__all__ = ["SqliteStore", "Synchronous"]

T = TypeVar("T")

_NOW = "now_ms()"  # The clock of commits: SQLite's own clock rounds differently.

# Errors that concern the copy: its source is only read.
_OF_COPIES = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY)


@cache
def _sql(text: str) -> str:
    # No row locks: the writer locks the whole file.
    return text.replace("NOW_MS", _NOW).replace("FOR_UPDATE", "").replace("IF_FREE", "")


class SqliteStore(SqlStore):
    """A store in one SQLite file, which is created if it doesn't exist. Several processes may share it.

    With `synchronous="FULL"` an acknowledged commit is on disk. `"NORMAL"` is faster and safe against a killed
    process, but a power loss may undo the last commits. `codec` encodes payloads. The handle belongs to `tenant`.
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
        """The path of the file."""
        return self._database.path

    @property
    def batches(self) -> tuple[int, int]:
        """The number of transactions so far, and of the commits in them."""
        transactions, commits = self._database.writer.batches
        return transactions, commits

    async def commit(self, commit: Commit) -> Committed:
        """Write a commit, or nothing of it."""
        try:
            return await self._database.writer.commit(self._tenant, self._packer, commit)
        except UnicodeEncodeError:  # Lone surrogates are replaced.
            return await self._database.writer.commit(self._tenant, self._packer, clean_value(commit))

    def _memory_query(self, owner: str, words: Sequence[str]) -> tuple[str, Sequence[Any]]:
        wanted = " OR ".join([f'"{word}"' + "*" * (not is_whole(word)) for word in words])
        sql = """SELECT r.id, r.payload FROM memory_index
                 JOIN records r ON r.tenant = ? AND r.kind = ? AND r.id = memory_index.id
                 WHERE memory_index MATCH ? ORDER BY bm25(memory_index, 0, 0, 1), r.id"""
        return sql, (f'owner : "{owner}" AND words : ({wanted})',)

    async def put(self, records: Records) -> None:
        """Write records that belong to no thread, or nothing of it. Raises `Conflict` by their revisions."""
        await self.commit(Commit("", records=records))

    async def _query(self, sql: str, *args: Any) -> list[Row]:
        text = _sql(sql)
        return await self._database.read(lambda db: db.execute(text, args).fetchall())

    async def _transact(self, script: Callable[[], Script[T]]) -> T:
        return await self._database.writer.write(lambda db: _run_script(db, script()))

    async def load(self, thread_id: str) -> ThreadView | None:
        """The view of a thread; None if there is none."""
        view = await super().load(thread_id)
        if view is not None and (owner := view.thread.owner) is not None:
            database = self._database
            if not await database.writer.write(lambda _: database.is_alive(owner)):
                return await super().load(thread_id)
        return view

    async def probe(self) -> None:
        """Write a trifle durably; raises `StoreError` if the store can't write now, or soon can't."""
        await super().probe()
        check_rights(self.path)
        check_room(self.path)

    async def due(self, *, limit: int = 100) -> list[Due]:
        """Dispatches of all tenants without a live owner, in the order in which they are due."""
        if await self._query("SELECT 1 FROM workers WHERE until > 0 LIMIT 1"):
            await self._database.writer.write(self._database.settle_leases)
        return await super().due(limit=limit)

    async def due_relays(self, kind: str, now: int, *, limit: int = 100) -> Sequence[Relay]:
        """Live relays of a kind that are due, have entries to deliver, and no live owner."""
        found = await super().due_relays(kind, now, limit=limit)
        held = "SELECT 1 FROM relays WHERE tenant = ? AND status = 'live' AND due_at <= ? AND until > ? LIMIT 1"
        if len(found) < limit and await self._query(held, self._tenant, now, now):
            await self._database.writer.write(self._database.settle_leases)
            found = await super().due_relays(kind, now, limit=limit)
        return found

    async def _claim(self, request: ClaimRequest) -> Claims:
        database = self._database

        def claim(db: sqlite3.Connection) -> Claims:
            database.settle_leases(db)
            return claim_dispatches(db, request, database.is_alive)

        return await database.writer.write(claim)

    async def delete(self, thread_id: str, *, children: ChildPolicy = "reject") -> int:
        """Delete a thread, and by policy its children; returns the number. Owners of its tasks are told."""
        await self._database.writer.write(self._database.settle_leases)
        return await super().delete(thread_id, children=children)

    async def workers(self, *, limit: int = 50) -> tuple[WorkerSeen, ...]:
        """Workers with a lease, and workers that ended and still have claims, of all tenants."""
        seen = await super().workers(limit=limit)
        return lost(seen, {one.id for one in seen if self._database.owners.is_locked(one.id) is False})

    def keep(self, worker_id: str, lease: int = LEASE_MS) -> SqliteLease:
        """Begin a worker's lease and renew it until it is closed."""
        return SqliteLease(self._database, worker_id, lease)

    def tenant(self, name: str) -> SqliteStore:
        """A handle on the same file for another tenant."""
        other = SqliteStore.__new__(SqliteStore)
        SqlStore.__init__(other, name, self._packer)
        other._database = self._database
        return other

    async def backup(self, target: str | Path) -> None:
        """Copy the file, with all tenants, while it is in use. The target must not exist."""
        path = Path(target)

        def copy(db: sqlite3.Connection) -> None:
            if path.exists():
                raise StoreUnavailable(f"{path} is there already; back up into a new file")
            try:
                create_private(path)
                with closing(sqlite3.connect(path)) as into:
                    db.backup(into)
            except sqlite3.Error as error:
                path.unlink(missing_ok=True)
                if error.sqlite_errorcode & 0xFF in _OF_COPIES:
                    raise explained(error, path) from error
                raise StoreError(f"{self.path} couldn't be copied into {path}: {error}") from error

        await self._database.read(copy)

    async def check(self) -> list[str]:
        """Problems of the file, of the relations between its rows, and rows that can't be read, of all tenants."""
        try:
            rows = await self._query("PRAGMA integrity_check(20)")
        except InvalidStore as error:  # Too damaged to be checked.
            return [f"the file is damaged: {error.__cause__}; restore a backup"]
        damage = [f"the file is damaged: {row[0]}" for row in rows if row[0] != "ok"]
        return damage or [*await checkup(self._query), *await self._unreadable()]

    async def version(self) -> int:
        """The version of the file's tables."""
        return (await self._query("PRAGMA user_version"))[0][0]

    async def size(self) -> Mapping[str, int]:
        """The size of the file in bytes, and how much of it is free."""
        rows = await self._query(
            "SELECT p.page_size * c.page_count, p.page_size * f.freelist_count "
            "FROM pragma_page_size p, pragma_page_count c, pragma_freelist_count f"
        )
        return {"bytes": rows[0][0], "free": rows[0][1]}

    async def close(self) -> None:
        """Close the store and the handles of all tenants."""
        await asyncio.to_thread(self._database.close)


def _run_script(db: sqlite3.Connection, script: Script[T]) -> T:
    try:
        sql, args = next(script)
        while True:
            sql, args = script.send(db.execute(_sql(sql), args).fetchall())
    except StopIteration as done:
        return done.value
