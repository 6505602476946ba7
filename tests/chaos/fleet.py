"""Workers as real processes on a real Postgres and NATS, and the faults to inject."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from nats_server import NatsServer
from postgres_server import PostgresServer

from .bank import Bank

__all__ = ["Fleet", "open_fleet"]

TESTS = Path(__file__).parent.parent
_SETTINGS = ("fsync=off", "max_connections=200", "autovacuum=off", "jit=off", "logging_collector=off")

# Records every change of an owner and of a log's length.
_AUDIT = """
CREATE TABLE audit (no bigserial PRIMARY KEY, thread text, head bigint, epoch bigint, was text, claim text);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.audit (thread, head, epoch, was, claim)
        VALUES (NEW.id, NEW.head, NEW.epoch, CASE TG_OP WHEN 'UPDATE' THEN OLD.claim END, NEW.claim);
    RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER INSERT OR UPDATE OF head, epoch, claim ON wakeful.threads
    FOR EACH ROW EXECUTE FUNCTION audit();
"""


class Worker:
    """A slot of the fleet, and its successive processes."""

    def __init__(self, name: str, command: list[str], env: dict[str, str], log: Path) -> None:
        self.name = name
        self.paused = False
        self._command, self._env, self.log = command, env, log
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(self._command, cwd=TESTS, env=self._env, stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill the process and start another in its slot."""
        self.close()
        self.process = self._start()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def said(self) -> str:
        return self.log.read_text()


class Fleet:
    """The processes, the bank, and the injected faults."""

    def __init__(self, folder: Path, lease: int, busy: float, concurrency: int) -> None:
        self.folder, self.lease, self._busy = folder, lease, busy
        self._concurrency = concurrency
        self.postgres, self.nats, self.bank = PostgresServer(_SETTINGS), NatsServer(), Bank()
        self.workers: list[Worker] = []
        self.done: Counter[str] = Counter()
        self._port = 0

    @property
    def store(self) -> str:
        return self.postgres.url()

    @property
    def bus(self) -> str:
        return self.nats.url

    async def open(self) -> None:
        self._port = await self.bank.open()
        await asyncio.gather(asyncio.to_thread(self.postgres.start), asyncio.to_thread(self.nats.start))

    async def watch(self) -> None:
        """Install the trigger that records owners; the tables must exist."""
        connection = await asyncpg.connect(self.store)
        try:
            await connection.execute(_AUDIT)
        finally:
            await connection.close()

    def start(self, *options: str) -> Worker:
        """Add a worker."""
        name = f"worker-{len(self.workers)}"
        words = ["--concurrency", str(self._concurrency), "--bus", self.bus, *options]
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
            "PYTHONUNBUFFERED": "1",
            "CHAOS_STORE": self.store,
            "CHAOS_BANK": str(self._port),
            "CHAOS_LEASE": str(self.lease),
            "CHAOS_BUSY": str(self._busy),
        }
        command = [sys.executable, "-m", "wakeful.cli", "worker", "chaos.office:runtime", *words]
        self.workers.append(Worker(name, command, env, self.folder / f"{name}.log"))
        return self.workers[-1]

    async def ready(self, seconds: float = 60) -> None:
        """Wait until all workers claim."""
        async with asyncio.timeout(seconds):
            while not all(re.search(r"^worker \S+ runs ", worker.said, re.MULTILINE) for worker in self.workers):
                await asyncio.sleep(0.05)

    # -- faults ----------------------------------------------------------------------------------------------

    async def kill(self, worker: Worker) -> None:
        """Kill a worker and replace it."""
        self.done["kills"] += 1
        await asyncio.to_thread(worker.kill)

    async def pause(self, worker: Worker, seconds: float) -> None:
        """Pause a worker past its lease, then let it continue."""
        self.done["pauses"] += 1
        worker.paused = True
        worker.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        worker.process.send_signal(signal.SIGCONT)
        worker.paused = False

    async def restart_postgres(self, how: signal.Signals) -> None:
        """Restart the database: SIGINT shuts it down cleanly, SIGQUIT simulates a crash."""
        self.done["crashes" if how is signal.SIGQUIT else "restarts"] += 1
        await asyncio.to_thread(self.postgres.stop, how)
        await asyncio.to_thread(self.postgres.start)

    async def without_nats(self, seconds: float) -> None:
        """Kill the bus and restart it later."""
        self.done["bus outages"] += 1
        await asyncio.to_thread(self.nats.kill)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self.nats.start)

    async def close(self) -> None:
        for worker in self.workers:
            worker.close()
        await self.bank.close()
        await asyncio.to_thread(self.nats.close)
        await asyncio.to_thread(self.postgres.close)


@asynccontextmanager
async def open_fleet(
    folder: Path, *, lease: int = 4000, busy: float = 0.1, concurrency: int = 8
) -> AsyncIterator[Fleet]:
    """A fleet without workers, stopped with all its processes at the end."""
    fleet = Fleet(folder, lease, busy, concurrency)
    try:
        await fleet.open()
        yield fleet
    finally:
        await fleet.close()
