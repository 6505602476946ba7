"""Agno with its async Postgres database."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agno.db.postgres import AsyncPostgresDb

from benchmarks.contenders import _agno_stores as stores
from benchmarks.measures import Durable, Plan, Tally, Turn

PACKAGES = ("agno", "sqlalchemy", "asyncpg")


@asynccontextmanager
async def durable(plan: Plan, tally: Tally, address: str) -> AsyncIterator[Durable]:
    db = AsyncPostgresDb(db_url=address.replace("postgresql:", "postgresql+asyncpg:"))
    yield stores.runs(db, plan, tally)
    await db.close()


@asynccontextmanager
async def growth(plan: Plan, tally: Tally, address: str) -> AsyncIterator[Turn]:
    db = AsyncPostgresDb(db_url=address.replace("postgresql:", "postgresql+asyncpg:"))
    yield stores.turns(db, plan, tally)
    await db.close()
