"""Seed 000: agents that work in the background, and can stop their own work."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from loop.helpers import Hold, Scripted, Spy, holding, replies_on, soon
from wakeful import Agent, Delegate, Runtime, ToolContext, call, tool
from wakeful.errors import ConfigurationError
from wakeful.types.runs import Cancelled, TaskRef

from .conftest import Place
from .helpers import ask, assert_quiet, data_of, lead, run_of, tasks_of, told

SELF = call("cancel_task", target={"relation": "self"})
BACK = ask(background=True)


def seeing(seen: list[Any]) -> Any:
    @tool
    async def look(ctx: ToolContext) -> str:
        """Look which task this is."""
        seen.append(ctx.task)
        return "seen"

    return look


async def test_seed_0_1_run_inside_task_knows_its_task(place: Place, scripted: Scripted) -> None:
    inside: list[TaskRef | None] = []
    outside: list[TaskRef | None] = []
    agents = [
        lead(scripted([BACK, call("look")], "working on it", "done"), tools=[seeing(outside)]),
        Agent("worker", scripted(call("look"), "worked"), tools=[seeing(inside)]),
    ]
    runtime = Runtime(agents, store=place())
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    (task,) = await tasks_of(runtime)
    assert inside == [TaskRef(task.id, 1, background=True, owner="lead")]
    assert outside == [None]
    await runtime.close()


async def test_seed_0_2_every_agent_inside_task_has_cancel_task(scripted: Scripted) -> None:
    near, far = scripted(call("handoff_to_second")), scripted("taken over")
    agents = [
        lead(scripted(BACK, "working on it", "done")),
        Agent("worker", near, handoffs=["second"]),
        Agent("second", far),
    ]
    runtime = Runtime(agents)
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    assert "cancel_task" in [spec.name for spec in near.requests[0].tools]
    assert "cancel_task" in [spec.name for spec in far.requests[0].tools]
    assert (await run_of(runtime, "second")).identity.agent_id == "worker"  # Ids pass through.
    alone = scripted("hello")
    await Runtime([Agent("worker", alone)]).run("worker", "hi")
    assert [spec.name for spec in alone.requests[0].tools] == []


async def test_seed_0_2_unknown_agent_is_error_inside_task(scripted: Scripted) -> None:
    @tool
    async def leave(ctx: ToolContext) -> str:
        """Hand over to nobody."""
        ctx.handoff("nobody")
        return "left"

    agents = [
        lead(scripted(BACK, "working on it", "done")),
        Agent("worker", scripted(call("leave"), "stayed"), tools=[leave]),
    ]
    runtime = Runtime(agents)
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    (reply,) = await replies_on(runtime, (await run_of(runtime, "worker")).thread_id)
    assert "unknown agent 'nobody'" in str(reply.content)


async def test_seed_0_3_resumed_run_has_cancel_task(place: Place, scripted: Scripted) -> None:
    """There is one way to resolve an agent for a run here; what is tried is that a restart takes it too."""
    model = scripted(call("pay"), "paid")

    @tool(approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    agents = [lead(scripted(BACK, "working on it", "done")), Agent("worker", model, tools=[pay])]
    first = Runtime(agents, store=place())
    result = await soon(first.run("lead", "go", thread="t"))
    await first.close()
    second = Runtime(agents, store=place())
    result = await soon(second.resume(result.run_id, result.tickets[0].approve()))
    assert result.text == "done"
    for request in model.requests:
        assert "cancel_task" in [spec.name for spec in request.tools]
    await second.close()


async def test_seed_0_4_own_tool_named_cancel_task_is_kept(scripted: Scripted) -> None:
    spy = Spy()

    @tool(name="cancel_task")
    async def mine() -> str:
        """Not what you think."""
        spy.note("mine")
        return "nothing was cancelled"

    agents = [
        lead(scripted(BACK, "working on it", "done")),
        Agent("worker", scripted(call("cancel_task"), "worked"), tools=[mine]),
    ]
    runtime = Runtime(agents)
    await soon(runtime.run("lead", "go", thread="t"))
    (task,) = await tasks_of(runtime)
    assert (spy.ran, task.status) == (["mine"], "completed")


async def test_seed_0_4_two_tools_named_cancel_task_are_refused() -> None:
    @tool(name="cancel_task")
    async def mine() -> str:
        """Not what you think."""
        return ""

    with pytest.raises(ConfigurationError, match="two tools are named 'cancel_task'"):
        Runtime([lead("scripted:x", tools=[mine]), Agent("worker", "scripted:x")], models={"scripted": object})


async def test_seed_0_5_cancel_task_is_offered_and_runs(scripted: Scripted) -> None:
    model = scripted(SELF)
    runtime = Runtime([lead(scripted(BACK, "working on it", "done")), Agent("worker", model)])
    await soon(runtime.run("lead", "go", thread="t"))
    (spec,) = [one for one in model.requests[0].tools if one.name == "cancel_task"]
    assert (spec.name, spec.parameters["required"]) == ("cancel_task", ["target"])
    worker = await run_of(runtime, "worker")
    (ran,) = await runtime.runs.calls(worker.id)
    assert (ran.name, ran.outcome) == ("cancel_task", "ok")


async def test_seed_0_6_cancel_task_stops_its_own_task_only(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    agents = [
        lead(
            scripted([BACK, ask("other", background=True)], "working on it", "one is left", "done"),
            Delegate("worker", background=True),
            Delegate("other", background=True),
        ),
        Agent("worker", scripted(SELF)),
        Agent("other", scripted(call("wait"), "worked"), tools=[holding(hold)]),
    ]
    runtime = Runtime(agents, store=place())
    running = asyncio.create_task(runtime.run("lead", "go", thread="t"))
    await soon(hold.reached.wait())
    worker = await run_of(runtime, "worker")
    await soon(runtime.wait(worker.id))
    hold.released.set()
    assert (await soon(running)).text == "done"
    tasks = {task.agent_id: task for task in await tasks_of(runtime)}
    (reply,) = await replies_on(runtime, worker.thread_id)
    assert data_of(reply) == {"status": "accepted", "root_task_id": tasks["worker"].id, "cancelled_count": 1}
    assert (tasks["worker"].status, tasks["other"].status) == ("cancelled", "completed")
    await runtime.close()


async def test_seed_0_6_cancel_task_leaves_detached_work(scripted: Scripted) -> None:
    """The tool acts on the task around the call, and not on the tasks of the caller's own thread."""
    hold = Hold()

    @tool
    async def begin(ctx: ToolContext) -> str:
        """Start work that belongs to this thread."""
        return (await ctx.spawn("other", "work", detached=True)).id

    agents = [
        lead(scripted(BACK, "working on it", "done")),
        Agent("worker", scripted(call("begin"), SELF), tools=[begin]),
        Agent("other", scripted(call("wait"), "worked"), tools=[holding(hold)]),
    ]
    runtime = Runtime(agents)
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    (outer,) = await tasks_of(runtime)
    assert outer.status == "cancelled"
    await soon(hold.reached.wait())
    hold.released.set()
    other = await run_of(runtime, "other")
    assert (await soon(runtime.wait(other.id))).text == "worked"
    await runtime.close()


async def test_seed_0_7_self_cancel_stops_all_children(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    both = [ask("below", background=True), call("until_below")]

    @tool
    async def until_below() -> str:
        """Wait until the one below works."""
        await hold.reached.wait()
        return "it works"

    agents = [
        lead(scripted(BACK, "working on it", "done")),
        Agent("worker", scripted(both, SELF), delegates=[Delegate("below", background=True)], tools=[until_below]),
        Agent("below", scripted(ask("deeper")), delegates=[Delegate("deeper", durable=True)]),
        Agent("deeper", scripted(call("wait")), tools=[holding(hold, effect="pure")]),
    ]
    runtime = Runtime(agents, store=place())
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    worker = await run_of(runtime, "worker")
    reply = (await replies_on(runtime, worker.thread_id))[-1]
    assert data_of(reply) == {
        "status": "accepted",
        "root_task_id": (await tasks_of(runtime))[0].id,
        "cancelled_count": 3,
    }
    for agent in ("worker", "below", "deeper"):
        run = await run_of(runtime, agent)
        await soon(runtime.wait(run.id))
        run = await run_of(runtime, agent)
        assert run.outcome is not None
        assert isinstance(run.outcome.termination, Cancelled)
    for thread in ("t", worker.thread_id, (await run_of(runtime, "below")).thread_id):
        assert [task.status for task in await tasks_of(runtime, thread)] == ["cancelled"]
    await runtime.close()


async def test_seed_0_8_self_cancel_ends_loop(scripted: Scripted) -> None:
    # The next turn would be told of by a script that is asked for more than it has.
    model = scripted(SELF)
    runtime = Runtime([lead(scripted(BACK, "working on it", "done")), Agent("worker", model)])
    await soon(runtime.run("lead", "go", thread="t"))
    worker = await run_of(runtime, "worker")
    assert worker.outcome is not None
    assert worker.outcome.termination == Cancelled("stopped by itself")
    assert (worker.steps, len(model.requests)) == (1, 1)
    (event,) = await told(runtime)
    assert 'kind="cancelled"' in event
    await assert_quiet(runtime)


async def test_seed_0_9_self_cancel_sets_signal_of_siblings(scripted: Scripted) -> None:
    """A run has one scope: what `cancel_task` trips is what every call of the run sees as `ctx.cancelled`."""
    seen: list[bool] = []

    @tool(effect="pure")
    async def beside(ctx: ToolContext) -> str:
        """Run until told to stop."""
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(ctx.cancelled)
        return ""

    agents = [
        lead(scripted(BACK, "working on it", "done")),
        Agent("worker", scripted([call("beside"), SELF]), tools=[beside]),
    ]
    runtime = Runtime(agents)
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    assert seen == [True]
    await assert_quiet(runtime)


async def test_seed_0_9_self_cancel_sets_signal_of_threads(scripted: Scripted) -> None:
    """A sync tool runs in a thread, which no task cancellation reaches: it sees the signal itself."""
    started, seen = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool(effect="pure")
    def beside(ctx: ToolContext) -> str:
        """Run until told to stop."""
        loop.call_soon_threadsafe(started.set)
        deadline = time.monotonic() + 60
        while not ctx.cancelled and time.monotonic() < deadline:
            seen.wait(0.001)
        if ctx.cancelled:
            seen.set()
        return ""

    @tool(effect="pure")
    async def stop(ctx: ToolContext) -> str:
        """Stop the task once the other call runs."""
        await started.wait()
        await ctx.cancel_self("stopped by itself")
        return "stopped"

    agents = [
        lead(scripted(BACK, "working on it", "done")),
        Agent("worker", scripted([call("beside"), call("stop")]), tools=[beside, stop]),
    ]
    runtime = Runtime(agents)
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    assert await asyncio.to_thread(seen.wait, 60)
    await runtime.close()


async def test_seed_0_10_finished_task_can_be_queried(place: Place, scripted: Scripted) -> None:
    agents = [
        lead(scripted(BACK, "working on it", call("task_status"), "done")),
        Agent("worker", scripted(SELF)),
    ]
    runtime = Runtime(agents, store=place())
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    (task,) = await tasks_of(runtime)
    reply = (await replies_on(runtime, "t"))[-1]
    error = "cancelled: stopped by itself"
    shown = {"task_id": task.id, "agent_id": "worker", "status": "cancelled", "error": error}
    assert data_of(reply) == {"tasks": [shown], "total": 1}
    assert (task.status, task.error, task.finished_at is not None) == ("cancelled", error, True)
    await runtime.close()
