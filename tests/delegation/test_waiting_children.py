"""Children that wait: for people, for each other, over restarts; answered at the root, in any order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loop.helpers import Scripted, Spy, assert_settled, replies_on, reply_text, soon, spying
from wakeful import Agent, Decision, Delegate, MemoryStore, Plugin, Runtime, ScriptedModel, ToolContext, call, tool
from wakeful.dispatch.tree import open_threads_below
from wakeful.errors import UnknownTicket
from wakeful.plugins import GateAnswer, GateTool
from wakeful.stores import Commit, Committed
from wakeful.types.runs import Cancelled, NaturalEnd

from .conftest import Place
from .helpers import until_true

HOW = [Delegate("child"), Delegate("child", durable=True)]


def ask(child: str = "child", **arguments: Any) -> Any:
    return call(f"agent_run_{child}", **({"prompt": "do it"} | arguments))


def family(*agents: Agent, store: Any) -> Runtime:
    return Runtime(list(agents), store=store)


@pytest.mark.parametrize("how", HOW, ids=["ephemeral", "durable"])
async def test_child_is_answered_at_root_after_restart(how: Delegate, place: Place, scripted: Scripted) -> None:
    spy = Spy()
    parent = Agent("parent", model=scripted(ask(), "done"), delegates=[how])
    child = Agent("child", model=scripted(call("pay"), "paid"), tools=[spying(spy, "pay", approval=True)])
    first = family(parent, child, store=place())
    result = await soon(first.run("parent", "go", thread="t"))
    (ticket,) = result.tickets
    assert (result.status, ticket.tool) == ("waiting", "pay")
    assert not first._scope.dispatch.active
    await first.close()
    second = family(parent, child, store=place())
    assert (await second.wait(result.run_id)).tickets == (ticket,)
    result = await soon(second.resume(result.run_id, ticket.approve()))
    assert (result.text, result.termination, spy.ran) == ("done", NaturalEnd(), ["pay"])
    (reply,) = await replies_on(second, "t")
    assert reply_text(reply) == "paid"
    await assert_settled(second, "t")
    await assert_settled(second, ticket.thread_id)
    await second.close()


@pytest.mark.parametrize("how", HOW, ids=["ephemeral", "durable"])
async def test_gate_asks_while_earlier_child_waits(how: Delegate, place: Place, scripted: Scripted) -> None:
    class FourEyes(Plugin):
        async def gate_tool(self, ctx: GateTool) -> GateAnswer:
            return ctx.suspend("Sure?") if ctx.call.name == "delete" else None

    spy = Spy()
    model, tools = scripted([ask(), call("delete")], "done"), [spying(spy, "delete")]
    parent = Agent("parent", model=model, tools=tools, delegates=[how], plugins=[FourEyes()])
    child = Agent("child", model=scripted(call("pay"), "paid"), tools=[spying(spy, "pay", approval=True)])
    async with family(parent, child, store=place()) as runtime:
        result = await soon(runtime.run("parent", "go", thread="t"))
        assert {ticket.tool for ticket in result.tickets} == {"delete", "pay"}
        result = await soon(runtime.resume(result.run_id, *[ticket.approve() for ticket in result.tickets]))
        assert (result.text, sorted(spy.ran)) == ("done", ["delete", "pay"])
        await assert_settled(runtime, "t")


@pytest.mark.parametrize("how", HOW, ids=["ephemeral", "durable"])
async def test_grandchild_is_answered_at_root(how: Delegate, place: Place, scripted: Scripted) -> None:
    spy = Spy()
    agents = [
        Agent("top", model=scripted(ask("parent"), "all done"), delegates=["parent"]),
        Agent("parent", model=scripted(ask(), "done"), delegates=[how]),
        Agent("child", model=scripted(call("pay"), "paid"), tools=[spying(spy, "pay", approval=True)]),
    ]
    async with family(*agents, store=place()) as first:
        result = await soon(first.run("top", "go", thread="t"))
        assert [t.tool for t in result.tickets] == ["pay"]
    async with family(*agents, store=place()) as second:
        result = await soon(second.resume(result.run_id, result.tickets[0].approve()))
        assert (result.text, spy.ran) == ("all done", ["pay"])
        assert {run.status for run in await second.runs.list()} == {"done"}


@pytest.mark.parametrize("how", HOW, ids=["ephemeral", "durable"])
async def test_root_tickets_include_whole_tree(how: Delegate, place: Place, scripted: Scripted) -> None:
    agents = [
        Agent("top", model=scripted([ask("parent"), call("own")], "done"), delegates=["parent"], tools=[own]),
        Agent("parent", model=scripted(ask(), "done"), delegates=[how]),
        Agent("child", model=scripted(call("pay"), "paid"), tools=[spying(Spy(), "pay", approval=True)]),
    ]
    async with family(*agents, store=place()) as runtime:
        result = await soon(runtime.run("top", "go", thread="t"))
        assert sorted(t.tool for t in result.tickets) == ["own", "pay"]
        for asked in (
            await runtime.tickets.list(result.run_id),
            await runtime.tickets.list(thread="t"),
            await runtime.tickets.list(result.run_id, status="open"),
        ):
            assert sorted(t.tool for t in asked) == ["own", "pay"]
        assert len(await runtime.tickets.list(thread="t", limit=1)) == 1
        # A ticket that isn't there is told of with all of the tree's.
        with pytest.raises(UnknownTicket) as caught:
            await runtime.resume(result.run_id, Decision("nope"))
        assert all(t.id in str(caught.value) for t in result.tickets)
        pay = next(t for t in result.tickets if t.tool == "pay")
        await soon(runtime.resume(result.run_id, pay.approve()))
        assert [t.tool for t in await runtime.tickets.list(thread="t", status="open")] == ["own"]
        assert [t.tool for t in await runtime.tickets.list(thread="t", status="answered")] == ["pay"]
        mine = next(t for t in result.tickets if t.tool == "own")
        assert (await soon(runtime.resume(result.run_id, mine.approve()))).text == "done"


async def test_background_question_is_ticket_of_waiting_root(place: Place, scripted: Scripted) -> None:
    agents = [
        Agent(
            "top",
            model=scripted(ask(background=True), call("own"), "done"),
            delegates=[Delegate("child", background=True)],
            tools=[own],
        ),
        Agent("child", model=scripted(call("pay"), "paid"), tools=[spying(Spy(), "pay", approval=True)]),
    ]
    async with family(*agents, store=place()) as runtime:
        run_id = (await soon(runtime.run("top", "go", thread="t"))).run_id
        (child,) = [task.target for task in await runtime.tasks.list("t")]
        await soon(runtime.wait(child))
        result = await runtime.wait(run_id)
        assert sorted(t.tool for t in result.tickets) == ["own", "pay"]
        assert result.tickets == (await runtime.runs.result(run_id)).tickets
        pay = next(t for t in result.tickets if t.tool == "pay")
        result = await soon(runtime.resume(run_id, pay.approve()))
        assert [t.tool for t in result.tickets] == ["own"]
        assert (await soon(runtime.resume(run_id, result.tickets[0].approve()))).status == "done"


async def test_later_waiting_root_shows_background_question(place: Place, scripted: Scripted) -> None:
    @tool
    async def until_it_asks() -> str:
        (child,) = [task.target for task in await runtime.tasks.list("t")]
        while (await runtime.wait(child)).status != "waiting":
            await asyncio.sleep(0)
        return "it does"

    agents = [
        Agent(
            "top",
            model=scripted(ask(background=True), call("until_it_asks"), call("own"), "done", "heard"),
            delegates=[Delegate("child", background=True)],
            tools=[own, until_it_asks],
        ),
        Agent("child", model=scripted(call("pay"), "paid"), tools=[spying(Spy(), "pay", approval=True)]),
    ]
    async with family(*agents, store=place()) as runtime:
        result = await soon(runtime.run("top", "go", thread="t"))
        assert [t.tool for t in result.tickets] == ["own", "pay"]
        result = await soon(runtime.resume(result.run_id, result.tickets[0].approve()))
        assert [t.tool for t in result.tickets] == ["pay"]
        assert (await soon(runtime.resume(result.run_id, result.tickets[0].approve()))).text == "heard"


@tool(approval=True)
async def own() -> str:
    """Of the root."""
    return "own"


@pytest.mark.parametrize("how", HOW, ids=["ephemeral", "durable"])
async def test_answers_come_one_by_one_and_in_any_order(how: Delegate, place: Place, scripted: Scripted) -> None:
    spy = Spy()
    agents = [
        Agent(
            "parent",
            model=scripted([ask(), ask(), call("own")], "done"),
            delegates=[how],
            tools=[spying(spy, "own", approval=True)],
        ),
        Agent(
            "child",
            model=ScriptedModel([call("pay"), call("pay"), "paid", "paid"]),
            tools=[spying(spy, "pay", approval=True)],
        ),
    ]
    runtime = family(*agents, store=place())
    result = await soon(runtime.run("parent", "go", thread="t"))
    assert sorted(t.tool for t in result.tickets) == ["own", "pay", "pay"]
    for left, tool_name in ((2, "pay"), (1, "own"), (0, "pay")):
        ticket = next(t for t in reversed(result.tickets) if t.tool == tool_name)
        result = await soon(runtime.resume(result.run_id, ticket.approve()))
        assert len(result.tickets) == left
    assert (result.text, result.status, sorted(spy.ran)) == ("done", "done", ["own", "pay", "pay"])
    await assert_settled(runtime, "t")
    await runtime.close()


async def test_answers_to_several_runs_in_one_call(place: Place, scripted: Scripted) -> None:
    spy = Spy()
    agents = [
        Agent("parent", model=scripted([ask(), ask()], "done"), delegates=["child"]),
        Agent(
            "child",
            model=ScriptedModel([call("pay"), call("pay"), "paid", "paid"]),
            tools=[spying(spy, "pay", approval=True)],
        ),
    ]
    runtime = family(*agents, store=place())
    result = await soon(runtime.run("parent", "go", thread="t"))
    one, two = result.tickets
    result = await soon(runtime.resume(result.run_id, one.deny("no"), answers={two.call_id: True}))
    assert (result.text, spy.ran) == ("done", ["pay"])
    await runtime.close()


async def test_bad_answer_among_good_ones_changes_nothing(place: Place, scripted: Scripted) -> None:
    spy = Spy()
    agents = [
        Agent("parent", model=scripted(ask(), "done"), delegates=["child"]),
        Agent("child", model=scripted(call("pay"), "paid"), tools=[spying(spy, "pay", approval=True)]),
    ]
    runtime = family(*agents, store=place())
    result = await soon(runtime.run("parent", "go", thread="t"))
    with pytest.raises(UnknownTicket):
        await runtime.resume(result.run_id, result.tickets[0].approve(), answers={"nope": True})
    assert spy.ran == []
    assert (await soon(runtime.resume(result.run_id, result.tickets[0].approve()))).text == "done"
    await runtime.close()


async def test_answer_by_ticket_id_resumes_up_to_root(place: Place, scripted: Scripted) -> None:
    agents = [
        Agent("parent", model=scripted(ask(), "done"), delegates=["child"]),
        Agent("child", model=scripted(call("pay"), "paid"), tools=[spying(Spy(), "pay", approval=True)]),
    ]
    runtime = family(*agents, store=place())
    waiting = await soon(runtime.run("parent", "go", thread="t"))
    decision = waiting.tickets[0].approve()
    result = await soon(runtime.tickets.answer(waiting.tickets[0].id, decision))
    assert (result.run_id, result.text) == (waiting.run_id, "done")
    assert (await soon(runtime.tickets.answer(waiting.tickets[0].id, decision))).run_id == waiting.run_id
    await runtime.close()


@pytest.mark.parametrize("gone", ["top", "parent"])
@pytest.mark.parametrize("how", HOW, ids=["ephemeral", "durable"])
async def test_child_of_deleted_parent_can_be_answered(
    how: Delegate, gone: str, place: Place, scripted: Scripted
) -> None:
    """The answer comes back with what the topmost run came to that is still there."""
    spy = Spy()
    agents = [
        Agent("top", model=scripted(ask("parent"), *["alone"] * (gone == "parent")), delegates=["parent"]),
        Agent("parent", model=scripted(ask(), *(["done"] if gone == "top" else [])), delegates=[how]),
        Agent("child", model=scripted(call("pay"), "paid"), tools=[spying(spy, "pay", approval=True)]),
    ]
    async with family(*agents, store=place()) as runtime:
        top = await soon(runtime.run("top", "go", thread="t"))
        (ticket,) = top.tickets
        (run,) = await runtime.runs.list(agent=gone)
        assert await runtime.threads.delete(run.thread_id, children="detach") == 1
        if gone == "parent":
            assert (await soon(runtime.wait(top.run_id))).text == "alone"
        decision = ticket.approve()
        for _ in range(2):
            result = await soon(runtime.tickets.answer(ticket.id, decision))
            assert (result.text, spy.ran) == ("done" if gone == "top" else "paid", ["pay"])


@pytest.mark.parametrize("resumable", [True, False], ids=["unwound", "in-memory"])
@pytest.mark.parametrize("durable", [False, True], ids=["ephemeral", "durable"])
async def test_run_continues_when_child_thread_is_deleted(
    durable: bool, resumable: bool, place: Place, scripted: Scripted
) -> None:
    heard: list[Any] = []

    @tool(resumable=resumable)
    async def hand(ctx: ToolContext) -> str:
        heard.append(await ctx.run_agent("child", "go", durable=durable))
        return heard[-1].status

    model = scripted(call("hand"), "without it")
    agents = [
        Agent("parent", model=model, tools=[hand]),
        Agent("child", model=scripted(call("pay")), tools=[spying(Spy(), "pay", approval=True)]),
    ]
    async with Runtime(agents, store=place()) as runtime:
        handle = await runtime.start("parent", "go", thread="t")

        async def rests() -> bool:
            (child,) = await runtime.runs.list(agent="child") or [None]
            stored = child and await runtime.store.load(child.thread_id)
            return bool(stored and stored.tickets and not stored.thread.claimed)

        await until_true(rests)
        (child,) = await runtime.runs.list(agent="child")
        assert await runtime.threads.delete(child.thread_id) == 1
        assert (await soon(runtime.wait(handle.run_id))).text == "without it"
        assert (heard[-1].status, heard[-1].error) == ("cancelled", "cancelled: its thread was deleted")
        await assert_settled(runtime, "t")


async def test_run_continues_when_unstarted_child_is_deleted(place: Place, scripted: Scripted) -> None:
    agents = [
        Agent("parent", model=scripted(ask(), "without it"), delegates=[Delegate("child", durable=True)]),
        Agent("child", model=scripted()),
    ]
    async with Runtime(agents, store=place()).as_worker(agents=["parent"]) as runtime:
        handle = await runtime.start("parent", "go", thread="t")

        async def waits() -> bool:
            return (await runtime.runs.get(handle.run_id)).status == "waiting"

        await until_true(waits)
        (task,) = await runtime.store.tasks("t")
        assert await runtime.threads.delete(task.target_thread) == 1
        assert (await soon(runtime.wait(handle.run_id))).text == "without it"
        (reply,) = await replies_on(runtime, "t")
        assert "cancelled: its thread was deleted" in reply_text(reply)


@pytest.mark.parametrize("how", HOW, ids=["ephemeral", "durable"])
async def test_run_continues_when_deleting_process_died(how: Delegate, place: Place, scripted: Scripted) -> None:
    agents = [
        Agent("parent", model=scripted(ask(), "without it"), delegates=[how]),
        Agent("child", model=scripted(call("pay")), tools=[spying(Spy(), "pay", approval=True)]),
    ]
    first = family(*agents, store=place())
    waits = await soon(first.run("parent", "go", thread="t"))
    (child,) = await first.runs.list(agent="child")
    assert await first.store.delete(child.thread_id) == 1
    await first.close()  # Nothing but the transaction was done here.
    async with family(*agents, store=place()) as second:
        assert (await soon(second.wait(waits.run_id))).text == "without it"
        (reply,) = await replies_on(second, "t")
        assert "cancelled: its thread was deleted" in reply_text(reply)
        await assert_settled(second, "t")


async def test_new_input_supersedes_run_with_waiting_child(place: Place, scripted: Scripted) -> None:
    agents = [
        Agent("parent", model=scripted(ask(), "never mind"), delegates=["child"]),
        Agent("child", model=scripted(call("pay")), tools=[spying(Spy(), "pay", approval=True)]),
    ]
    runtime = family(*agents, store=place())
    waiting = await soon(runtime.run("parent", "go", thread="t"))
    result = await soon(runtime.run("parent", "forget it", thread="t"))
    assert result.text == "never mind"
    child = await soon(runtime.wait(waiting.tickets[0].run_id))
    assert isinstance(child.termination, Cancelled)
    await assert_settled(runtime, "t")
    await runtime.close()


@pytest.mark.parametrize("how", HOW, ids=["ephemeral", "durable"])
async def test_parent_is_told_when_child_is_superseded(how: Delegate, place: Place, scripted: Scripted) -> None:
    agents = [
        Agent("parent", model=scripted(ask(), "it was stopped"), delegates=[how]),
        Agent("child", model=scripted(call("pay"), "hello"), tools=[spying(Spy(), "pay", approval=True)]),
    ]
    runtime = family(*agents, store=place())
    waiting = await soon(runtime.run("parent", "go", thread="t"))
    assert (await soon(runtime.run("child", "hi", thread=waiting.tickets[0].thread_id))).text == "hello"
    result = await soon(runtime.wait(waiting.run_id))
    assert (result.status, result.text) == ("done", "it was stopped")
    (reply,) = await replies_on(runtime, "t")
    assert "superseded by new input" in reply_text(reply)
    await runtime.close()


async def test_what_isopen_threads_below_run_is_looked_at_from_above(scripted: Scripted) -> None:
    class AtTheEnd(MemoryStore):
        async def commit(self, commit: Commit) -> Committed:
            committed = await super().commit(commit)
            ended = [run for run in (commit.runs if commit.more else ()) if run.status == "done"]
            left.extend([await open_threads_below(self, run) for run in ended if run.agent_id == "top"])
            return committed

    left: list[list[str]] = []
    agents = [
        Agent("top", model=scripted(ask("parent")), delegates=[Delegate("parent", durable=True)]),
        Agent("parent", model=scripted(ask()), delegates=[Delegate("child", durable=True)]),
        Agent("child", model=scripted(call("pay")), tools=[spying(Spy(), "pay", approval=True)]),
    ]
    async with family(*agents, store=AtTheEnd()) as runtime:
        result = await soon(runtime.run("top", "go", thread="t"))
        child, parent, _ = await runtime.runs.list()
        assert await soon(runtime.cancel(result.run_id))
        # One that ends tells those below it by the same commit: seen in this order, none is overlooked.
        assert left == [[parent.thread_id, child.thread_id]]


async def test_cancel_of_root_cancels_waiting_grandchild(place: Place, scripted: Scripted) -> None:
    agents = [
        Agent("top", model=scripted(ask("parent")), delegates=["parent"]),
        Agent("parent", model=scripted(ask()), delegates=[Delegate("child", durable=True)]),
        Agent("child", model=scripted(call("pay")), tools=[spying(Spy(), "pay", approval=True)]),
    ]
    runtime = family(*agents, store=place())
    waiting = await soon(runtime.run("top", "go", thread="t"))
    assert len(waiting.tickets) == 1
    assert await soon(runtime.cancel(waiting.run_id, "enough"))
    runs = await runtime.runs.list()
    assert len(runs) == 3
    assert all(run.outcome is not None and isinstance(run.outcome.termination, Cancelled) for run in runs)
    assert await runtime.tickets.list(status="open") == []
    await runtime.close()


# -- in tools ------------------------------------------------------------------------------------------------


async def test_resumed_tool_finds_its_children(place: Place, scripted: Scripted) -> None:
    tries: list[int] = []

    @tool(resumable=True)
    async def survey(ctx: ToolContext) -> str:
        tries.append(ctx.attempt)
        found = await asyncio.gather(ctx.run_agent("child", "one"), ctx.run_agent("other", "two"))
        last = await ctx.run_agent("other", "three")
        return " ".join([*[child.text for child in found], last.text])

    spy = Spy()
    agents = [
        Agent("parent", model=scripted(call("survey"), "done"), tools=[survey]),
        Agent("child", model=scripted(call("pay"), "paid"), tools=[spying(spy, "pay", approval=True)]),
        Agent("other", model=scripted("two", "three")),
    ]
    runtime = family(*agents, store=place())
    result = await soon(runtime.run("parent", "go", thread="t"))
    assert [t.tool for t in result.tickets] == ["pay"]
    result = await soon(runtime.resume(result.run_id, result.tickets[0].approve()))
    assert (result.text, spy.ran, tries) == ("done", ["pay"], [1, 2])
    (reply,) = await replies_on(runtime, "t")
    assert reply_text(reply) == "paid two three"
    assert {run.status for run in await runtime.runs.list()} == {"done"}
    await runtime.close()


async def test_once_tool_waits_in_memory(place: Place, scripted: Scripted) -> None:
    @tool
    async def survey(ctx: ToolContext) -> str:
        return (await ctx.run_agent("child", "one")).text

    agents = [
        Agent("parent", model=scripted(call("survey"), "done"), tools=[survey]),
        Agent("child", model=scripted(call("pay"), "paid"), tools=[spying(Spy(), "pay", approval=True)]),
    ]
    runtime = family(*agents, store=place())
    handle = await runtime.start("parent", "go", thread="t")
    while not (open_tickets := await runtime.tickets.list(status="open")):
        await asyncio.sleep(0.01)
    assert (await runtime.runs.get(handle.run_id)).status == "running"
    result = await soon(runtime.tickets.answer(open_tickets[0].id, True))
    assert (result.run_id, result.text) == (handle.run_id, "done")
    await runtime.close()
