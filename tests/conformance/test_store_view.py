"""The view of a thread and its open run, and reads of runs and their ledger."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from store_suite import (
    StoreFactory,
    Writer,
    call,
    item,
    message,
    numbered,
    record,
    ticket,
)

from wakeful.stores import StateWrite
from wakeful.types.ids import new_id
from wakeful.types.runs import NaturalEnd, Outcome, TaskRecord
from wakeful.types.tickets import Decision


async def test_view_of_open_run_has_open_step_only(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        old, answer = message("old"), message("let me look")
        await writer.begin(log=[old], calls=[call("c0", 1, state="finished", outcome="ok")])
        run = record(stage="acting", steps=2, answer_id=answer.id)
        now = [call("c1", 2, state="suspended", ticket_id="k1"), call("c2", 2, state="started", attempt=1)]
        await writer.write(
            answer,
            runs=[run],
            calls=now,
            tickets=[ticket("k0", status="answered"), ticket("k1")],
            tasks=[TaskRecord("done", "t1", "r1", status="completed"), TaskRecord("live", "t1", "r1")],
            state=[StateWrite("calls", b"1"), StateWrite("mood", b'"sad"', "r1")],
            inbox=[item("a")],
        )
        view = await writer.view()
        assert (view.run, view.answer) == (run, numbered(answer, 2))
        assert list(view.calls) == now
        assert [t.id for t in view.tickets] == ["k1"]
        assert [t.id for t in view.tasks] == ["live"]
        assert [i.id for i in view.inbox] == ["a"]
        assert (view.state, view.run_state) == ({"calls": b"1"}, {"mood": b'"sad"'})
        assert (view.thread.id, view.thread.head) == ("t1", 2)
        assert (view.thread.open_run_id, view.thread.last_run_id, view.thread.last_agent_id) == (
            "r1",
            "r1",
            "agent",
        )


@pytest.mark.parametrize(("stage", "calls"), [("between", []), ("inferring", ["c1"]), ("acting", ["c1"])])
async def test_view_has_the_calls_of_an_open_step(open_store: StoreFactory, stage: str, calls: list[str]) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(calls=[call("c1", 1, state="finished", outcome="ok")])
        await writer.write(runs=[record(stage=stage, steps=1)])
        assert [one.id for one in (await writer.view()).calls] == calls


async def test_view_omits_finished_run_but_not_thread(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(
            calls=[call("c1")],
            tickets=[ticket("k1")],
            tasks=[TaskRecord("detached", "t1")],
            state=[StateWrite("calls", b"1"), StateWrite("mood", b'"sad"', "r1")],
        )
        await writer.release(runs=[record(status="done", stage="acting", steps=1)])
        view = await writer.view()
        assert (view.run, view.calls, view.tickets, view.answer) == (None, (), (), None)
        assert (view.state, view.run_state) == ({"calls": b"1"}, {})
        assert [t.id for t in view.tasks] == ["detached"]
        assert (view.thread.open_run_id, view.thread.last_run_id) == (None, "r1")


async def test_view_includes_waiting_run(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        await writer.release(runs=[record(status="waiting")])
        view = await writer.view()
        assert view.run == record(status="waiting")
        assert not view.thread.claimed


async def test_one_commit_may_close_and_open_a_run(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin("r1", state=[StateWrite("mood", b'"sad"', "r1")])
        await writer.write(
            runs=[record("r1", status="done"), record("r2", agent_id="other")],
            state=[StateWrite("mood", b'"glad"', "r2")],
            calls=[call("c1", 0, run_id="r2")],
        )
        view = await writer.view()
        assert view.run is not None
        assert view.run.id == "r2"
        assert view.run_state == {"mood": b'"glad"'}
        assert (view.thread.open_run_id, view.thread.last_run_id) == ("r2", "r2")
        assert view.thread.last_agent_id == "other"


async def test_state_key_has_last_value_of_its_scope(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(state=[StateWrite("k", b"1"), StateWrite("k", b'"run"', "r1")])
        await writer.write(state=[StateWrite("k", b"2")])
        view = await writer.view()
        assert (view.state, view.run_state) == ({"k": b"2"}, {"k": b'"run"'})


async def test_last_agent_is_the_handoff_target(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        await writer.release(runs=[record(status="done", agent_id="specialist")])
        assert (await writer.view()).thread.last_agent_id == "specialist"


# -- runs and their ledger -----------------------------------------------------------------------------------


async def test_run_record_is_last_one_written(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        done = record(status="done", outcome=Outcome(NaturalEnd(), msgspec.Raw(b"null")), steps=3, finished_at=9)
        await writer.release(runs=[done])
        assert await store.run("r1") == done


async def test_ledger_and_tickets_are_kept_in_order(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(calls=[call("c1", 1), call("c2", 1)], tickets=[ticket("k1", "c1"), ticket("k2", "c2")])
        finished = call("c1", 1, state="finished", outcome="ok", decisions=(Decision("k1", id="d1"),))
        await writer.write(calls=[finished], tickets=[ticket("k1", "c1", status="answered")])
        await writer.write(calls=[call("c3", 2)])
        await writer.write(runs=[record("r2"), record(status="done")], calls=[call("c9", 1, run_id="r2")])
        assert list(await store.calls("r1")) == [finished, call("c2", 1), call("c3", 2)]
        assert [(t.id, t.status) for t in await store.tickets("r1")] == [("k1", "answered"), ("k2", "open")]
        assert [c.id for c in await store.calls("r2")] == ["c9"]


async def test_runs_are_listed_newest_first_and_filtered(open_store: StoreFactory) -> None:
    async with open_store() as store:
        ids = [new_id() for _ in range(4)]
        one, two = Writer(store, "t1"), Writer(store, "t2")
        await one.write(runs=[record(ids[0], "t1", status="done")])
        await two.write(runs=[record(ids[1], "t2", status="done")])
        await one.write(runs=[record(ids[2], "t1", status="waiting")])
        await two.write(runs=[record(ids[3], "t2", status="running")])

        async def listed(**filters: Any) -> list[int]:
            return [ids.index(run.id) for run in await store.runs(**filters)]

        assert await listed() == [3, 2, 1, 0]
        assert await listed(thread_id="t1") == [2, 0]
        assert await listed(status="done") == [1, 0]
        assert await listed(thread_id="t2", status="done") == [1]
        assert await listed(thread_id="t3") == []
        assert await listed(limit=2) == [3, 2]
        assert await listed(before=ids[2]) == [1, 0]
        assert await listed(before=ids[3], thread_id="t1", limit=1) == [2]


@pytest.mark.parametrize("page", [1, 2, 3])
async def test_run_pages_miss_none_in_any_order(open_store: StoreFactory, page: int) -> None:
    async with open_store() as store:
        ids = [new_id() for _ in range(5)]
        for number in (2, 4, 0, 3, 1):
            await Writer(store, f"t{number}").write(runs=[record(ids[number], f"t{number}")])
        seen: list[str] = []
        while found := await store.runs(before=seen[-1] if seen else None, limit=page):
            seen += [run.id for run in found]
        assert seen == ids[::-1]


async def test_decision_is_found_by_id(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        decision = Decision("k1", id="d1")
        await writer.begin(tickets=[ticket("k1")], decisions=[decision])
        assert (await store.decision("d1"), await store.decision("d2")) == (decision, None)
        assert await store.tenant("other").decision("d1") is None
        assert (await store.has_id("d1"), await store.has_id("d2")) == (True, False)
        assert not await store.tenant("other").has_id("d1")
        await writer.release()
        await store.delete("t1")
        assert await store.decision("d1") is None
