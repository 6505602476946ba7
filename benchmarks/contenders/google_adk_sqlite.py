"""Google ADK with its database sessions on SQLite."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from google.adk.sessions import DatabaseSessionService

from benchmarks.contenders import _adk_stores as stores
from benchmarks.measures import Durable, Plan, Tally, Turn

PACKAGES = ("google-adk", "sqlalchemy", "aiosqlite")


def _sessions(address: str) -> DatabaseSessionService:
    return DatabaseSessionService(f"sqlite+aiosqlite:///{address}")


@asynccontextmanager
async def durable(plan: Plan, tally: Tally, address: str) -> AsyncIterator[Durable]:
    async with _sessions(address) as sessions:
        yield stores.runs(sessions, plan, tally)


@asynccontextmanager
async def growth(plan: Plan, tally: Tally, address: str) -> AsyncIterator[Turn]:
    async with _sessions(address) as sessions:
        yield await stores.turns(sessions, plan, tally)
