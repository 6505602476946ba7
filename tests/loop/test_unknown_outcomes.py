"""Calls of unknown outcome that a person is asked about: it happened, run it again, or leave it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wakeful import Agent, Approval, MemoryStore, Runtime, call, tool
from wakeful.errors import InvalidDecision
from wakeful.testing import FakeClock
from wakeful.tools import Done, NotDone, UnknownOutcome
from wakeful.types.tickets import Ticket

from .helpers import Hold, Scripted, Spy, leave_behind, recover, replies_on, reply_text, row, soon, spying


class Scene:
    """A call that was started by a process which then died, and the runtime that takes it over."""

    def __init__(self, scripted: Scripted, turns: tuple[str, ...] = ("done",), **options: Any) -> None:
        self.spy = Spy()
        self.store = MemoryStore()
        act = spying(self.spy, "act", **{"unknown": "ask", **options})
        self.clock = FakeClock()
        agent = Agent("agent", model=scripted(*turns), tools=[act, spying(self.spy, "other")])
        self.runtime = Runtime([agent], store=self.store, clock=self.clock)

    async def begin(self, *calls: Any, **fields: Any) -> Ticket:
        calls = calls or (row("act", unknown="ask", **fields),)
        await leave_behind(self.store, "agent", *calls)
        result = await recover(self.runtime)
        assert result.status == "waiting"
        (ticket,) = result.tickets
        return ticket

    async def told(self) -> list[tuple[str, str | None, str]]:
        return [(r.name, r.error, reply_text(r)) for r in await replies_on(self.runtime, "t")]


async def test_unknown_ask_opens_ticket_for_interrupted_call(scripted: Scripted) -> None:
    scene = Scene(scripted)
    ticket = await scene.begin()
    assert (ticket.asked_by, ticket.accepts, ticket.tool) == ("unknown", ("result", "proceed"), "act")
    assert "its process ended" in ticket.message
    record = await scene.runtime.runs.get(ticket.run_id)
    assert record.waiting is not None
    assert record.waiting.reason == "user_input"
    assert scene.spy.ran == []
    await scene.runtime.tickets.answer(ticket.id, ticket.deny())


async def test_unknown_ask_takes_result(scripted: Scripted) -> None:
    scene = Scene(scripted)
    ticket = await scene.begin()
    result = await scene.runtime.tickets.answer(ticket.id, ticket.result({"charge": 7}))
    assert (result.status, scene.spy.ran) == ("done", [])
    assert await scene.told() == [("act", None, '{"charge":7}')]
    (line,) = await scene.runtime.runs.calls(ticket.run_id)
    assert line.outcome == "ok"


async def test_unknown_ask_reruns_with_same_key_when_told(scripted: Scripted) -> None:
    scene = Scene(scripted)
    ticket = await scene.begin()
    await scene.runtime.tickets.answer(ticket.id, ticket.approve())
    assert (scene.spy.ran, scene.spy.attempts) == (["act"], [2])
    assert scene.spy.keys == [f"{ticket.run_id}:{ticket.call_id}"]
    assert await scene.told() == [("act", None, "act 0")]


async def test_unknown_ask_denial_is_reported_to_model(scripted: Scripted) -> None:
    scene = Scene(scripted)
    ticket = await scene.begin()
    await scene.runtime.tickets.answer(ticket.id, ticket.deny("the bank is closed"))
    ((_, error, text),) = await scene.told()
    assert error == "interrupted"
    assert "a person looked at it, and it was not run again (the bank is closed)" in text
    assert "did not run" not in text
    assert scene.spy.ran == []
    assert [line.outcome for line in (await scene.runtime.runs.ledger(ticket.run_id)).unknown] == ["unknown"]


@pytest.mark.parametrize("value", [True, False, "yes", {"charge": 7}])
async def test_unknown_ask_refuses_ambiguous_answer(scripted: Scripted, value: Any) -> None:
    scene = Scene(scripted)
    ticket = await scene.begin()
    with pytest.raises(InvalidDecision, match=r"ticket\.result\(value\) if it took effect"):
        await scene.runtime.tickets.answer(ticket.id, value)
    with pytest.raises(InvalidDecision, match="takes result or proceed"):
        await scene.runtime.tickets.answer(ticket.id, ticket.edit({"x": 2}))
    await scene.runtime.tickets.answer(ticket.id, ticket.deny())


async def test_unknown_ask_keeps_earlier_approval(scripted: Scripted) -> None:
    hold = Hold()

    @tool(approval=True, unknown="ask", timeout=1)
    async def act() -> str:
        """Hang the first time."""
        if not hold.times:
            await hold.here()
        return "charged"

    clock = FakeClock()
    agent = Agent("agent", model=scripted(call("act"), "done"), tools=[act])
    async with Runtime([agent], clock=clock) as runtime:
        result = await runtime.run("agent", "go", thread="t")
        task = asyncio.ensure_future(runtime.tickets.answer(result.tickets[0].id, True))
        await soon(hold.reached.wait())
        await clock.advance(1)
        result = await soon(task)
        assert [ticket.asked_by for ticket in result.tickets] == ["unknown"]
        assert "took too long" in result.tickets[0].message
        result = await runtime.tickets.answer(result.tickets[0].id, result.tickets[0].approve())
        assert result.status == "done"
        assert [reply_text(r) for r in await replies_on(runtime, "t")] == ["charged"]


async def test_unknown_ask_lets_siblings_run(scripted: Scripted) -> None:
    scene = Scene(scripted)
    ticket = await scene.begin(row("act", unknown="ask"), row("other", "requested"))
    assert scene.spy.ran == ["other"]
    await scene.runtime.tickets.answer(ticket.id, ticket.deny())


async def test_unknown_ask_stays_unknown_on_new_input(scripted: Scripted) -> None:
    scene = Scene(scripted, ("never mind",))
    ticket = await scene.begin()
    await scene.runtime.run("agent", "Something else", thread="t")
    (line,) = await scene.runtime.runs.calls(ticket.run_id)
    assert line.outcome == "unknown"
    ((_, error, text),) = await scene.told()
    assert error == "interrupted"
    assert "did not run" not in text
    assert (await scene.runtime.tickets.list(ticket.run_id))[0].status == "superseded"


async def test_unknown_ask_stays_unknown_on_cancel(scripted: Scripted) -> None:
    scene = Scene(scripted, ())
    ticket = await scene.begin()
    await scene.runtime.cancel(ticket.run_id)
    (line,) = await scene.runtime.runs.calls(ticket.run_id)
    assert line.outcome == "unknown"
    assert (await scene.runtime.tickets.list(ticket.run_id))[0].status == "cancelled"


async def test_unknown_ask_opens_no_ticket_during_cancel(scripted: Scripted) -> None:
    scene = Scene(scripted, ())
    await leave_behind(scene.store, "agent", row("act", unknown="ask"), cancel="enough")
    result = await recover(scene.runtime)
    assert result.status == "done"
    ((_, error, _),) = await scene.told()
    assert error == "interrupted"
    assert list(await scene.runtime.tickets.list()) == []


async def test_model_is_informed_without_unknown_ask(scripted: Scripted) -> None:
    scene = Scene(scripted)
    await leave_behind(scene.store, "agent", row("act"))
    assert (await recover(scene.runtime)).status == "done"
    ((_, error, _),) = await scene.told()
    assert error == "interrupted"


async def test_unknown_ask_deadline_never_reruns(scripted: Scripted) -> None:
    scene = Scene(scripted, approval=True, deadline=3600, on_deadline="approve", unknown=Approval("ann"))
    ticket = await scene.begin()
    assert (ticket.assignee, ticket.on_deadline) == ("ann", "deny")
    async with scene.runtime:
        await scene.clock.advance(3600)
        while (await scene.runtime.runs.get(ticket.run_id)).status != "done":
            await asyncio.sleep(0)
        ((_, error, text),) = await scene.told()
    assert (error, scene.spy.ran) == ("interrupted", [])
    assert "nobody could say what became of it" in text


@pytest.mark.parametrize(
    ("found", "status"), [(UnknownOutcome(), "waiting"), (NotDone(), "done"), (Done("paid"), "done")]
)
async def test_unknown_ask_follows_check_that_cannot_tell(scripted: Scripted, found: Any, status: str) -> None:
    scene = Scene(scripted, effect="reconcile", check=lambda key: found)
    await leave_behind(scene.store, "agent", row("act", effect="reconcile", unknown="ask"))
    result = await recover(scene.runtime)
    assert result.status == status
    for ticket in result.tickets:
        assert ticket.asked_by == "unknown"
        await scene.runtime.tickets.answer(ticket.id, ticket.result("paid"))
    assert [text for _, _, text in await scene.told()] == ["act 0" if isinstance(found, NotDone) else "paid"]


async def test_unknown_ask_follows_failing_check(scripted: Scripted) -> None:
    def check(key: str) -> Any:
        raise OSError("no line")

    scene = Scene(scripted, effect="reconcile", check=check)
    ticket = await scene.begin(effect="reconcile")
    await scene.runtime.tickets.answer(ticket.id, ticket.result("paid"))
