"""Tickets with a deadline: default decisions and escalations, in any process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from loop.helpers import Hold, Spy, events_of, holding, replies_on, reply_text, soon, spying
from wakeful import (
    Agent,
    Approval,
    FunctionModel,
    MemoryStore,
    Plugin,
    Principal,
    Runtime,
    ScriptedModel,
    ToolContext,
    UsageError,
    call,
    tool,
)
from wakeful.errors import ConfigurationError, TicketClosed
from wakeful.plugins import GateTool
from wakeful.testing import FakeClock
from wakeful.types import Answer, Escalation
from wakeful.types.events import TicketChanged, ToolCallResumed

HOUR = 3600
Make = Callable[..., Runtime]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Make:
    """Makes runtimes that remember nothing but their store, as another process would."""
    store = MemoryStore()

    def made(*tools: Any, model: Any = None, **options: Any) -> Runtime:
        place: Any = store if request.param == "memory" else tmp_path / "app.db"
        model = model or FunctionModel(lambda r: "done" if r.messages[-1].role == "tool" else call("act"))
        return Runtime([Agent("agent", model=model, tools=tools, **options)], store=place, clock=clock)

    return made


async def left_waiting(runtime: Runtime) -> Any:
    """Run until it waits, and end the process."""
    result = await runtime.run("agent", "go", thread="t")
    await runtime.close()
    assert result.status == "waiting"
    return result


async def finished(runtime: Runtime, run_id: str) -> str:
    """Look until the run is done; what the model was told about its call."""
    async with runtime:
        while (await runtime.runs.get(run_id)).status != "done":
            await until_looked()
        (reply,) = await replies_on(runtime, "t")
        return reply_text(reply)


async def until_looked() -> None:
    await asyncio.sleep(0.001)


# -- the default ---------------------------------------------------------------------------------------------


async def test_waiting_run_record_has_first_deadline(make: Make, clock: FakeClock) -> None:
    one = spying(Spy(), "one", approval=Approval("ann"), deadline=2 * HOUR)
    two = spying(Spy(), "two", approval=True, deadline=timedelta(hours=1), on_deadline="approve")
    three = spying(Spy(), "three", approval=True)
    model = ScriptedModel([[call("one"), call("two"), call("three")]])
    runtime = make(one, two, three, model=model)
    result = await runtime.run("agent", "go", thread="t")
    record = await runtime.runs.get(result.run_id)
    assert record.waiting is not None
    assert record.waiting.until == clock.now() + HOUR * 1000
    tickets = {ticket.tool: ticket for ticket in await runtime.tickets.list(status="open")}
    assert (tickets["one"].assignee, tickets["one"].deadline) == ("ann", clock.now() + 2 * HOUR * 1000)
    assert (tickets["two"].on_deadline, tickets["three"].deadline) == ("approve", None)
    assert [t.tool for t in await runtime.tickets.list(assignee="ann")] == ["one"]
    await runtime.close()


async def test_deadline_denies_without_principal(make: Make, clock: FakeClock) -> None:
    spy = Spy()
    async with make(spying(spy, "act", approval=True, deadline=HOUR)) as runtime:
        result = await runtime.run("agent", "go", thread="t")
        await clock.advance(HOUR - 1)
        assert (await runtime.runs.get(result.run_id)).status == "waiting"
        await clock.advance(1)
        due = clock.now()
        assert (await soon(_done(runtime, result.run_id))).text == "done"
        assert spy.ran == []
        (reply,) = await replies_on(runtime, "t")
        assert reply.error == "denied"
        assert "nobody answered in time" in reply_text(reply)
        (decision,) = await runtime.tickets.decisions(result.tickets[0].id)
        assert (decision.verdict, decision.principal_id, decision.at) == ("deny", "wakeful", due)
        assert decision.reason == "nobody answered in time"
        (ticket,) = await runtime.tickets.list(result.run_id)
        assert ticket.status == "answered"


async def _done(runtime: Runtime, run_id: str) -> Any:
    while (await runtime.runs.get(run_id)).status != "done":
        await until_looked()
    return await runtime.wait(run_id)


async def test_missed_deadline_is_applied_on_next_start(make: Make, clock: FakeClock) -> None:
    spy = Spy()
    act = spying(spy, "act", approval=True, deadline=HOUR, on_deadline="approve")
    result = await left_waiting(make(act))
    await clock.advance(100 * HOUR)
    assert spy.ran == []
    assert await soon(finished(make(act), result.run_id)) == "act 0"
    assert spy.ran == ["act"]


async def test_late_answer_counts_before_default_is_applied(make: Make, clock: FakeClock) -> None:
    spy = Spy()
    act = spying(spy, "act", approval=True, deadline=HOUR)
    result = await left_waiting(make(act))
    await clock.advance(2 * HOUR)
    runtime = make(act)
    done = await runtime.tickets.answer(result.tickets[0].id, True, principal=Principal("ann"))
    assert (done.status, spy.ran) == ("done", ["act"])
    assert [d.principal_id for d in await runtime.tickets.decisions(result.tickets[0].id)] == ["ann"]
    await runtime.close()


async def test_resume_keeps_deadline_of_other_ticket(make: Make, clock: FakeClock) -> None:
    spy = Spy()
    tools = [spying(spy, "a", approval=True, deadline=HOUR), spying(spy, "b", approval=True)]
    model = ScriptedModel([[call("a"), call("b")], "done"])
    first = make(*tools, model=model)
    result = await left_waiting(first)
    await clock.advance(2 * HOUR)
    runtime = make(*tools, model=model)
    _, b = result.tickets
    result = await runtime.tickets.answer(b.id, True)
    assert (result.status, spy.ran) == ("done", ["b"])
    assert {reply.name: reply.error for reply in await replies_on(runtime, "t")} == {"a": "denied", "b": None}
    await runtime.close()


async def test_deadline_answers_question_with_default(make: Make, clock: FakeClock) -> None:
    @tool(effect="pure")
    async def act(ctx: ToolContext) -> str:
        """Ask."""
        size = ctx.ask("How many?", schema=int, deadline=HOUR, on_deadline=Answer(7))
        return f"{size + 1}"

    result = await left_waiting(make(act))
    await clock.advance(HOUR)
    assert await soon(finished(make(act), result.run_id)) == "8"


async def test_default_may_have_the_answer_type(make: Make, clock: FakeClock) -> None:
    @tool(effect="pure")
    async def act(ctx: ToolContext) -> str:
        """Ask."""
        day = ctx.ask("When?", schema=date, deadline=HOUR, on_deadline=Answer(date(2026, 1, 5)))
        return f"on {day:%A}"

    result = await left_waiting(make(act))
    assert result.tickets[0].on_deadline == Answer("2026-01-05")
    await clock.advance(HOUR)
    assert await soon(finished(make(act), result.run_id)) == "on Monday"


async def test_gate_question_has_deadline(make: Make, clock: FakeClock) -> None:
    class Gate(Plugin):
        async def gate_tool(self, ctx: GateTool) -> Any:
            return ctx.suspend(
                "Fill in", accepts=("result",), deadline=HOUR, on_deadline=Answer({"by": "default"})
            )

    spy = Spy()
    result = await left_waiting(make(spying(spy, "act"), plugins=[Gate()]))
    await clock.advance(HOUR)
    text = await soon(finished(make(spying(spy, "act"), plugins=[Gate()]), result.run_id))
    assert (text, spy.ran) == ('{"by":"default"}', [])


async def test_deadline_passes_while_sibling_runs(make: Make, clock: FakeClock) -> None:
    hold = Hold()
    tools = [holding(hold), spying(Spy(), "act", approval=True, deadline=HOUR)]
    async with make(*tools, model=ScriptedModel([[call("wait"), call("act")], "done"])) as runtime:
        handle = await runtime.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        while not await runtime.tickets.list(handle.run_id):
            await until_looked()
        await clock.advance(HOUR)
        while not await events_of(runtime, "t", ToolCallResumed):
            await until_looked()
        hold.released.set()
        await soon(_done(runtime, handle.run_id))
        assert {reply.name: reply.error for reply in await replies_on(runtime, "t")} == {
            "act": "denied",
            "wait": None,
        }


async def test_deadline_is_applied_once_by_two_processes(make: Make, clock: FakeClock) -> None:
    spy = Spy()
    act = spying(spy, "act", approval=True, deadline=HOUR, on_deadline="approve")
    result = await left_waiting(make(act))
    await clock.advance(HOUR)
    async with make(act) as one, make(act) as other:
        await soon(_done(one, result.run_id))
        assert (await other.runs.get(result.run_id)).status == "done"
        assert spy.ran == ["act"]
        assert len(await one.tickets.decisions(result.tickets[0].id)) == 1


# -- escalation ----------------------------------------------------------------------------------------------


async def test_ticket_escalates_by_level_then_takes_default(make: Make, clock: FakeClock) -> None:
    levels = [Escalation("lead", deadline=2 * HOUR), Escalation("boss", deadline=timedelta(hours=3))]
    act = spying(Spy(), "act", approval=Approval("ann"), deadline=HOUR, escalate=levels)
    async with make(act) as runtime:
        result = await runtime.run("agent", "go", thread="t")
        (ticket,) = result.tickets
        seen: list[tuple[str | None, int]] = []
        for who, hours in (("lead", 2), ("boss", 3)):
            assert ticket.deadline is not None
            await clock.advance((ticket.deadline - clock.now()) / 1000)
            ticket = await soon(_with(runtime, ticket.id, who))
            assert ticket.deadline == clock.now() + hours * HOUR * 1000
            seen.append((ticket.assignee, len(ticket.escalate)))
            while (record := await runtime.runs.get(result.run_id)).status != "waiting":
                await until_looked()
            assert record.waiting is not None
            assert record.waiting.until == ticket.deadline
        assert seen == [("lead", 1), ("boss", 0)]
        await clock.advance(3 * HOUR)
        await soon(_done(runtime, result.run_id))
        decisions = await runtime.tickets.decisions(ticket.id)
        assert [(d.verdict, d.value, d.principal_id) for d in decisions] == [
            ("reassign", "lead", "wakeful"),
            ("reassign", "boss", "wakeful"),
            ("deny", None, "wakeful"),
        ]
        assert all(d.reason and d.at for d in decisions)
        moved = await events_of(runtime, "t", TicketChanged)
        assert [event.ticket.assignee for event in moved] == ["lead", "boss"]


async def _with(runtime: Runtime, ticket_id: str, who: str) -> Any:
    while True:
        (ticket,) = [t for t in await runtime.tickets.list() if t.id == ticket_id]
        if ticket.assignee == who:
            return ticket
        await until_looked()


async def test_escalation_level_has_its_own_time(make: Make, clock: FakeClock) -> None:
    act = spying(Spy(), "act", approval=True, deadline=HOUR, escalate=[Escalation("lead", deadline=HOUR)])
    result = await left_waiting(make(act))
    await clock.advance(50 * HOUR)
    async with make(act) as runtime:
        ticket = await soon(_with(runtime, result.tickets[0].id, "lead"))
        assert ticket.deadline == clock.now() + HOUR * 1000
        assert ticket.status == "open"


async def test_last_escalation_level_may_have_no_deadline(make: Make, clock: FakeClock) -> None:
    act = spying(Spy(), "act", approval=True, deadline=HOUR, escalate=[Escalation("boss")])
    async with make(act) as runtime:
        result = await runtime.run("agent", "go", thread="t")
        await clock.advance(HOUR)
        ticket = await soon(_with(runtime, result.tickets[0].id, "boss"))
        assert ticket.deadline is None
        while (await runtime.runs.get(result.run_id)).status != "waiting":
            await until_looked()
        await clock.advance(10_000 * HOUR)
        assert (await runtime.tickets.answer(ticket.id, True)).status == "done"


# -- what can't be ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"deadline": 0}, "deadline is in seconds or a timedelta, and positive"),
        ({"deadline": -1}, "deadline is in seconds"),
        ({"deadline": "soon"}, "deadline is in seconds"),
        ({"deadline": True}, "deadline is in seconds"),
        ({"deadline": float("inf")}, "deadline is in seconds"),
        ({"deadline": 1e300}, "and before the year 9999"),
        ({"deadline": timedelta.max}, "and before the year 9999"),
        ({"deadline": timedelta(0)}, "deadline is in seconds"),
        ({"deadline": 1, "on_deadline": "maybe"}, "on_deadline is 'approve', 'deny' or Answer"),
        ({"on_deadline": "approve"}, "give deadline=... as well"),
        ({"escalate": [Escalation("a")]}, "give deadline=... as well"),
        ({"deadline": 1, "escalate": ["lead"]}, "list of Escalation"),
        ({"deadline": 1, "escalate": "lead"}, "list of Escalation"),
        ({"deadline": 1, "escalate": [Escalation("")]}, "list of Escalation"),
        ({"deadline": 1, "escalate": [Escalation("a"), Escalation("b")]}, "never goes further"),
        ({"deadline": 1, "escalate": [Escalation("a", deadline=-1)]}, "positive"),
        ({"approval": False, "deadline": 1}, "set approval=... or unknown='ask'"),
        ({"unknown": Approval("group:ops", quorum=2)}, "it has no quorum"),
        ({"unknown": "guess"}, "unknown is 'tell', 'ask' or an Approval"),
        ({"unknown": "ask", "effect": "pure"}, "effects whose outcome can be unknown"),
    ],
)
def test_invalid_terms_are_refused_by_runtime(options: Any, told: str) -> None:
    act = spying(Spy(), "act", **{"approval": True, **options})
    with pytest.raises(ConfigurationError, match="act") as caught:
        Runtime([Agent("agent", model=ScriptedModel([]), tools=[act])])
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"deadline": -1}, "positive"),
        ({"schema": {"if": {}}}, "can't be checked"),
        ({"schema": object()}, "no JSON form"),
        ({"schema": int, "deadline": 1, "on_deadline": Answer("x")}, r"\$: expected integer, got str"),
        ({"schema": int, "deadline": 1, "on_deadline": "approve"}, r"\$: expected integer, got null"),
        ({"mode": "result", "deadline": 1, "on_deadline": "approve"}, "needs 'proceed'"),
        ({"deadline": 1, "on_deadline": Answer(object())}, "can't be stored"),
        ({"mode": "guess"}, "accepts lists"),
    ],
)
async def test_invalid_question_is_reported_to_model(options: Any, told: str) -> None:
    @tool(effect="pure")
    async def act(ctx: ToolContext) -> str:
        """Ask."""
        return str(ctx.ask("Which?", **options))

    async with Runtime([Agent("agent", model=ScriptedModel([call("act"), "done"]), tools=[act])]) as runtime:
        await runtime.run("agent", "go", thread="t")
        (reply,) = await replies_on(runtime, "t")
    assert reply.error == "failed"
    assert re.search(told, reply_text(reply))


async def test_invalid_gate_question_fails_run() -> None:
    class Gate(Plugin):
        async def gate_tool(self, ctx: GateTool) -> Any:
            return ctx.suspend("Well?", deadline=-1)

    agent = Agent("agent", model=ScriptedModel([call("act")]), tools=[spying(Spy(), "act")], plugins=[Gate()])
    async with Runtime([agent]) as runtime:
        result = await runtime.run("agent", "go", check=False)
    assert result.error is not None
    assert "HookFailed" in result.error
    assert "positive" in result.error


async def test_ticket_answered_by_deadline_says_so(make: Make, clock: FakeClock) -> None:
    act = spying(Spy(), "act", approval=True, deadline=HOUR)
    result = await left_waiting(make(act))
    await clock.advance(HOUR)
    await soon(finished(make(act), result.run_id))
    runtime = make(act)
    with pytest.raises(TicketClosed, match=r"denied by wakeful at .* UTC: nobody answered in time"):
        await runtime.tickets.answer(result.tickets[0].id, True)
    await runtime.close()


async def test_system_principal_cannot_answer(make: Make) -> None:
    runtime = make(spying(Spy(), "act", approval=True))
    result = await runtime.run("agent", "go", thread="t")
    with pytest.raises(UsageError, match="no principal may have that id"):
        await runtime.tickets.answer(result.tickets[0].id, True, principal=Principal("wakeful"))
    with pytest.raises(UsageError, match="no principal may have that id"):
        await runtime.tickets.reassign(result.tickets[0].id, "bob", principal=Principal("wakeful"))
    await runtime.close()


@pytest.mark.parametrize("turns", range(6))
async def test_runtime_closes_while_deadline_falls_due(make: Make, turns: int) -> None:
    runtime = await make(spying(Spy(), "act")).__aenter__()
    for _ in range(20):
        await until_looked()
    runtime._scope.shared.worker.state.look()
    for _ in range(turns):
        await asyncio.sleep(0)
    await soon(runtime.close())
