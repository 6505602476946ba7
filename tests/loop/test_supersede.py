"""New input on a run that waits for tickets: what finished stays, what waited is closed, the history is valid."""

from __future__ import annotations

import pytest

from wakeful import Runtime, call
from wakeful.errors import RunNotWaiting
from wakeful.types.events import RunFinish, RunStart, StepEnd, ToolCallDone
from wakeful.types.runs import Cancelled, NaturalEnd

from .helpers import House, Scripted, Spy, assert_settled, events_of, outcomes, replies, spying


def waiting_house(scripted: Scripted, spy: Spy, *answers: str) -> House:
    """A house whose first run finishes one call and waits on two."""
    tools = [spying(spy, "free"), spying(spy, "act", approval=True), spying(spy, "pay", approval=True)]
    calls = [call("act", x=1), call("free", x=2), call("pay", x=3)]
    return House(scripted(calls, *answers), *tools)


async def test_new_input_closes_waiting_and_keeps_finished_calls(scripted: Scripted) -> None:
    spy = Spy()
    house = waiting_house(scripted, spy, "something else then")
    first = await house.run("do it")
    second = await house.run("never mind")
    assert (second.text, second.termination) == ("something else then", NaturalEnd())
    assert second.run_id != first.run_id
    assert spy.ran == ["free"]
    runtime = house.fresh()
    assert await outcomes(runtime, first.run_id) == {"act": "superseded", "free": "ok", "pay": "superseded"}
    record = await runtime.runs.get(first.run_id)
    assert record.outcome is not None
    assert record.outcome.termination == Cancelled("superseded by new input")
    assert {t.status for t in await house.store.tickets(first.run_id)} == {"superseded"}
    await house.settled()


async def test_next_run_sees_one_reply_for_every_call(
    scripted: Scripted,
) -> None:
    house = waiting_house(scripted, Spy(), "ok")
    await house.run("do it")
    await house.run("never mind")
    messages = await house.store.messages("t")
    assert [m.role for m in messages] == ["user", "assistant", "tool", "tool", "tool", "user", "assistant"]
    assert {r.name: r.error for r in replies(messages)} == {"act": "superseded", "free": None, "pay": "superseded"}
    assert messages[5].text == "never mind"


async def test_log_closes_old_run_before_new_one(scripted: Scripted) -> None:
    house = waiting_house(scripted, Spy(), "ok")
    first = await house.run("do it")
    head = (await house.store.load("t")).thread.head  # type: ignore[union-attr]
    second = await house.run("never mind")
    log = [e for e in await house.store.events("t", after=head) if e.type != "message"]
    assert [e.type for e in log][:5] == ["tool_call_done", "tool_call_done", "step_end", "run_finish", "run_start"]
    assert {e.run.run_id for e in log[:4]} == {first.run_id}
    assert isinstance(log[4], RunStart)
    assert log[4].run.run_id == second.run_id


async def test_superseded_run_cannot_be_resumed(scripted: Scripted) -> None:
    spy = Spy()
    house = waiting_house(scripted, spy, "ok")
    first = await house.run("do it")
    await house.run("never mind")
    with pytest.raises(RunNotWaiting):
        await house.resume(first.run_id, first.tickets[0].approve())
    assert spy.ran == ["free"]


async def test_next_run_may_be_superseded(scripted: Scripted) -> None:
    spy = Spy()
    act = spying(spy, "act", approval=True)
    house = House(scripted(call("act"), call("act"), call("act"), "done"), act)
    for text in ("one", "two"):
        assert (await house.run(text)).status == "waiting"
    third = await house.run("three")
    result = await house.resume(third.run_id, third.tickets[0].approve())
    assert result.status == "done"
    assert spy.ran == ["act"]
    runtime = house.fresh()
    assert len(await events_of(runtime, "t", RunFinish)) == 6
    assert len(await events_of(runtime, "t", StepEnd)) == 4
    assert [e.outcome for e in await events_of(runtime, "t", ToolCallDone)] == ["superseded", "superseded", "ok"]
    await house.settled()


async def test_superseded_run_keeps_answered_calls(scripted: Scripted) -> None:
    spy = Spy()
    house = waiting_house(scripted, spy, "ok")
    first = await house.run("do it")
    await house.resume(first.run_id, first.tickets[1].approve())
    await house.run("never mind")
    assert await outcomes(house.fresh(), first.run_id) == {"act": "superseded", "free": "ok", "pay": "ok"}
    await house.settled()


async def test_supersede_in_one_runtime(scripted: Scripted) -> None:
    house = waiting_house(scripted, Spy(), "ok")
    runtime: Runtime = house.fresh()
    await runtime.run("agent", "do it", thread="t")
    assert (await runtime.run("agent", "never mind", thread="t")).text == "ok"
    await assert_settled(runtime, "t")
