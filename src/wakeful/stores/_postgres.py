"""A store in a Postgres database: a schema of its own, a pool of connections, and commits in groups.

A commit is one call of a function in the database, which takes many at once and gives a verdict on each.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from ..errors import ConfigurationError
from ..types.codec import encode
from ._checkup import checkup
from ._claiming import Asked
from ._connections import Connections
from ._driver import Address
from ._groups import Groups
from ._install import checked_schema
from ._packing import UNREADABLE, Codec, Packer
from ._plans import ESCAPE, escaped, unescaped
from ._protocol import LEASE_MS, Claimed, Claims, Commit, Committed, ThreadView
from ._renewal import PostgresLease
from ._sql import VIEWS, SqlStore
from ._sql_base import Row, Script, checked_seconds
from ._threads import settled
from ._views import Views

__all__ = ["PostgresStore"]

T = TypeVar("T")

_WORDS = {
    "NOW_MS": "(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
    "FOR_UPDATE": "FOR UPDATE",
    "IF_FREE": "SKIP LOCKED",
}
_SCRIPT_SECONDS = 3600.0  # Pruning has much to do when it is done for the first time.
_queries: dict[str, str] = {}


def _sql(text: str) -> str:
    """The query in Postgres's words."""
    found = _queries.get(text)
    if found is None:
        first, *rest = text.split("?")
        found = first + "".join([f"${n}{part}" for n, part in enumerate(rest, 1)])
        for word, meaning in _WORDS.items():
            found = found.replace(word, meaning)
        _queries[text] = found
    return found


class _Database:
    """One schema of one database, open. Shared by the handles of all tenants."""

    def __init__(self, address: Address, pool_size: int, wait_seconds: float, create: bool) -> None:
        self.connections = Connections(address, pool_size, wait_seconds, create=create)
        self.groups = Groups(self.connections)
        self.views = Views(self._read_views)
        self.leases: set[PostgresLease] = set()

    async def _read_views(self, tenant: str, thread_ids: list[str]) -> dict[str, list[Row]]:
        args = (tenant, [escaped(thread_id) for thread_id in thread_ids])
        rows = await self.connections.run(lambda connection: _fetch(connection, VIEWS, args))
        names = {row[19]: row[10] for row in rows if row[0] == "thread"}
        found: dict[str, list[Row]] = {name: [] for name in names.values()}
        for row in rows:
            found[names[row[19]]].append(row)
        return found

    async def close(self) -> None:
        await self.groups.close()
        await asyncio.gather(*[lease.close() for lease in self.leases])
        self.leases.clear()
        await self.connections.close()


class PostgresStore(SqlStore):
    """Threads, runs and everything else in a Postgres database, in a schema that is made if it isn't there, or
    refused without `create`.

    `url` is `postgres://user:password@host:port/database`. Nothing is connected before the first use; then the
    store belongs to the event loop that runs. At most `pool_size` connections are made, and one for each lease.
    When the server goes away, what is asked of it waits for up to `wait_seconds`. `codec` stands between payloads
    and the database. The handle sees what belongs to `tenant`.
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
        patience = checked_seconds(wait_seconds, "wait_seconds")
        self._database = _Database(Address(url, checked_schema(schema)), pool_size, patience, create)

    def __repr__(self) -> str:
        address = self._database.connections.address
        return f"PostgresStore({address.place!r}, schema={address.schema!r}, tenant={self._tenant!r})"

    @property
    def place(self) -> str:
        """The database and the schema, without what is secret."""
        address = self._database.connections.address
        return f"{address.place} schema {address.schema}"

    @property
    def batches(self) -> tuple[int, int]:
        """How many batches of commits were sent, and how many commits they held together."""
        batches, commits = self._database.groups.batches
        return batches, commits

    async def commit(self, commit: Commit) -> Committed:
        """Write the commit, or nothing of it."""
        groups, tenant, packer = self._database.groups, self._tenant, self._packer
        if not commit.then:
            return await groups.write(tenant, packer, commit)
        # Those of one turn of the loop go into one batch, in their order.
        first, *then = [groups.submit(tenant, packer, one) for one in (commit, *commit.then)]
        found = await settled(asyncio.gather(first, *then, return_exceptions=True))
        if isinstance(found[0], BaseException):
            raise found[0]
        written = [None if isinstance(one, BaseException) else one for one in found[1:]]
        return replace(found[0], then=tuple(written))

    async def _view(self, thread_id: str) -> list[Row]:
        return await self._database.views.rows(self._tenant, thread_id)

    async def _query(self, sql: str, *args: Any) -> list[Row]:
        return await self._database.connections.run(lambda connection: _fetch(connection, sql, args))

    async def _transact(self, script: Callable[[], Script[T]]) -> T:
        return await settled(asyncio.ensure_future(self._database.connections.run(_Transaction(script).run)))

    async def _claim(self, asked: Asked) -> Claims:
        limits = encode({escaped(agent): limit for agent, limit in asked.per_agent.items()}).decode()
        agents = [escaped(agent) for agent in asked.agents]
        args = (asked.worker_id, asked.lease, agents, asked.limit, asked.now, asked.per_tenant, limits)
        tries = 0

        async def claim(connection: Any) -> Claims:
            nonlocal tries
            tries += 1
            answer, *rows = await connection.fetch(_CLAIM, *args)
            views: dict[int, list[Row]] = defaultdict(list)
            for row in _as_written(rows):
                views[row[19]].append(row)
            claimed, wait = msgspec.json.decode(answer[9])
            return Claims(tuple([self._taken(one, views) for one in claimed]), wait, tries > 1)

        return await settled(asyncio.ensure_future(self._database.connections.run(claim)))

    def _taken(self, one: list[Any], views: Mapping[int, list[Row]]) -> Claimed:
        no, tenant, thread_id, agent, *rest = one
        taken = Claimed(unescaped(tenant), unescaped(thread_id), unescaped(agent), *rest)
        return replace(taken, view=self._at_once(taken.thread_id, views[no]))

    def _at_once(self, thread_id: str, rows: list[Row]) -> ThreadView | None:
        """The view that came with a claim; None if it takes more to read it, or can't be read: whoever loads it
        then is told why."""
        try:
            if any(self._packer.digests(payload) for row in rows for payload in row[17:19]):
                return None
            return self._viewed(thread_id, rows, {})
        except UNREADABLE:
            return None

    def keep(self, worker_id: str, lease: int = LEASE_MS) -> PostgresLease:
        """Keep the claims of this worker alive until the lease is closed."""
        kept = PostgresLease(self._database.connections, worker_id, lease)
        self._database.leases.add(kept)
        return kept

    def tenant(self, name: str) -> PostgresStore:
        """A handle on the same database for another tenant."""
        other = PostgresStore.__new__(PostgresStore)
        SqlStore.__init__(other, name, self._packer)
        other._database = self._database
        return other

    async def check(self) -> list[str]:
        """What is wrong with the ledger of all tenants, and which rows can't be read; nothing, if all is well."""
        return [*await checkup(self._query), *await self._unreadable()]

    async def version(self) -> int:
        """The version of the schema's tables."""
        return int((await self._query("SELECT value FROM meta WHERE name = 'version'"))[0][0])

    async def size(self) -> Mapping[str, int]:
        """How many bytes the store's tables and indexes have."""
        sql = """SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
                 JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ? AND c.relkind = 'r'"""
        rows = await self._query(sql, self._database.connections.address.schema)
        return {"bytes": rows[0][0]}

    async def close(self) -> None:
        """Let go of the database. Handles of all tenants are closed with it, and leases are given up."""
        await self._database.close()


class _Transaction:
    """A script on its way through a transaction. If the connection breaks at its end, it asks how that went."""

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
            self._result = await self._steps(connection)
        return self._result

    async def _steps(self, connection: Any) -> Any:
        script = self._script()
        try:
            sql, args = next(script)
            while True:
                sql, args = script.send(await _fetch(connection, sql, args, timeout=_SCRIPT_SECONDS))
        except StopIteration as done:
            return done.value


_CLAIM = "SELECT * FROM claim_rows_v6($1, $2, $3, $4, $5, $6, $7)"


async def _fetch(connection: Any, sql: str, args: Any, timeout: float | None = None) -> list[Row]:
    """The rows of a query, with every NUL as it was."""
    given = [escaped(arg) if type(arg) is str else arg for arg in args]
    return _as_written(await connection.fetch(_sql(sql), *given, timeout=timeout))


def _as_written(rows: list[Row]) -> list[Row]:
    for number, row in enumerate(rows):
        for value in row:
            if type(value) is str and ESCAPE in value:
                rows[number] = tuple([unescaped(v) if type(v) is str else v for v in row])
                break
    return rows
