"""Who owns a thread, for how long, and which threads wait for an owner."""

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


async def test_the_claim_of_a_dead_worker_is_taken_over_and_its_fence_is_stale(open_store: StoreFactory) -> None:
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


async def test_the_claim_of_a_live_worker_is_not_taken_over(open_store: StoreFactory) -> None:
    async with open_store() as store:
        owner, other = Writer(store), Writer(store)
        lease = store.keep("w1")
        other.version = (await owner.claim("w1", runs=[record()])).version
        with pytest.raises(Conflict):
            await other.claim("w2")
        assert (await owner.view()).thread.claimed
        await owner.write(message())
        await lease.close()


async def test_a_lease_that_is_kept_outlives_the_one_that_the_claim_began(open_store: StoreFactory) -> None:
    async with open_store() as store:
        lease = store.keep("w1")
        owner = Writer(store)
        await owner.claim("w1", lease=0)
        lease.beat()
        async with asyncio.timeout(20):  # It may be renewed from another thread.
            while not (await owner.view()).thread.claimed:
                await asyncio.sleep(0.01)
        await lease.close()
        assert not (await owner.view()).thread.claimed


async def test_closing_the_lease_frees_all_that_the_worker_claimed(open_store: StoreFactory) -> None:
    async with open_store() as store:
        lease, live = store.keep("w1"), store.keep("w2")
        for thread_id, worker in (("t1", "w1"), ("t2", "w1"), ("t3", "w2")):
            await Writer(store, thread_id).claim(worker, runs=[record(f"r-{thread_id}", thread_id)])
        assert await due_threads(store) == []
        await lease.close()
        assert sorted(await due_threads(store)) == ["t1", "t2"]
        await live.close()


async def test_a_worker_that_lost_its_lease_may_write_until_somebody_takes_over(open_store: StoreFactory) -> None:
    async with open_store() as store:
        owner = Writer(store)
        await owner.claim("w1", runs=[record()])
        await die(store, "w1")
        await owner.write(message("nobody minds"))
        assert [m.text for m in await store.messages("t1")] == ["nobody minds"]


async def test_a_dead_claim_is_taken_over_by_a_claim_and_by_no_other_write(open_store: StoreFactory) -> None:
    async with open_store() as store:
        owner = Writer(store)
        version = (await owner.claim("w1", runs=[record()], lease=0)).version
        before = await everything(store)
        for changes in ({"log": [message()]}, {"runs": [record(status="done")]}, {"release": True}):
            with pytest.raises(Conflict):
                await store.commit(Commit(thread_id="t1", version=version, identity=identity(), **changes))
        assert await everything(store) == before


async def test_taking_over_needs_the_version_too(open_store: StoreFactory) -> None:
    async with open_store() as store:
        owner = Writer(store)
        await owner.claim("w1", runs=[record()], lease=0)
        with pytest.raises(Conflict, match="version"):
            await Writer(store).claim("w2")


async def test_the_same_worker_may_claim_again_what_it_lost(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        first = await writer.claim("w1", runs=[record()], lease=0)
        again = Writer(store)
        again.version = first.version
        second = await again.claim("w1")
        assert second.epoch > first.epoch
        with pytest.raises(StaleFence):
            await writer.write(message())


async def test_a_worker_s_claims_are_listed_over_all_tenants(open_store: StoreFactory) -> None:
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


async def test_nothing_is_due_in_an_empty_store(open_store: StoreFactory) -> None:
    async with open_store() as store:
        assert await store.due() == []


async def test_a_new_thread_with_input_is_due_for_the_agent_that_it_is_for(open_store: StoreFactory) -> None:
    async with open_store() as store:
        before = now_ms()
        await store.commit(Commit(thread_id="t1", inbox=[item("a", agent_id="helper")]))
        (due,) = await store.due()
        assert (due.tenant, due.thread_id, due.agent_id) == ("default", "t1", "helper")
        assert before - 1000 <= due.at <= now_ms() + 1000
        assert (await store.counts())["dispatches"] == 1


@pytest.mark.parametrize("kind", ["decision", "task"])
async def test_an_idle_thread_is_woken_by_input_only(open_store: StoreFactory, kind: str) -> None:
    async with open_store() as store:
        await store.commit(Commit(thread_id="t1", inbox=[item("a", kind=kind, message=None)]))
        assert await due_threads(store) == []
        await store.commit(Commit(thread_id="t1", inbox=[item("b")]))
        assert await due_threads(store) == ["t1"]


async def test_a_claimed_thread_is_not_due_whatever_arrives(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(Commit(thread_id="t1", inbox=[item("a")]))
        writer = Writer(store)
        await writer.begin()
        await store.commit(Commit(thread_id="t1", inbox=[item("b", policy="steer")]))
        assert await due_threads(store) == []


async def test_a_thread_whose_owner_died_is_due_for_its_agent(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.claim("w1", runs=[record(agent_id="helper")])
        await writer.write(message())
        await die(store, "w1")
        (due,) = await store.due()
        assert (due.thread_id, due.agent_id) == ("t1", "helper")


async def test_a_thread_that_was_claimed_and_not_begun_is_due_if_its_owner_dies(
    open_store: StoreFactory,
) -> None:
    async with open_store() as store:
        await Writer(store).claim("w1", lease=0)
        assert await due_threads(store) == ["t1"]


async def test_nothing_is_due_after_a_clean_finish(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(inbox=[item("a")])
        await writer.release(runs=[record(status="done")], taken=["a"])
        assert await store.due() == []
        assert (await store.counts())["dispatches"] == 0


async def test_a_finished_run_leaves_queued_input_due(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        await store.commit(Commit(thread_id="t1", inbox=[item("a")]))
        await writer.release(runs=[record(status="done")])
        (due,) = await store.due()
        assert (due.thread_id, due.agent_id) == ("t1", "agent")


async def test_a_run_that_is_released_in_the_middle_is_due_at_once(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        await writer.release(runs=[record(agent_id="specialist")])
        (due,) = await store.due()
        assert (due.agent_id, due.at <= now_ms() + 1000) == ("specialist", True)


async def test_a_release_without_the_run_s_record_leaves_due_what_was(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        await writer.release()
        assert await due_threads(store) == ["t1"]


async def test_a_claim_makes_a_waiting_run_due_until_its_record_says_otherwise(open_store: StoreFactory) -> None:
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
        (("decision",), {"kind": "decision", "message": None}, True),
        (("decision",), {"kind": "task", "message": None}, False),
        (("decision",), {"policy": "steer"}, False),
        (("decision",), {"policy": "queue"}, False),
        (("input", "task"), {"policy": "steer"}, True),
        (("input", "task"), {"policy": "queue"}, False),
        (("input", "task"), {"kind": "task", "message": None}, True),
        ((), {"policy": "steer"}, False),
    ],
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_waiting_run_is_due_for_what_wakes_it(
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


async def test_a_run_that_waits_for_a_time_is_due_then(open_store: StoreFactory) -> None:
    async with open_store() as store:
        until, writer = now_ms() + HOUR, Writer(store)
        await writer.begin()
        await writer.release(runs=[record(status="waiting", waiting=waiting("input", until=until))])
        (due,) = await store.due()
        assert (due.thread_id, due.at) == ("t1", until)
        await store.commit(Commit(thread_id="t1", inbox=[item("a", policy="steer")]))
        (due,) = await store.due()
        assert due.at < until


async def test_what_does_not_wake_a_run_leaves_its_time_as_it_is(open_store: StoreFactory) -> None:
    async with open_store() as store:
        until, writer = now_ms() + HOUR, Writer(store)
        await writer.begin()
        await writer.release(runs=[record(status="waiting", waiting=waiting("decision", until=until))])
        await store.commit(Commit(thread_id="t1", inbox=[item("a")]))
        assert [due.at for due in await store.due()] == [until]


async def test_a_run_that_is_written_without_a_claim_is_due(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.write(runs=[record(status="created")])
        assert await due_threads(store) == ["t1"]
        await writer.write(runs=[record(status="done")])
        assert await due_threads(store) == []


async def test_an_item_that_was_there_before_makes_nothing_due(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await store.commit(Commit(thread_id="t1", inbox=[item("a")]))
        await writer.begin()
        await writer.release(runs=[record(status="done")], taken=["a"])
        await store.commit(Commit(thread_id="t1", inbox=[item("a")]))
        assert await due_threads(store) == []


async def test_the_first_due_comes_first_and_pages_are_cut(open_store: StoreFactory) -> None:
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
