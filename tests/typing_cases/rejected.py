"""Code that pyright must reject: every line with an `# error: RULE` comment, and no other line."""

from __future__ import annotations

from dataclasses import dataclass

from wakeful import Agent, Plugin, RunContext, RunResult, Runtime, TaskContext, ToolContext, tool
from wakeful.plugins import BeforeInference, Step


@dataclass
class Invoice:
    total: int


@dataclass
class Deps:
    greeting: str


@tool
async def wrong_attribute(ctx: ToolContext[Deps]) -> str:
    """Reads a dependency that isn't there."""
    return ctx.deps.farewell  # error: reportAttributeAccessIssue


def wrong_task(ctx: TaskContext[Deps]) -> int:
    return ctx.deps.greeting  # error: reportReturnType


def deps_are_read_only(ctx: ToolContext[Deps]) -> None:
    ctx.deps = Deps("other")  # error: reportAttributeAccessIssue


def number(ctx: RunContext[Deps]) -> int:
    return ctx.deps.greeting  # error: reportReturnType


def of_tools(ctx: ToolContext[Deps]) -> str:
    return ctx.deps.greeting


class WrongPhase(Plugin):
    async def before_inference(self, ctx: Step) -> None:  # error: reportIncompatibleMethodOverride
        pass

    async def step_start(self, ctx: Step[Deps]) -> None:
        ctx.deps.farewell()  # error: reportAttributeAccessIssue


async def wrong_outputs(runtime: Runtime) -> None:
    typed = Agent("typed", model="openai:gpt-5-mini", output=Invoice)
    result = await runtime.run(typed, "hi")
    print(result.output.sum)  # error: reportAttributeAccessIssue
    text: str = result.output  # error: reportAssignmentType
    print(text)
    plain = await runtime.run(Agent("plain", model="openai:gpt-5-mini"), "hi")
    print(plain.output.total)  # error: reportAttributeAccessIssue
    handle = await runtime.start(typed, "hi")
    number: int = (await handle.result()).output  # error: reportAssignmentType
    print(number)


def wrong_annotations(result: RunResult[Invoice], agent: Agent[Invoice]) -> None:
    other: RunResult[str] = result  # error: reportAssignmentType
    words: Agent[str] = agent  # error: reportAssignmentType
    print(other, words)


def wrong_values() -> None:
    Agent("a", output=3)  # error: reportArgumentType
    Agent("a", instructions=number)  # error: reportArgumentType
    Agent("a", instructions=of_tools)  # error: reportArgumentType
    Agent(1)  # error: reportArgumentType
    Runtime(Agent("a"))  # error: reportArgumentType


def wrong_hook(ctx: BeforeInference[Deps]) -> None:
    ctx.plan.add_system(ctx.deps)  # error: reportArgumentType
