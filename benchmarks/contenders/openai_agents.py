"""OpenAI Agents SDK: an Agent and Runner over a scripted Model, tracing off."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from benchmarks.measures import CHILD, INSTRUCTIONS, PROMPT, Plan, Run, Tally

PACKAGES = ("openai-agents", "openai")
IMPORT = "from agents import Agent, Runner, function_tool"

set_tracing_disabled(True)


def _message(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(
        id="message", content=[content], role="assistant", status="completed", type="message"
    )


class Scripted(Model):
    def __init__(self, plan: Plan, tally: Tally) -> None:
        self.plan = plan
        self.tally = tally

    # The SDK passes these by keyword, so the names are fixed.
    async def get_response(
        self,
        system_instructions: Any,
        input: Any,
        *args: Any,
        **kwargs: Any,
    ) -> ModelResponse:
        plan = self.plan
        self.tally.models += 1
        if plan.latency:
            await asyncio.sleep(plan.latency)
        last = input[-1]
        calls = plan.ask(last["output"] if last.get("type") == "function_call_output" else None)
        output: list[Any] = [
            ResponseFunctionToolCall(arguments=call.json, call_id=call.id, name=plan.tool, type="function_call")
            for call in calls
        ]
        return ModelResponse(output=output or [_message(plan.text)], usage=Usage(), response_id=None)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        self.tally.models += 1
        number = 0
        for number, part in enumerate(self.plan.parts):
            yield ResponseTextDeltaEvent(
                type="response.output_text.delta",
                content_index=0,
                output_index=0,
                item_id="message",
                logprobs=[],
                delta=part,
                sequence_number=number,
            )
        response = Response(
            id="response",
            created_at=0,
            model="scripted",
            object="response",
            output=[_message(self.plan.text)],
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=number + 1)


def run(plan: Plan, tally: Tally) -> Run:
    @function_tool
    async def step(n: int) -> str:
        """Do one step."""
        tally.tools += 1
        return str(n)

    tools: list[Any] = [step] if plan.turns else []
    agent = Agent(name="bench", instructions=INSTRUCTIONS, model=Scripted(plan, tally), tools=tools)

    async def once() -> str:
        result = await Runner.run(agent, PROMPT, max_turns=plan.turns + 10)
        return result.final_output

    return once


def delegation(plan: Plan, tally: Tally) -> Run:
    child = Agent(name=plan.tool, instructions=INSTRUCTIONS, model=Scripted(CHILD, tally))
    model = Scripted(replace(plan, argument="input"), tally)
    tools: list[Any] = [child.as_tool(plan.tool, "Does research.")]
    agent = Agent(name="bench", instructions=INSTRUCTIONS, model=model, tools=tools)

    async def once() -> str:
        result = await Runner.run(agent, PROMPT)
        return result.final_output

    return once


def stream(plan: Plan, tally: Tally) -> Run:
    agent = Agent(name="bench", instructions=INSTRUCTIONS, model=Scripted(plan, tally))

    async def once() -> list[str]:
        result = Runner.run_streamed(agent, PROMPT)
        parts = []
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                parts.append(event.data.delta)
        return parts

    return once
