"""Code that pyright must accept in strict mode, with the types that it must infer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

from wakeful import Agent, Plugin, RunContext, RunResult, Runtime, TaskContext, ToolContext, task, tool
from wakeful.plugins import BeforeInference


@dataclass
class Invoice:
    total: int


@dataclass
class Deps:
    greeting: str


@tool
async def greet(name: str, ctx: ToolContext[Deps]) -> str:
    """Greet somebody."""
    assert_type(ctx.deps, Deps)
    return ctx.deps.greeting + name


@tool
async def plain(ctx: ToolContext) -> str:
    """A context without a type has dependencies of any type."""
    assert_type(ctx.deps, Any)
    return ctx.call_id


@task
async def later(ctx: TaskContext[Deps]) -> str:
    assert_type(ctx.deps, Deps)
    return ctx.deps.greeting


def greeting(ctx: RunContext[Deps]) -> str:
    assert_type(ctx.deps, Deps)
    return ctx.deps.greeting


async def date(ctx: RunContext) -> str:
    return f"{ctx.time:%Y-%m-%d}"


class Greeter(Plugin):
    async def before_inference(self, ctx: BeforeInference[Deps]) -> None:
        assert_type(ctx.deps, Deps)
        ctx.plan.add_system(ctx.deps.greeting)


def instructions_are_texts_or_functions() -> None:
    assert_type(Agent("a", instructions="Be brief."), Agent[str])
    assert_type(Agent("a", instructions=greeting), Agent[str])
    assert_type(Agent("a", instructions=["Be brief.", greeting, date], output=Invoice), Agent[Invoice])
    assert_type(Agent("a", instructions=lambda ctx: f"Step {ctx.step}."), Agent[str])


async def outputs_are_inferred() -> None:
    text = Agent("text", model="openai:gpt-5-mini", tools=[greet, plain], plugins=[Greeter()])
    typed = Agent("typed", model="openai:gpt-5-mini", output=Invoice)
    listed = Agent("listed", model="openai:gpt-5-mini", output=list[int])
    either = Agent("either", model="openai:gpt-5-mini", output=Invoice | None)
    remote = Agent.remote("remote", a2a="https://example.com", output=Invoice)
    assert_type(text, Agent[str])
    assert_type(typed, Agent[Invoice])
    assert_type(listed, Agent[list[int]])
    assert_type(either, Agent[Invoice | None])
    assert_type(remote, Agent[Invoice])
    assert_type(Agent.remote("words", a2a="https://example.com"), Agent[str])
    runtime = Runtime([text, typed, listed, either, remote], tasks=[later], deps=Deps("Hello"))
    assert_type((await runtime.run(text, "hi")).output, str)
    assert_type((await runtime.run(typed, "hi")).output.total, int)
    assert_type((await runtime.run(listed, "hi")).output, list[int])
    assert_type((await runtime.run(either, "hi")).output, Invoice | None)
    assert_type(runtime.run_sync(typed, "hi").output, Invoice)
    handle = await runtime.start(typed, "hi")
    assert_type((await handle.result()).output, Invoice)
    assert_type(await runtime.tenant("acme").run(typed, "hi"), RunResult[Invoice])
    # An id says nothing about the output.
    assert_type((await runtime.run("typed", "hi")).output, Any)
    with runtime.override(deps=Deps("Fake")):
        pass


def any_result_is_a_result_of_object(result: RunResult[Invoice]) -> RunResult[object]:
    return result
