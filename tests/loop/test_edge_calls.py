"""The reference's edge cases, rows 19 to 29: gates, suspension and decisions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wakeful import Agent, Plugin, Runtime, StateKey, ToolContext, call, tool
from wakeful.errors import UnknownTicket
from wakeful.plugins import BeforeTool, GateAnswer, GateTool
from wakeful.types.events import ToolCallDone, ToolCallResumed
from wakeful.types.runs import NaturalEnd

from .helpers import (
    Hold,
    House,
    Scripted,
    Spy,
    assert_settled,
    assert_valid_history,
    events_of,
    outcomes,
    replies_on,
    reply_text,
    soon,
    spying,
    until,
)


class Unlocked(StateKey[bool, bool]):
    """Whether the door is open."""

    name, default = "unlocked", False


class Guard(Plugin):
    """Refuses, or asks about, `enter` while the door is locked."""

    keys = (Unlocked,)

    def __init__(self, asks: bool = False) -> None:
        self.asks = asks
        self.asked: list[tuple[str, bool]] = []
        self.before: list[str] = []

    async def gate_tool(self, ctx: GateTool) -> GateAnswer:
        self.asked.append((ctx.call.name, ctx.state[Unlocked]))
        if ctx.call.name != "enter" or ctx.state[Unlocked]:
            return None
        return ctx.suspend("Open the door?") if self.asks else ctx.block("the door is locked")

    async def before_tool(self, ctx: BeforeTool) -> None:
        self.before.append(ctx.call.name)


@tool
async def unlock(ctx: ToolContext) -> str:
    """Open the door."""
    ctx.update(Unlocked, True)
    return "unlocked"


def door(scripted: Scripted, guard: Guard, spy: Spy, *names: str, tools: Any = ()) -> Runtime:
    """A runtime whose model asks for these calls in one step."""
    model = scripted([call(name) for name in names], "done")
    mine = [unlock, spying(spy, "enter"), spying(spy, "wave"), *tools]
    return Runtime([Agent("agent", model=model, tools=mine, plugins=[guard])])


async def test_earlier_call_unlocks_later_call_of_same_step(scripted: Scripted) -> None:
    """Row 19."""
    guard, spy = Guard(), Spy()
    runtime = door(scripted, guard, spy, "unlock", "enter")
    result = await runtime.run("agent", "go", thread="t")
    assert await outcomes(runtime, result.run_id) == {"unlock": "ok", "enter": "ok"}
    assert guard.asked == [("unlock", False), ("enter", False), ("enter", True)]
    assert spy.ran == ["enter"]
    await assert_settled(runtime, "t")


async def test_call_before_its_unlock_is_refused_alone(scripted: Scripted) -> None:
    """Row 20: the reference reports the later call failed and ends the run blocked; here the sibling of a
    denied call runs, the model gets the denial, and the run continues.
    """
    guard, spy = Guard(), Spy()
    runtime = door(scripted, guard, spy, "enter", "unlock")
    result = await runtime.run("agent", "go", thread="t")
    assert (result.text, result.termination) == ("done", NaturalEnd())
    assert await outcomes(runtime, result.run_id) == {"enter": "blocked", "unlock": "ok"}
    refused = next(r for r in await replies_on(runtime, "t") if r.name == "enter")
    assert (refused.error, reply_text(refused)) == ("denied", "enter was refused: the door is locked")
    assert spy.ran == []
    await assert_settled(runtime, "t")


async def test_hook_runs_once_when_gate_is_asked_twice(scripted: Scripted) -> None:
    """Row 21."""
    guard, spy = Guard(), Spy()
    runtime = door(scripted, guard, spy, "unlock", "enter")
    await runtime.run("agent", "go", thread="t")
    assert [name for name, _ in guard.asked].count("enter") == 2
    assert guard.before == ["unlock", "enter"]


@tool(effect="pure")
async def wonder(ctx: ToolContext) -> str:
    """Ask a person."""
    return str(ctx.ask("Well?"))


@pytest.mark.parametrize("asks", [False, True], ids=["blocks", "asks"])
async def test_suspended_sibling_closes_nothing_else(scripted: Scripted, asks: bool) -> None:
    """Row 22: the reference backfills the re-gated call and all later ones as failed; here each has its own
    fate."""
    guard, spy = Guard(asks), Spy()
    runtime = door(scripted, guard, spy, "wonder", "enter", "wave", tools=[wonder])
    result = await runtime.run("agent", "go", thread="t")
    assert result.status == "waiting"
    assert await outcomes(runtime, result.run_id) == {
        "wonder": None,
        "enter": None if asks else "blocked",
        "wave": "ok",
    }
    assert {t.tool for t in result.tickets} == ({"wonder", "enter"} if asks else {"wonder"})
    result = await runtime.resume(result.run_id, *[t.approve("yes") for t in result.tickets])
    assert result.status == "done"
    assert sorted(spy.ran) == (["enter", "wave"] if asks else ["wave"])
    await assert_settled(runtime, "t")


async def test_resumed_calls_run_in_parallel(scripted: Scripted) -> None:
    """Row 23."""
    hold = Hold()

    @tool(approval=True)
    async def act(x: int) -> int:
        """Take time."""
        await hold.here()
        return x

    house = House(scripted([call("act", x=n) for n in range(3)], "done"), act)
    result = await house.run()
    runtime = house.fresh()
    task = asyncio.create_task(runtime.resume(result.run_id, *[t.approve() for t in result.tickets]))
    await until(lambda: hold.times == 3)
    hold.released.set()
    assert (await soon(task)).status == "done"
    await house.settled()


async def test_finished_call_waits_for_nothing(scripted: Scripted) -> None:
    """Row 24: the reference clears the resume input as well; here the decisions stay on the row, as its
    history."""
    house = House(scripted(call("act"), "done"), spying(Spy(), "act", approval=True))
    result = await house.run()
    ticket = result.tickets[0]
    await house.resume(result.run_id, ticket.approve(reason="fine"))
    (row,) = await house.fresh().runs.calls(result.run_id)
    assert (row.state, row.ticket_id) == ("finished", None)
    assert [(d.ticket_id, d.reason) for d in row.decisions] == [(ticket.id, "fine")]
    assert [t.status for t in await house.store.tickets(result.run_id)] == ["answered"]


async def test_denied_call_is_reported_once(scripted: Scripted) -> None:
    """Row 25: the reference emits an internal retraction marker; here a denied call simply has its one reply."""
    spy = Spy()
    tools = [spying(spy, name, approval=True) for name in ("a", "b", "c")]
    house = House(scripted([call("a"), call("b"), call("c")], "done"), *tools)
    result = await house.run()
    a, b, c = result.tickets
    await house.resume(result.run_id, a.deny("no"))
    await house.resume(result.run_id, b.approve())
    await house.resume(result.run_id, c.approve())
    runtime = house.fresh()
    resumed = await events_of(runtime, "t", ToolCallResumed)
    assert [(e.call_id, e.decision.verdict) for e in resumed] == [
        (a.call_id, "deny"),
        (b.call_id, "approve"),
        (c.call_id, "approve"),
    ]
    done = await events_of(runtime, "t", ToolCallDone)
    assert [(e.name, e.outcome) for e in done] == [("a", "blocked"), ("b", "ok"), ("c", "ok")]
    await house.settled()


async def test_edited_arguments_are_kept_beside_original(scripted: Scripted) -> None:
    """Row 26: the reference never rewrites arguments, whatever the mode says; here the edited ones run, and the
    conversation and the ledger keep what the model asked for."""
    house = House(scripted(call("act", x=1), "done"), spying(Spy(), "act", approval=True))
    result = await house.run()
    await house.resume(result.run_id, result.tickets[0].edit({"x": 2}))
    (row,) = await house.fresh().runs.calls(result.run_id)
    assert (row.arguments, row.edited) == ({"x": 1}, {"x": 2})
    messages = await house.store.messages("t")
    assert messages[1].calls[0].arguments == {"x": 1}
    assert (await house.replies())[0][2].startswith("act 2")


@pytest.mark.parametrize("by", ["ticket", "call"])
async def test_decision_may_name_ticket_or_call(scripted: Scripted, by: str) -> None:
    """Row 27."""
    house = House(scripted(call("wonder"), "done"), wonder)
    result = await house.run()
    target = result.tickets[0].id if by == "ticket" else result.tickets[0].call_id
    result = await house.resume(result.run_id, answers={target: "so"})
    assert result.status == "done"
    assert await house.replies() == [("wonder", None, "so")]


async def test_call_may_suspend_again_with_new_ticket(scripted: Scripted) -> None:
    """Row 28."""

    @tool(effect="pure")
    async def twice(ctx: ToolContext) -> str:
        """Ask twice."""
        return f"{ctx.ask('One?')} {ctx.ask('Two?')}"

    house = House(scripted(call("twice"), "done"), twice)
    first = await house.run()
    second = await house.resume(first.run_id, first.tickets[0].answer("a"))
    assert second.tickets[0].call_id == first.tickets[0].call_id
    assert second.tickets[0].id != first.tickets[0].id
    assert_valid_history(await house.store.messages("t"), [first.tickets[0].call_id])
    await house.resume(first.run_id, second.tickets[0].answer("b"))
    assert await house.replies() == [("twice", None, "a b")]
    await house.settled()


async def test_unknown_decision_leaves_others_intact(scripted: Scripted) -> None:
    """Row 29."""
    house = House(scripted(call("wonder"), "done"), wonder)
    result = await house.run()
    before = await house.store.load("t")
    with pytest.raises(UnknownTicket, match="no-such-call"):
        await house.resume(result.run_id, answers={result.tickets[0].id: 1, "no-such-call": 2})
    assert await house.store.load("t") == before
    assert (await house.resume(result.run_id, answers={result.tickets[0].id: 1})).status == "done"
