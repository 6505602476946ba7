"""Floor: a hand-written loop with one bare Postgres transaction for each turn, over asyncpg."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from benchmarks.contenders import _floor_stores as floor
from benchmarks.long_threads import LongThread
from benchmarks.measures import Durable, Plan, Tally, Turn

PACKAGES = ("asyncpg", "msgspec")

_TABLES = """
CREATE TABLE IF NOT EXISTS runs (no bigint PRIMARY KEY, payload bytea NOT NULL);
CREATE TABLE IF NOT EXISTS messages (run bigint, seq bigint, payload bytea NOT NULL, PRIMARY KEY (run, seq));
"""
# One statement is one transaction and one round trip.
_SAVE = """
WITH saved AS (
    INSERT INTO messages
    SELECT $1, $2 + place - 1, payload FROM unnest($3::bytea[]) WITH ORDINALITY AS given (payload, place)
)
INSERT INTO runs VALUES ($1, $4) ON CONFLICT (no) DO UPDATE SET payload = excluded.payload
"""
_NEWEST = "SELECT payload FROM messages WHERE run = $1 ORDER BY seq DESC LIMIT $2"


@asynccontextmanager
async def _open(address: str) -> AsyncIterator[tuple[floor.Save, floor.Load]]:
    connection = await asyncpg.connect(address)
    try:
        await connection.execute(_TABLES)

        async def save(run: int, first: int, messages: list[bytes], row: bytes) -> None:
            await connection.execute(_SAVE, run, first, messages, row)

        async def load(run: int, newest: int) -> list[bytes]:
            return [row[0] for row in reversed(await connection.fetch(_NEWEST, run, newest))]

        yield save, load
    finally:
        await connection.close()


@asynccontextmanager
async def durable(plan: Plan, tally: Tally, address: str) -> AsyncIterator[Durable]:
    async with _open(address) as (save, _):
        yield Durable(floor.runs(plan, tally, save))


@asynccontextmanager
async def growth(plan: Plan, tally: Tally, address: str) -> AsyncIterator[Turn]:
    async with _open(address) as (save, load):
        yield floor.turns(plan, tally, save, load)


@asynccontextmanager
async def long_thread(plan: Plan, tally: Tally, address: str, messages: int) -> AsyncIterator[LongThread]:
    async with _open(address) as (save, load):
        yield await floor.long_thread(plan, tally, save, load, messages)
