"""Procrastinate: a job in Postgres that records its progress after each step in a table of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import procrastinate

from benchmarks.workers.setup import Ledger, Queue, Setup

PACKAGES = ("procrastinate", "psycopg")

# A job has no steps: progress is in a table of the application.
_STEPS = """CREATE TABLE IF NOT EXISTS steps (
    run text, n int, result text NOT NULL, PRIMARY KEY (run, n)
)"""
_WRITE = "INSERT INTO steps (run, n, result) VALUES (%(run)s, %(n)s, %(result)s)"
_READ = "SELECT n FROM steps WHERE run = %(run)s"


def _app(setup: Setup, ledger: Ledger | None) -> procrastinate.App:
    size = setup.concurrency + 4
    app = procrastinate.App(
        connector=procrastinate.PsycopgConnector(conninfo=setup.address, min_size=4, max_size=size)
    )

    @app.task(name="bench", retry=True)
    async def bench(run_id: str) -> None:
        assert ledger is not None
        done = {row["n"] for row in await app.connector.execute_query_all_async(_READ, run=run_id)}
        for n in range(setup.steps):
            if n not in done:
                ledger.mark(run_id)
                await app.connector.execute_query_async(_WRITE, run=run_id, n=n, result=str(n))

    return app


@asynccontextmanager
async def worker(setup: Setup, ledger: Ledger) -> AsyncIterator[None]:
    async with _app(setup, ledger).open_async() as app:
        if not await app.check_connection_async():
            await app.schema_manager.apply_schema_async()
            await app.connector.execute_query_async(_STEPS)
        work = asyncio.create_task(
            app.run_worker_async(concurrency=setup.concurrency, install_signal_handlers=False)
        )
        try:
            yield
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work


class _Client:
    def __init__(self, app: procrastinate.App) -> None:
        self._app = app

    async def put(self, run_id: str) -> None:
        await self._app.configure_task("bench").defer_async(run_id=run_id)

    async def done(self) -> int:
        sql = "SELECT count(*) AS n FROM procrastinate_jobs WHERE status = 'succeeded'"
        return (await self._app.connector.execute_query_one_async(sql))["n"]


@asynccontextmanager
async def client(setup: Setup) -> AsyncIterator[Queue]:
    async with _app(setup, None).open_async() as app:
        yield _Client(app)
