"""DBOS: a workflow of steps on a queue, in Postgres."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from dbos import DBOS, DBOSClient

from benchmarks.workers.setup import Ledger, Queue, Setup

PACKAGES = ("dbos", "sqlalchemy", "psycopg")

# The default of a second would dominate its latency.
POLL_SECONDS = 0.05


def _url(setup: Setup) -> str:
    return setup.address.replace("postgresql://", "postgresql+psycopg://")


@asynccontextmanager
async def worker(setup: Setup, ledger: Ledger) -> AsyncIterator[None]:
    config = {
        "name": "bench",
        "system_database_url": _url(setup),
        "log_level": "WARNING",
        "application_version": "1",
    }
    dbos = DBOS(config=config)

    @DBOS.step()
    def step(run_id: str, n: int) -> str:
        ledger.mark(run_id)
        return str(n)

    @DBOS.workflow(name="bench")
    def workflow(run_id: str) -> str:
        for n in range(setup.steps):
            step(run_id, n)
        return "done"

    def launch() -> None:
        DBOS.launch()
        DBOS.register_queue("bench", worker_concurrency=setup.concurrency, polling_interval_sec=POLL_SECONDS)

    await asyncio.to_thread(launch)
    try:
        yield
    finally:
        await asyncio.to_thread(dbos.destroy)


class _Client:
    def __init__(self, client: DBOSClient, books: psycopg.AsyncConnection) -> None:
        self._client = client
        self._books = books

    async def put(self, run_id: str) -> None:
        options = {"queue_name": "bench", "workflow_name": "bench", "workflow_id": run_id, "app_version": "1"}
        await self._client.enqueue_async(options, run_id)

    async def done(self) -> int:
        sql = "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'"
        row = await (await self._books.execute(sql)).fetchone()
        assert row is not None
        return row[0]


@asynccontextmanager
async def client(setup: Setup) -> AsyncIterator[Queue]:
    made = await asyncio.to_thread(DBOSClient, system_database_url=_url(setup))
    books = await psycopg.AsyncConnection.connect(setup.address, autocommit=True)
    try:
        yield _Client(made, books)
    finally:
        await books.close()
        await asyncio.to_thread(made.destroy)
