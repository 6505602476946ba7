"""wakeful: runs claimed by `wakeful worker` processes."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

from benchmarks.measures import INSTRUCTIONS
from benchmarks.workers.setup import PLAN, Ledger, Queue, Setup
from wakeful import Agent, ModelRequest, Runtime, ToolContext, tool
from wakeful.models import CallDeltaChunk, CallStartChunk, Chunk, StopChunk, TextChunk

PACKAGES = ("wakeful", "asyncpg", "nats-py", "msgspec")

setup = Setup.here()
ledger = Ledger(setup.ledger)


class Scripted:
    name = "scripted"
    live = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        ledger.mark(request.messages[0].text)
        reply = request.messages[-1].reply
        calls = PLAN.ask(reply.content[0].text if reply is not None else None)
        for call in calls:
            yield CallStartChunk(0, "step", call.id)
            yield CallDeltaChunk(0, call.json)
        if not calls:
            yield TextChunk(PLAN.text)
        yield StopChunk("tool_use" if calls else "end_turn")


@tool(effect="once")
async def step(n: int, ctx: ToolContext) -> str:
    """Do one step."""
    ledger.mark(ctx.run.thread_id)
    return str(n)


agents = [Agent("bench", model=Scripted(), instructions=INSTRUCTIONS, tools=[step])]
runtime = Runtime(agents, store=setup.address, bus=setup.bus or None)


class _Client:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._connection: Any = None

    async def put(self, run_id: str) -> None:
        await self._runtime.send(run_id, run_id, agent="bench")

    async def done(self) -> int:
        return await (self._in_postgres() if "://" in setup.address else asyncio.to_thread(self._in_sqlite))

    async def _in_postgres(self) -> int:
        import asyncpg

        if self._connection is None:
            self._connection = await asyncpg.connect(setup.address)
        return await self._connection.fetchval("SELECT count(*) FROM wakeful.runs WHERE status = 'done'")

    def _in_sqlite(self) -> int:
        with closing(sqlite3.connect(setup.address, timeout=30)) as db:
            return db.execute("SELECT count(*) FROM runs WHERE status = 'done'").fetchone()[0]


@asynccontextmanager
async def client(setup: Setup) -> AsyncIterator[Queue]:
    sender = Runtime(agents, store=setup.address, bus=setup.bus or None, execute=False)
    try:
        yield _Client(sender)
    finally:
        await sender.close()
