"""Helpers of the tests of the Postgres store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from postgres_server import server
from wakeful.stores.postgres import PostgresStore

__all__ = ["beside", "connected", "schema_of", "texts", "waits_for_a_lock"]


def schema_of(store: PostgresStore) -> str:
    return store._database.endpoint.address.schema


@asynccontextmanager
async def beside(store: PostgresStore, **options: Any) -> AsyncIterator[PostgresStore]:
    """Another pool on the same tables, as another process would have it."""
    other = PostgresStore(server().url(), schema=schema_of(store), **options)
    try:
        yield other
    finally:
        await other.close()


@asynccontextmanager
async def connected(schema: str = "public") -> AsyncIterator[Any]:
    """A connection behind the store's back."""
    connection = await asyncpg.connect(server().url(), server_settings={"search_path": schema})
    try:
        yield connection
    finally:
        await connection.close()


async def texts(store: PostgresStore, thread_id: str = "t1") -> list[str]:
    return [m.text for m in await store.messages(thread_id)]


async def waits_for_a_lock(connection: Any) -> None:
    """Return once somebody waits for what this connection has locked."""
    async with asyncio.timeout(120):
        while not await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"
        ):
            pass
