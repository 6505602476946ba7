"""The owner of a task is told in the transaction that deletes the task's thread."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from store_suite import StoreFactory, Writer, due_threads, identity, item, message, record, rows_left, waiting

from wakeful.errors import InboxFull, InboxMoved
from wakeful.stores import Commit, Store
from wakeful.stores.conditions import MAX_PENDING, RESERVE
from wakeful.types.runs import RunRecord, TaskOutcome, TaskRecord, TaskRef, Usage


async def owner_and_child(store: Store, task: TaskRef, **child: Any) -> None:
    """A run of `t1` that waits for a task, and the task's thread `kid` with what is there of it."""
    owner = Writer(store)
    await owner.begin(tasks=[TaskRecord("r-kid", "t1", "r1", target="r-kid", target_thread="kid")])
    await owner.release(runs=[record(status="waiting", waiting=waiting("task"))])
    lineage = replace(identity("r-kid", "kid"), parent_run_id="r1", parent_thread_id="t1")
    if not child:
        begins = item("i", "kid", lineage=lineage, task=task, history=(message("x" * 100_000),))
        await store.commit(Commit("t1", inbox=[begins]))
        return
    run = RunRecord(identity=lineage, agent_id="agent", task=task, created_at=1, **child)
    writer = Writer(store, "kid")
    await writer.claim("w1", runs=[run], identity=lineage)
    await writer.release(runs=[run], identity=lineage)


def told(**fields: Any) -> TaskOutcome:
    return TaskOutcome(1, "cancelled", error="cancelled: its thread was deleted", **fields)


OPEN: dict[str, Any] = {"status": "waiting", "waiting": waiting("decision"), "steps": 2, "usage": Usage(5, 1)}


@pytest.mark.parametrize(
    ("child", "outcome"),
    [
        ({}, told(steps=0)),
        (OPEN, told(steps=2, usage=Usage(5, 1))),
        # One that its caller attended to, and died before it had written down what it saw.
        ({"status": "done"}, told()),
    ],
    ids=["yet-to-begin", "open", "ended-unheard"],
)
async def test_task_owner_is_told_when_task_thread_is_deleted(
    open_store: StoreFactory, child: dict[str, Any], outcome: TaskOutcome
) -> None:
    async with open_store() as store:
        await owner_and_child(store, TaskRef("r-kid"), **child)
        assert "t1" not in await due_threads(store)
        assert await store.delete("kid") == 1
        assert await due_threads(store) == ["t1"]
        view = await Writer(store).view()
        assert [(i.id, i.task_id, i.outcome) for i in view.inbox] == [("r-kid:done:1", "r-kid", outcome)]
        assert view.thread.inbox_head == 1
        (queued,) = await store.dispatches()
        assert (queued.run_id, queued.agent_id) == ("r1", "agent")


async def test_task_owner_is_told_once_after_task_end(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await owner_and_child(store, TaskRef("r-kid"), **OPEN)
        done = item("r-kid:done:1", kind="task", task_id="r-kid", outcome=TaskOutcome(1, "completed", "fine"))
        await store.commit(Commit("t1", inbox=[done]))
        await store.delete("kid")
        (heard,) = (await Writer(store).view()).inbox
        assert heard.outcome == done.outcome


async def test_deletion_of_background_task_wakes_owner(
    open_store: StoreFactory,
) -> None:
    async with open_store() as store:
        await Writer(store).write(message(), runs=[record(status="done")])
        begins = item(
            "i",
            "kid",
            lineage=replace(identity("r-kid", "kid"), parent_thread_id="t1"),
            task=TaskRef("r-kid", background=True, wake="run", owner="boss"),
        )
        await store.commit(Commit("t1", inbox=[begins]))
        await store.delete("kid")
        assert [(d.thread_id, d.agent_id) for d in await store.due()] == [("t1", "boss")]


async def test_deletion_of_task_thread_reaches_running_owner(
    open_store: StoreFactory,
) -> None:
    async with open_store() as store:
        await owner_and_child(store, TaskRef("r-kid"), **OPEN)
        owner = Writer(store)
        owner.version = (await owner.view()).thread.version
        await owner.claim(runs=[record()])
        await store.delete("kid")
        with pytest.raises(InboxMoved):
            await owner.release(runs=[record(status="done")], inbox_head=0)
        assert [i.task_id for i in (await owner.view()).inbox] == ["r-kid"]


async def test_deletion_is_refused_when_owner_inbox_is_full(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await owner_and_child(store, TaskRef("r-kid"), **OPEN)
        for first in range(0, MAX_PENDING + RESERVE, 100):
            events = [item(f"e{first + n}", kind="task", task_id="x") for n in range(100)]
            await store.commit(Commit("t1", inbox=events))
        with pytest.raises(InboxFull, match="'t1'"):
            await store.delete("kid")
        assert await store.load("kid") is not None


async def test_deletion_with_owner_tells_nobody(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await owner_and_child(store, TaskRef("r-kid"), **OPEN)
        assert await store.delete("t1", children="cascade") == 2
        await owner_and_child(store, TaskRef("r-kid"), **OPEN)
        assert await store.delete("t1", children="detach") == 1
        assert await store.delete("kid") == 1
        assert await rows_left(store) == {}
