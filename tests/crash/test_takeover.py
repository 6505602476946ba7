"""One process dies or stalls and another goes on by itself: at once on SQLite; only one of them ever writes."""

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
from .places import DEADLINE, Place, until
from .shop import Bank


def test_a_process_that_serves_takes_over_what_a_dead_one_left(place: Place) -> None:
    place.hold("slow")
    first = place.start(shop.once)
    place.reached("slow")
    until(lambda: place.calls()["charge"].state == "finished")
    second = place.start(shop.serve)
    until((place.folder / "serving").exists)
    begin = time.monotonic()
    place.kill(first)
    place.reached("slow")  # The second process runs it.
    assert time.monotonic() - begin < 25, "it waited for the lease, which is 30 s"
    place.let_go("slow")
    until(lambda: place.calls()["slow"].state == "finished")
    (place.folder / "stop").touch()
    place.finish(second)
    assert Bank(place.folder).charges == [key_of(place)]
    assert place.asked == 2
    assert place.problems() == []


def key_of(place: Place) -> str:
    call = place.calls()["charge"]
    return f"{call.run_id}:{call.id}"


def test_a_process_that_stalls_loses_its_run_and_writes_nothing_more(place: Place) -> None:
    place.hold("charge-after")
    first = place.start(shop.once_on_a_short_lease)
    place.reached("charge-after")
    until(lambda: place.calls()["slow"].state == "finished")
    first.send(signal.SIGSTOP)
    second = place.start(shop.serve_on_a_short_lease)
    until(lambda: place.calls()["charge"].state == "finished")
    until(lambda: everything(place)["status"] == "done")
    (place.folder / "stop").touch()
    place.finish(second)
    before = everything(place)
    place.let_go("charge-after")
    first.send(signal.SIGCONT)
    place.finish(first)
    assert everything(place) == before
    assert place.calls()["charge"].outcome == "unknown"
    assert len(Bank(place.folder).charges) == 1
    assert place.asked == 2
    assert place.problems() == []


def everything(place: Place) -> dict[str, Any]:
    """What the store says of the thread."""

    async def read() -> dict[str, Any]:
        async with place.store() as store:
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


async def test_a_reader_follows_a_run_over_the_death_of_its_process(place: Place) -> None:
    place.hold("slow")
    first = place.start(shop.once)
    reader = Runtime(shop.agents(place.site, "once"), store=place.site.store, execute=False)
    seen: list[AnyEvent] = []

    async def follow() -> None:
        async for event in reader.events("t"):
            seen.append(event)
            if isinstance(event, RunFinish) and event.status == "done":
                return

    reading = asyncio.create_task(follow())
    try:
        await asyncio.to_thread(place.reached, "slow")
        async with asyncio.timeout(DEADLINE):
            while not any(event.type == "tool_call_done" for event in seen):
                await asyncio.sleep(0.01)
        await asyncio.to_thread(place.kill, first)
        place.let_go("slow")
        await asyncio.to_thread(place.finish, place.start(shop.once))
        async with asyncio.timeout(DEADLINE):
            await reading
        durable = [event for event in seen if event.durable]
        log = [event async for event in reader.events("t", follow=False)]
        messages = await reader.messages("t")
    finally:
        reading.cancel()
        await reader.close()
    assert [event.seq for event in durable] == list(range(1, len(durable) + 1))
    assert durable == log
    assert [event.message for event in durable if isinstance(event, MessageAdded)] == messages
    assert [event.trigger for event in durable if isinstance(event, RunStart)] == ["new", "recover"]
    assert await asyncio.to_thread(place.problems) == []


async def test_a_dead_owner_is_seen_by_everybody_also_after_a_commit_that_was_refused(place: Place) -> None:
    """Whoever sees it first may come to nothing itself: then the next one must still see it at once."""
    place.hold("slow")
    first = place.start(shop.once)
    await asyncio.to_thread(place.reached, "slow")
    await asyncio.to_thread(place.kill, first)
    async with place.store() as store:
        for _ in range(2):
            with pytest.raises(Conflict, match="version"):
                await store.commit(Commit("t", claim="me", version=1000))
        found = await store.load("t")
        assert found is not None
        assert not found.thread.claimed
        done = await store.commit(Commit("t", claim="me", version=found.thread.version))
    assert done.epoch == 2
