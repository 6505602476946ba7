"""Dependencies: one object for each process, in the context of tools, hooks, tasks and backends; never stored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Protocol

import pytest
from msgspec import Struct

from loop.helpers import Scripted, soon
from wakeful import (
    Agent,
    ConfigurationError,
    Plugin,
    Runtime,
    TaskContext,
    ToolContext,
    UsageError,
    call,
    task,
    tool,
)
from wakeful.backends import BackendResult, DelegateRequest, ExecutionBackend, RootRequest
from wakeful.plugins import BeforeInference, GateAnswer, GateTool, HookContext, Step, action
from wakeful.tools import Done


class Deps(Struct):
    """Holds something that no store could keep."""

    greeting: str
    lock: Any = object()


class Other(Struct):
    pass


@tool
async def greet(name: str, ctx: ToolContext[Deps]) -> str:
    """Greet somebody."""
    return f"{ctx.deps.greeting}, {name}"


@tool
def greet_in_a_thread(ctx: ToolContext[Deps]) -> str:
    """Greet from a thread."""
    return ctx.deps.greeting


@task
async def greet_later(ctx: TaskContext[Deps]) -> str:
    return ctx.deps.greeting


class Greeter(Plugin):
    def __init__(self) -> None:
        self.seen: list[str] = []

    async def step_start(self, ctx: Step[Deps]) -> None:
        self.seen.append(ctx.deps.greeting)
        ctx.schedule("greet", phase="step_end")

    async def before_inference(self, ctx: BeforeInference[Deps]) -> None:
        ctx.plan.add_system(ctx.deps.greeting)

    async def gate_tool(self, ctx: GateTool[Deps]) -> GateAnswer:
        return None if ctx.deps.greeting else ctx.block("nobody is greeted")

    @action("greet")
    async def on_greet(self, payload: None, ctx: HookContext[Deps]) -> None:
        self.seen.append(f"{ctx.deps.greeting} again")


class Backend(ExecutionBackend):
    async def execute_root(self, request: RootRequest | DelegateRequest) -> BackendResult:
        return BackendResult(request.agent_id, response=request.deps.greeting)

    execute_delegate = execute_root


async def test_deps_reach_tools_hooks_and_actions(scripted: Scripted, tmp_path: Path) -> None:
    model, plugin = scripted([call("greet", name="Ada"), call("greet_in_a_thread")], "done"), Greeter()
    agent = Agent("host", model=model, tools=[greet, greet_in_a_thread], plugins=[plugin])
    async with Runtime([agent], deps=Deps("Hello"), store=tmp_path / "deps.db") as runtime:
        assert (await soon(runtime.run("host", "go"))).text == "done"
    assert [m.reply.content[0].text for m in model.requests[1].messages[-2:]] == ["Hello, Ada", "Hello"]
    assert model.requests[0].system == "Hello"
    assert plugin.seen == ["Hello", "Hello again", "Hello", "Hello again"]


async def test_deps_reach_task_functions_and_backends() -> None:
    async with Runtime([Agent("remote", backend=Backend())], tasks=[greet_later], deps=Deps("Hi")) as runtime:
        handle = await runtime.tasks.spawn(greet_later)
        assert await soon(handle.value()) == "Hi"
        assert (await soon(runtime.run("remote", "go"))).text == "Hi"


async def test_deps_are_those_of_the_process_that_resumes(scripted: Scripted, tmp_path: Path) -> None:
    approved = tool(approval=True, name="approved")(greet.run)
    first = Agent("host", model=scripted(call("approved", name="Ada")), tools=[approved])
    async with Runtime([first], deps=Deps("Hello"), store=tmp_path / "a.db") as runtime:
        waiting = await soon(runtime.run("host", "go", thread="t"))
    model = scripted("done")
    second = Agent("host", model=model, tools=[approved])
    async with Runtime([second], deps=Deps("Good day"), store=tmp_path / "a.db") as runtime:
        await soon(runtime.resume(waiting.run_id, answers={waiting.tickets[0].id: True}))
    assert model.requests[0].messages[-1].reply.content[0].text == "Good day, Ada"


async def test_override_replaces_deps_inside_its_block(scripted: Scripted) -> None:
    model = scripted(call("greet", name="Ada"), "done", call("greet", name="Bob"), "done")

    class Fake:  # Of no type that the tool names.
        greeting = "Fake"

    async with Runtime([Agent("host", model=model, tools=[greet])], deps=Deps("Hello")) as runtime:
        with runtime.override(deps=Fake()):
            await soon(runtime.run("host", "go"))
        await soon(runtime.run("host", "go"))
    assert model.requests[1].messages[-1].reply.content[0].text == "Fake, Ada"
    assert model.requests[3].messages[-1].reply.content[0].text == "Hello, Bob"


def test_missing_deps_are_refused_at_construction(scripted: Scripted) -> None:
    agent = Agent("host", model=scripted(), tools=[greet], plugins=[Greeter()])
    with pytest.raises(ConfigurationError) as refused:
        Runtime([agent], tasks=[greet_later])
    assert [problem.split(", and")[0] for problem in refused.value.problems] == [
        "Runtime(tasks=...): task 'greet_later': it needs deps of type Deps",
        "agent 'host': tool 'greet': it needs deps of type Deps",
        "agent 'host', plugin 'Greeter': step_start: it needs deps of type Deps",
        "agent 'host', plugin 'Greeter': before_inference: it needs deps of type Deps",
        "agent 'host', plugin 'Greeter': gate_tool: it needs deps of type Deps",
        "plugin 'Greeter': action 'greet': it needs deps of type Deps",
    ]
    assert "give it Runtime(..., deps=Deps(...))" in refused.value.problems[0]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [(Other(), "of this runtime are of type Other"), (Deps, "got the class Deps; give an instance")],
)
def test_deps_of_another_type_are_refused(scripted: Scripted, wrong: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Runtime([Agent("host", model=scripted(), tools=[greet])], deps=wrong)


def test_deps_are_not_needed_where_nothing_executes(scripted: Scripted, tmp_path: Path) -> None:
    agent = Agent("host", model=scripted(), tools=[greet])
    front = Runtime([agent], execute=False, store=tmp_path / "a.db")
    with pytest.raises(ConfigurationError, match="it needs deps of type Deps"):
        front.as_worker()


def test_deps_fit_a_protocol_a_union_or_a_base(scripted: Scripted) -> None:
    class HasGreeting(Protocol):
        greeting: str

    @tool
    async def structural(ctx: ToolContext[HasGreeting]) -> str:
        """Uses a protocol."""
        return ctx.deps.greeting

    @tool
    async def either(ctx: ToolContext[Deps | Other]) -> str:
        """Uses a union."""
        return str(ctx.deps)

    @tool
    async def base(ctx: ToolContext[Struct]) -> str:
        """Uses a base class."""
        return str(ctx.deps)

    Runtime([Agent("host", model=scripted(), tools=[structural, either, base])], deps=Deps("Hi"))
    with pytest.raises(ConfigurationError, match="tool 'either': it needs deps of type"):
        Runtime([Agent("host", model=scripted(), tools=[structural, either])], deps=object())


async def test_reading_absent_deps_says_what_to_give(scripted: Scripted) -> None:
    seen: list[str] = []

    class Curious(Plugin):
        async def step_start(self, ctx: Step) -> None:
            with pytest.raises(UsageError) as refused:
                _ = ctx.deps
            seen.append(str(refused.value))

    async with Runtime([Agent("host", model=scripted("hi"), plugins=[Curious()])]) as runtime:
        await soon(runtime.run("host", "go"))
    assert seen == ["ctx.deps: this process's runtime has no dependencies; give it some: Runtime(..., deps=...)"]


async def test_reconciling_check_gets_deps(scripted: Scripted, tmp_path: Path) -> None:
    """`check` asks the same system as the tool, so it needs the same client."""

    async def look(key: str, deps: Deps) -> Done:
        return Done(f"{deps.greeting} was sent")

    @tool(effect="reconcile", check=look, timeout=0.01)
    async def send(ctx: ToolContext[Deps]) -> str:
        """Send something, and never hear of it."""
        await asyncio.Event().wait()
        return ""

    model = scripted(call("send"), "done")
    async with Runtime([Agent("host", model=model, tools=[send])], deps=Deps("Hello")) as runtime:
        assert (await soon(runtime.run("host", "go"))).text == "done"
    assert model.requests[1].messages[-1].reply.content[0].text == "Hello was sent"
