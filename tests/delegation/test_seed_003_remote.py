"""Seed 003, rows 3.11 to 3.24: tasks that a backend carries out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from backends.helpers import FailingStore
from backends.helpers import Scripted as Far
from loop.helpers import Hold, Scripted, replies_on, reply_text, soon, until_idle
from wakeful import Agent, MemoryStore, Runtime, ToolContext, call, tool
from wakeful.backends import BackendResult, LocalBackend, WaitingInput
from wakeful.dispatch.remote_tasks import InvalidState, UnknownRemote, backend_of_task, refresh
from wakeful.errors import RemoteError, StoreUnavailable
from wakeful.stores import Commit, Committed
from wakeful.types.runs import TaskRecord

from .helpers import ask, assert_quiet, busy_until, data_of, lead, run_of, tasks_of, told
from .remote import BACK, FAR, FAR_BACK, LASTING, Topic, far, handles, orphan, submitting, with_far

# -- remote --------------------------------------------------------------------------------------------------


async def test_seed_3_11_remote_agent_takes_no_state(scripted: Scripted) -> None:
    @tool
    async def begin(ctx: ToolContext) -> str:
        """Seed what can't be seeded."""
        return (await ctx.run_agent("far", "hello", state={Topic: "owls"})).text

    backend = far("never")
    runtime = with_far(scripted(call("begin"), "done"), backend, tools=[begin])
    await runtime.run("lead", "go", thread="t")
    (reply,) = await replies_on(runtime, "t")
    assert (reply.error, reply_text(reply)) == (
        "invalid_arguments",
        "remote agents do not support seeded local state",
    )
    assert (backend.requests, await tasks_of(runtime)) == ([], [])


async def test_seed_3_12_remote_failure_at_start(scripted: Scripted) -> None:
    """The row keeps nothing of it; here the record says that it failed and why, and no handle is kept."""
    runtime = with_far(scripted(FAR, "done"), far(RemoteError("500 from the server")))
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    (reply,) = await replies_on(runtime, "t")
    assert (reply.error, "500 from the server" in reply_text(reply)) == ("remote_error", True)
    (task,) = await tasks_of(runtime)
    assert (task.status, task.error) == ("failed", "500 from the server")
    assert await handles(runtime, task) is None
    await assert_quiet(runtime)


async def test_seed_3_13_uncommitted_task_is_never_sent(scripted: Scripted) -> None:
    """The row sends first, and takes it back when the input can't be kept; here the input is kept first."""
    backend = far("never")
    store = FailingStore(lambda commit: commit.thread_id.startswith("sub-agent-"))
    runtime = with_far(scripted(FAR, "done"), backend, store)
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    (reply,) = await replies_on(runtime, "t")
    assert (reply.error, reply_text(reply)) == ("store_error", "the disk is gone")
    assert backend.requests == []
    await runtime.close()


@pytest.mark.parametrize("asked", [FAR, FAR_BACK], ids=["foreground", "background"])
async def test_seed_3_14_remote_task_locator_is_recoverable(asked: Any, scripted: Scripted) -> None:
    turns = [asked, "done"] if asked is FAR else [asked, "working on it", "done"]
    runtime = with_far(scripted(*turns), far(submitting("far away")))
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    (task,) = await tasks_of(runtime)
    assert (task.agent_id, task.remote, task.target_thread) == ("far", True, f"sub-agent-{task.target}")
    assert await handles(runtime, task) == {"far": {"task_id": "task-1", "context_id": "context-1"}}


async def test_seed_3_15_remote_background_task(scripted: Scripted) -> None:
    hold = Hold()

    async def slow(request: Any) -> BackendResult:
        await hold.here()
        return BackendResult("far", response="far away")

    runtime = with_far(scripted(FAR_BACK, "working on it", "done"), far(slow))
    running = asyncio.create_task(runtime.run("lead", "go", thread="t"))
    await soon(hold.reached.wait())
    (task,) = await tasks_of(runtime)
    assert task.status == "running"
    hold.released.set()
    assert (await soon(running)).text == "done"
    (task,) = await tasks_of(runtime)
    (news,) = await told(runtime)
    assert (task.status, "far away" in news) == ("completed", True)
    assert [m.text for m in await runtime.threads.messages(task.target_thread)] == ["do it", "far away"]
    await assert_quiet(runtime)


class Breaks(MemoryStore):
    """Refuses a remote child's answer until it is mended."""

    broken = True
    failures = 0

    async def commit(self, commit: Commit) -> Committed:
        answer = any(getattr(entry, "role", "") == "assistant" for entry in commit.log)
        if self.broken and answer and commit.thread_id.startswith("sub-agent-"):
            self.failures += 1
            raise StoreUnavailable("the disk is gone")
        return await super().commit(commit)


async def test_seed_3_16_answer_and_status_are_one_commit(scripted: Scripted) -> None:
    """In the row the mirror may fail after the status was known. Here both are one commit: if it fails, the
    store has neither, and the next process continues from the saved handle.
    """
    store, backend = Breaks(), far(submitting("far away"), submitting("far away"))
    runtime = with_far(scripted(FAR_BACK, "working", "done"), backend, store)
    running = asyncio.create_task(runtime.run("lead", "go", thread="t"))
    while not store.failures:
        await asyncio.sleep(0)
    (task,) = await tasks_of(runtime)
    assert (task.status, (await run_of(runtime, "far")).outcome) == ("running", None)
    assert [m.text for m in await runtime.threads.messages(task.target_thread)] == ["do it"]
    store.broken = False
    assert (await soon(running)).text == "done"
    assert backend.requests[1].state == {"task_id": "task-1", "context_id": "context-1"}
    assert [task.status for task in await tasks_of(runtime)] == ["completed"]
    await runtime.close()


async def test_seed_3_17_foreground_call_reports_store_failure(scripted: Scripted) -> None:
    """And nothing says that the child came to anything: it is stopped, as far as it can be."""
    store, backend = Breaks(), far(submitting("far away"))
    runtime = with_far(scripted(FAR, "done"), backend, store)
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    (reply,) = await replies_on(runtime, "t")
    assert (reply.error, reply_text(reply)) == ("store_error", "the disk is gone")
    (task,) = await tasks_of(runtime)
    assert (task.status, task.error) == ("cancelled", "the call of agent_run_far is over")
    assert [m.text for m in await runtime.threads.messages(task.target_thread)] == ["do it"]
    async with runtime:  # Whoever serves finds it, tells it to stop, and the remote too.
        while (await run_of(runtime, "far")).status != "done":
            await asyncio.sleep(0.01)
        assert len(backend.aborts) == 1
        await until_idle(runtime)
        await assert_quiet(runtime)


# -- later ---------------------------------------------------------------------------------------------------


async def test_seed_3_18_local_task_is_no_remote_run(scripted: Scripted) -> None:
    model = scripted(BACK, "working", "done")
    runtime = Runtime([lead(model), Agent("worker", busy_until(model, 2, "worked"))])
    await soon(runtime.run("lead", "go", thread="t"))
    (task,) = await tasks_of(runtime)
    with pytest.raises(InvalidState, match=f"Run '{task.id}' is not a remote delegated run") as caught:
        await refresh(runtime._scope.dispatch, task)
    assert caught.value.kind == "invalid_state"


async def test_seed_3_19_open_task_is_only_read(scripted: Scripted) -> None:
    runtime = with_far(scripted(FAR), far(BackendResult("far", WaitingInput("which?"))))
    await soon(runtime.run("lead", "go", thread="t"))
    (task,) = await tasks_of(runtime)
    assert await refresh(runtime._scope.dispatch, task) == task
    bare = replace(task, target_thread="")
    assert (await refresh(runtime._scope.dispatch, bare)).target_thread == f"sub-agent-{task.target}"


async def test_seed_3_19_unfollowed_task_is_followed(scripted: Scripted) -> None:
    store, backend = MemoryStore(), far("far away")
    task = await orphan(store, backend, scripted)
    runtime = with_far(scripted("done"), backend, store)
    assert (await refresh(runtime._scope.dispatch, task)).status == "running"
    await until_idle(runtime)
    done = await refresh(runtime._scope.dispatch, task)
    assert (done.status, done.finished_at is not None) == ("completed", True)
    assert (await runtime.threads.messages(task.target_thread))[-1].text == "far away"
    assert [task.status for task in await tasks_of(runtime)] == ["completed"]  # Its owner was told.
    assert (await runtime.threads.messages("t"))[-1].text == "done"


@pytest.mark.parametrize("broken", [False, True], ids=["", "and the remote fails"])
async def test_seed_3_20_remote_task_is_stopped(broken: bool, scripted: Scripted) -> None:
    """Stopping never fails here: it is asked for, and the task is over. What the remote says to it is logged."""
    hold = Hold()

    async def slow(request: Any) -> BackendResult:
        await request.save({"task_id": "task-1"})
        await hold.here()
        return BackendResult("far", response="too late")

    class Stops(Far):
        async def abort(self, request: Any) -> None:
            await super().abort(request)
            if broken:
                raise RemoteError("not now")

    @tool
    async def stop(ctx: ToolContext) -> str:
        """Stop it once it runs."""
        await hold.reached.wait()
        return "it runs"

    backend = Stops(slow, capabilities=LASTING)
    cancel = call("cancel_task", target={"relation": "child", "name": "w"})
    model = scripted([ask("far", background=True, name="w"), call("stop")], cancel, "done")
    runtime = with_far(model, backend, tools=[stop])
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    (task,) = await tasks_of(runtime)
    assert (task.status, task.error) == ("cancelled", "remote cancellation requested")
    await until_idle(runtime)
    (aborted,) = backend.aborts
    assert aborted.state == {"task_id": "task-1"}
    await assert_quiet(runtime)


async def test_seed_3_20_finished_remote_task_keeps_status(scripted: Scripted) -> None:
    cancel = call("cancel_task", target={"relation": "child", "name": "w"})
    model = scripted(ask("far", background=True, name="w"), "working", cancel, "done")
    runtime = with_far(model, far("far away"))
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    (task,) = await tasks_of(runtime)
    reply = (await replies_on(runtime, "t"))[-1]
    assert data_of(reply) == {"status": "failed", "cancelled_count": 0, "error": "task_not_found"}
    assert (task.status, task.error) == ("completed", None)


async def test_seed_3_21_task_output(scripted: Scripted) -> None:
    hold = Hold()

    async def slow(request: Any) -> BackendResult:
        await hold.here()
        return BackendResult("far", response="far away")

    seen: list[tuple[str, str]] = []

    @tool
    async def look(ctx: ToolContext) -> str:
        """Look at the task's output, before and after."""
        (task,) = await ctx.tasks()
        seen.append((task.status, await ctx.task_output(task)))
        return "seen"

    model = scripted([FAR_BACK], call("look"), "working", call("look"), "done")
    runtime = with_far(model, far(slow), tools=[look])
    running = asyncio.create_task(runtime.run("lead", "go", thread="t"))
    while not seen:
        await asyncio.sleep(0)
    hold.released.set()
    assert (await soon(running)).text == "done"
    assert seen == [("running", ""), ("completed", "far away")]


# -- which backend -------------------------------------------------------------------------------------------


async def test_seed_3_22_agent_kind_selects_backend(scripted: Scripted) -> None:
    """Two delegates of one agent: one on the local backend, one on its own."""
    backend = far("far away")
    agents = [
        lead(scripted([ask("far"), ask("near")], "done"), "far", "near"),
        Agent("near", scripted("near by"), backend=LocalBackend()),
        Agent("far", backend=backend),
    ]
    runtime = Runtime(agents)
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    assert {reply_text(reply) for reply in await replies_on(runtime, "t")} == {"far away", "near by"}
    assert {task.agent_id: task.remote for task in await tasks_of(runtime)} == {"far": True, "near": False}
    assert len(backend.requests) == 1


def test_seed_3_23_task_kind_selects_backend(scripted: Scripted) -> None:
    backend = far()
    registry = with_far(scripted(), backend)._scope.env.registry
    local, remote = TaskRecord("x", "t", agent_id="lead"), TaskRecord("y", "t", agent_id="far", remote=True)
    assert backend_of_task(None, local) is None
    assert backend_of_task(registry, remote) is backend
    text = r"^remote agent backend resolution requires a wakeful-bound catalog$"
    with pytest.raises(InvalidState, match=text) as caught:
        backend_of_task(None, remote)
    assert caught.value.kind == "invalid_state"


def test_seed_3_24_task_of_missing_or_changed_agent(scripted: Scripted) -> None:
    registry = with_far(scripted(), far())._scope.env.registry
    with pytest.raises(UnknownRemote, match=r"^Unknown remote agent: nobody$") as unknown:
        backend_of_task(registry, TaskRecord("x", "t", agent_id="nobody", remote=True))
    assert unknown.value.kind == "unknown_agent"
    with pytest.raises(InvalidState, match=r"^Agent 'lead' is not backed by remote A2A$") as local:
        backend_of_task(registry, TaskRecord("x", "t", agent_id="lead", remote=True))
    assert local.value.kind == "invalid_state"
