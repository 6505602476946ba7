"""Microsoft Agent Framework: an Agent over a scripted chat client, instrumentation off.

The client has the layers of the framework's own clients and of its custom-client sample.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatContext,
    ChatMiddleware,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationContext,
    FunctionInvocationLayer,
    FunctionMiddleware,
    Message,
    tool,
)
from agent_framework.observability import ChatTelemetryLayer

from benchmarks.measures import CHILD, INSTRUCTIONS, PROMPT, Plan, Run, Tally

PACKAGES = ("agent-framework-core",)
IMPORT = "from agent_framework import Agent, tool"


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, ChatTelemetryLayer, BaseChatClient):
    def __init__(self, plan: Plan, tally: Tally) -> None:
        # The default stops before 100 turns.
        super().__init__(function_invocation_configuration={"max_iterations": plan.turns + 10})
        self.plan = plan
        self.tally = tally

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **kwargs: Any
    ) -> Any:
        if stream:
            return self._build_response_stream(self._deltas())
        return self._answer(messages)

    async def _answer(self, messages: Sequence[Message]) -> ChatResponse:
        plan = self.plan
        self.tally.models += 1
        if plan.latency:
            await asyncio.sleep(plan.latency)
        last = messages[-1].contents[-1]
        calls = plan.ask(last.result if last.type == "function_result" else None)
        contents = [Content.from_function_call(call.id, plan.tool, arguments=call.json) for call in calls]
        message = Message("assistant", contents or [Content.from_text(plan.text)])
        return ChatResponse(messages=[message], response_id="response")

    async def _deltas(self) -> AsyncIterator[ChatResponseUpdate]:
        self.tally.models += 1
        for part in self.plan.parts:
            yield ChatResponseUpdate(contents=[Content.from_text(part)], role="assistant", message_id="message")


class AroundChat(ChatMiddleware):
    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        await call_next()


class AroundFunction(FunctionMiddleware):
    async def process(self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
        await call_next()


def run(plan: Plan, tally: Tally) -> Run:
    @tool
    async def step(n: int) -> str:
        """Do one step."""
        tally.tools += 1
        return str(n)

    tools = [step] if plan.turns else None
    # A middleware has the code before and after a call: two of them are a plugin of four hooks.
    around = [kind() for kind in (AroundChat, AroundFunction) for _ in range(plan.plugins)] or None
    agent = Agent(Scripted(plan, tally), INSTRUCTIONS, name="bench", tools=tools, middleware=around)

    async def once() -> str:
        response = await agent.run(PROMPT)
        return response.text

    return once


def hooks(plan: Plan, tally: Tally) -> Run:
    return run(plan, tally)


def delegation(plan: Plan, tally: Tally) -> Run:
    child = Agent(Scripted(CHILD, tally), INSTRUCTIONS, name=plan.tool, description="Does research.")
    agent = Agent(Scripted(plan, tally), INSTRUCTIONS, name="bench", tools=[child.as_tool(arg_name=plan.argument)])

    async def once() -> str:
        response = await agent.run(PROMPT)
        return response.text

    return once


def stream(plan: Plan, tally: Tally) -> Run:
    agent = Agent(Scripted(plan, tally), INSTRUCTIONS, name="bench")

    async def once() -> list[str]:
        return [update.text async for update in agent.run(PROMPT, stream=True)]

    return once
