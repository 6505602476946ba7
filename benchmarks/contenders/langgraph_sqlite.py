"""LangGraph with its SQLite checkpointer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from benchmarks.contenders import _langgraph_stores as stores
from benchmarks.measures import Durable, Plan, Tally, Turn

PACKAGES = ("langgraph", "langchain", "langgraph-checkpoint-sqlite")


@asynccontextmanager
async def durable(plan: Plan, tally: Tally, address: str) -> AsyncIterator[dict[str, Durable]]:
    async with AsyncSqliteSaver.from_conn_string(address) as saver:
        await saver.setup()
        yield stores.runs(saver, plan, tally)


@asynccontextmanager
async def growth(plan: Plan, tally: Tally, address: str) -> AsyncIterator[Turn]:
    async with AsyncSqliteSaver.from_conn_string(address) as saver:
        await saver.setup()
        yield stores.turns(saver, plan, tally)
