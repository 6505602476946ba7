"""Seed 003: what a task is made of, local and remote, in the foreground and in the background."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from backends.helpers import REMOTE, FailingStore
from backends.helpers import Scripted as Far
from loop.helpers import Hold, Scripted, holding, replies_on, reply_text, soon, until_idle
from wakeful import Agent, Delegate, MemoryStore, Runtime, StateKey, ToolContext, call, tool
from wakeful.backends import BackendResult, Capabilities, ExecutionBackend, LocalBackend, WaitingInput, backend_of
from wakeful.dispatch._remote_tasks import InvalidState, UnknownRemote, backend_of_task, refresh
from wakeful.errors import RemoteError, StoreUnavailable
from wakeful.stores import Commit, Committed, InboxItem
from wakeful.testing import Recorder
from wakeful.types.events import ToolProgress
from wakeful.types.runs import TaskOutcome, TaskRecord

from .helpers import ask, assert_quiet, data_of, lead, run_of, tasks_of, told

BACK = ask(background=True, name="w")
FAR = ask("far")
FAR_BACK = ask("far", background=True)


class Topic(StateKey[str, str]):
    """What it is about."""

    name = "topic"
    default = ""


class Seen(MemoryStore):
    """Remembers what was committed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[Commit] = []

    async def commit(self, commit: Commit) -> Committed:
        self.commits.append(commit)
        return await super().commit(commit)


def far(*turns: Any) -> Far:
    return Far(*turns, capabilities=REMOTE)


def with_far(model: Any, backend: ExecutionBackend, store: Any = None, **options: Any) -> Runtime:
    """A runtime whose `lead` may call `far`, and leave it work."""
    how = Delegate("far", background=True, fork=True)
    agents = [Agent("lead", model, delegates=[how], **options), Agent("far", backend=backend)]
    return Runtime(agents, store=store, keys=[Topic])


def submitting(answer: str) -> Any:
    """A turn of a backend that keeps what it began."""

    async def submit(request: Any) -> BackendResult:
        await request.save({"task_id": "task-1", "context_id": "context-1"})
        return BackendResult("far", response=answer)

    return submit


# -- starting ------------------------------------------------------------------------------------------------


async def test_seed_3_1_what_a_task_is_begun_with(scripted: Scripted) -> None:
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


async def test_seed_3_2_what_a_bare_backend_can(scripted: Scripted) -> None:
    bare = ExecutionBackend()
    assert bare.capabilities == Capabilities.remote_stateless_text()
    assert bare.capabilities.continuation == "none"
    runtime = with_far(scripted(FAR, "done"), bare)
    assert (await runtime.run("lead", "go", thread="t")).text == "done"
    (reply,) = await replies_on(runtime, "t")
    assert "backend does not support delegated execution" in reply_text(reply)


async def test_seed_3_3_nobody_here_may_go_on_with_it(scripted: Scripted) -> None:
    store, backend = MemoryStore(), far("never")
    task = await orphan(store, backend, scripted)
    watching = Runtime([Agent("far", backend=backend)], store=store, execute=False)
    text = f"Run '{task.id}' cannot be refreshed without a live executor"
    with pytest.raises(InvalidState, match=text) as caught:
        await refresh(watching._dispatch, task)
    assert caught.value.kind == "invalid_state"
    assert backend.requests == []


async def orphan(store: MemoryStore, backend: ExecutionBackend, scripted: Scripted) -> TaskRecord:
    """A remote task whose process died after it had begun: what that leaves in the store."""
    waiting = far(BackendResult("far", WaitingInput("which?")))
    runtime = with_far(scripted(FAR), waiting, store)
    await soon(runtime.run("lead", "go", thread="t"))
    (task,) = await tasks_of(runtime)
    stored = await store.load(task.target_thread)
    assert stored is not None
    assert stored.run is not None
    (asked,) = stored.calls
    done = replace(asked, state="finished", outcome="ok")
    run = replace(stored.run, status="running", waiting=None, stage="between", backend=None)
    commit = Commit(task.target_thread, version=stored.thread.version, runs=[run], calls=[done])
    commit.tickets = [replace(stored.tickets[0], status="answered")]
    await store.commit(commit)
    return task


async def test_seed_3_4_any_task_can_be_stopped_whoever_carries_it_out(scripted: Scripted) -> None:
    """The row refuses to stop what no remote backend carries out; here one call stops either."""
    hold = Hold()
    stop = call("cancel_task", target={"relation": "child", "name": "w"})
    agents = [lead(scripted([BACK, call("wait")], stop, "done")), Agent("worker", scripted(call("stay")))]
    agents[0] = replace(agents[0], tools=[holding(hold)])
    here = Hold()
    agents[1] = replace(agents[1], tools=[holding(here, "stay", effect="pure")])
    runtime = Runtime(agents)
    running = asyncio.create_task(runtime.run("lead", "go", thread="t"))
    await soon(here.reached.wait())
    hold.released.set()
    assert (await soon(running)).text == "done"
    (task,) = await tasks_of(runtime)
    assert (task.status, task.error) == ("cancelled", "stopped by owner request")
    await until_idle(runtime)
    await assert_quiet(runtime)


async def test_seed_3_5_a_local_task_can_be_resumed_and_forked(scripted: Scripted) -> None:
    model = scripted(call("cancel_task", target={"relation": "self"}), "worked after all")
    again = call("resume_task", task_id="w", prompt="go on")
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
    assert again.name == "resume_task"


async def test_seed_3_6_a_remote_task_can_be_neither_and_has_a_thread_like_it(scripted: Scripted) -> None:
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
        await runtime._env.children.resume(None, None, stopped, "")  # type: ignore[arg-type]


async def test_seed_3_7_background_work_is_written_down_before_it_begins(scripted: Scripted) -> None:
    hold, store = Hold(), Seen()
    agents = [
        lead(scripted(BACK, call("wait"), "done")),
        Agent("worker", scripted(call("stay"), "worked"), tools=[holding(hold, "stay")]),
    ]
    beside = Hold()
    agents[0] = replace(agents[0], tools=[holding(beside)])
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


async def test_seed_3_8_what_comes_of_an_older_epoch_does_not_count(scripted: Scripted) -> None:
    hold = Hold()
    agents = [
        lead(scripted(BACK, "working on it", "done")),
        Agent("worker", scripted(call("stay"), "worked"), tools=[holding(hold, "stay")]),
    ]
    runtime = Runtime(agents)
    running = asyncio.create_task(runtime.run("lead", "go", thread="t"))
    await soon(hold.reached.wait())
    (task,) = await tasks_of(runtime)
    old = TaskOutcome(task.epoch - 1, "failed", error="from before")
    await runtime._dispatch.deliver(InboxItem(id="late", thread_id="t", kind="task", task_id=task.id, outcome=old))
    hold.released.set()
    assert (await soon(running)).text == "done"
    (task,) = await tasks_of(runtime)
    assert (task.status, task.error) == ("completed", None)
    assert len(await told(runtime)) == 1
    await assert_quiet(runtime)


# -- in the foreground ---------------------------------------------------------------------------------------


async def test_seed_3_9_a_child_in_the_foreground_shows_its_progress(scripted: Scripted) -> None:
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


async def test_seed_3_10_a_call_whose_task_was_given_up_says_what_it_saw_itself(scripted: Scripted) -> None:
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


# -- remote --------------------------------------------------------------------------------------------------


async def test_seed_3_11_a_remote_agent_takes_no_state(scripted: Scripted) -> None:
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


async def test_seed_3_12_a_remote_that_fails_at_once(scripted: Scripted) -> None:
    """The row keeps nothing of it; here the record says that it failed and why, and no handle is kept."""
    runtime = with_far(scripted(FAR, "done"), far(RemoteError("500 from the server")))
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    (reply,) = await replies_on(runtime, "t")
    assert (reply.error, "500 from the server" in reply_text(reply)) == ("remote_error", True)
    (task,) = await tasks_of(runtime)
    assert (task.status, task.error) == ("failed", "500 from the server")
    assert await handles(runtime, task) is None
    await assert_quiet(runtime)


async def test_seed_3_13_what_can_not_be_written_is_never_sent(scripted: Scripted) -> None:
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
async def test_seed_3_14_where_a_remote_task_is_can_be_found_again(asked: Any, scripted: Scripted) -> None:
    turns = [asked, "done"] if asked is FAR else [asked, "working on it", "done"]
    runtime = with_far(scripted(*turns), far(submitting("far away")))
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    (task,) = await tasks_of(runtime)
    assert (task.agent_id, task.remote, task.target_thread) == ("far", True, f"sub-agent-{task.target}")
    assert await handles(runtime, task) == {"far": {"task_id": "task-1", "context_id": "context-1"}}


async def handles(runtime: Runtime, task: TaskRecord) -> Any:
    """What backends saved on a task's thread."""
    stored = await runtime._env.store.load(task.target_thread)
    assert stored is not None
    return msgspec.json.decode(stored.state.get("__runtime_remote_backend", b"null"))


async def test_seed_3_15_remote_work_in_the_background(scripted: Scripted) -> None:
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
    assert [m.text for m in await runtime.messages(task.target_thread)] == ["do it", "far away"]
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


async def test_seed_3_16_an_answer_and_its_status_are_one_commit(scripted: Scripted) -> None:
    """In the row the mirror may fail after the status was known. Here there is no such moment: what fails is both,
    nothing of it is in the store, and whoever comes next goes on from the saved handle."""
    store, backend = Breaks(), far(submitting("far away"), submitting("far away"))
    runtime = with_far(scripted(FAR_BACK, "working", "done"), backend, store)
    running = asyncio.create_task(runtime.run("lead", "go", thread="t"))
    while not store.failures:
        await asyncio.sleep(0)
    (task,) = await tasks_of(runtime)
    assert (task.status, (await run_of(runtime, "far")).outcome) == ("running", None)
    assert [m.text for m in await runtime.messages(task.target_thread)] == ["do it"]
    store.broken = False
    assert (await soon(running)).text == "done"
    assert backend.requests[1].state == {"task_id": "task-1", "context_id": "context-1"}
    assert [task.status for task in await tasks_of(runtime)] == ["completed"]
    await runtime.close()


async def test_seed_3_17_a_foreground_call_is_told_that_the_store_failed(scripted: Scripted) -> None:
    """And nothing says that the child came to anything: it is stopped, as far as it can be."""
    store, backend = Breaks(), far(submitting("far away"))
    runtime = with_far(scripted(FAR, "done"), backend, store)
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    (reply,) = await replies_on(runtime, "t")
    assert (reply.error, reply_text(reply)) == ("store_error", "the disk is gone")
    (task,) = await tasks_of(runtime)
    assert (task.status, task.error) == ("cancelled", "the call of agent_run_far is over")
    assert [m.text for m in await runtime.messages(task.target_thread)] == ["do it"]
    async with runtime:  # Whoever serves finds it, tells it to stop, and the remote too.
        while (await run_of(runtime, "far")).status != "done":
            await asyncio.sleep(0.01)
        assert len(backend.aborts) == 1
        await until_idle(runtime)
        await assert_quiet(runtime)


# -- later ---------------------------------------------------------------------------------------------------


async def test_seed_3_18_a_local_task_is_no_remote_run(scripted: Scripted) -> None:
    runtime = Runtime([lead(scripted(BACK, "working", "done")), Agent("worker", scripted("worked"))])
    await soon(runtime.run("lead", "go", thread="t"))
    (task,) = await tasks_of(runtime)
    with pytest.raises(InvalidState, match=f"Run '{task.id}' is not a remote delegated run") as caught:
        await refresh(runtime._dispatch, task)
    assert caught.value.kind == "invalid_state"


async def test_seed_3_19_a_task_that_is_not_done_is_only_looked_at(scripted: Scripted) -> None:
    runtime = with_far(scripted(FAR), far(BackendResult("far", WaitingInput("which?"))))
    await soon(runtime.run("lead", "go", thread="t"))
    (task,) = await tasks_of(runtime)
    assert await refresh(runtime._dispatch, task) == task
    bare = replace(task, target_thread="")
    assert (await refresh(runtime._dispatch, bare)).target_thread == f"sub-agent-{task.target}"


async def test_seed_3_19_a_task_that_nobody_follows_is_followed_from_here(scripted: Scripted) -> None:
    store, backend = MemoryStore(), far("far away")
    task = await orphan(store, backend, scripted)
    runtime = with_far(scripted("done"), backend, store)
    assert (await refresh(runtime._dispatch, task)).status == "running"
    await until_idle(runtime)
    done = await refresh(runtime._dispatch, task)
    assert (done.status, done.finished_at is not None) == ("completed", True)
    assert (await runtime.messages(task.target_thread))[-1].text == "far away"
    assert [task.status for task in await tasks_of(runtime)] == ["completed"]  # Its owner was told.
    assert (await runtime.messages("t"))[-1].text == "done"


@pytest.mark.parametrize("broken", [False, True], ids=["", "and the remote fails"])
async def test_seed_3_20_stopping_a_remote_task(broken: bool, scripted: Scripted) -> None:
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

    backend = Stops(slow, capabilities=REMOTE)
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


async def test_seed_3_20_a_remote_task_that_is_done_keeps_its_status(scripted: Scripted) -> None:
    cancel = call("cancel_task", target={"relation": "child", "name": "w"})
    model = scripted(ask("far", background=True, name="w"), "working", cancel, "done")
    runtime = with_far(model, far("far away"))
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    (task,) = await tasks_of(runtime)
    reply = (await replies_on(runtime, "t"))[-1]
    assert data_of(reply) == {"status": "failed", "cancelled_count": 0, "error": "task_not_found"}
    assert (task.status, task.error) == ("completed", None)


async def test_seed_3_21_what_a_task_said(scripted: Scripted) -> None:
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


def test_seed_3_22_what_an_agent_is_decides_its_backend(scripted: Scripted) -> None:
    backend = far()
    registry = with_far(scripted(), backend)._env.registry
    assert isinstance(backend_of(registry.resolve("lead")), LocalBackend)
    assert backend_of(registry.resolve("far")) is backend


def test_seed_3_23_what_a_task_is_decides_its_backend(scripted: Scripted) -> None:
    backend = far()
    registry = with_far(scripted(), backend)._env.registry
    local, remote = TaskRecord("x", "t", agent_id="lead"), TaskRecord("y", "t", agent_id="far", remote=True)
    assert backend_of_task(None, local) is None
    assert backend_of_task(registry, remote) is backend
    text = r"^remote agent backend resolution requires an AgentOs-bound catalog$"
    with pytest.raises(InvalidState, match=text) as caught:
        backend_of_task(None, remote)
    assert caught.value.kind == "invalid_state"


def test_seed_3_24_a_task_whose_agent_is_gone_or_another_by_now(scripted: Scripted) -> None:
    registry = with_far(scripted(), far())._env.registry
    with pytest.raises(UnknownRemote, match=r"^Unknown remote agent: nobody$") as unknown:
        backend_of_task(registry, TaskRecord("x", "t", agent_id="nobody", remote=True))
    assert unknown.value.kind == "unknown_agent"
    with pytest.raises(InvalidState, match=r"^Agent 'lead' is not backed by remote A2A$") as local:
        backend_of_task(registry, TaskRecord("x", "t", agent_id="lead", remote=True))
    assert local.value.kind == "invalid_state"
