"""Tasks and trees: what a thread owns besides its run, and the runs below a run."""

from __future__ import annotations

from msgspec.structs import replace
from store_suite import StoreFactory, Writer, item, message, record

from wakeful.stores import Commit
from wakeful.types.runs import Identity, RunRecord, TaskRecord, Waiting

CHILD = Identity("r2", "t2", "agent", "r1", "r1", "t1", "c1", "subagent", 1)


def task(number: int = 1, **changes: object) -> TaskRecord:
    return replace(
        TaskRecord(f"k{number}", "t1", "r1", target=f"r{number}", target_thread=f"t{number}"), **changes
    )


def child(**changes: object) -> RunRecord:
    return replace(record(), identity=CHILD, **changes)


async def test_tasks_are_listed_oldest_first_by_status(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(tasks=[task(2), task(1)])
        assert await store.tasks("t1") == [task(1), task(2)]
        ended = task(1, status="failed", error="no")
        await writer.write(message(), tasks=[ended])
        assert await store.tasks("t1") == [ended, task(2)]
        assert await store.tasks("t1", status="running") == [task(2)]
        assert await store.tasks("t1", status="failed") == [ended]
        assert await store.tasks("t9") == []
        view = await store.load("t1")
        assert view is not None
        assert view.tasks == (task(2),)


async def test_child_runs_are_found_by_parent(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store).begin()
        await store.commit(Commit("t2", CHILD, version=0, claim="w1", runs=[child()]))
        assert [run.id for run in await store.runs(root_run_id="r1")] == ["r2"]
        assert await store.runs(root_run_id="r2") == []
        assert [run.id for run in await store.runs(root_run_id="r1", status="done")] == []
        assert await store.tenant("other").runs(root_run_id="r1") == []


async def test_thread_of_child_input_belongs_to_parent(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        given = replace(item("i1", "t2"), lineage=CHILD)
        await writer.write(message(), tasks=[task(2)], inbox=[given])
        assert [thread.id for thread in await store.threads()] == ["t1"]
        thread = await store.thread("t2")
        assert thread is not None
        assert thread.parent_id == "t1"
        assert [(due.thread_id, due.agent_id) for due in await store.due()] == [("t2", given.agent_id or "")]
        view = await store.load("t2")
        assert view is not None
        assert view.inbox[0].lineage == CHILD


async def test_waiting_run_is_due_for_cancellation(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        waiting = Waiting("awaiting_tasks", 7, ("task",), tasks=("k1",))
        await writer.release(runs=[record(status="waiting", waiting=waiting)])
        assert await store.due() == []
        await store.commit(Commit("t1", inbox=[item("i1", kind="cancel")]))
        assert [due.thread_id for due in await store.due()] == ["t1"]


async def test_task_report_for_deleted_owner_is_dropped(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store, "t2").begin("r2")
        told = item("i1", kind="task", task_id="k1")
        event = replace(told, id="i2")
        # At the end of its run, and while that runs.
        await Writer(store, "t3").begin("r3", inbox=[told, item("i3", "t2")])
        done = await store.commit(Commit("t1", inbox=[event]))
        assert (done.version, done.head, done.inbox_head) == (0, 0, 0)
        assert await store.thread("t1") is None
        assert sorted([thread.id for thread in await store.threads()]) == ["t2", "t3"]
        assert [await store.item(one) is not None for one in ("i1", "i2", "i3")] == [False, False, True]
        # Whoever begins the thread anew hears nothing of that either.
        await Writer(store).begin()
        view = await store.load("t1")
        assert view is not None
        assert view.inbox == ()
        await store.commit(Commit("t1", inbox=[event]))
        assert await store.item("i2") is not None
