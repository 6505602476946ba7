"""Pydantic AI: an Agent over its own FunctionModel."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent, PartDeltaEvent, PartStartEvent, RunContext, TextPart, TextPartDelta, ToolCallPart
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage, UsageLimits

from benchmarks.measures import CHILD, INSTRUCTIONS, PROMPT, Plan, Run, Tally

PACKAGES = ("pydantic-ai-slim", "pydantic")
IMPORT = "from pydantic_ai import Agent"


def _agent(plan: Plan, tally: Tally) -> Agent:
    async def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        tally.models += 1
        if plan.latency:
            await asyncio.sleep(plan.latency)
        last = messages[-1].parts[-1]
        calls = plan.ask(last.content if isinstance(last, ToolReturnPart) else None)
        parts: list[Any] = [ToolCallPart(plan.tool, call.json, call.id) for call in calls]
        # Every provider sends a usage; without it FunctionModel re-reads the whole history.
        return ModelResponse(parts=parts or [TextPart(plan.text)], usage=RequestUsage(input_tokens=1))

    return Agent(FunctionModel(scripted), instructions=INSTRUCTIONS)


def run(plan: Plan, tally: Tally) -> Run:
    agent = _agent(plan, tally)
    if plan.turns:

        @agent.tool_plain
        async def step(n: int) -> str:
            """Do one step."""
            tally.tools += 1
            return str(n)

    limits = UsageLimits(request_limit=plan.turns + 10)

    async def once() -> str:
        result = await agent.run(PROMPT, usage_limits=limits)
        return result.output

    return once


def delegation(plan: Plan, tally: Tally) -> Run:
    child, agent = _agent(CHILD, tally), _agent(plan, tally)

    @agent.tool
    async def researcher(ctx: RunContext[None], task: str) -> str:
        """Do research."""
        return (await child.run(task, usage=ctx.usage)).output

    async def once() -> str:
        return (await agent.run(PROMPT)).output

    return once


def stream(plan: Plan, tally: Tally) -> dict[str, Run]:
    async def scripted(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        tally.models += 1
        for part in plan.parts:
            yield part

    agent = Agent(FunctionModel(stream_function=scripted), instructions=INSTRUCTIONS)

    async def text() -> list[str]:
        async with agent.run_stream(PROMPT) as result:
            return [part async for part in result.stream_text(delta=True, debounce_by=None)]

    async def events() -> list[str]:
        parts = []
        async with agent.run_stream_events(PROMPT) as read:
            async for event in read:
                if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    parts.append(event.delta.content_delta)
                elif isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                    parts.append(event.part.content)
        return parts

    return {"run_stream": text, "run_stream_events": events}
