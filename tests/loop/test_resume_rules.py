"""Refused resumes, and state that survives a suspension."""

from __future__ import annotations

import pytest

from wakeful import Decision, ModelSettings, Plugin, StateKey, ToolContext, Turn, Usage, call, tool
from wakeful.errors import InvalidDecision, RunNotWaiting, TicketClosed, UnknownRun, UnknownTicket, UsageError
from wakeful.plugins import AfterTool, Step
from wakeful.types.events import RunFinish, RunStart
from wakeful.types.runs import NaturalEnd

from .helpers import (
    House,
    Scripted,
    Spy,
    events_of,
    spying,
)


@tool(effect="pure")
async def confirm(ctx: ToolContext, what: str = "it") -> str:
    """Ask, then say what was answered."""
    return f"{what}: {ctx.ask(f'Do {what}?')}"


# -- what can't be resumed -----------------------------------------------------------------------------------


async def test_answered_ticket_refuses_another_answer(scripted: Scripted) -> None:
    house = House(scripted([call("a"), call("b")]), *[spying(Spy(), name, approval=True) for name in "ab"])
    result = await house.run()
    a, _ = result.tickets
    await house.resume(result.run_id, a.approve())
    with pytest.raises(TicketClosed, match="answered"):
        await house.resume(result.run_id, a.deny())


async def test_done_or_unknown_run_cannot_be_resumed(scripted: Scripted) -> None:
    house = House(scripted("done"))
    result = await house.run()
    with pytest.raises(RunNotWaiting, match="done"):
        await house.resume(result.run_id, Decision("x"))
    with pytest.raises(UnknownRun, match="nope"):
        await house.resume("nope", Decision("x"))
    with pytest.raises(UsageError, match="needs a decision"):
        await house.resume(result.run_id)


async def test_unencodable_value_is_refused(scripted: Scripted) -> None:
    house = House(scripted(call("confirm")), confirm)
    result = await house.run()
    for value in (object(), "\ud800"):
        with pytest.raises(InvalidDecision):
            await house.resume(result.run_id, result.tickets[0].answer(value))
    assert (await house.fresh().runs.get(result.run_id)).status == "waiting"


async def test_unknown_ticket_error_names_open_ones(scripted: Scripted) -> None:
    house = House(scripted(call("confirm")), confirm)
    result = await house.run()
    with pytest.raises(UnknownTicket, match=rf"{result.tickets[0].id} \(confirm\)"):
        await house.resume(result.run_id, Decision("nope"))


async def test_tool_that_asked_is_not_reported_as_unstarted(scripted: Scripted) -> None:
    denied = House(scripted(call("confirm"), "done"), confirm)
    result = await denied.run()
    await denied.resume(result.run_id, result.tickets[0].deny("no"))
    superseded = House(scripted(call("confirm"), "done"), confirm)
    await superseded.run()
    await superseded.run("never mind")
    cancelled = House(scripted(call("confirm")), confirm)
    await cancelled.fresh().cancel((await cancelled.run()).run_id)
    told = [await house.replies() for house in (denied, superseded, cancelled)]
    assert [text for ((_, _, text),) in told] == [
        "confirm was denied: no. It had begun, and did not go on.",
        "confirm had begun, and did not go on: new input came before it was decided.",
        "confirm had begun, and did not go on: the run was cancelled.",
    ]


# -- what survives -------------------------------------------------------------------------------------------


class Count(StateKey[int, int]):
    """How many phases ran in this run."""

    name, merge, default = "count", "commutative", 0

    def apply(self, value: int, update: int) -> int:
        return value + update


class Counting(Plugin):
    """Counts in run-scoped state."""

    keys = (Count,)

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    async def run_start(self, ctx: Step) -> None:
        self.seen.append(("run_start", ctx.state[Count]))
        ctx.update(Count, 1)

    async def after_tool(self, ctx: AfterTool) -> None:
        ctx.update(Count, 10)

    async def step_end(self, ctx: Step) -> None:
        self.seen.append(("step_end", ctx.state[Count]))


async def test_state_steps_usage_and_settings_survive_suspension(scripted: Scripted) -> None:
    spent = Usage(input_tokens=10, output_tokens=5, cost=3)
    model = scripted(Turn(calls=[call("free"), call("act")], usage=spent), Turn(text="done", usage=spent))
    counting = Counting()
    tools = [spying(Spy(), "free"), spying(Spy(), "act", approval=True)]
    house = House(model, *tools, plugins=[counting])
    result = await house.run(settings=ModelSettings(temperature=0.5))
    assert (result.steps, result.usage) == (1, spent)
    result = await house.resume(result.run_id, result.tickets[0].approve())
    assert (result.steps, result.usage) == (2, spent + spent)
    assert counting.seen == [("run_start", 0), ("run_start", 11), ("step_end", 22), ("step_end", 22)]
    assert [request.settings.temperature for request in model.requests] == [0.5, 0.5]


async def test_each_activation_is_logged_under_one_run_id(scripted: Scripted) -> None:
    house = House(scripted(call("confirm"), "done"), confirm)
    result = await house.run()
    again = await house.resume(result.run_id, result.tickets[0].answer(1))
    assert again.run_id == result.run_id
    runtime = house.fresh()
    assert [e.trigger for e in await events_of(runtime, "t", RunStart)] == ["new", "resume"]
    first, last = await events_of(runtime, "t", RunFinish)
    assert (first.status, first.termination) == ("waiting", None)
    assert first.waiting is not None
    assert first.waiting.tickets == (result.tickets[0].id,)
    assert (last.status, last.termination, last.waiting) == ("done", NaturalEnd(), None)


async def test_ticket_of_another_run_is_refused(scripted: Scripted) -> None:
    house = House(scripted(call("confirm"), call("confirm")), confirm)
    first = await house.run()
    other = await house.fresh().run("agent", "go", thread="other")
    with pytest.raises(UnknownTicket):
        await house.resume(first.run_id, other.tickets[0].answer(1))
    assert (await house.fresh().runs.get(other.run_id)).status == "waiting"
