"""A commit that claims a thread makes no dispatch: what others see of the claim all the same, and take over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from store_suite import (
    StoreFactory,
    Writer,
    die,
    due_threads,
    identity,
    item,
    message,
    record,
    rows_left,
    waiting,
)

from wakeful.stores import MAX_ATTEMPTS, Claimed, Commit, Fence, Store
from wakeful.types import Request
from wakeful.types.ids import now_ms
from wakeful.types.runs import PRIORITY

HOUR = 3_600_000


async def take(store: Store, worker: str, limit: int = 100, **options: Any) -> list[Claimed]:
    agents = options.pop("agents", ["agent", "helper"])
    return list((await store.claim(worker, agents=agents, limit=limit, **options)).claimed)


async def has_rows(store: Store) -> bool:
    """Whether there are rows of dispatches; a store without tables has none."""
    return "dispatches" in await rows_left(store)


# -- no row --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begins", ["with a request", "with a claim", "beside others"])
async def test_plain_run_makes_no_dispatch_row(open_store: StoreFactory, begins: str) -> None:
    async with open_store() as store:
        version = 0
        for number in (1, 2):  # On a thread that is new, and on one that is there.
            run = record(f"r{number}")
            commit = Commit("t1", run.identity, log=[message()], runs=[run], claim="w1", version=version)
            if begins == "with a request":
                commit = replace(commit, request=Request(f"q{number}"))
            others = [f"o{number}-{n}" for n in range(3 if begins == "beside others" else 0)]
            beside = [Writer(store, name).begin(name) for name in others]
            done, *_ = await asyncio.gather(store.commit(commit), *beside)
            assert not await has_rows(store)
            fence = Fence(done.epoch, "w1")
            await store.commit(Commit("t1", run.identity, fence, [message()], [replace(run, steps=2)]))
            assert not await has_rows(store)
            ended = Commit("t1", run.identity, fence, runs=[replace(run, status="done")], release=True)
            version = (await store.commit(ended)).version
            assert not await has_rows(store)


async def test_pending_input_has_dispatch_row_until_run_ends(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(Commit("t1", inbox=[item("a", agent_id="agent", priority=7)]))
        writer = Writer(store)
        await writer.begin(taken=["a"])
        (seen,) = await store.dispatches()
        assert (seen.priority, seen.claimed_by is not None, await store.due()) == (7, True, [])
        await writer.release(runs=[record(status="done")])
        assert not await has_rows(store)


async def test_parked_run_is_not_due_for_unclaimed_writes(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer, parked = Writer(store), record(status="waiting", waiting=waiting("decision"))
        await writer.begin()
        await writer.release(runs=[parked])
        await writer.write(message("a note"))
        await store.commit(Commit("t1", inbox=[item("a")]))
        await store.commit(Commit("t1", pending=[item("a", revision=1, message=message("changed"))]))
        assert await store.dispatches() == []
        assert not await has_rows(store)


# -- what others see -----------------------------------------------------------------------------------------


async def test_claimed_thread_is_listed_with_its_run(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.claim("w1", runs=[record(priority=7)])
        await Writer(store, "t2").claim("w2")
        await Writer(store.tenant("other"), "t3").claim("w3")
        first, second = await store.dispatches()
        assert (first.thread_id, first.run_id, first.agent_id, first.priority) == ("t1", "r1", "agent", 7)
        assert (first.attempts, first.claimed_by, first.dead_at, first.error) == (0, "w1", None, "")
        assert first.due_at == (await writer.view()).thread.updated_at
        assert (second.thread_id, second.run_id, second.agent_id, second.priority) == ("t2", None, "", PRIORITY)
        assert (await store.counts())["dispatches"] == 2
        assert [one.thread_id for one in await store.dispatches(after="t1")] == ["t2"]
        assert [one.thread_id for one in await store.dispatches(dead=False, limit=1)] == ["t1"]
        assert await store.dispatches(dead=True) == []
        assert (await store.due(), await store.queued(9)) == ([], 0)
        await writer.write(runs=[record(agent_id="helper", priority=7)])
        assert [one.agent_id for one in await store.dispatches()] == ["helper", ""]


async def test_limits_count_claims_made_by_commits(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store).claim("w1", runs=[record()])
        await store.commit(Commit("t2", inbox=[item("a", "t2", agent_id="agent")]))
        await store.commit(Commit("t3", inbox=[item("b", "t3", agent_id="helper")]))
        assert await take(store, "w2", per_tenant=1) == []
        assert [one.thread_id for one in await take(store, "w2", per_agent={"agent": 1})] == ["t3"]
        assert [one.thread_id for one in await take(store, "w2", per_agent={"agent": 2})] == ["t2"]


# -- taking over ---------------------------------------------------------------------------------------------


async def test_owner_death_counts_attempt_and_makes_thread_due(
    open_store: StoreFactory,
) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.claim("w1", runs=[record(agent_id="agent", priority=7)])
        await writer.write(runs=[record(agent_id="helper", priority=7, steps=5)])
        await die(store, "w1")
        assert [(due.thread_id, due.agent_id) for due in await store.due()] == [("t1", "helper")]
        assert await take(store, "w2", agents=["agent"]) == []
        (seen,) = await store.dispatches()
        assert (seen.agent_id, seen.priority, seen.attempts, seen.claimed_by) == ("helper", 7, 1, None)
        (one,) = await take(store, "w2")
        assert (one.agent_id, one.attempts, one.taken_over) == ("helper", 1, True)
        await die(store, "w2")
        assert [one.attempts for one in await take(store, "w3")] == [2]


async def test_owner_death_counts_once_for_commit_claims(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer, heir = Writer(store), Writer(store)
        heir.version = (await writer.claim("w1", runs=[record(priority=7)])).version
        await die(store, "w1")
        await heir.claim("w2")
        (seen,) = await store.dispatches()
        assert (seen.agent_id, seen.priority, seen.attempts, seen.claimed_by) == ("agent", 7, 1, "w2")
        await die(store, "w2")
        assert [one.attempts for one in await take(store, "w3")] == [2]


async def test_orphan_is_taken_over_once(open_store: StoreFactory) -> None:
    async with open_store() as store:
        threads = [f"t{n:02}" for n in range(12)]
        for name in threads:
            await Writer(store, name).claim("w0", runs=[record(f"r-{name}", name)])
        await die(store, "w0")
        shares = await asyncio.gather(*[take(store, f"w{n}", 4) for n in range(1, 6)])
        got = [one for share in shares for one in share]
        while more := await take(store, "w9", 4):  # What some missed because others had it locked.
            got += more
        assert sorted(one.thread_id for one in got) == threads
        assert {one.attempts for one in got} == {1}


async def test_repeated_deaths_of_commit_claims_make_dead_letter(open_store: StoreFactory) -> None:
    async with open_store() as store:
        version = 0
        for number in range(MAX_ATTEMPTS):
            writer = Writer(store)
            writer.version = version
            version = (await writer.claim(f"w{number}", runs=[record(steps=1)])).version
            await die(store, f"w{number}")
        assert await take(store, "last") == []
        (dead,) = await store.dispatches(dead=True)
        assert (dead.thread_id, dead.attempts) == ("t1", MAX_ATTEMPTS)


# -- giving back ---------------------------------------------------------------------------------------------


async def test_failed_activation_is_postponed_and_counted(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer, before = Writer(store), now_ms()
        await writer.claim("w1", runs=[record(priority=7)])
        await writer.release(failed="no luck")
        (seen,) = await store.dispatches()
        assert (seen.agent_id, seen.priority, seen.attempts, seen.error) == ("agent", 7, 1, "no luck")
        assert (seen.claimed_by, seen.dead_at) == (None, None)
        assert seen.due_at >= before + 250
        assert [one.attempts for one in await take(store, "w2", now=now_ms() + HOUR)] == [1]


async def test_release_without_run_record_is_due(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer, at = Writer(store), now_ms() + HOUR
        await writer.claim("w1", runs=[record(priority=7)])
        await writer.release()
        (seen,) = await store.dispatches()
        assert (seen.agent_id, seen.priority, seen.attempts, seen.claimed_by) == ("agent", 7, 0, None)
        assert await due_threads(store) == ["t1"]
        put_off = Writer(store, "t2")
        await put_off.claim("w1", runs=[record("r2", "t2")])
        await put_off.release(later=at)
        assert [one.due_at for one in await store.dispatches(after="t1")] == [at]
        assert [one.thread_id for one in await take(store, "w2")] == ["t1"]


async def test_input_without_agent_is_due_for_last_agent(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.claim("w1", runs=[record(agent_id="helper")])
        await writer.write(runs=[record(agent_id="helper", status="done")])
        await writer.release(inbox=[item("a")], identity=identity())
        assert [(due.thread_id, due.agent_id) for due in await store.due()] == [("t1", "helper")]
