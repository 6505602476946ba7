"""Commits that come with another one: written together, or left out alone."""

from __future__ import annotations

from typing import Any

import pytest
from store_suite import StoreFactory, due_threads, everything, identity, item, message, record, waiting

from wakeful.errors import StaleFence
from wakeful.stores import Commit, Fence


def leaving(**fields: Any) -> Commit:
    """The owner of `t1` gives `t2` something to do, and waits."""
    run = record(status="waiting", waiting=waiting("task"))
    own: dict[str, Any] = {"log": [message("wait")], "runs": [run], "inbox": [item("i2", "t2")], "release": True}
    return Commit("t1", identity(), **({"fence": Fence(1, "w1")} | own | fields))


def beginning(run_id: str = "r2", thread_id: str = "t2", **fields: Any) -> Commit:
    """A run begins with what it was given."""
    own: dict[str, Any] = {"claim": "w1", "version": 0, "taken": ["i2"], "seen": {"i2": 0}}
    who = identity(run_id, thread_id)
    return Commit(thread_id, who, log=[message("go")], runs=[record(run_id, thread_id)], **(own | fields))


async def test_following_commit_sees_first_commit(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(Commit("t1", identity(), claim="w1", version=0, runs=[record()]))
        done = await store.commit(leaving(then=[beginning()]))
        (then,) = done.then
        assert then is not None
        assert (done.version, done.head) == (2, 1)
        assert (then.version, then.head, then.epoch, then.inbox_head) == (1, 1, 1, 1)
        view = await store.load("t2")
        assert view is not None
        assert (view.thread.owner, view.run, view.inbox) == ("w1", record("r2", "t2"), ())
        taken = await store.item("i2")
        assert taken is not None
        assert (taken.status, taken.taken_by) == ("taken", "r2")
        await store.commit(Commit("t2", identity("r2", "t2"), Fence(then.epoch, "w1"), log=[message("more")]))
        assert await store.head("t2") == 2


async def test_refused_following_commit_is_left_out_alone(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(Commit("t1", identity(), claim="w1", version=0, runs=[record()]))
        late = beginning("r3", "t3", version=7, taken=[], seen={})
        again = beginning("r4", "t4", taken=[], seen={})
        done = await store.commit(leaving(then=[late, beginning(version=1), again]))
        assert [then is not None for then in done.then] == [False, False, True]
        assert await store.load("t3") is None
        assert await due_threads(store) == ["t2"]  # As if nobody had tried.
        view = await store.load("t2")
        assert view is not None
        assert (view.thread.version, [i.id for i in view.inbox]) == (0, ["i2"])


async def test_refused_commit_drops_its_following_commits(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(Commit("t1", identity(), claim="w1", version=0, runs=[record()]))
        before = await everything(store)
        with pytest.raises(StaleFence):
            await store.commit(leaving(fence=Fence(9, "w1"), then=[beginning()]))
        assert await everything(store) == before
