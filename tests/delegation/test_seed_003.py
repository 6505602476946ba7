"""Seed 003, rows 3.1 to 3.10: what a task is made of, in the foreground and in the background."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from loop.helpers import Hold, Scripted, holding, replies_on, reply_text, soon, until_idle
from wakeful import (
    Agent,
    ConfigurationError,
    Delegate,
    FunctionModel,
    MemoryStore,
    Runtime,
    ToolContext,
    call,
    tool,
)
from wakeful.backends import BackendResult, Capabilities, ExecutionBackend
from wakeful.dispatch.remote_tasks import InvalidState, refresh
from wakeful.errors import ToolError
from wakeful.testing import Recorder
from wakeful.types.events import ToolProgress
from wakeful.types.inbox import TaskItem
from wakeful.types.runs import TaskOutcome

from .helpers import ask, assert_quiet, data_of, lead, run_of, tasks_of, told
from .remote import BACK, FAR, Seen, Topic, far, orphan, submitting, with_far

# -- starting ------------------------------------------------------------------------------------------------


async def test_seed_3_1_task_record_at_start(scripted: Scripted) -> None:
    @tool
    async def begin(ctx: ToolContext) -> str:
        """Leave some work."""
        task = await ctx.spawn("worker", "look into it", name="w", state={Topic: "owls"})
        return task.id

    store = Seen()
    agents = [Agent("lead", scripted(call("begin"), "started", "done"), tools=[begin])]
    runtime = Runtime([*agents, Agent("worker", scripted("worked"))], store=store, keys=[Topic])
    result = await soon(runtime.run("lead", "go", thread="t"))
    (commit,) = [c for c in store.commits if c.tasks and c.tasks[0].status == "running"]
    (task,), (item,) = commit.tasks, commit.inbox
    assert (task.thread_id, task.run_id, task.agent_id) == ("t", result.run_id, "worker")
    assert (task.target_thread, task.background) == (f"sub-agent-{task.target}", True)
    assert item.message is not None
    assert (item.message.text, item.seed) == ("look into it", {"topic": b'"owls"'})
    assert item.lineage is not None
    assert (item.lineage.run_id, item.lineage.parent_run_id) == (task.target, result.run_id)


async def test_seed_3_2_minimal_backend_capabilities(scripted: Scripted) -> None:
    bare = ExecutionBackend()
    assert bare.capabilities == Capabilities.remote_stateless_text()
    assert bare.capabilities.continuation == "none"
    with pytest.raises(ConfigurationError, match="its backend does not support delegated execution"):
        with_far(FunctionModel(lambda _: "never"), bare)

    @tool
    async def begin(ctx: ToolContext) -> str:
        """Start a child that the backend can't execute."""
        return (await ctx.run_agent("far", "do it")).error or ""

    agents = [Agent("lead", scripted(call("begin"), "done"), tools=[begin]), Agent("far", backend=bare)]
    runtime = Runtime(agents)
    assert (await runtime.run("lead", "go", thread="t")).text == "done"
    (reply,) = await replies_on(runtime, "t")
    assert reply_text(reply) == "backend does not support delegated execution"


async def test_seed_3_3_foreign_task_is_not_continued(scripted: Scripted) -> None:
    store, backend = MemoryStore(), far("never")
    task = await orphan(store, backend, scripted)
    watching = Runtime([Agent("far", backend=backend)], store=store, execute=False)
    text = f"Run '{task.id}' cannot be refreshed without a live executor"
    with pytest.raises(InvalidState, match=text) as caught:
        await refresh(watching._scope.dispatch, task)
    assert caught.value.kind == "invalid_state"
    assert backend.requests == []


async def test_seed_3_4_remote_run_without_its_backend_is_not_stopped(scripted: Scripted) -> None:
    """The agent of a remote task is local by now: a cancellation would leave the remote side running."""
    hold = Hold()

    async def slow(request: Any) -> BackendResult:
        await hold.here()
        return BackendResult("far", response="far away")

    store = MemoryStore()
    remote = Runtime([Agent("far", backend=far(slow))], store=store)
    handle = await remote.tasks.spawn("far", "do it", thread="t", name="w")
    await soon(hold.reached.wait())
    stop = call("cancel_task", target={"relation": "child", "name": "w"})
    back = Delegate("far", background=True)
    agents = [lead(scripted(stop, "can't"), back), Agent("far", FunctionModel(lambda _: "never"))]
    assert (await soon(Runtime(agents, store=store).run("lead", "stop it", thread="t"))).text == "can't"
    (reply,) = await replies_on(remote, "t")
    text = f"Run '{handle.id}' is not backed by a remote agent backend"
    assert (reply.error, reply_text(reply).startswith(text)) == ("invalid_state", True)
    hold.released.set()
    assert (await soon(handle.result())).text == "far away"
    await remote.close()


async def test_seed_3_4_any_other_task_can_be_stopped(scripted: Scripted) -> None:
    """The row refuses to stop what no remote backend carries out; here one call stops either."""
    hold, here = Hold(), Hold()
    stop = call("cancel_task", target={"relation": "child", "name": "w"})
    agents = [
        lead(scripted([BACK, call("wait")], stop, "done"), tools=[holding(hold)]),
        Agent("worker", scripted(call("stay")), tools=[holding(here, "stay", effect="pure")]),
    ]
    runtime = Runtime(agents)
    running = asyncio.create_task(runtime.run("lead", "go", thread="t"))
    await soon(here.reached.wait())
    hold.released.set()
    assert (await soon(running)).text == "done"
    (task,) = await tasks_of(runtime)
    assert (task.status, task.error) == ("cancelled", "stopped by owner request")
    await until_idle(runtime)
    await assert_quiet(runtime)


async def test_seed_3_5_local_task_can_be_resumed_and_forked(scripted: Scripted) -> None:
    model = scripted(call("cancel_task", target={"relation": "self"}), "worked after all")
    seen: list[str] = []

    @tool
    async def resume(ctx: ToolContext) -> str:
        """Resume the first task."""
        task = (await ctx.tasks())[0]
        seen.append((await ctx.resume_task(task, "go on")).status)
        return "resumed"

    how = Delegate("worker", background=True, fork=True)
    back = ask(background=True, name="w", fork_context=True)
    agents = [
        lead(scripted(back, "working", call("resume"), "again", "done"), how, tools=[resume]),
        Agent("worker", model),
    ]
    runtime = Runtime(agents)
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    (task,) = await tasks_of(runtime)
    assert (seen, task.status, task.epoch) == (["running"], "completed", 2)
    assert task.target_thread == f"sub-agent-{task.id}"
    assert [m.text for m in model.requests[0].messages] == ["go", "do it"]
    assert model.requests[1].messages[-1].text == "go on"  # On the same thread.


async def test_seed_3_6_remote_task_is_neither_resumed_nor_forked(scripted: Scripted) -> None:
    backend = far(submitting("far away"))
    model = scripted(ask("far", fork_context=True), FAR, "done")
    runtime = with_far(model, backend)
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    refused, _ = await replies_on(runtime, "t")
    assert (refused.error, reply_text(refused)) == (
        "invalid_arguments",
        "fork_context is only supported for hosted local agents",
    )
    (task,) = await tasks_of(runtime)
    assert (task.remote, task.target_thread) == (True, f"sub-agent-{task.id}")
    stopped = replace(task, status="cancelled")
    text = f"Run '{task.id}' is remote and cannot be resumed; start a new run with agent_id"
    with pytest.raises(InvalidState, match=text):
        await runtime._scope.env.children.resume(None, None, stopped, "")  # type: ignore[arg-type]


async def test_seed_3_6_spawned_remote_task_is_not_resumed(scripted: Scripted) -> None:
    """A remote task that the application started is remote, too."""
    hold = Hold()

    async def slow(request: Any) -> BackendResult:
        await hold.here()
        return BackendResult("far")

    errors: list[str] = []

    @tool
    async def resume(ctx: ToolContext) -> str:
        """Resume the first task."""
        try:
            await ctx.resume_task((await ctx.tasks())[0], "go on")
        except ToolError as error:
            errors.append(str(error))
        return "tried"

    backend = far(slow, "never")
    runtime = with_far(scripted(call("resume"), "done"), backend, tools=[resume])
    handle = await runtime.tasks.spawn("far", "do it", thread="t", name="w")
    await soon(hold.reached.wait())
    assert await handle.cancel()
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    (task,) = await tasks_of(runtime)
    assert (task.remote, task.status) == (True, "cancelled")
    assert errors == [f"Run '{task.id}' is remote and cannot be resumed; start a new run with agent_id"]
    assert len(backend.requests) == 1


async def test_seed_3_7_background_task_is_committed_before_start(scripted: Scripted) -> None:
    hold, beside, store = Hold(), Hold(), Seen()
    agents = [
        lead(scripted(BACK, call("wait"), "done"), tools=[holding(beside)]),
        Agent("worker", scripted(call("stay"), "worked"), tools=[holding(hold, "stay")]),
    ]
    runtime = Runtime(agents, store=store)
    running = asyncio.create_task(runtime.run("lead", "go", thread="t"))
    await soon(beside.reached.wait())
    await soon(hold.reached.wait())
    (reply,) = await replies_on(runtime, "t")
    (task,) = await tasks_of(runtime)
    assert data_of(reply) == {"agent_id": "worker", "status": "running", "task_id": task.id}
    assert task.status == "running"
    places = [n for n, c in enumerate(store.commits) if c.tasks or c.thread_id == task.target_thread]
    first = store.commits[places[0]]
    assert (first.thread_id, len(first.tasks), len(first.inbox)) == ("t", 1, 1)
    hold.released.set()
    worker = await run_of(runtime, "worker")
    await soon(runtime.wait(worker.id))
    beside.released.set()
    assert (await soon(running)).text == "done"


async def test_seed_3_8_result_of_older_epoch_is_ignored(scripted: Scripted) -> None:
    """The task is cancelled and resumed; the report of its first run comes while the second one works."""
    hold = Hold()
    resumed = call("resume")

    @tool
    async def resume(ctx: ToolContext) -> str:
        """Resume the first task."""
        await ctx.resume_task((await ctx.tasks())[0], "go on")
        return "resumed"

    model = scripted(call("cancel_task", target={"relation": "self"}), call("stay"), "worked")
    agents = [
        lead(scripted(BACK, "working on it", resumed, "again", "done"), tools=[resume]),
        Agent("worker", model, tools=[holding(hold, "stay")]),
    ]
    runtime = Runtime(agents)
    running = asyncio.create_task(runtime.run("lead", "go", thread="t"))
    await soon(hold.reached.wait())
    (task,) = await tasks_of(runtime)
    assert (task.epoch, task.status) == (2, "running")
    old = TaskOutcome(1, "failed", error="from before")
    late = TaskItem(id="late", thread_id="t", task_id=task.id, outcome=old, background=True)
    await runtime._scope.dispatch.deliver(late)
    await runtime._scope.dispatch.start_if_due("t")
    async with asyncio.timeout(60):
        while (stored := await runtime.store.load("t")) is None or any(i.id == "late" for i in stored.inbox):
            await asyncio.sleep(0)
    (task,) = await tasks_of(runtime)
    assert (task.epoch, task.status, task.error) == (2, "running", None)
    hold.released.set()
    assert (await soon(running)).text == "done"
    (task,) = await tasks_of(runtime)
    assert (task.epoch, task.status, task.error) == (2, "completed", None)
    assert not any("from before" in event for event in await told(runtime))
    await assert_quiet(runtime)


# -- in the foreground ---------------------------------------------------------------------------------------


async def test_seed_3_9_foreground_child_streams_progress(scripted: Scripted) -> None:
    @tool
    async def work(ctx: ToolContext) -> str:
        """Work."""
        ctx.progress(0.5, message="half")
        return "worked"

    agents = [
        Agent("lead", scripted(ask(), "done"), delegates=["worker"]),
        Agent("worker", scripted(call("work"), "worked"), tools=[work]),
    ]
    runtime = Runtime(agents)
    seen = await Recorder().record(runtime.stream("lead", "go", thread="t"))
    assert [(e.fraction, e.run.depth) for e in seen.of(ToolProgress)] == [(0.5, 1)]
    (task,) = await tasks_of(runtime)
    assert task.status == "completed"


async def test_seed_3_10_abandoned_task_leaves_local_outcome(scripted: Scripted) -> None:
    @tool
    async def give_up(ctx: ToolContext) -> str:
        """Stop the child that another call waits for."""
        (task,) = await ctx.tasks()
        await ctx.cancel_task(task, "not needed")
        return "given up"

    hold = Hold()

    @tool
    async def later(ctx: ToolContext) -> str:
        """Give up once the child runs."""
        await hold.reached.wait()
        return await give_up.call({}, ctx)

    agents = [
        Agent("lead", scripted([ask(), call("later")], "done"), delegates=["worker"], tools=[later]),
        Agent("worker", scripted(call("wait")), tools=[holding(hold, effect="pure")]),
    ]
    runtime = Runtime(agents)
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    mine = next(r for r in await replies_on(runtime, "t") if r.name == "agent_run_worker")
    assert "did not complete (cancelled): cancelled: not needed" in reply_text(mine)
    (task,) = await tasks_of(runtime)
    assert (task.status, task.error) == ("cancelled", "not needed")
    await assert_quiet(runtime)
