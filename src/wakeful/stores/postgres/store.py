"""The store in a Postgres database: a schema of its own, and pools of connections for reads and for commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from ...errors import ConfigurationError
from ..codec.packer import UNREADABLE, Codec, Packer
from ..heads import Head, ItemRow, RunRow
from ..jobs import settled
from ..memories import is_whole
from ..records import LEASE_MS, Claimed, Claims, Commit, Committed, Records, ThreadView
from ..sql.base import Row, Script, checked_seconds
from ..sql.checkup import checkup
from ..sql.store import VIEWS, SqlStore
from ..turns import ClaimRequest
from .claims import Taken, claim
from .connections import Connections, Endpoint
from .driver import Address
from .install import checked_schema
from .lease import PostgresLease
from .queue import MAX_IN_FLIGHT, CommitQueue
from .statements import SETTINGS
from .text import escape, fetch
from .views import Views

__all__ = ["PostgresStore"]

T = TypeVar("T")

# Connections for commits, and one more for claims.
_WRITERS = MAX_IN_FLIGHT + 1
# Logs are read in the order of their index. The planner expects a few entries of each thread: it would collect all
# those of a long one, and sort them.
_READING = {"enable_bitmapscan": "off"}
# The first pruning of a large store takes long.
_SCRIPT_SECONDS = 3600.0


class _Database:
    """One schema of one database. Shared by the handles of all tenants."""

    def __init__(self, endpoint: Endpoint, pool_size: int) -> None:
        self.endpoint = endpoint
        writers = min(_WRITERS, max(pool_size // 2, 1))
        self.reads = Connections(endpoint, max(pool_size - writers, 1), _READING)
        self.writes = Connections(endpoint, writers, SETTINGS)
        self.queue = CommitQueue(self.writes)
        self.views = Views(self._read_views)
        self.leases: set[PostgresLease] = set()

    async def _read_views(self, tenant: str, thread_ids: list[str]) -> dict[str, list[Row]]:
        args = (tenant, [escape(thread_id) for thread_id in thread_ids])
        rows = await self.reads.run(lambda connection: fetch(connection, VIEWS, args))
        names = {row[19]: row[10] for row in rows if row[0] == "thread"}
        found: dict[str, list[Row]] = {name: [] for name in names.values()}
        for row in rows:
            found[names[row[19]]].append(row)
        return found

    async def close(self) -> None:
        await self.queue.close()
        await asyncio.gather(*[lease.close() for lease in self.leases])
        self.leases.clear()
        await asyncio.gather(self.reads.close(), self.writes.close())


class PostgresStore(SqlStore):
    """Threads, runs and everything else in a Postgres database, in a schema that is created if it doesn't exist.

    `url` is `postgres://user:password@host:port/database`. Nothing is connected before the first use; then the
    store belongs to the running event loop. It opens at most `pool_size` connections (at least one for reads and
    one for commits), and one more for each lease. While the server is away, calls wait for up to `wait_seconds`.
    `codec` encodes payloads on their way to the database. The handle sees the rows of `tenant`. Without `create` a
    schema that doesn't exist is refused.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: str = "wakeful",
        tenant: str = "default",
        codec: Codec | None = None,
        pool_size: int = 10,
        wait_seconds: float = 60,
        create: bool = True,
    ) -> None:
        super().__init__(tenant, Packer(codec))
        if not isinstance(cast(Any, pool_size), int) or pool_size < 1:
            raise ConfigurationError(f"pool_size is a number of at least 1, not {pool_size!r:.80}")
        seconds = checked_seconds(wait_seconds, "wait_seconds")
        address = Address(url, checked_schema(schema))
        self._database = _Database(Endpoint(address, seconds, create=create), pool_size)

    def __repr__(self) -> str:
        return f"PostgresStore({self._address.place!r}, schema={self._address.schema!r}, tenant={self._tenant!r})"

    @property
    def _address(self) -> Address:
        return self._database.endpoint.address

    @property
    def location(self) -> str:
        """The database and the schema, without the password."""
        return f"{self._address.place} schema {self._address.schema}"

    @property
    def batches(self) -> tuple[int, int]:
        """The number of batches that were sent, and of the commits in them."""
        return self._database.queue.batches, self._database.queue.commits

    async def commit(self, commit: Commit) -> Committed:
        """Write the commit, or nothing of it."""
        return await self._database.queue.write(self._tenant, self._packer, commit)

    async def _view(self, thread_id: str) -> list[Row]:
        return await self._database.views.rows(self._tenant, thread_id)

    def _memory_query(self, owner: str, words: Sequence[str]) -> tuple[str, Sequence[Any]]:
        wanted = " | ".join([f"'{word}'" + ":*" * (not is_whole(word)) for word in words])
        sql = """SELECT r.id, r.payload FROM memory_index x
                 JOIN records r ON r.tenant = ? AND r.kind = ? AND r.id = x.id
                 WHERE x.owner = ? AND x.vector @@ to_tsquery('simple', ?)
                 ORDER BY ts_rank(x.vector, to_tsquery('simple', ?), 1) DESC, r.id"""
        return sql, (owner, wanted, wanted)

    async def put(self, records: Records) -> None:
        """Write records that belong to no thread, or nothing of it. Raises `Conflict` by their revisions."""
        await self.commit(Commit("", records=records))

    async def _query(self, sql: str, *args: Any) -> list[Row]:
        return await self._database.reads.run(lambda connection: fetch(connection, sql, args))

    async def _transact(self, script: Callable[[], Script[T]]) -> T:
        return await settled(asyncio.ensure_future(self._database.reads.run(_Transaction(script).run)))

    async def _claim(self, request: ClaimRequest) -> Claims:
        tries = 0

        async def work(connection: Any) -> Claims:
            nonlocal tries
            tries += 1
            found = await claim(connection, request)
            claimed = [self._claimed(taken, request.worker_id, found.now) for taken in found.taken]
            return Claims(tuple(claimed), found.wait, tries > 1)

        return await settled(asyncio.ensure_future(self._database.writes.run(work)))

    def _claimed(self, taken: Taken, worker_id: str, now: int) -> Claimed:
        """The claim with the thread's view, and keep the thread's head."""
        view, key = None, (taken.tenant, taken.thread_id)
        self._database.queue.cache.drop([key])
        if taken.rows:
            # The rows are as of the moment before the claim.
            rows = [_with_owner(row, taken.epoch, worker_id) for row in taken.rows]
            view = self._decode_view(taken.thread_id, rows)
            if view is not None:
                self._database.queue.cache.put(key, _head_of(taken, worker_id, rows, view))
        waited = max(now - taken.dispatch.due_at, 0)
        dispatch = taken.dispatch
        return Claimed(
            taken.tenant,
            taken.thread_id,
            dispatch.agent,
            taken.epoch,
            dispatch.due_at,
            waited,
            dispatch.attempts,
            taken.is_takeover,
            view,
        )

    def _decode_view(self, thread_id: str, rows: list[Row]) -> ThreadView | None:
        """The view; None if it has blobs, or can't be read: loading it reports the error."""
        try:
            if any(self._packer.digests(payload) for row in rows for payload in row[17:19]):
                return None
            return self._viewed(thread_id, rows, {})
        except UNREADABLE:
            return None

    def keep(self, worker_id: str, lease: int = LEASE_MS) -> PostgresLease:
        """Keep the claims of this worker alive until the lease is closed."""
        kept = PostgresLease(self._database.endpoint, worker_id, lease, self._database.queue.cache.drop_lease)
        self._database.leases.add(kept)
        return kept

    def tenant(self, name: str) -> PostgresStore:
        """A handle on the same database for another tenant."""
        other = PostgresStore.__new__(PostgresStore)
        SqlStore.__init__(other, name, self._packer)
        other._database = self._database
        return other

    async def check(self) -> list[str]:
        """Problems in the ledger of all tenants, and rows that can't be read."""
        return [*await checkup(self._query), *await self._unreadable()]

    async def version(self) -> int:
        """The version of the schema's tables."""
        return int((await self._query("SELECT value FROM meta WHERE name = 'version'"))[0][0])

    async def size(self) -> Mapping[str, int]:
        """The bytes of the store's tables and indexes."""
        sql = """SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
                 JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ? AND c.relkind = 'r'"""
        rows = await self._query(sql, self._address.schema)
        return {"bytes": rows[0][0]}

    async def close(self) -> None:
        """Close the connections, after all commits are written. Closes the handles of all tenants, and gives up
        their leases."""
        await self._database.close()


def _with_owner(row: Row, epoch: int, worker_id: str) -> Row:
    """The row of a view after its thread was claimed."""
    return (*row[:4], epoch, *row[5:9], worker_id, *row[10:]) if row[0] == "thread" else row


def _head_of(taken: Taken, worker_id: str, rows: Sequence[Row], view: ThreadView) -> Head:
    """The head of a thread that was claimed with this view."""
    run_no = next((row[1] for row in rows if row[0] == "run"), None)
    run = None
    if view.run is not None and run_no is not None:
        record = view.run
        run = RunRow(run_no, record.id, record.agent_id, record.priority, record.steps, record.status)
    pending = {
        item.id: ItemRow(
            taken.thread_id,
            "pending",
            item.revision,
            item.position,
            None,
            item.wake,
            item.at,
            item.priority,
            item.agent_id,
            item.digest,
        )
        for item in view.inbox
    }
    return Head(
        taken.thread_id,
        no=taken.no,
        version=taken.version,
        log_head=view.thread.head,
        epoch=taken.epoch,
        claim=worker_id,
        handed=taken.version,
        inbox_head=taken.inbox_head,
        wakes=taken.wakes,
        open_run=run,
        last_run=taken.last_run,
        last_agent=view.thread.last_agent_id or "",
        dispatch=replace(taken.dispatch, held=True),
        pending=pending,
        parent=view.thread.parent_id,
    )


class _Transaction:
    """A script in a transaction. If the connection breaks at COMMIT, the outcome is looked up."""

    def __init__(self, script: Callable[[], Script[T]]) -> None:
        self._script = script
        self._number: int | None = None
        self._result: Any = None

    async def run(self, connection: Any) -> Any:
        if self._number is not None:
            status = await connection.fetchval("SELECT txid_status($1)", self._number)
            if status == "committed":
                return self._result
            if status == "in progress":
                raise ConnectionError("the transaction before the connection broke isn't over yet")
        async with connection.transaction():
            self._number = await connection.fetchval("SELECT txid_current()")
            self._result = await self._execute(connection)
        return self._result

    async def _execute(self, connection: Any) -> Any:
        script = self._script()
        try:
            sql, args = next(script)
            while True:
                sql, args = script.send(await fetch(connection, sql, args, timeout=_SCRIPT_SECONDS))
        except StopIteration as done:
            return done.value
