"""Short and long storms, and single faults: draining, lease loss and fairness."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from wakeful import Runtime
from wakeful.stores import open_store

from .checks import Findings, audit, examine
from .fleet import Fleet, Worker, open_fleet
from .office import ShortStore, agents
from .storm import Desk, Storm, ride, work_of

SHORT = Storm(runs=120, harm=8, seconds=10, seed=20, takeovers=5)
LONG = Storm(runs=1500, harm=60, seconds=120, seed=21, takeovers=50, patience=300)


@pytest.mark.parametrize("storm", [SHORT, pytest.param(LONG, marks=pytest.mark.long)], ids=["short", "long"])
async def test_chaos_loses_and_repeats_nothing(storm: Storm, tmp_path: Path) -> None:
    course = await ride(storm, tmp_path)
    print(course.table())
    assert course.findings.problems == []


@asynccontextmanager
async def quiet_fleet(folder: Path, **options: Any) -> AsyncIterator[tuple[Fleet, Runtime, Desk]]:
    """A fleet without workers, and a client that enqueues runs and answers tickets."""
    async with (
        open_fleet(folder, **options) as fleet,
        Runtime(agents, store=ShortStore(fleet.store), bus=fleet.bus, execute=False) as outside,
    ):
        await outside.runs.list(limit=1)
        await fleet.watch()
        desk = Desk(outside, fleet.store)
        answering = asyncio.create_task(desk.answer())
        try:
            yield fleet, outside, desk
        finally:
            answering.cancel()
            await asyncio.wait([answering])


async def until_settled(desk: Desk) -> None:
    async with asyncio.timeout(60):
        while await desk.left():
            await asyncio.sleep(0.05)


async def until_asked(fleet: Fleet, times: int) -> None:
    """Wait until tools run."""
    async with asyncio.timeout(60):
        while fleet.bank.asked.total() < times:
            await asyncio.sleep(0.01)


async def looked_at(fleet: Fleet, sent: dict[str, str]) -> Findings:
    store = open_store(fleet.store)
    try:
        return await examine(store, fleet.store, fleet.bank, sent)
    finally:
        await store.close()


async def ended(worker: Worker) -> int:
    return await asyncio.to_thread(worker.process.wait, 60)


async def test_stopped_loaded_worker_loses_and_repeats_nothing(tmp_path: Path) -> None:
    sent = dict(work_of(Storm(runs=40, harm=0, seconds=0, seed=0, takeovers=0)))
    async with quiet_fleet(tmp_path, busy=0.3) as (fleet, outside, desk):
        first = fleet.start("--grace", "300")
        fleet.start()
        await fleet.ready()
        await desk.hand_in(sent, 0)
        await until_asked(fleet, 8)
        first.process.send_signal(signal.SIGTERM)
        assert await ended(first) == 0
        assert first.said.rstrip().endswith("drained")
        await until_settled(desk)
        found = await looked_at(fleet, sent)
        calls = [c for run in await outside.runs.list(limit=200) for c in await outside.runs.calls(run.id)]
    # A handover, not a takeover: every started call ended in its process.
    assert (found.problems, found.takeovers, found.unknowns) == ([], 0, 0)
    assert {call.attempt for call in calls if call.name in ("pay", "stamp", "sign", "post", "book", "look")} == {1}
    assert fleet.bank.asked["check"] == 0


async def test_worker_paused_past_lease_writes_nothing(tmp_path: Path) -> None:
    sent = dict(work_of(Storm(runs=10, harm=0, seconds=0, seed=0, takeovers=0)))
    async with quiet_fleet(tmp_path, lease=2000, busy=0.5) as (fleet, outside, desk):
        first = fleet.start()
        await fleet.ready()
        await desk.hand_in(sent, 0)
        await until_asked(fleet, 3)
        first.process.send_signal(signal.SIGSTOP)
        fleet.start()
        await until_settled(desk)
        before = await everything(outside, sent)
        first.process.send_signal(signal.SIGCONT)
        # It continues, finds that it lost its runs, and stops on request.
        first.process.send_signal(signal.SIGTERM)
        await ended(first)
        assert await everything(outside, sent) == before
        found = await looked_at(fleet, sent)
    assert found.problems == []
    assert found.takeovers >= 3


async def everything(outside: Runtime, sent: dict[str, str]) -> Any:
    """The records of the runs and their threads."""
    runs = await outside.runs.list(limit=200)
    threads = [await outside.threads.get(thread) for thread in sent]
    return runs, threads, [await outside.runs.calls(run.id) for run in runs]


async def test_tenant_flood_at_most_doubles_wait_of_another(tmp_path: Path) -> None:
    workers, concurrency, many, few = 2, 2, 150, 10
    async with quiet_fleet(tmp_path, busy=0.02, concurrency=concurrency) as (fleet, outside, _):
        flood, small = outside.tenant("flood"), outside.tenant("small")
        for number in range(many):
            await flood.send(f"flood-{number}", f"about flood-{number}", agent="reader")
        for _ in range(workers):
            fleet.start()
        await fleet.ready()
        await until_claimed(fleet, "flood", 10)
        for worker in fleet.workers:  # The whole flood must be queued before the next claim.
            worker.process.send_signal(signal.SIGSTOP)
        had = len(await claimed(fleet))
        for number in range(few):
            await small.send(f"small-{number}", f"about small-{number}", agent="reader")
        for worker in fleet.workers:
            worker.process.send_signal(signal.SIGCONT)
        await until_claimed(fleet, "small", few)
        names = (await claimed(fleet))[had:]
    # Alone its runs would be claimed in sequence. With the flood, each waits for at most one other run, besides
    # the claims in progress.
    for place in [place for place, name in enumerate(names) if name == "small"]:
        ahead = names[:place]
        assert ahead.count("flood") <= ahead.count("small") + 1 + workers * concurrency, names
    assert had + names.count("flood") < many, "the flood was over before it could do harm"


async def claimed(fleet: Fleet) -> list[str]:
    """The tenants of claimed threads, in order."""
    return [one.thread.partition("-")[0] for one in await audit(fleet.store) if one.claim and not one.was]


async def until_claimed(fleet: Fleet, name: str, count: int) -> None:
    async with asyncio.timeout(60):
        while (await claimed(fleet)).count(name) < count:
            await asyncio.sleep(0.02)
