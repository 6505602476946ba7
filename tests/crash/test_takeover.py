"""Takeover of a dead or stalled process's run, at once on SQLite, with a single writer."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

import pytest

from wakeful import Runtime
from wakeful.errors import Conflict
from wakeful.events import AnyEvent, MessageAdded, RunFinish, RunStart
from wakeful.stores import Commit

from . import shop
from .lab import DEADLINE, CrashLab, until
from .shop import Bank


def test_serving_process_takes_over_runs_of_dead_one(lab: CrashLab) -> None:
    lab.hold("slow")
    first = lab.start(shop.once)
    lab.reached("slow")
    until(lambda: lab.calls()["charge"].state == "finished")
    second = lab.start(shop.serve)
    until((lab.folder / "serving").exists)
    begin = time.monotonic()
    lab.kill(first)
    lab.reached("slow")  # The second process runs it.
    assert time.monotonic() - begin < 25, "it waited for the lease, which is 30 s"
    lab.let_go("slow")
    until(lambda: lab.calls()["slow"].state == "finished")
    (lab.folder / "stop").touch()
    lab.finish(second)
    assert Bank(lab.folder).charges == [key_of(lab)]
    assert lab.asked == 2
    assert lab.problems() == []


def key_of(lab: CrashLab) -> str:
    call = lab.calls()["charge"]
    return f"{call.run_id}:{call.id}"


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_stalled_process_is_fenced(lab: CrashLab) -> None:
    """On SQLite a stopped process keeps its lock and its runs."""
    lab.hold("charge-after")
    first = lab.start(shop.once_on_a_short_lease)
    lab.reached("charge-after")
    until(lambda: lab.calls()["slow"].state == "finished")
    first.send(signal.SIGSTOP)
    second = lab.start(shop.serve_on_a_short_lease)
    until(lambda: lab.calls()["charge"].state == "finished")
    until(lambda: everything(lab)["status"] == "done")
    (lab.folder / "stop").touch()
    lab.finish(second)
    before = everything(lab)
    lab.let_go("charge-after")
    first.send(signal.SIGCONT)
    lab.finish(first)
    assert everything(lab) == before
    assert lab.calls()["charge"].outcome == "unknown"
    assert len(Bank(lab.folder).charges) == 1
    assert lab.asked == 2
    assert lab.problems() == []


def everything(lab: CrashLab) -> dict[str, Any]:
    """The thread's records in the store."""

    async def read() -> dict[str, Any]:
        async with lab.store() as store:
            (run,) = await store.runs()
            events = [(event.seq, event.type) for event in await store.events("t")]
            calls = list(await store.calls(run.id))
            thread = await store.thread("t")
            assert thread is not None
            return {
                "run": run,
                "status": run.status,
                "events": events,
                "calls": calls,
                "version": thread.version,
            }

    return asyncio.run(read())


async def test_reader_follows_run_over_takeover(lab: CrashLab) -> None:
    lab.hold("slow")
    first = lab.start(shop.once)
    reader = Runtime(shop.agents(lab.site, "once"), store=lab.site.store, execute=False)
    seen: list[AnyEvent] = []

    async def follow() -> None:
        async for event in reader.events("t"):
            seen.append(event)
            if isinstance(event, RunFinish) and event.status == "done":
                return

    reading = asyncio.create_task(follow())
    try:
        await asyncio.to_thread(lab.reached, "slow")
        async with asyncio.timeout(DEADLINE):
            while not any(event.type == "tool_call_done" for event in seen):
                await asyncio.sleep(0.01)
        await asyncio.to_thread(lab.kill, first)
        lab.let_go("slow")
        await asyncio.to_thread(lab.finish, lab.start(shop.once))
        async with asyncio.timeout(DEADLINE):
            await reading
        durable = [event for event in seen if event.durable]
        log = [event async for event in reader.events("t", follow=False)]
        messages = await reader.threads.messages("t")
    finally:
        reading.cancel()
        await reader.close()
    assert [event.seq for event in durable] == list(range(1, len(durable) + 1))
    assert durable == log
    assert [event.message for event in durable if isinstance(event, MessageAdded)] == messages
    assert [event.trigger for event in durable if isinstance(event, RunStart)] == ["new", "recover"]
    assert await asyncio.to_thread(lab.problems) == []


async def test_dead_owner_is_detected_after_refused_commit(lab: CrashLab) -> None:
    """The first process to see the dead owner may fail; the next one must still see it at once."""
    lab.hold("slow")
    first = lab.start(shop.once)
    await asyncio.to_thread(lab.reached, "slow")
    await asyncio.to_thread(lab.kill, first)
    async with lab.store() as store:
        for _ in range(2):
            with pytest.raises(Conflict, match="version"):
                await store.commit(Commit("t", claim="me", version=1000))
        found = await store.load("t")
        assert found is not None
        assert not found.thread.claimed
        done = await store.commit(Commit("t", claim="me", version=found.thread.version))
    assert done.epoch == 2
