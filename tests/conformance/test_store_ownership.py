"""Owners of threads: claims, leases, and threads that wait for an owner."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace
from store_suite import (
    StoreFactory,
    Writer,
    die,
    due_threads,
    everything,
    identity,
    item,
    message,
    record,
    waiting,
)

from wakeful.errors import Conflict, StaleFence
from wakeful.stores import Commit, Store
from wakeful.types.ids import now_ms

HOUR = 3_600_000


# -- leases --------------------------------------------------------------------------------------------------


async def test_takeover_of_dead_worker_fences_it(open_store: StoreFactory) -> None:
    async with open_store() as store:
        dead, heir = Writer(store), Writer(store)
        first = await dead.claim("w1", runs=[record()], lease=0)
        heir.version = first.version
        assert not (await dead.view()).thread.claimed
        second = await heir.claim("w2", log=[message("mine")])
        assert second.epoch > first.epoch
        before = await everything(store)
        with pytest.raises(StaleFence, match=f"epoch {first.epoch}, now {second.epoch}"):
            await dead.write(message("late"))
        assert await everything(store) == before
        await heir.write(message("still mine"))


async def test_claim_of_live_worker_is_not_taken_over(open_store: StoreFactory) -> None:
    async with open_store() as store:
        owner, other = Writer(store), Writer(store)
        lease = store.keep("w1")
        other.version = (await owner.claim("w1", runs=[record()])).version
        with pytest.raises(Conflict):
            await other.claim("w2")
        assert (await owner.view()).thread.claimed
        await owner.write(message())
        await lease.close()


async def test_kept_lease_outlives_claim_lease(open_store: StoreFactory) -> None:
    async with open_store() as store:
        lease = store.keep("w1")
        owner = Writer(store)
        await owner.claim("w1", lease=0)
        lease.beat()
        async with asyncio.timeout(120):  # It may be renewed from another thread.
            while not (await owner.view()).thread.claimed:
                await asyncio.sleep(0.01)
        await lease.close()
        assert not (await owner.view()).thread.claimed


async def test_closed_lease_frees_all_claims(open_store: StoreFactory) -> None:
    async with open_store() as store:
        lease, live = store.keep("w1"), store.keep("w2")
        for thread_id, worker in (("t1", "w1"), ("t2", "w1"), ("t3", "w2")):
            await Writer(store, thread_id).claim(worker, runs=[record(f"r-{thread_id}", thread_id)])
        assert await due_threads(store) == []
        await lease.close()
        assert sorted(await due_threads(store)) == ["t1", "t2"]
        await live.close()


async def test_expired_worker_may_write_until_takeover(open_store: StoreFactory) -> None:
    async with open_store() as store:
        owner = Writer(store)
        await owner.claim("w1", runs=[record()])
        await die(store, "w1")
        await owner.write(message("nobody minds"))
        assert [m.text for m in await store.messages("t1")] == ["nobody minds"]


async def test_takeover_needs_claim(open_store: StoreFactory) -> None:
    async with open_store() as store:
        owner = Writer(store)
        version = (await owner.claim("w1", runs=[record()], lease=0)).version
        before = await everything(store)
        for changes in ({"log": [message()]}, {"runs": [record(status="done")]}, {"release": True}):
            with pytest.raises(Conflict):
                await store.commit(Commit(thread_id="t1", version=version, identity=identity(), **changes))
        assert await everything(store) == before


async def test_takeover_needs_version(open_store: StoreFactory) -> None:
    async with open_store() as store:
        owner = Writer(store)
        await owner.claim("w1", runs=[record()], lease=0)
        with pytest.raises(Conflict, match="version"):
            await Writer(store).claim("w2")


async def test_worker_may_reclaim_its_lost_thread(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        first = await writer.claim("w1", runs=[record()], lease=0)
        again = Writer(store)
        again.version = first.version
        second = await again.claim("w1")
        assert second.epoch > first.epoch
        with pytest.raises(StaleFence):
            await writer.write(message())


async def test_claims_of_worker_are_listed_across_tenants(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store, "t1").claim("w1", inbox=[item("a", "t1"), item("b", "t1")])
        await Writer(store.tenant("other"), "t2").claim("w1")
        await Writer(store, "t3").claim("w2")
        released = Writer(store, "t4")
        await released.claim("w1")
        await released.release()
        assert sorted(await store.claims("w1")) == [("default", "t1", 2), ("other", "t2", 0)]
        assert await store.claims("w9") == []


# -- dispatches ----------------------------------------------------------------------------------------------


async def test_nothing_is_due_in_empty_store(open_store: StoreFactory) -> None:
    async with open_store() as store:
        assert await store.due() == []


async def test_new_thread_is_due_for_agent_of_its_input(open_store: StoreFactory) -> None:
    async with open_store() as store:
        before = now_ms()
        await store.commit(Commit(thread_id="t1", inbox=[item("a", agent_id="helper")]))
        (due,) = await store.due()
        assert (due.tenant, due.thread_id, due.agent_id) == ("default", "t1", "helper")
        assert before - 1000 <= due.at <= now_ms() + 1000
        assert (await store.counts())["dispatches"] == 1


@pytest.mark.parametrize("kind", ["decision", "task"])
async def test_idle_thread_is_due_for_input_only(open_store: StoreFactory, kind: str) -> None:
    async with open_store() as store:
        await store.commit(Commit(thread_id="t1", inbox=[item("a", kind=kind)]))
        assert await due_threads(store) == []
        await store.commit(Commit(thread_id="t1", inbox=[item("b")]))
        assert await due_threads(store) == ["t1"]


async def test_claimed_thread_is_not_due(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(Commit(thread_id="t1", inbox=[item("a")]))
        writer = Writer(store)
        await writer.begin()
        await store.commit(Commit(thread_id="t1", inbox=[item("b", policy="steer")]))
        assert await due_threads(store) == []


async def test_thread_of_dead_owner_is_due_for_its_agent(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.claim("w1", runs=[record(agent_id="helper")])
        await writer.write(message())
        await die(store, "w1")
        (due,) = await store.due()
        assert (due.thread_id, due.agent_id) == ("t1", "helper")


async def test_claimed_unstarted_thread_is_due_when_owner_dies(
    open_store: StoreFactory,
) -> None:
    async with open_store() as store:
        await Writer(store).claim("w1", lease=0)
        assert await due_threads(store) == ["t1"]


async def test_nothing_is_due_after_clean_finish(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(inbox=[item("a")])
        await writer.release(runs=[record(status="done")], taken=["a"])
        assert await store.due() == []
        assert (await store.counts())["dispatches"] == 0


async def test_finished_run_leaves_queued_input_due(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        await store.commit(Commit(thread_id="t1", inbox=[item("a")]))
        await writer.release(runs=[record(status="done")])
        (due,) = await store.due()
        assert (due.thread_id, due.agent_id) == ("t1", "agent")


async def test_released_open_run_is_due_at_once(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        await writer.release(runs=[record(agent_id="specialist")])
        (due,) = await store.due()
        assert (due.agent_id, due.at <= now_ms() + 1000) == ("specialist", True)


async def test_release_without_run_record_keeps_dispatch(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        await writer.release()
        assert await due_threads(store) == ["t1"]


async def test_claim_makes_waiting_run_due_until_rewritten(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer, parked = Writer(store), record(status="waiting", waiting=waiting("decision"))
        await writer.begin()
        await writer.release(runs=[parked])
        assert await due_threads(store) == []
        await writer.claim()
        await writer.release(log=[message()])
        assert await due_threads(store) == ["t1"]
        await writer.claim()
        await writer.release(runs=[parked])
        assert await due_threads(store) == []


@pytest.mark.parametrize(
    ("wakes", "arrives", "due"),
    [
        (("decision",), {"kind": "decision"}, True),
        (("decision",), {"kind": "task"}, False),
        (("decision",), {"policy": "steer"}, False),
        (("decision",), {"policy": "queue"}, False),
        (("input", "task"), {"policy": "steer"}, True),
        (("input", "task"), {"policy": "queue"}, False),
        (("input", "task"), {"kind": "task"}, True),
        ((), {"policy": "steer"}, False),
    ],
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_waiting_run_is_due_for_waking_items(
    open_store: StoreFactory, wakes: tuple[str, ...], arrives: dict[str, object], due: bool, when: str
) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        arrival = Commit(thread_id="t1", inbox=[item("a", **arrives)])
        if when == "before":
            await store.commit(arrival)
        await writer.release(runs=[record(status="waiting", waiting=waiting(*wakes))])
        if when == "after":
            assert await due_threads(store) == []
            await store.commit(arrival)
        assert await due_threads(store) == (["t1"] if due else [])


async def test_sleeping_run_is_due_at_its_time(open_store: StoreFactory) -> None:
    async with open_store() as store:
        until, writer = now_ms() + HOUR, Writer(store)
        await writer.begin()
        await writer.release(runs=[record(status="waiting", waiting=waiting("input", until=until))])
        (due,) = await store.due()
        assert (due.thread_id, due.at) == ("t1", until)
        await store.commit(Commit(thread_id="t1", inbox=[item("a", policy="steer")]))
        (due,) = await store.due()
        assert due.at < until


async def test_non_waking_item_keeps_due_time(open_store: StoreFactory) -> None:
    async with open_store() as store:
        until, writer = now_ms() + HOUR, Writer(store)
        await writer.begin()
        await writer.release(runs=[record(status="waiting", waiting=waiting("decision", until=until))])
        await store.commit(Commit(thread_id="t1", inbox=[item("a")]))
        assert [due.at for due in await store.due()] == [until]


async def test_run_written_without_claim_is_due(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.write(runs=[record(status="created")])
        assert await due_threads(store) == ["t1"]
        await writer.write(runs=[record(status="done")])
        assert await due_threads(store) == []


async def test_repeated_item_makes_nothing_due(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await store.commit(Commit(thread_id="t1", inbox=[item("a")]))
        await writer.begin()
        await writer.release(runs=[record(status="done")], taken=["a"])
        await store.commit(Commit(thread_id="t1", inbox=[item("a")]))
        assert await due_threads(store) == []


async def test_due_threads_come_in_order_and_pages(open_store: StoreFactory) -> None:
    async with open_store() as store:
        now = now_ms()
        for thread_id, hours in (("late", 3), ("early", 1), ("middle", 2)):
            await _park(store, thread_id, now + hours * HOUR)
        assert await due_threads(store) == ["early", "middle", "late"]
        assert [due.thread_id for due in await store.due(limit=2)] == ["early", "middle"]


async def _park(store: Store, thread_id: str, until: int) -> None:
    writer, run = Writer(store, thread_id), record(f"r-{thread_id}", thread_id)
    await writer.claim(runs=[run])
    await writer.release(runs=[replace(run, status="waiting", waiting=waiting(until=until))])
