"""Seed 001, rows 1.7, 1.8 and 1.10 to 1.15: what a local child is given, and what it isn't."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from loop.helpers import Hold, Scripted, holding, replies_on, soon, spying
from loop.helpers import Spy as Calls
from wakeful import (
    Agent,
    ClientTool,
    Delegate,
    ModelSettings,
    Plugin,
    Runtime,
    ScriptedModel,
    StateKey,
    ToolContext,
    call,
    tool,
)
from wakeful.agents import resolve_child
from wakeful.dispatch.task_start import identity_of
from wakeful.errors import AgentNotFound, ExecutionFailed, UnknownAgent
from wakeful.plugins import Step
from wakeful.types.runs import Identity, TaskRecord

from .helpers import ask, data_of, run_of, tasks_of


class Note(StateKey[str, str]):
    """A note on a thread."""

    name = "note"
    scope = "thread"
    default = "nothing"


class Refusing:
    """A registry that can't resolve anything."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def resolve(self, agent_id: str) -> Any:
        raise self._error


def test_seed_1_7_unknown_and_unresolvable_agents_differ() -> None:
    with pytest.raises(AgentNotFound, match=r"^agent not found: nobody$"):
        resolve_child(Refusing(UnknownAgent("unknown agent 'nobody'")), "nobody")
    text = r"^execution failed: failed to resolve agent 'worker': the catalog is gone$"
    with pytest.raises(ExecutionFailed, match=text):
        resolve_child(Refusing(OSError("the catalog is gone")), "worker")


async def test_seed_1_7_unknown_agent_is_tool_error(scripted: Scripted) -> None:
    told: list[str] = []

    @tool
    async def delegate(ctx: ToolContext) -> str:
        """Ask nobody."""
        try:
            await ctx.run_agent("nobody", "hello?")
        except AgentNotFound as error:
            told.append(str(error))
        return "alone"

    runtime = Runtime([Agent("lead", scripted(call("delegate"), "done"), tools=[delegate])])
    assert (await runtime.run("lead", "go", thread="t")).text == "done"
    assert told == ["agent not found: nobody"]
    assert await tasks_of(runtime) == []


async def test_seed_1_8_child_does_not_see_parent_state(scripted: Scripted) -> None:
    seen: list[str] = []

    @tool
    async def write(ctx: ToolContext) -> str:
        """Write a note."""
        ctx.update(Note, "the parent's")
        return "written"

    @tool
    async def read(ctx: ToolContext) -> str:
        """Read the note."""
        seen.append(ctx.state[Note])
        ctx.update(Note, "the child's")
        return "read"

    agents = [
        Agent("lead", scripted(call("write"), ask(), "done"), tools=[write], delegates=["worker"]),
        Agent("worker", scripted(call("read"), "worked"), tools=[read]),
    ]
    runtime = Runtime(agents, keys=[Note])
    await runtime.run("lead", "go", thread="t")
    assert seen == ["nothing"]
    assert (await runtime.threads.state("t"))["note"] == "the parent's"
    assert (await runtime.threads.state((await run_of(runtime, "worker")).thread_id))["note"] == "the child's"


async def test_seed_1_10_child_has_its_own_inbox(scripted: Scripted) -> None:
    hold, model, above = Hold(), scripted(call("wait"), "worked"), scripted(ask(), "done")
    agents = [
        Agent("lead", above, delegates=["worker"]),
        Agent("worker", model, tools=[holding(hold)]),
    ]
    runtime = Runtime(agents)
    running = asyncio.create_task(runtime.run("lead", "go", thread="t"))
    await soon(hold.reached.wait())
    child = await run_of(runtime, "worker")
    await runtime.send(child.thread_id, "and this", policy="steer")
    hold.released.set()
    assert (await soon(running)).text == "done"
    assert [m.text for m in model.requests[1].messages if m.role == "user"] == ["do it", "and this"]
    assert [m.text for m in above.requests[1].messages if m.role == "user"] == ["go"]


class Counts(Plugin):
    """Counts how often it is bound, and writes at once."""

    keys = (Note,)

    def __init__(self) -> None:
        self.bound: list[tuple[str, str]] = []

    async def activate(self, ctx: Step) -> None:
        self.bound.append((ctx.run.agent_id, ctx.state[Note]))
        ctx.update(Note, "bound")


async def test_seed_1_11_plugin_is_bound_once_with_its_keys(scripted: Scripted) -> None:
    plugin, act = Counts(), spying(Calls(), "act", approval=True)
    agents = [
        Agent("lead", scripted(ask(), "done"), delegates=["worker"]),
        Agent("worker", scripted(call("act"), "worked"), plugins=[plugin], tools=[act]),
    ]
    runtime = Runtime(agents)
    waiting = await soon(runtime.run("lead", "go", thread="t"))
    await soon(runtime.resume(waiting.run_id, waiting.tickets[0].approve()))
    assert plugin.bound == [("worker", "nothing")]  # And not again when the run goes on.
    assert (await runtime.threads.state((await run_of(runtime, "worker")).thread_id))["note"] == "bound"


async def test_seed_1_12_child_owns_its_background_work(scripted: Scripted) -> None:
    """Nothing has to be made or bound for it: each thread has its tasks, and its tools see no others."""
    back = [Delegate("below", background=True)]
    # How often they are asked depends on when they are told.
    model = ScriptedModel([ask("below", background=True, name="deep"), call("task_status"), "worked", "worked"])
    above = ScriptedModel([ask("below", background=True, name="near"), ask(), call("task_status"), "done", "done"])
    agents = [
        Agent("lead", above, delegates=[*back, "worker"]),
        Agent("worker", model, delegates=back),
        Agent("below", scripted("one", "two")),
    ]
    runtime = Runtime(agents)
    assert (await soon(runtime.run("lead", "go", thread="t"))).text == "done"
    names = [spec.name for spec in model.requests[0].tools]
    assert [names.count(name) for name in ("cancel_task", "task_status", "task_output", "resume_task")] == [1] * 4
    child = await run_of(runtime, "worker")
    shown = [data_of(r) for r in await replies_on(runtime, child.thread_id) if r.name == "task_status"]
    assert [[task["name"] for task in each["tasks"]] for each in shown] == [["deep"]]
    assert [task.name for task in await tasks_of(runtime) if task.background] == ["near"]
    (deep,) = await tasks_of(runtime, child.thread_id)
    assert (deep.name, deep.run_id, deep.thread_id) == ("deep", child.id, child.thread_id)


async def test_seed_1_13_child_identity(scripted: Scripted) -> None:
    seen: list[Identity] = []

    @tool
    async def look(ctx: ToolContext) -> str:
        """Look."""
        seen.append(ctx.run)
        return "seen"

    agents = [
        Agent("lead", scripted(ask(), "done"), delegates=["worker"]),
        Agent("worker", scripted(call("look"), "worked"), tools=[look]),
    ]
    runtime = Runtime(agents)
    result = await runtime.run("lead", "go", thread="t")
    (child,) = seen
    (asked,) = await runtime.runs.calls(result.run_id)
    assert UUID(child.run_id).version == 7
    assert child.thread_id == child.run_id
    assert (child.parent_run_id, child.parent_thread_id) == (result.run_id, "t")
    assert (child.parent_call_id, child.origin) == (asked.id, "subagent")
    above: Any = SimpleNamespace(identity=Identity("r", "t", "lead", "r"))
    blank = TaskRecord("c", "t", "r", target="c", target_thread="c", call_id="  ")
    assert identity_of(above, blank).parent_call_id is None


async def test_seed_1_14_child_inherits_nothing_else(scripted: Scripted) -> None:
    model = scripted("worked")
    agents = [Agent("lead", scripted(ask(), "done"), delegates=["worker"]), Agent("worker", model)]
    runtime = Runtime(agents)
    settings = ModelSettings(temperature=0.5)
    locate = ClientTool("locate", "Where?", {"type": "object"})
    await runtime.run("lead", "before", thread="other")
    model.turns.append("worked")
    agents[0].model.turns.extend([ask(), "done"])  # type: ignore[union-attr]
    await runtime.run("lead", "go", thread="t", settings=settings, client_tools=[locate])
    for request in model.requests:
        assert [m.text for m in request.messages] == ["do it"]  # Nothing of the caller's, nor of its last run.
        assert (request.settings.temperature, request.tools) == (None, ())
    runs = await runtime.runs.list(agent="worker")
    assert [run.options for run in runs] == [None, None]
    assert len({run.thread_id for run in runs}) == 2


async def test_seed_1_15_last_text_is_the_answer(scripted: Scripted) -> None:
    agents = [
        Agent("lead", scripted(ask(), "done"), delegates=["worker"]),
        Agent("worker", scripted(call("act"), "the final word"), tools=[spying(Calls(), "act", result="output")]),
    ]
    runtime = Runtime(agents)
    await runtime.run("lead", "go", thread="t")
    (reply,) = await replies_on(runtime, "t")
    assert data_of(reply) == {
        "agent_id": "worker",
        "status": "completed",
        "response": "the final word",
        "steps": 2,
    }
