"""Suspending in one runtime and resuming in a fresh one on the same store."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from wakeful import Decision, Plugin, ToolContext, call, tool
from wakeful.errors import InvalidDecision, UsageError
from wakeful.plugins import GateAnswer, GateTool
from wakeful.types.events import ToolCallResumed, ToolCallSuspended
from wakeful.types.runs import NaturalEnd

from .helpers import (
    House,
    Scripted,
    Spy,
    assert_valid_history,
    events_of,
    spying,
)


@tool(effect="pure")
async def confirm(ctx: ToolContext, what: str = "it") -> str:
    """Ask, then say what was answered."""
    return f"{what}: {ctx.ask(f'Do {what}?')}"


# -- the modes -----------------------------------------------------------------------------------------------


async def test_approval_runs_call_in_resuming_runtime(scripted: Scripted) -> None:
    spy = Spy()
    house = House(scripted(call("act", x=1), "done"), spying(spy, "act", approval=True))
    result = await house.run()
    assert (result.status, spy.ran) == ("waiting", [])
    (ticket,) = result.tickets
    assert (ticket.tool, ticket.arguments, ticket.asked_by) == ("act", {"x": 1}, "approval")
    result = await house.resume(result.run_id, ticket.approve())
    assert (result.status, result.text, spy.ran) == ("done", "done", ["act"])
    assert await house.replies() == [("act", None, "act 1")]
    await house.settled()


async def test_proceed_shows_decision_to_tool(scripted: Scripted) -> None:
    seen: list[Any] = []

    @tool(approval=True)
    async def act(ctx: ToolContext) -> str:
        """Act."""
        seen.append(ctx.decision)
        return "ok"

    house = House(scripted(call("act"), "done"), act)
    result = await house.run()
    await house.resume(
        result.run_id, Decision(result.tickets[0].id, mode="proceed", value={"by": "Ann"}, principal_id="ann")
    )
    (decision,) = seen
    assert (decision.value, decision.principal_id, decision.asked_by) == ({"by": "Ann"}, "ann", "approval")


async def test_ask_returns_answer_when_tool_runs_again(scripted: Scripted) -> None:
    house = House(scripted(call("confirm", what="lunch"), "done"), confirm)
    result = await house.run()
    (ticket,) = result.tickets
    assert (ticket.message, ticket.asked_by) == ("Do lunch?", "tool")
    await house.resume(result.run_id, ticket.approve("yes"))
    assert await house.replies() == [("confirm", None, "lunch: yes")]
    await house.settled()


async def test_result_replaces_tool_call(scripted: Scripted) -> None:
    spy = Spy()
    house = House(scripted(call("act"), "done"), spying(spy, "act", approval=True))
    result = await house.run()
    await house.resume(result.run_id, result.tickets[0].result({"paid": 7}))
    assert spy.ran == []
    assert await house.replies() == [("act", None, '{"paid":7}')]
    await house.settled()


async def test_ask_answer_may_be_its_result(scripted: Scripted) -> None:
    spy = Spy()

    @tool(effect="pure")
    async def survey(ctx: ToolContext) -> str:
        """Ask and be answered for."""
        spy.note("survey")
        ctx.ask("How was it?", mode="result")
        raise AssertionError("never reached")

    house = House(scripted(call("survey"), "done"), survey)
    result = await house.run()
    await house.resume(result.run_id, result.tickets[0].answer("great"))
    assert spy.ran == ["survey"]
    assert await house.replies() == [("survey", None, "great")]


async def test_edited_arguments_run_and_model_is_informed(scripted: Scripted) -> None:
    spy = Spy()
    house = House(scripted(call("act", x=1), "done"), spying(spy, "act", approval=True))
    result = await house.run()
    await house.resume(result.run_id, result.tickets[0].edit({"x": 5}))
    ((_, error, text),) = await house.replies()
    assert error is None
    assert text.startswith("act 5\n")
    assert "a person changed the arguments" in text
    (row,) = await house.fresh().runs.calls(result.run_id)
    assert (row.arguments, row.edited) == ({"x": 1}, {"x": 5})


async def test_invalid_edited_arguments_are_refused(scripted: Scripted) -> None:
    spy = Spy()
    house = House(scripted(call("act", x=1), "done"), spying(spy, "act", approval=True))
    result = await house.run()
    before = await house.store.load("t")
    with pytest.raises(InvalidDecision, match=r"act.*x"):
        await house.resume(result.run_id, result.tickets[0].edit({"x": "many"}))
    assert await house.store.load("t") == before
    assert (await house.resume(result.run_id, result.tickets[0].approve())).status == "done"
    assert spy.ran == ["act"]


class Limit(Plugin):
    """Suspends every payment, and refuses those over 100 even if they were approved."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def gate_tool(self, ctx: GateTool) -> GateAnswer:
        self.asked.append(ctx.arguments["x"])
        return ctx.block("over the limit") if ctx.arguments["x"] > 100 else ctx.suspend("Pay?")


async def test_gate_is_asked_again_about_edited_arguments(scripted: Scripted) -> None:
    spy, gate = Spy(), Limit()
    house = House(scripted(call("pay", x=1), "done"), spying(spy, "pay"), plugins=[gate])
    result = await house.run()
    await house.resume(result.run_id, result.tickets[0].edit({"x": 500}))
    assert gate.asked == [1, 500]
    assert spy.ran == []
    assert await house.replies() == [("pay", "denied", "pay was refused: over the limit")]


async def test_answered_gate_question_is_not_asked_again(scripted: Scripted) -> None:
    spy, gate = Spy(), Limit()
    house = House(scripted(call("pay", x=1), "done"), spying(spy, "pay"), plugins=[gate])
    result = await house.run()
    assert (await house.resume(result.run_id, result.tickets[0].edit({"x": 50}))).status == "done"
    assert gate.asked == [1, 50]
    assert spy.ran == ["pay"]


async def test_denial_informs_model_and_run_continues(scripted: Scripted) -> None:
    spy = Spy()
    house = House(scripted(call("act"), "understood"), spying(spy, "act", approval=True))
    result = await house.run()
    result = await house.resume(result.run_id, result.tickets[0].deny("not today"))
    assert (result.text, result.termination, spy.ran) == ("understood", NaturalEnd(), [])
    assert await house.replies() == [("act", "denied", "act was denied: not today. It did not run.")]
    await house.settled()


# -- several tickets -----------------------------------------------------------------------------------------


def three(spy: Spy) -> list[Any]:
    """Three tools that want approval."""
    return [spying(spy, name, approval=True) for name in ("a", "b", "c")]


@pytest.mark.parametrize("order", list(permutations("abc")))
@pytest.mark.parametrize("by", ["ticket", "call"])
async def test_answers_come_in_any_order_one_at_time(scripted: Scripted, order: tuple[str], by: str) -> None:
    spy = Spy()
    house = House(scripted([call("a"), call("b"), call("c")], "done"), *three(spy))
    result = await house.run()
    tickets = {t.tool: t for t in result.tickets}
    for count, name in enumerate(order, 1):
        target = tickets[name].id if by == "ticket" else tickets[name].call_id
        result = await house.resume(result.run_id, answers={target: True})
        assert spy.ran == list(order[:count])
        assert {t.tool for t in result.tickets} == set(order[count:])
        assert_valid_history(await house.store.messages("t"), [t.call_id for t in result.tickets])
    assert result.status == "done"
    await house.settled()


async def test_all_answers_at_once_may_differ(scripted: Scripted) -> None:
    spy = Spy()
    house = House(scripted([call("a"), call("b"), call("c")], "done"), *three(spy))
    result = await house.run()
    a, b, c = result.tickets
    result = await house.resume(result.run_id, b.deny(), c.result("given"), a.approve())
    assert result.status == "done"
    assert {name: error for name, error, _ in await house.replies()} == {"a": None, "b": "denied", "c": None}
    assert spy.ran == ["a"]
    await house.settled()


async def test_one_bad_answer_among_good_ones_changes_nothing(scripted: Scripted) -> None:
    spy = Spy()
    house = House(scripted([call("a"), call("b"), call("c")]), *three(spy))
    result = await house.run()
    before = await house.store.load("t")
    a = result.tickets[0]
    for bad in (Decision("nope"), a.deny(), Decision(result.tickets[1].id, mode="arguments", value=3)):
        with pytest.raises(UsageError):
            await house.resume(result.run_id, a.approve(), bad)
    assert await house.store.load("t") == before
    assert spy.ran == []


async def test_finished_siblings_are_committed_while_one_waits(scripted: Scripted) -> None:
    spy = Spy()
    calls = [call("free", x=1), call("act"), call("free", x=2)]
    house = House(scripted(calls, "done"), spying(spy, "act", approval=True), spying(spy, "free"))
    result = await house.run()
    assert spy.ran == ["free", "free"]
    assert_valid_history(await house.store.messages("t"), [result.tickets[0].call_id])
    await house.resume(result.run_id, result.tickets[0].approve())
    assert spy.ran == ["free", "free", "act"]
    await house.settled()


# -- asking again and again ----------------------------------------------------------------------------------


async def test_call_may_ask_repeatedly_with_new_tickets(scripted: Scripted) -> None:
    runs: list[str] = []

    @tool(effect="pure")
    async def form(ctx: ToolContext) -> str:
        """Fill a form in."""
        runs.append("top")
        name = ctx.ask("Name?")
        age = ctx.ask("Age?")
        town = ctx.ask("Town?")
        return f"{name}, {age}, {town}"

    house = House(scripted(call("form"), "done"), form)
    result = await house.run()
    asked: list[str] = []
    ids: set[str] = set()
    for value in ("Ann", 42, "Rome"):
        (ticket,) = result.tickets
        asked.append(ticket.message)
        ids.add(ticket.id)
        result = await house.resume(result.run_id, ticket.answer(value))
    assert asked == ["Name?", "Age?", "Town?"]
    assert len(ids) == 3
    assert runs == ["top"] * 4
    assert await house.replies() == [("form", None, "Ann, 42, Rome")]
    log = house.fresh()
    assert len(await events_of(log, "t", ToolCallSuspended)) == 3
    assert len(await events_of(log, "t", ToolCallResumed)) == 3
    await house.settled()


async def test_approval_does_not_answer_tool_question(scripted: Scripted) -> None:
    @tool(effect="pure", approval=True)
    async def act(ctx: ToolContext) -> str:
        """Act."""
        return f"answered {ctx.ask('Which?')}"

    house = House(scripted(call("act"), "done"), act)
    result = await house.run()
    result = await house.resume(result.run_id, result.tickets[0].approve())
    assert [t.message for t in result.tickets] == ["Which?"]
    await house.resume(result.run_id, result.tickets[0].answer("this"))
    assert await house.replies() == [("act", None, "answered this")]


async def test_sync_tool_may_ask(scripted: Scripted) -> None:
    @tool(effect="pure")
    def act(ctx: ToolContext) -> str:
        """Act in a thread."""
        return f"answered {ctx.ask('Which?')}"

    house = House(scripted(call("act"), "done"), act)
    result = await house.run()
    await house.resume(result.run_id, result.tickets[0].answer("this"))
    assert await house.replies() == [("act", None, "answered this")]


async def test_once_tool_may_not_ask_while_running(scripted: Scripted) -> None:
    @tool
    async def act(ctx: ToolContext) -> str:
        """Act."""
        return str(ctx.ask("Which?"))

    house = House(scripted(call("act"), "sorry"), act)
    result = await house.run()
    assert result.status == "done"
    ((_, error, text),) = await house.replies()
    assert error == "failed"
    assert "resumable=True" in text
