"""The reference's edge cases, rows 30 to 38: tasks, superseding, waiting, and answers that were cut off."""

from __future__ import annotations

from typing import Any

from wakeful import Agent, MemoryStore, Plugin, Runtime, Turn, call
from wakeful.dispatch import RunResult
from wakeful.models import CallDeltaChunk, CallStartChunk, StopChunk
from wakeful.plugins import BeforeInference, GateAnswer, GateTool
from wakeful.stores import Commit
from wakeful.types.events import RunFinish, RunStart, StepEnd, StepStart
from wakeful.types.ids import new_id
from wakeful.types.inbox import TaskItem
from wakeful.types.runs import Blocked, NaturalEnd, TaskOutcome, TaskRecord

from .helpers import (
    House,
    Scripted,
    Spy,
    assert_settled,
    events_of,
    outcomes,
    replies_on,
    reply_text,
    soon,
    spying,
    until_idle,
)


async def own_a_task(runtime: Runtime, run_id: str) -> None:
    """Write a task in the background of the waiting run on thread `t`."""
    store = runtime.store
    stored = await store.load("t")
    assert stored is not None
    task = TaskRecord("task-1", "t", run_id, "survey", background=True)
    await store.commit(Commit(thread_id="t", version=stored.thread.version, tasks=[task]))


async def finish_the_task(runtime: Runtime, run_id: str) -> None:
    """Put the task's result into the inbox, as its worker does."""
    outcome = TaskOutcome(1, "completed", "the survey is done")
    item = TaskItem(id=new_id(), thread_id="t", task_id="task-1", outcome=outcome)
    await runtime.store.commit(Commit(thread_id="t", inbox=[item]))
    await runtime._scope.dispatch.start_if_due("t")
    await until_idle(runtime)


def asking(scripted: Scripted, *turns: Any) -> Runtime:
    """A runtime whose first answer asks for a call that needs approval."""
    return Runtime(
        [Agent("agent", model=scripted(call("ask"), *turns), tools=[spying(Spy(), "ask", approval=True)])]
    )


async def with_a_task(runtime: Runtime) -> RunResult:
    """Run until the answer is final and a task is still running."""
    result = await runtime.run("agent", "go", thread="t")
    await own_a_task(runtime, result.run_id)
    return await runtime.resume(result.run_id, result.tickets[0].approve())


async def test_finished_task_does_not_wake_run_waiting_on_ticket(scripted: Scripted) -> None:
    """Row 30."""
    runtime = asking(scripted, "all done")
    result = await runtime.run("agent", "go", thread="t")
    await own_a_task(runtime, result.run_id)
    await finish_the_task(runtime, result.run_id)
    run = await runtime.runs.get(result.run_id)
    assert run.status == "waiting"
    assert len(await events_of(runtime, "t", RunStart)) == 1
    result = await runtime.resume(result.run_id, result.tickets[0].approve())
    assert (result.text, result.status) == ("all done", "done")
    texts = [m.text for m in await runtime.threads.messages("t") if m.role == "user"]
    assert texts[0] == "go"
    assert "the survey is done" in texts[1]
    await assert_settled(runtime, "t")


async def test_new_input_supersedes_waiting_calls_only(scripted: Scripted) -> None:
    """Row 31."""
    spy = Spy()
    tools = [spying(spy, "free"), spying(spy, "ask", approval=True)]
    house = House(scripted([call("free"), call("ask")], "ok"), *tools)
    first = await house.run("one")
    await house.run("two")
    assert await house.replies() == [
        ("free", None, "free 0"),
        ("ask", "superseded", "ask did not run: new input came before it was decided."),
    ]
    assert await outcomes(house.fresh(), first.run_id) == {"free": "ok", "ask": "superseded"}
    await house.settled()


class Strict(Plugin):
    """Refuses `bad` by a rule that ends the run."""

    async def gate_tool(self, ctx: GateTool) -> GateAnswer:
        return ctx.block("against the law", ends_run=True) if ctx.call.name == "bad" else None


async def test_blocked_step_has_result_for_every_call(scripted: Scripted) -> None:
    """Row 32: the reference ends the run on any block; here only where the rule says so, and the rest is
    closed."""
    spy = Spy()
    tools = [spying(spy, name) for name in ("bad", "later")]
    runtime = Runtime(
        [Agent("agent", model=scripted([call("bad"), call("later")]), tools=tools, plugins=[Strict()])]
    )
    result = await runtime.run("agent", "go", thread="t")
    assert result.termination == Blocked("against the law")
    assert await outcomes(runtime, result.run_id) == {"bad": "blocked", "later": "cancelled"}
    assert [r.error for r in await replies_on(runtime, "t")] == ["denied", "cancelled"]
    assert spy.ran == []
    await assert_settled(runtime, "t")


async def test_waiting_run_keeps_its_status(scripted: Scripted) -> None:
    """Row 33."""
    store = MemoryStore()
    agent = Agent("agent", model=scripted(call("ask"), "done"), tools=[spying(Spy(), "ask", approval=True)])
    runtime = Runtime([agent], store=store)
    result = await runtime.run("agent", "go", thread="t")
    await runtime._scope.dispatch.start_if_due("t")
    await runtime.close()
    run = await store.run(result.run_id)
    assert run is not None
    assert (run.status, run.outcome, run.finished_at) == ("waiting", None, None)
    stored = await store.load("t")
    assert stored is not None
    assert not stored.thread.claimed
    fresh = Runtime([agent], store=store)
    assert (await fresh.resume(result.run_id, result.tickets[0].approve())).status == "done"


async def test_last_step_before_task_wait_is_closed_once(scripted: Scripted) -> None:
    """Row 34."""
    runtime = asking(scripted, "they are at it", "and done")
    waiting = await with_a_task(runtime)
    assert waiting.status == "waiting"
    steps = [e.step for e in await events_of(runtime, "t", StepEnd)]
    assert steps == [e.step for e in await events_of(runtime, "t", StepStart)] == [1, 2]
    await finish_the_task(runtime, waiting.run_id)
    run = await runtime.runs.get(waiting.run_id)
    assert (run.status, run.steps) == ("done", 3)
    assert [e.step for e in await events_of(runtime, "t", StepEnd)] == [1, 2, 3]
    assert (await runtime.threads.messages("t"))[-1].text == "and done"
    await assert_settled(runtime, "t")


async def test_waiting_for_tasks_is_not_done(scripted: Scripted) -> None:
    """Row 35."""
    runtime = asking(scripted, "they are at it", "and done")
    waiting = await with_a_task(runtime)
    assert (waiting.text, waiting.status, waiting.termination) == ("they are at it", "waiting", None)
    finish = (await events_of(runtime, "t", RunFinish))[-1]
    assert (finish.status, finish.termination) == ("waiting", NaturalEnd())
    assert finish.waiting is not None
    assert finish.waiting.reason == "awaiting_tasks"
    run = await runtime.runs.get(waiting.run_id)
    assert run.outcome is None
    await finish_the_task(runtime, waiting.run_id)
    assert (await runtime.runs.get(waiting.run_id)).status == "done"


async def test_new_input_goes_to_run_waiting_for_tasks(scripted: Scripted) -> None:
    """Row 35."""
    runtime = asking(scripted, "they are at it", "still at it", "and done")
    waiting = await with_a_task(runtime)
    again = await soon(runtime.run("agent", "how is it going?", thread="t"))
    assert (again.run_id, again.text, again.status) == (waiting.run_id, "still at it", "waiting")
    await finish_the_task(runtime, waiting.run_id)
    assert (await runtime.runs.get(waiting.run_id)).status == "done"
    await assert_settled(runtime, "t")


async def test_queued_input_does_not_wake_run_waiting_for_tasks(scripted: Scripted) -> None:
    runtime = asking(scripted, "they are at it", "and done", "your turn")
    waiting = await with_a_task(runtime)
    before = len(await events_of(runtime, "t", RunStart))
    await runtime.send("t", "afterwards", policy="queue")
    await until_idle(runtime)
    assert len(await events_of(runtime, "t", RunStart)) == before
    await finish_the_task(runtime, waiting.run_id)
    texts = [m.text for m in await runtime.threads.messages("t") if m.role != "tool"]
    assert "the survey is done" in texts[-4]
    assert texts[-3:] == ["and done", "afterwards", "your turn"]
    await assert_settled(runtime, "t")


async def test_steering_input_wakes_run_waiting_for_tasks(scripted: Scripted) -> None:
    runtime = asking(scripted, "they are at it", "noted", "and done")
    waiting = await with_a_task(runtime)
    await runtime.send("t", "by the way", policy="steer")
    await until_idle(runtime)
    run = await runtime.runs.get(waiting.run_id)
    assert (run.status, run.steps) == ("waiting", 3)
    assert (await runtime.threads.messages("t"))[-1].text == "noted"
    await finish_the_task(runtime, waiting.run_id)
    await assert_settled(runtime, "t")


async def test_complete_calls_of_broken_answer_run_at_once(scripted: Scripted) -> None:
    """Row 36."""
    spy = Spy()
    turn = Turn(text="so", calls=[call("act")], stop="max_tokens")
    model = scripted(turn, "done")
    result = await Runtime([Agent("agent", model=model, tools=[spying(spy, "act")])]).run("agent", "go")
    assert (result.text, spy.ran, len(model.requests)) == ("done", ["act"], 2)
    assert all(m.visibility == "all" for m in model.requests[1].messages)


class Cheaper(Plugin):
    """Sends every call to another model."""

    async def before_inference(self, ctx: BeforeInference) -> None:
        ctx.plan.model = "cheap"


async def test_continued_answer_keeps_model_override(scripted: Scripted) -> None:
    """Row 37: the reference copies the override by hand; here a continuation is a model call like any other,
    and the hook runs again.
    """
    cheap = scripted(Turn(text="half", stop="max_tokens"), "whole", name="cheap")
    agent = Agent("agent", model=scripted(), plugins=[Cheaper()])
    result = await Runtime([agent], models={"cheap": cheap}).run("agent", "go")
    assert (result.text, len(cheap.requests)) == ("halfwhole", 2)


async def test_broken_arguments_are_reported_to_model(scripted: Scripted) -> None:
    """Row 38: the reference drops the call and hints in a user message; here the call keeps its place and its
    reply says what is wrong."""
    spy = Spy()
    turn = Turn(chunks=[CallStartChunk(0, "act"), CallDeltaChunk(0, '{"x": 1'), StopChunk("end_turn")])
    runtime = Runtime([Agent("agent", model=scripted(turn, "sorry"), tools=[spying(spy, "act")])])
    result = await runtime.run("agent", "go", thread="t")
    assert (result.text, spy.ran) == ("sorry", [])
    (reply,) = await replies_on(runtime, "t")
    assert reply.error == "invalid_arguments"
    assert '{"x": 1' in reply_text(reply)
    assert [m.role for m in await runtime.threads.messages("t")] == ["user", "assistant", "tool", "assistant"]
    await assert_settled(runtime, "t")
