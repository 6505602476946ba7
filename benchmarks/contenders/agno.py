"""Agno: an Agent over a scripted Model, telemetry off."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from agno.agent import Agent, RunContentEvent
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse
from agno.team import Team
from agno.tools import tool

from benchmarks.measures import CHILD, INSTRUCTIONS, PROMPT, Plan, Run, Tally

PACKAGES = ("agno",)
IMPORT = "from agno.agent import Agent\nfrom agno.tools import tool"


@dataclass
class Scripted(Model):
    plan: Any = None
    tally: Any = None

    async def ainvoke(self, messages: list[Message], *args: Any, **kwargs: Any) -> ModelResponse:
        plan = self.plan
        self.tally.models += 1
        if plan.latency:
            await asyncio.sleep(plan.latency)
        last = messages[-1]
        calls = plan.ask(last.content if last.role == "tool" else None)
        if not calls:
            return ModelResponse(role="assistant", content=plan.text)
        asked = [
            {"id": call.id, "type": "function", "function": {"name": plan.tool, "arguments": call.json}}
            for call in calls
        ]
        return ModelResponse(role="assistant", tool_calls=asked)

    async def ainvoke_stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ModelResponse]:
        self.tally.models += 1
        for part in self.plan.parts:
            yield ModelResponse(role="assistant", content=part)

    def invoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        raise NotImplementedError

    def invoke_stream(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _parse_provider_response(self, response: Any, **kwargs: Any) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return response


def agent_of(plan: Plan, tally: Tally, **options: Any) -> Agent:
    @tool
    async def step(n: int) -> str:
        """Do one step."""
        tally.tools += 1
        return str(n)

    model = Scripted(id="scripted", plan=plan, tally=tally)
    tools = [step] if plan.turns else None
    return Agent(model=model, instructions=INSTRUCTIONS, tools=tools, telemetry=False, **options)


def run(plan: Plan, tally: Tally) -> Run:
    agent = agent_of(plan, tally)

    async def once() -> str:
        output = await agent.arun(PROMPT)
        return output.content

    return once


def _by_tool(plan: Plan, tally: Tally) -> Run:
    child = agent_of(CHILD, tally)

    @tool(name=plan.tool)
    async def researcher(task: str) -> str:
        """Do research."""
        return (await child.arun(task)).content

    model = Scripted(id="scripted", plan=plan, tally=tally)
    agent = Agent(model=model, instructions=INSTRUCTIONS, tools=[researcher], telemetry=False)

    async def once() -> str:
        return (await agent.arun(PROMPT)).content

    return once


def _by_team(plan: Plan, tally: Tally) -> Run:
    plan = replace(plan, tool="delegate_task_to_member", argument="task", more={"member_id": plan.tool})
    model = Scripted(id="scripted", plan=plan, tally=tally)
    child = agent_of(CHILD, tally, id=plan.more["member_id"], name=plan.more["member_id"])
    team = Team(members=[child], model=model, instructions=INSTRUCTIONS, telemetry=False)

    async def once() -> str:
        return (await team.arun(PROMPT)).content

    return once


def delegation(plan: Plan, tally: Tally) -> dict[str, Run]:
    return {"tool": _by_tool(plan, tally), "team": _by_team(plan, tally)}


def stream(plan: Plan, tally: Tally) -> Run:
    model = Scripted(id="scripted", plan=plan, tally=tally)
    agent = Agent(model=model, instructions=INSTRUCTIONS, telemetry=False)

    async def once() -> list[str]:
        return [
            event.content async for event in agent.arun(PROMPT, stream=True) if isinstance(event, RunContentEvent)
        ]

    return once
