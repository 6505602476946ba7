"""AutoGen: an AssistantAgent over a scripted ChatCompletionClient."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelFamily,
    RequestUsage,
)
from autogen_core.tools import FunctionTool

from benchmarks.measures import CHILD, INSTRUCTIONS, PROMPT, Plan, Run, Tally

PACKAGES = ("autogen-agentchat", "autogen-core")
IMPORT = "from autogen_agentchat.agents import AssistantAgent\nfrom autogen_core.tools import FunctionTool"

INFO: Any = {
    "vision": False,
    "function_calling": True,
    "json_output": False,
    "family": ModelFamily.UNKNOWN,
    "structured_output": False,
}


class Scripted(ChatCompletionClient):
    component_type = "model"
    component_config_schema = None

    def __init__(self, plan: Plan, tally: Tally) -> None:
        self.plan = plan
        self.tally = tally
        self.usage = RequestUsage(prompt_tokens=1, completion_tokens=1)

    async def create(self, messages: Sequence[LLMMessage], **kwargs: Any) -> CreateResult:
        plan = self.plan
        self.tally.models += 1
        if plan.latency:
            await asyncio.sleep(plan.latency)
        last = messages[-1]
        calls = plan.ask(last.content[-1].content if isinstance(last, FunctionExecutionResultMessage) else None)
        asked = [FunctionCall(call.id, call.json, plan.tool) for call in calls]
        return CreateResult(
            finish_reason="function_calls" if asked else "stop",
            content=asked or plan.text,
            usage=self.usage,
            cached=False,
        )

    async def create_stream(self, messages: Sequence[LLMMessage], **kwargs: Any) -> AsyncIterator[Any]:
        self.tally.models += 1
        for part in self.plan.parts:
            yield part
        yield CreateResult(finish_reason="stop", content=self.plan.text, usage=self.usage, cached=False)

    async def close(self) -> None:
        pass

    def actual_usage(self) -> RequestUsage:
        return self.usage

    def total_usage(self) -> RequestUsage:
        return self.usage

    def count_tokens(self, messages: Sequence[LLMMessage], **kwargs: Any) -> int:
        return 0

    def remaining_tokens(self, messages: Sequence[LLMMessage], **kwargs: Any) -> int:
        return 1_000_000

    @property
    def capabilities(self) -> Any:
        return INFO

    @property
    def model_info(self) -> Any:
        return INFO


def run(plan: Plan, tally: Tally) -> Run:
    async def step(n: int) -> str:
        tally.tools += 1
        return str(n)

    client = Scripted(plan, tally)
    # Made once, as its schema is expensive; agents may share it.
    tools: list[Any] = [FunctionTool(step, description="Do one step.")] if plan.turns else []

    async def once() -> str:
        # The agent holds its conversation, so each run needs its own.
        agent = AssistantAgent(
            "bench", client, tools=tools, system_message=INSTRUCTIONS, max_tool_iterations=plan.turns + 10
        )
        result = await agent.run(task=PROMPT)
        return result.messages[-1].content

    return once


def delegation(plan: Plan, tally: Tally) -> Run:
    client = Scripted(plan, tally)
    child = AssistantAgent(
        plan.tool, Scripted(CHILD, tally), system_message=INSTRUCTIONS, description="Does research."
    )
    tools: list[Any] = [AgentTool(child, return_value_as_last_message=True)]

    async def once() -> str:
        # As in `run`; the child is reset instead, as making its tool is expensive.
        agent = AssistantAgent("bench", client, tools=tools, system_message=INSTRUCTIONS, max_tool_iterations=10)
        result = await agent.run(task=PROMPT)
        await child.on_reset(CancellationToken())
        return result.messages[-1].content

    return once


def stream(plan: Plan, tally: Tally) -> Run:
    client = Scripted(plan, tally)

    async def once() -> list[str]:
        agent = AssistantAgent("bench", client, system_message=INSTRUCTIONS, model_client_stream=True)
        return [
            event.content
            async for event in agent.run_stream(task=PROMPT)
            if isinstance(event, ModelClientStreamingChunkEvent)
        ]

    return once
