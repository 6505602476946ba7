"""Claims: the order and the number of claimed dispatches, and the fate of failed ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from store_suite import StoreFactory, Writer, die, identity, item, message, record, waiting

from wakeful.errors import StaleFence
from wakeful.stores import MAX_ATTEMPTS, Claimed, Claims, Commit, Fence, Store
from wakeful.stores.dispatches import backoff
from wakeful.types import Request
from wakeful.types.ids import now_ms

HOUR = 3_600_000


async def enqueue(store: Store, *threads: str, agent: str = "agent", **fields: Any) -> None:
    """Give each thread an input that waits for a worker."""
    for thread_id in threads:
        arrived = item(f"i-{thread_id}", thread_id, agent_id=agent, **fields)
        await store.commit(Commit(thread_id, inbox=[arrived]))


async def claim(store: Store, worker: str = "w1", limit: int = 100, **options: Any) -> Claims:
    return await store.claim(worker, agents=options.pop("agents", ["agent"]), limit=limit, **options)


async def claimed(store: Store, worker: str = "w1", limit: int = 100, **options: Any) -> list[str]:
    """The threads that the worker gets, in order."""
    return [one.thread_id for one in (await claim(store, worker, limit, **options)).claimed]


def fence(one: Claimed, worker: str = "w1") -> Fence:
    return Fence(one.epoch, worker)


async def release(store: Store, one: Claimed, worker: str = "w1", **changes: Any) -> None:
    commit = Commit(one.thread_id, identity(thread_id=one.thread_id), fence(one, worker), release=True, **changes)
    await store.tenant(one.tenant).commit(commit)


# -- who gets what -------------------------------------------------------------------------------------------


async def test_claim_is_owned_under_its_fence(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await enqueue(store, "t1")
        (one,) = (await claim(store)).claimed
        assert (one.tenant, one.thread_id, one.agent_id, one.taken_over) == ("default", "t1", "agent", False)
        view = await store.load("t1")
        assert view is not None
        assert (view.thread.claimed, view.thread.epoch) == (True, one.epoch)
        assert [i.id for i in view.inbox] == ["i-t1"]
        run = record(thread_id="t1")
        await store.commit(Commit("t1", identity(), fence(one), [message()], [run], taken=["i-t1"]))
        with pytest.raises(StaleFence):
            await store.commit(Commit("t1", identity(), Fence(one.epoch - 1, "w1"), [message()]))


async def test_thread_is_claimed_once(open_store: StoreFactory) -> None:
    async with open_store() as store:
        threads = [f"t{n:02}" for n in range(20)]
        await enqueue(store, *threads)
        shares = await asyncio.gather(*[claimed(store, f"w{n}", 6) for n in range(5)])
        got = [thread for share in shares for thread in share]
        while more := await claimed(store, "w9", 6):  # What some missed because others had it locked.
            got += more
        assert sorted(got) == threads


async def test_claim_takes_known_agents_only(
    open_store: StoreFactory,
) -> None:
    async with open_store() as store:
        await enqueue(store, "a1", agent="known")
        await enqueue(store, "b1", agent="strange")
        assert await claimed(store, agents=["known"]) == ["a1"]
        assert await claimed(store, agents=["known"]) == []
        seen = {one.thread_id: one for one in await store.dispatches()}
        assert (seen["a1"].claimed_by, seen["b1"].claimed_by) == ("w1", None)
        assert seen["b1"].agent_id == "strange"
        assert await claimed(store, "w2", agents=["strange"]) == ["b1"]


async def test_delivered_item_is_due_for_named_agent(
    open_store: StoreFactory,
) -> None:
    async with open_store() as store:
        await enqueue(store, "t1", priority=7)
        (one,) = (await claim(store)).claimed
        told = [item("i-t2", "t2", agent_id="other", priority=9), item("i-t3", "t3", agent_id="other")]
        run = record(thread_id="t1", priority=7)
        await store.commit(Commit("t1", identity(), fence(one), [message()], [run], inbox=told))
        seen = {due.thread_id: due for due in await store.dispatches()}
        assert (seen["t2"].agent_id, seen["t2"].priority) == ("other", 9)
        assert await claimed(store) == []
        assert await claimed(store, agents=["other"], per_agent={"other": 1}) == ["t2"]


async def test_claims_follow_priority_then_age(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await enqueue(store, "slow", priority=200)
        await enqueue(store, "first")
        await enqueue(store, "urgent", priority=0)
        await enqueue(store, "second")
        assert await claimed(store, limit=1) == ["urgent"]
        assert await claimed(store, limit=1) == ["first"]
        assert await claimed(store) == ["second", "slow"]


async def test_run_keeps_priority_across_wait(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer, run = Writer(store, "t1"), record(thread_id="t1", priority=7)
        await writer.claim(runs=[run])
        await writer.release(runs=[record(thread_id="t1", priority=7, status="waiting", waiting=waiting("task"))])
        await store.commit(Commit("t1", inbox=[item("done", "t1", kind="task")]))
        (seen,) = await store.dispatches()
        assert (seen.priority, seen.run_id) == (7, "r1")


async def test_delayed_dispatch_is_claimed_when_due(open_store: StoreFactory) -> None:
    async with open_store() as store:
        at = now_ms() + HOUR
        await enqueue(store, "later", at=at)
        found = await claim(store)
        assert found.claimed == ()
        assert found.wait is not None
        assert HOUR - 60_000 < found.wait <= HOUR
        assert await claimed(store, now=at) == ["later"]


async def test_delayed_item_does_not_delay_others(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(Commit("t1", inbox=[item("a", at=now_ms() + HOUR), item("b")]))
        assert (await store.dispatches())[0].due_at <= now_ms()
        (one,) = (await claim(store)).claimed
        await release(store, one, taken=["b"])
        assert await claimed(store) == []
        assert (await store.dispatches())[0].due_at > now_ms()


async def test_claim_reports_when_another_lease_ends(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store).claim("w2", runs=[record()], lease=20_000)
        wait = (await claim(store)).wait
        assert wait is not None
        assert 0 < wait <= 20_000


# -- fairness ------------------------------------------------------------------------------------------------


async def test_tenants_take_turns(open_store: StoreFactory) -> None:
    async with open_store() as store:
        flood, small = store.tenant("flood"), store.tenant("small")
        await enqueue(flood, *[f"f{n:03}" for n in range(60)])
        served: list[str] = []
        for _ in range(10):
            served += [one.tenant for one in (await claim(store, limit=1)).claimed]
        await enqueue(small, *[f"s{n}" for n in range(5)])
        for _ in range(12):
            served += [one.tenant for one in (await claim(store, limit=1)).claimed]
        places = [place for place, tenant in enumerate(served[10:], 1) if tenant == "small"]
        # Alone the small one would be served by the first five claims: no wait is more than doubled.
        assert len(places) == 5
        assert all(place <= 2 * (n + 1) for n, place in enumerate(places))


async def test_claim_batch_is_shared_between_tenants(open_store: StoreFactory) -> None:
    async with open_store() as store:
        for name, count in (("a", 30), ("b", 3), ("c", 1)):
            await enqueue(store.tenant(name), *[f"{name}{n:02}" for n in range(count)])
        got = [one.tenant for one in (await claim(store, limit=10)).claimed]
        assert sorted(got[:3]) == ["a", "b", "c"]
        assert {name: got.count(name) for name in "abc"} == {"a": 6, "b": 3, "c": 1}


# -- limits --------------------------------------------------------------------------------------------------


async def test_tenant_limit_holds_across_workers(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await enqueue(store.tenant("a"), *[f"a{n}" for n in range(5)])
        await enqueue(store.tenant("b"), "b0")
        first = await claim(store, "w1", per_tenant=2)
        assert sorted(one.thread_id for one in first.claimed) == ["a0", "a1", "b0"]
        assert await claimed(store, "w2", per_tenant=2) == []
        await release(store, next(one for one in first.claimed if one.tenant == "a"), taken=["i-a0"])
        assert await claimed(store, "w2", per_tenant=2) == ["a2"]
        await die(store, "w1")
        assert sorted(await claimed(store, "w3", per_tenant=2)) == ["a1", "b0"]


async def test_agent_limit_holds(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await enqueue(store, "t0", "t1", "t2", agent="scarce")
        await enqueue(store, "u0", "u1", agent="other")
        limits = {"agents": ["scarce", "other"], "per_agent": {"scarce": 1}}
        assert sorted(await claimed(store, "w1", **limits)) == ["t0", "u0", "u1"]
        assert await claimed(store, "w2", **limits) == []


async def test_limits_hold_for_concurrent_claims(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await enqueue(store, *[f"t{n}" for n in range(12)])
        shares = await asyncio.gather(*[claimed(store, f"w{n}", 4, per_tenant=5) for n in range(6)])
        assert sum(map(len, shares)) == 5


async def test_queue_of_tenant_is_counted(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await enqueue(store, "t1", "t2", "t3")
        await enqueue(store.tenant("other"), "u1")
        await enqueue(store, "later", at=now_ms() + HOUR)
        assert (await store.queued(100), await store.queued(2), await store.tenant("other").queued(9)) == (3, 2, 1)
        await claim(store, limit=3)
        assert await store.queued(100) + await store.tenant("other").queued(9) == 1


# -- giving back ---------------------------------------------------------------------------------------------


async def test_released_claim_is_due_again(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await enqueue(store, "t1")
        (one,) = (await claim(store)).claimed
        await release(store, one)
        assert await claimed(store, "w2") == ["t1"]


async def test_released_run_is_due_at_once(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        await writer.release()
        (one,) = (await claim(store, "w2")).claimed
        assert (one.thread_id, one.attempts, one.taken_over) == ("t1", 0, False)


async def test_unrunnable_dispatch_is_postponed(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await enqueue(store, "t1")
        (one,) = (await claim(store)).claimed
        at = now_ms() + HOUR
        await release(store, one, later=at)
        (seen,) = await store.dispatches()
        assert (seen.due_at, seen.attempts) == (at, 0)
        assert await claimed(store) == []
        assert await claimed(store, now=at) == ["t1"]


async def test_failed_attempt_is_retried_with_backoff(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await enqueue(store, "t1")
        for number in range(MAX_ATTEMPTS):
            (one,) = (await claim(store, now=now_ms() + HOUR)).claimed
            assert one.attempts == number
            before = now_ms()
            await release(store, one, failed=f"trouble {number}")
            after = now_ms()
            (seen,) = await store.dispatches()
            assert (seen.attempts, seen.error) == (number + 1, f"trouble {number}")
            # The clock of a server is known to this process within the time of a reply.
            assert before - 1000 <= seen.due_at - backoff(number + 1) <= after
        assert seen.dead_at is not None
        assert await claimed(store, now=now_ms() + HOUR) == []


async def test_dead_letter_is_listed_and_revived(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await enqueue(store, "good", agent="other")
        dead = await kill_five_times(store)
        assert [one.thread_id for one in await store.dispatches(dead=True)] == ["t1"]
        assert [one.thread_id for one in await store.dispatches(dead=False)] == ["good"]
        assert dead.error.startswith(f"the process that ran it ended {MAX_ATTEMPTS} times")
        view = await store.load("t1")
        assert view is not None
        assert (view.thread.dead, view.thread.claimed, view.run is not None) == (True, False, True)
        assert [due.thread_id for due in await store.due()] == ["good"]
        assert await store.revive("t1", request=Request("q1", "abc"))
        assert not await store.revive("t1", request=Request("q2"))
        assert not await store.revive("nobody")
        found = await store.item("q1")
        assert found is not None
        assert (found.taken_by, found.digest, await store.item("q2")) == ("r1", "abc", None)
        assert sorted(await claimed(store, "w9", agents=["agent", "other"])) == ["good", "t1"]


async def kill_five_times(store: Store) -> Any:
    """A run whose workers die, each in the step that it was claimed in; its dispatch in the end."""
    writer = Writer(store)
    await writer.claim("w0", runs=[record(steps=1)])
    for number in range(1, MAX_ATTEMPTS):
        await die(store, f"w{number - 1}")
        (one,) = (await claim(store, f"w{number}")).claimed
        assert (one.taken_over, one.attempts) == (True, number)
    await die(store, f"w{MAX_ATTEMPTS - 1}")
    assert "t1" not in await claimed(store, "last", limit=0)
    (dead,) = await store.dispatches(dead=True)
    assert (await store.dispatches(dead=False))[0].thread_id == "good"
    return dead


async def test_neighbours_of_crashing_run_are_not_dead_letters(
    open_store: StoreFactory,
) -> None:
    async with open_store() as store:
        await enqueue(store, "a", "poison", "b", "c")
        left = {"a", "b", "c"}
        for number in range(20):
            worker = f"w{number}"
            taken = (await claim(store, worker)).claimed
            if any(one.thread_id == "poison" for one in taken):
                await die(store, worker)
                continue
            for one in taken:
                assert one.attempts <= 2
                await release(store, one, worker, taken=[f"i-{one.thread_id}"])
                left.discard(one.thread_id)
        assert left == set()
        (dead,) = await store.dispatches(dead=True)
        assert (dead.thread_id, dead.attempts) == ("poison", MAX_ATTEMPTS)


async def test_worker_claims_one_suspect_until_it_progresses(open_store: StoreFactory) -> None:
    async with open_store() as store:
        for thread in ("t1", "t2"):
            await Writer(store, thread).claim("w0", runs=[record(f"r-{thread}", thread, steps=1)])
        await die(store, "w0")
        assert await claimed(store, "w1") == ["t1", "t2"]
        await die(store, "w1")
        await enqueue(store, "other")
        (one, beside) = (await claim(store, "w2")).claimed
        assert (one.thread_id, beside.thread_id) == ("t1", "other")
        assert await claimed(store, "w2") == []
        run = record("r-t1", "t1", steps=3)
        await store.commit(Commit("t1", run.identity, fence(one, "w2"), runs=[run]))
        assert await claimed(store, "w2") == ["t2"]


async def test_failed_runs_are_no_suspects(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await enqueue(store, "t1", "t2")
        for _ in range(2):
            for one in (await claim(store, now=now_ms() + HOUR)).claimed:
                await release(store, one, failed="the store was away")
        assert await claimed(store, now=now_ms() + HOUR) == ["t1", "t2"]


async def test_progress_resets_attempts(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.claim("w0", runs=[record(steps=1)])
        for number in range(1, 2 * MAX_ATTEMPTS):
            await die(store, f"w{number - 1}")
            (one,) = (await claim(store, f"w{number}")).claimed
            assert one.attempts == 1
            run = record(steps=1 + 2 * number)
            await store.commit(Commit("t1", identity(), fence(one, f"w{number}"), runs=[run]))


async def test_dead_letter_is_cancelled_by_cancel_item(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await enqueue(store, "good", agent="other")
        await kill_five_times(store)
        await store.commit(Commit("t1", inbox=[item("stop", kind="cancel", run_id="r1")]))
        assert sorted(await claimed(store, "w9", agents=["agent", "other"])) == ["good", "t1"]


async def test_dead_owner_is_fenced_after_takeover(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.claim("w1", runs=[record()])
        await die(store, "w1")
        assert await claimed(store, "w2") == ["t1"]
        with pytest.raises(StaleFence):
            await writer.write(message("late"))


async def test_owner_renewing_in_time_keeps_thread(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.claim("w1", runs=[record()])
        await die(store, "w1")
        assert await claimed(store, "w2", limit=0) == []
        back = store.keep("w1")
        other = Writer(store, "t2")
        await other.claim("w1", runs=[record("r2", "t2")])  # Its lease is there once this is.
        assert await claimed(store, "w2") == []
        await writer.write(message("still mine"))
        await back.close()


async def test_reason_of_postponed_dispatch_is_kept(open_store: StoreFactory) -> None:
    async with open_store() as store:
        for thread_id in ("t1", "t2"):
            await enqueue(store, thread_id)
            (one,) = (await claim(store)).claimed
            await release(store, one, later=now_ms() + HOUR, why=f"{thread_id}: no such tool")
        (seen,) = await store.dispatches(thread_id="t2")
        assert (seen.thread_id, seen.error, seen.dead_at) == ("t2", "t2: no such tool", None)
        assert await store.dispatches(thread_id="t3") == []
