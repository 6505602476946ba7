"""Lists of messages, runs, tickets and threads: their order, their filters, their pages."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from store_suite import (
    StoreFactory,
    Writer,
    call,
    identity,
    item,
    message,
    numbered,
    record,
    step,
    ticket,
    waiting,
)

from wakeful.stores import NO_DEADLINE, About, Commit, Tally
from wakeful.types.content import Text
from wakeful.types.ids import new_id
from wakeful.types.messages import Message
from wakeful.types.runs import Cancelled, Failed, NaturalEnd, Outcome, Principal
from wakeful.types.tickets import Decision, NotTaken

# -- messages ------------------------------------------------------------------------------------------------


async def test_newest_messages_come_oldest_first(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store).begin(log=[message("a"), step(), message("b"), step(), message("c"), step()])

        async def texts(**page: int) -> list[str]:
            return [m.text for m in await store.messages("t1", **page)]

        assert await texts(newest=2) == ["b", "c"]
        assert await texts(newest=3) == await texts(newest=99) == ["a", "b", "c"]
        assert await texts(newest=0) == []
        assert await texts(newest=2, after=3) == ["c"]
        assert await texts(newest=5, after=6) == []
        assert [m.seq for m in await store.messages("t1", newest=1)] == [5]
        assert await store.messages("t2", newest=5) == []


async def test_head_is_number_of_last_entry(open_store: StoreFactory) -> None:
    async with open_store() as store:
        assert await store.head("t1") == 0
        writer = Writer(store)
        await writer.begin()
        assert await store.head("t1") == 0
        await writer.write(message(), step())
        assert await store.head("t1") == 2


async def test_last_answer_is_found_by_run(open_store: StoreFactory) -> None:
    async with open_store() as store:
        answers = [Message(new_id(), "assistant", (Text(text),), 7) for text in ("one", "two")]
        writer = Writer(store)
        await writer.begin()
        assert await store.answer("r1") is None
        for seq, told in ((2, answers[0]), (4, answers[1])):
            await writer.write(message(), told, runs=[record(answer_id=told.id)])
            assert await store.answer("r1") == numbered(told, seq)
        await writer.release(runs=[record(status="done", answer_id=answers[1].id)])
        assert await store.answer("r1") == numbered(answers[1], 4)
        assert await store.answer("r2") is None


# -- runs ----------------------------------------------------------------------------------------------------


async def test_runs_are_filtered_by_current_agent(open_store: StoreFactory) -> None:
    async with open_store() as store:
        ids = [new_id() for _ in range(3)]
        for number, run_id in enumerate(ids):
            await Writer(store, f"t{number}").write(runs=[record(run_id, f"t{number}", agent_id=f"a{number % 2}")])
        assert [r.id for r in await store.runs(agent_id="a0")] == [ids[2], ids[0]]
        assert [r.id for r in await store.runs(agent_id="a0", thread_id="t0", status="running")] == [ids[0]]
        assert await store.runs(agent_id="a0", thread_id="t1") == []
        handed = Writer(store, "t0")
        handed.version = 1
        await handed.write(runs=[record(ids[0], "t0", agent_id="a1")])
        assert [r.id for r in await store.runs(agent_id="a1")] == [ids[1], ids[0]]


async def test_runs_and_threads_are_filtered_by_principal(open_store: StoreFactory) -> None:
    ann, bob = Principal("ann"), Principal("bob")
    async with open_store() as store:
        ids = [new_id() for _ in range(3)]
        for number, (run_id, who) in enumerate(zip(ids, (ann, bob, None), strict=True)):
            writer = Writer(store, f"t{number}")
            await writer.claim(runs=[record(run_id, f"t{number}", principal=who)])
            await writer.write(message())
            await writer.release(runs=[record(run_id, f"t{number}", principal=who, status="done")])
        waits = [item("i4", "t4", principal=ann), item("i5", "t5")]
        await store.commit(Commit("t4", inbox=waits))
        await store.fork("t0", 0, "f0")
        assert [run.id for run in await store.runs(principal="ann")] == [ids[0]]
        assert await store.runs(principal="bob", status="running") == await store.runs(principal="eve") == []
        assert [thread.id for thread in await store.threads(principal="ann")] == ["f0", "t4", "t0"]
        assert [thread.id for thread in await store.threads(principal="ann", limit=1, before="f0")] == ["t4"]
        assert [thread.id for thread in await store.threads(principal="bob")] == ["t1"]
        owners = {thread.id: thread.principal for thread in await store.threads()}
        assert owners == {"t0": "ann", "t1": "bob", "t2": None, "t4": "ann", "t5": None, "f0": "ann"}
        view = await store.load("t4")
        assert view is not None
        assert (view.thread.principal, await store.tenant("other").threads(principal="ann")) == ("ann", [])


async def test_thread_keeps_principal_of_its_first_input(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(Commit("t1", inbox=[item("a", principal=Principal("ann"))]))
        await store.commit(Commit("t1", inbox=[item("b", principal=Principal("bob"))]))
        writer = Writer(store)
        await writer.claim(runs=[record(principal=Principal("bob"))], taken=["a", "b"])
        assert (await writer.view()).thread.principal == "ann"
        assert [run.id for run in await store.runs(principal="bob")] == ["r1"]
        assert await store.threads(principal="bob") == []


async def test_runs_are_filtered_and_counted(open_store: StoreFactory) -> None:
    """Every condition, with the count by the same conditions, and pages in a range of times."""
    async with open_store() as store:
        ids = [new_id() for _ in range(5)]
        ends = {0: NaturalEnd(), 1: Failed("E", "no"), 2: Cancelled()}
        for n, run_id in enumerate(ids):
            one = record(run_id, f"t{n}", agent_id=f"a{n % 2}", created_at=100 - n, principal=Principal("bob"))
            if n == 4:
                one = replace(one, identity=replace(one.identity, parent_run_id=ids[0]), owner="ann")
            writer = Writer(store, f"t{n}")
            await writer.claim(runs=[one])
            waits = waiting("input") if n == 3 else None
            end = Outcome(ends[n]) if n in ends else None
            status = "done" if end else "waiting" if waits else "running"
            finished = 200 if end else None
            later = replace(one, status=status, waiting=waits, outcome=end, finished_at=finished)
            await writer.write(message(), runs=[later])

        async def listed(**filters: Any) -> list[int]:
            found = [ids.index(run.id) for run in await store.runs(**filters)]
            counted = {name: value for name, value in filters.items() if name not in ("before", "limit")}
            if counted == filters:
                assert await store.count_runs(9, **counted) == Tally(len(found))
            return found

        assert await listed() == [4, 3, 2, 1, 0]
        assert await listed(outcome="error") == [1]
        assert await listed(outcome="natural_end", status="done") == [0]
        assert await listed(waits_for="external_event") == [3]
        assert await listed(waits_for="timer") == []
        assert await listed(parent_run_id=ids[0]) == [4]
        assert await listed(agents=["a0"]) == [4, 2, 0]
        assert await listed(agents=()) == []
        assert await listed(principal="bob") == [3, 2, 1, 0]
        assert await listed(principal="ann") == [4]
        assert await listed(since=97, until=99) == [2, 3]
        assert await listed(since=97) == [0, 1, 2, 3]
        assert await listed(since=96, limit=2) == [0, 1]
        assert await listed(since=96, before=ids[1], limit=2) == [2, 3]
        assert await listed(until=99, before=ids[2]) == [3, 4]
        assert await listed(since=1, before="gone") == []
        assert await store.count_runs(3, status="done") == Tally(3)
        assert await store.count_runs(2) == Tally(2, True)
        assert await store.tenant("other").count_runs(9) == Tally(0)


# -- tickets -------------------------------------------------------------------------------------------------


async def test_tickets_are_listed_oldest_first_across_threads(open_store: StoreFactory) -> None:
    async with open_store() as store:
        ids = [new_id() for _ in range(4)]
        one, two = Writer(store, "t1"), Writer(store, "t2")
        await one.begin("r1", tickets=[ticket(ids[0], assignee="ann"), ticket(ids[2], status="answered")])
        await two.begin(
            "r2",
            tickets=[
                replace(ticket(ids[3], run_id="r2", assignee="bob"), thread_id="t2"),
                replace(ticket(ids[1], run_id="r2", assignee="ann"), thread_id="t2"),
            ],
        )

        async def listed(*run: str, **filters: Any) -> list[int]:
            return [ids.index(t.id) for t in await store.tickets(*run, **filters)]

        assert await listed(requester="eve") == []
        asked = [replace(t, requester="eve") for t in await store.tickets() if ids.index(t.id) in (0, 2)]
        await one.write(tickets=asked)

        assert await listed() == [0, 1, 2, 3]
        assert await listed("r2") == [1, 3]
        assert await listed(thread_id="t1") == [0, 2]
        assert await listed(status="open") == [0, 1, 3]
        assert await listed(assignee="ann") == [0, 1]
        assert await listed(requester="eve") == [0, 2]
        assert await listed(requester="eve", status="open", assignee="ann") == [0]
        assert await listed("r1", assignee="ann", status="open") == [0]
        assert await listed(after=(0, ids[0]), limit=2) == [1, 2]
        assert await listed(after=(0, ids[3])) == []
        assert await listed(limit=0) == []
        assert await listed(thread_id="t3") == await listed("r3") == await listed(assignee="eve") == []
        assert (await store.counts())["tickets"] == 3


async def test_tickets_are_filtered_and_counted(open_store: StoreFactory) -> None:
    """Every condition, in both orders, and the count by the same conditions."""
    async with open_store() as store:
        asked = [
            ticket("k1", agent_id="desk", tool="refund", deadline=30, requester="eve", groups=("fi/na nce",)),
            ticket("k2", agent_id="desk", tool="refund", asked_by="tool", requester="eve"),
            ticket("k3", agent_id="help", tool="ask", asked_by="tool", deadline=10, assignee="role:lead"),
            ticket("k4", agent_id="help", tool="refund", deadline=20, by_requester=True, requester="eve"),
            ticket("k5", status="answered", deadline=5, assignee="user:group:x"),
        ]
        await Writer(store).begin("r1", tickets=asked)
        eve, lead = Principal("eve"), Principal("ann", roles=("lead",), groups=("fi/na nce", "finance"))

        async def listed(**filters: Any) -> list[str]:
            found = [one.id for one in await store.tickets(**filters)]
            counted = {name: value for name, value in filters.items() if name not in ("order", "after")}
            if "after" not in filters:
                assert await store.count_tickets(9, **counted) == Tally(len(found))
            return found

        assert await listed(agent_id="desk") == await listed(agents=["desk", "x"], status="open") == ["k1", "k2"]
        assert await listed(agents=()) == []
        assert await listed(tool="refund", asked_by="approval") == ["k1", "k4"]
        assert await listed(due_before=20) == ["k3", "k5"]
        assert await listed(answerable_by=eve) == ["k2", "k4"]
        assert await listed(answerable_by=lead) == ["k1", "k3", "k4"]
        assert await listed(in_groups_of=lead) == ["k1", "k3"]
        assert await listed(in_groups_of=eve) == []
        assert await listed(visible_to=eve) == ["k1", "k2", "k4"]
        assert await listed(visible_to=Principal("bob", groups=("fi",))) == ["k4"]
        assert await listed(answerable_by=Principal("group:x")) == ["k4", "k5"]
        assert await listed(status="open", order="deadline") == ["k3", "k4", "k1", "k2"]
        assert await listed(status="open", order="deadline", after=(20, "k4")) == ["k1", "k2"]
        assert await listed(status="open", order="deadline", after=(NO_DEADLINE, "k2")) == []
        assert await listed(thread_id="t9", below=["t1"], status="open", tool="ask") == ["k3"]
        assert await store.count_tickets(2, status="open") == Tally(2, True)
        assert await store.count_tickets(9, "r1", thread_id="t1") == Tally(5)
        assert await store.tenant("other").count_tickets(9) == Tally(0)


async def test_ticket_is_found_by_id(open_store: StoreFactory) -> None:
    async with open_store() as store:
        asked = ticket("k1", message="héllo \0?", schema={"type": "object"}, deadline=9, created_at=5)
        writer = Writer(store)
        await writer.begin(calls=[call("c1")], tickets=[asked])
        assert await store.ticket("k1") == asked
        await writer.write(tickets=[replace(asked, assignee="bob")])
        assert [t.id for t in await store.tickets(assignee="bob")] == ["k1"]
        await writer.write(tickets=[replace(asked, status="answered")])
        assert await store.ticket("k1") == replace(asked, status="answered")
        assert list(await store.tickets(status="open")) == []
        assert await store.ticket("k2") is None


async def test_decisions_are_ordered_and_last_of_id_counts(open_store: StoreFactory) -> None:
    first = Decision("k1", "deny", reason="no \0", principal_id="ann", at=1, id="d2")
    second = Decision("k1", mode="arguments", value={"at": ["moon", None, 1.5]}, at=2, id="d1")
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(tickets=[ticket("k1"), ticket("k2")], decisions=[first])
        refused = replace(first, not_taken=NotTaken("refused", reason="too late", at=3))
        await writer.write(decisions=[second, refused, Decision("k2", id="d3")])
        assert list(await store.decisions("k1")) == [refused, second]
        assert [d.id for d in await store.decisions("k2")] == ["d3"]
        assert list(await store.decisions("k9")) == []


async def test_repeated_decision_is_stored_once(open_store: StoreFactory) -> None:
    async with open_store() as store:
        decision = Decision("k1", at=3)
        writer = Writer(store)
        await writer.begin(tickets=[ticket("k1")])
        for _ in range(2):
            await writer.write(decisions=[decision], tickets=[ticket("k1", status="answered")])
        assert list(await store.decisions("k1")) == [decision]


# -- items ---------------------------------------------------------------------------------------------------


async def test_item_is_found_in_any_status(open_store: StoreFactory) -> None:
    async with open_store() as store:
        sent = item("a", message=message("héllo\0"), policy="steer", agent_id="agent")
        await store.commit(Commit(thread_id="t1", inbox=[item("first"), sent]))
        found = await store.item("a")
        assert found == replace(sent, position=2)
        writer = Writer(store)
        await writer.begin(taken=["a"], identity=identity("r7"))
        assert await store.item("a") == replace(sent, position=2, status="taken", taken_by="r7")
        left = await store.item("first")
        assert left is not None
        assert (left.status, left.taken_by) == ("pending", None)
        assert await store.item("b") is None


async def test_item_of_another_thread_cannot_be_taken(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(Commit(thread_id="t2", inbox=[item("a", "t2")]))
        await Writer(store).begin(taken=["a", "never was"])
        found = await store.item("a")
        assert found is not None
        assert found.status == "pending"
        assert [i.id for i in (await Writer(store, "t2").view()).inbox] == ["a"]


# -- threads -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [1, 2, 5])
async def test_threads_are_listed_newest_first_in_pages(open_store: StoreFactory, page: int) -> None:
    async with open_store() as store:
        names = ["b", "a", "d", "c"]
        for name in names:
            await store.commit(Commit(thread_id=name, about=About(f"title of {name}")))
        writer = Writer(store, "b")
        await writer.write(message())
        seen: list[str] = []
        while found := await store.threads(before=seen[-1] if seen else None, limit=page):
            assert len(found) <= page
            seen += [thread.id for thread in found]
        assert seen == names[::-1]
        assert await store.threads(before="never was") == []


async def test_child_threads_are_found_but_not_listed(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store).write(message())
        lineage = replace(identity("r2", "child"), parent_run_id="r1", parent_thread_id="t1")
        await Writer(store, "child").write(message(), identity=lineage)
        assert [thread.id for thread in await store.threads()] == ["t1"]
        child = await store.thread("child")
        assert child is not None
        assert child.parent_id == "t1"
        assert (await store.counts())["threads"] == 2


async def test_thread_record_equals_its_view(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(log=[message()], about=About("title", {"a": 1}), inbox=[item("a")])
        view, record_ = await writer.view(), await store.thread("t1")
        assert record_ == view.thread
        assert [record_] == await store.threads()
        assert 0 < view.thread.created_at <= view.thread.updated_at
        assert await store.thread("t2") is None


async def test_counts_equal_number_of_records(open_store: StoreFactory) -> None:
    async with open_store() as store:
        assert not any((await store.counts()).values())
        await Writer(store, "t1").begin("r1", log=[message(), step(), message()], tickets=[ticket("k1")])
        done = Writer(store, "t2")
        await done.begin("r2", log=[message()])
        await done.release(runs=[record("r2", "t2", status="done")])
        assert await store.counts() == {
            "threads": 2,
            "messages": 3,
            "running": 1,
            "done": 1,
            "tickets": 1,
            "dispatches": 1,
        }


async def test_marks_differ_after_each_change_that_lists_show(open_store: StoreFactory) -> None:
    async with open_store() as store:
        assert list(await store.marks()) == []
        writer = Writer(store)
        await writer.begin()
        first = {(mark.kind, mark.id): mark.text for mark in await store.marks()}
        assert set(first) == {("run", "r1"), ("thread", "t1")}
        await writer.write(message(), tickets=[ticket("k1")])
        second = {(mark.kind, mark.id): mark.text for mark in await store.marks()}
        assert set(second) == {*first, ("ticket", "k1")}
        assert second["thread", "t1"] != first["thread", "t1"]
        assert second["run", "r1"] == first["run", "r1"]
        await writer.release(runs=[record(status="done")], tickets=[ticket("k1", status="answered")])
        third = {(mark.kind, mark.id): mark.text for mark in await store.marks()}
        assert set(third) == set(first)
        assert third["run", "r1"] != second["run", "r1"]
