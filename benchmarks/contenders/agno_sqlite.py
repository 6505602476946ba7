"""Agno with its async SQLite database."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agno.db.sqlite import AsyncSqliteDb

from benchmarks.contenders import _agno_stores as stores
from benchmarks.measures import Durable, Plan, Tally, Turn

PACKAGES = ("agno", "sqlalchemy", "aiosqlite")


@asynccontextmanager
async def durable(plan: Plan, tally: Tally, address: str) -> AsyncIterator[Durable]:
    db = AsyncSqliteDb(db_file=address)
    yield stores.runs(db, plan, tally)
    await db.close()


@asynccontextmanager
async def growth(plan: Plan, tally: Tally, address: str) -> AsyncIterator[Turn]:
    db = AsyncSqliteDb(db_file=address)
    yield stores.turns(db, plan, tally)
    await db.close()
