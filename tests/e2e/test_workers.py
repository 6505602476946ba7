"""A fleet of worker processes on one store: each run runs once when workers are killed, paused or stopped."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from postgres_server import expire_leases, fresh_database
from wakeful import Runtime
from wakeful.stores import MAX_ATTEMPTS

HERE = Path(__file__).parent
DEADLINE = 60.0


class Fleet:
    """Workers that share a store, and a runtime that only enqueues."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder = folder
        self.store = store
        self.workers: list[subprocess.Popen[str]] = []
        self.address = ""

    def start(self, *options: str, told: str = r"^worker ") -> subprocess.Popen[str]:
        """Start a worker and wait until it claims."""
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            [sys.executable, "-m", "wakeful.cli", "worker", "fleet:runtime", *options],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path, "FLEET": str(self.folder), "FLEET_STORE": self.store},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.workers.append(process)
        if found := re.search(r"http://[\d.:]+", self.told(process, told)):
            self.address = found[0]
        return process

    def told(self, process: subprocess.Popen[str], pattern: str) -> str:
        """Wait for a line of a worker's output."""
        assert process.stdout is not None
        while not re.search(pattern, line := process.stdout.readline()):
            assert line, process.stderr.read() if process.stderr else ""
        return line

    def send(self, count: int, text: str = "charge", tenant: str = "default", name: str = "t") -> None:
        async def work(runtime: Runtime) -> None:
            mine = runtime.tenant(tenant)
            for number in range(count):
                await mine.send(f"{name}{number:03}", text, agent="shop")

        self.ask(work)

    def ask(self, work: Callable[[Runtime], Any]) -> Any:
        import fleet

        async def inside() -> Any:
            runtime = Runtime(fleet.agents, tasks=[fleet.index], store=self.store, execute=False)
            try:
                return await work(runtime)
            finally:
                await runtime.close()

        return asyncio.run(inside())

    def runs(self, tenant: str = "default") -> list[Any]:
        async def work(runtime: Runtime) -> list[Any]:
            return await runtime.tenant(tenant).runs.list(limit=1000)

        return self.ask(work)

    def done(self, count: int) -> bool:
        return len([run for run in self.runs() if run.status == "done"]) == count

    def lines(self, name: str = "charges") -> list[list[str]]:
        path = self.folder / name
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline, "it never came true"
            time.sleep(0.02)

    def kill(self, process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=120)
        self.expire()

    def expire(self) -> None:
        """Expire all leases, which would take half a minute on Postgres; live workers renew theirs."""
        if self.store.startswith("postgres"):
            expire_leases(self.store)

    def close(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.send_signal(signal.SIGKILL)
            worker.communicate(timeout=120)


@pytest.fixture(params=["sqlite", "postgres"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.syspath_prepend(str(HERE))
    store = fresh_database() if request.param == "postgres" else str(tmp_path / "fleet.db")
    made = Fleet(tmp_path, store)
    yield made
    made.close()


def metrics(address: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{address}/metrics", timeout=120) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def test_workers_share_queue_and_run_each_once(fleet: Fleet) -> None:
    fleet.send(24)
    for _ in range(3):
        fleet.start("--concurrency", "2")
    fleet.until(lambda: fleet.done(24))
    charged = fleet.lines()
    assert sorted(thread for thread, _ in charged) == [f"t{n:03}" for n in range(24)]
    assert all(run.outcome.termination.__class__.__name__ == "NaturalEnd" for run in fleet.runs())


def test_killed_workers_runs_are_recovered_and_counted(fleet: Fleet) -> None:
    (fleet.folder / "hold").touch()
    fleet.send(3)
    first = fleet.start()
    fleet.until(lambda: len(fleet.lines()) == 3)
    process = fleet.start("--health", "127.0.0.1:0", told=r"^health: ")
    address = fleet.address
    fleet.told(process, r"^worker ")
    with urllib.request.urlopen(f"{address}/readyz", timeout=120) as answer:
        assert answer.read() == b"ready\n"
    fleet.kill(first)
    fleet.until(lambda: fleet.done(3))
    # Started `once` effects are reported as unknown, and none happened twice.
    assert sorted(thread for thread, _ in fleet.lines()) == ["t000", "t001", "t002"]
    counted = metrics(address)
    assert (counted["wakeful_takeovers_total"], counted["wakeful_claims_total"]) == (3, 3)
    assert counted['wakeful_runs_finished_total{status="natural_end"}'] == 3
    assert counted["wakeful_active"] == 0
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=120)
    found = re.findall(r"recovered (\d) threads of workers that ended: 't00\d' \(shop\)", told)
    assert sum(map(int, found)) == 3


def test_worker_paused_past_lease_writes_nothing(fleet: Fleet) -> None:
    (fleet.folder / "hold").touch()
    fleet.send(1)
    first = fleet.start()
    fleet.until(lambda: len(fleet.lines()) == 1)
    first.send_signal(signal.SIGSTOP)
    if fleet.store.startswith("postgres"):
        fleet.expire()
    else:  # The process is alive, and so is its owner file: only the lease has ended.
        db = sqlite3.connect(fleet.store)
        with db:
            db.execute("UPDATE workers SET until = 0")
        db.close()
    fleet.start()
    fleet.until(lambda: fleet.done(1))
    before = fleet.ask(_everything)
    (fleet.folder / "hold").unlink()
    first.send_signal(signal.SIGCONT)
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=120)
    assert fleet.ask(_everything) == before
    assert len(fleet.lines()) == 1


async def _everything(runtime: Runtime) -> Any:
    return [
        await runtime.runs.list(),
        [event async for event in runtime.events("t000", follow=False)],
        await runtime.store.thread("t000"),
    ]


def test_stopped_worker_hands_over_without_loss_or_repeat(fleet: Fleet) -> None:
    fleet.send(30)
    first = fleet.start("--concurrency", "4", "--grace", "500")
    fleet.until(lambda: len(fleet.lines()) >= 4)
    fleet.start("--concurrency", "4")
    first.send_signal(signal.SIGTERM)
    out, err = first.communicate(timeout=240)  # Less than its grace: it ends with its last call.
    assert (first.returncode, "drained" in out) == (0, True), err
    fleet.until(lambda: fleet.done(30))
    assert sorted(thread for thread, _ in fleet.lines()) == [f"t{n:03}" for n in range(30)]

    async def outcomes(runtime: Runtime) -> set[str | None]:
        runs = await runtime.runs.list(limit=100)
        return {call.outcome for run in runs for call in await runtime.runs.calls(run.id)}

    assert fleet.ask(outcomes) == {"ok"}


@pytest.mark.parametrize("fleet", ["sqlite"], indirect=True)
def test_second_signal_stops_worker_at_once(fleet: Fleet) -> None:
    (fleet.folder / "hold").touch()
    fleet.send(1)
    worker = fleet.start("--grace", "600")
    fleet.until(lambda: len(fleet.lines()) == 1)
    worker.send_signal(signal.SIGTERM)
    fleet.told(worker, "draining")
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=120)
    assert worker.returncode == 1


@pytest.mark.parametrize("fleet", ["postgres", pytest.param("sqlite", marks=pytest.mark.long)], indirect=True)
def test_run_that_kills_workers_does_not_kill_fleet(fleet: Fleet) -> None:
    fleet.send(1, "die", name="poison")
    for _ in range(MAX_ATTEMPTS):
        worker = fleet.start()
        worker.communicate(timeout=120)
        fleet.expire()
    fleet.start()
    fleet.send(3)
    fleet.until(lambda: len(fleet.lines()) == 3)
    assert len(fleet.lines("deaths")) == MAX_ATTEMPTS

    async def dead(runtime: Runtime) -> Any:
        return [(one.thread_id, one.attempts) for one in await runtime.workers.dispatches(dead=True)]

    assert fleet.ask(dead) == [("poison000", MAX_ATTEMPTS)]


def test_tenant_flood_at_most_doubles_wait_of_another(fleet: Fleet) -> None:
    fleet.send(200, "hello", tenant="flood", name="f")
    fleet.send(5, "hello", tenant="small", name="s")
    fleet.start("--concurrency", "1")

    def begun() -> list[tuple[int, str]]:
        both = [(run.created_at, run.id, name) for name in ("flood", "small") for run in fleet.runs(name)]
        return [(place, name) for place, (_, _, name) in enumerate(sorted(both), 1)]

    fleet.until(lambda: sum(name == "small" for _, name in begun()) == 5)
    places = [place for place, name in begun() if name == "small"]
    # Alone, its runs would be the first five.
    assert all(place <= 2 * (number + 1) for number, place in enumerate(places)), places


def test_function_task_resumes_on_another_worker(fleet: Fleet) -> None:
    (fleet.folder / "hold").touch()
    first = fleet.start()
    handle = fleet.ask(lambda runtime: runtime.tasks.spawn("index"))
    fleet.until(lambda: fleet.lines("indexed"))
    fleet.kill(first)
    (fleet.folder / "hold").unlink()
    fleet.start()

    async def value(runtime: Runtime) -> Any:
        return await (await runtime.tasks.get(handle.id)).value()

    assert fleet.ask(value) == "indexed"
    (one, mine), (other, his) = fleet.lines("indexed")
    assert one == other
    assert mine != his


def test_schedule_fires_once_across_workers(fleet: Fleet) -> None:
    async def schedule(runtime: Runtime) -> None:
        for number in range(10):
            await runtime.schedules.put(f"s{number}", "shop", "charge", delay=0.3)

    fleet.ask(schedule)
    fleet.start()
    fleet.start()
    fleet.until(lambda: len([r for r in fleet.runs() if r.agent_id == "shop" and r.status == "done"]) == 10)
    threads = [thread for thread, _ in fleet.lines()]
    assert len(threads) == len(set(threads)) == 10
