"""The commits that begin runs: what they take in, what they are refused for, alone or among others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from store_suite import StoreFactory, everything, identity, item, message, record, step

from wakeful.errors import Conflict, DuplicateRequest, InboxMoved, StaleFence
from wakeful.stores import Commit, Fence, Store
from wakeful.types import Request
from wakeful.types.events import RunStart


def beginning(run_id: str = "r1", thread_id: str = "t1", **fields: Any) -> Commit:
    """A run begins: with a claim, unless there is a fence."""
    who = identity(run_id, thread_id)
    log = [RunStart(who, 0, 7, "new"), message(f"for {run_id}", id=f"m-{run_id}"), step(1, who)]
    own: dict[str, Any] = {} if "fence" in fields else {"claim": "w1", "version": 0}
    return Commit(thread_id, who, log=log, runs=[record(run_id, thread_id, steps=1)], **(own | fields))


async def put(store: Store, *ids: str) -> None:
    for item_id in ids:
        await store.commit(Commit("t1", inbox=[item(item_id)]))


async def test_started_run_has_thread_and_claim(open_store: StoreFactory) -> None:
    async with open_store() as store:
        done = await store.commit(beginning(request=Request("q1")))
        assert (done.version, done.head, done.epoch, done.inbox_head) == (1, 3, 1, 0)
        view = await store.load("t1")
        assert view is not None
        assert view.run == record(steps=1)
        assert (view.thread.owner, view.thread.last_run_id, view.inbox) == ("w1", "r1", ())
        assert [m.text for m in await store.messages("t1")] == ["for r1"]
        asked = await store.item("q1")
        assert asked is not None
        assert (asked.kind, asked.status, asked.taken_by) == ("request", "taken", "r1")
        assert [one.claimed_by for one in await store.dispatches()] == ["w1"]
        await store.commit(Commit("t1", fence=Fence(1, "w1"), runs=[record(status="done")], release=True))
        assert await store.due() == []


async def test_repeated_request_starts_nothing(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(beginning(request=Request("q1")))
        before = await everything(store)
        with pytest.raises(DuplicateRequest) as repeated:
            await store.commit(beginning("r2", "t2", request=Request("q1")))
        assert repeated.value.run_id == "r1"
        assert await everything(store) == before
        await put(store, "waits")
        with pytest.raises(DuplicateRequest):
            await store.commit(beginning("r3", "t3", request=Request("waits")))


async def test_start_is_refused_on_changed_or_owned_thread(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(beginning(request=Request("q1")))
        with pytest.raises(Conflict):
            await store.commit(beginning("r2", request=Request("q2")))
        with pytest.raises(Conflict):
            await store.commit(beginning("r2", request=Request("q2"), version=1))
        await store.commit(Commit("t1", fence=Fence(1, "w1"), runs=[record(status="done")], release=True))
        with pytest.raises(Conflict, match="at version 2, not 0"):
            await store.commit(beginning("r2", request=Request("q2")))
        done = await store.commit(beginning("r2", request=Request("q2"), version=2))
        assert (done.version, done.head, done.epoch) == (3, 6, 2)


@pytest.mark.parametrize("claimed", [False, True])
async def test_start_takes_item_at_seen_revision(open_store: StoreFactory, claimed: bool) -> None:
    async with open_store() as store:
        await put(store, "a", "b")
        own: dict[str, Any] = {}
        if claimed:
            (one,) = (await store.claim("w1", agents=["agent"], limit=1)).claimed
            own = {"fence": Fence(one.epoch, "w1")}
            with pytest.raises(StaleFence):
                await store.commit(beginning(taken=["a"], seen={"a": 0}, fence=Fence(one.epoch - 1, "w1")))
        with pytest.raises(Conflict):
            await store.commit(beginning(taken=["a"], seen={"a": 1}, **own))
        done = await store.commit(beginning(taken=["a"], seen={"a": 0}, **own))
        assert (done.version, done.head, done.epoch, done.inbox_head) == (1, 3, 1, 2)
        view = await store.load("t1")
        assert view is not None
        assert [i.id for i in view.inbox] == ["b"]
        assert view.run == record(steps=1)
        found = await store.item("a")
        assert found is not None
        assert (found.status, found.taken_by) == ("taken", "r1")
        with pytest.raises(Conflict):
            await store.commit(beginning("r2", taken=["a"], seen={"a": 0}, version=1))


async def test_start_is_refused_when_inbox_moved(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await put(store, "a")
        before = await everything(store)
        with pytest.raises(InboxMoved):
            await store.commit(beginning(request=Request("q1"), inbox_head=0))
        assert await everything(store) == before
        assert (await store.commit(beginning(request=Request("q1"), inbox_head=1))).version == 1


async def test_batched_starts_equal_single_starts(open_store: StoreFactory) -> None:
    async with open_store() as store:
        many = [beginning(f"r{n}", f"t{n}", request=Request(f"q{n}")) for n in range(5)]
        done = await asyncio.gather(*[store.commit(commit) for commit in many])
        alone = await store.commit(beginning("r9", "t9", request=Request("q9")))
        assert {(one.version, one.head, one.epoch, one.inbox_head) for one in (*done, alone)} == {(1, 3, 1, 0)}
        views = [await store.load(f"t{n}") for n in (0, 4, 9)]
        shapes = {
            (v.thread.version, v.thread.head, v.thread.owner, v.run and v.run.steps)
            for v in views
            if v is not None
        }
        assert shapes == {(1, 3, "w1", 1)}
        events = [[e.type for e in await store.events(f"t{n}")] for n in (0, 9)]
        assert events[0] == events[1]
