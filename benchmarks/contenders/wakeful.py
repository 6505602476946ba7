"""wakeful: an Agent on a Runtime with the memory store, every event emitted and every step committed."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count

from benchmarks._measures import INSTRUCTIONS, PROMPT, Plan, Run, Tally
from wakeful import Agent, Limits, ModelRequest, Runtime, tool
from wakeful.events import TextDelta
from wakeful.models import CallDeltaChunk, CallStartChunk, Chunk, StopChunk, TextChunk

PACKAGES = ("wakeful", "msgspec")
IMPORT = "from wakeful import Agent, Runtime, tool"


class Scripted:
    name = "scripted"
    live = False

    def __init__(self, plan: Plan, tally: Tally) -> None:
        self.plan = plan
        self.tally = tally

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        plan = self.plan
        self.tally.models += 1
        if plan.latency:
            await asyncio.sleep(plan.latency)
        reply = request.messages[-1].reply
        calls = plan.ask(reply.content[0].text if reply is not None else None)
        if not calls:
            for part in plan.parts:
                yield TextChunk(part)
            yield StopChunk("end_turn")
            return
        for index, call in enumerate(calls):
            yield CallStartChunk(index, "step", call.id)
            yield CallDeltaChunk(index, call.json)
        yield StopChunk("tool_use")


def agent_of(plan: Plan, tally: Tally) -> Agent:
    @tool
    async def step(n: int) -> str:
        """Do one step."""
        tally.tools += 1
        return str(n)

    tools = [step] if plan.turns else []
    return Agent(
        "bench",
        model=Scripted(plan, tally),
        instructions=INSTRUCTIONS,
        tools=tools,
        limits=Limits(steps=plan.turns + 10),
    )


class Fresh:
    """A runtime that is replaced now and then: a memory store keeps every thread for as long as it lives."""

    def __init__(self, agent: Agent, plan: Plan) -> None:
        self.agent = agent
        self.runs = 1000 if plan.latency else 20 + 1000 // (plan.turns * plan.calls + plan.deltas)
        self.used = count()
        self.runtime = Runtime([agent])

    def get(self) -> Runtime:
        if next(self.used) % self.runs == self.runs - 1:
            self.runtime = Runtime([self.agent])
        return self.runtime


def run(plan: Plan, tally: Tally) -> Run:
    fresh = Fresh(agent_of(plan, tally), plan)

    async def once() -> str:
        return (await fresh.get().run("bench", PROMPT)).text

    return once


def stream(plan: Plan, tally: Tally) -> Run:
    fresh = Fresh(agent_of(plan, tally), plan)

    async def once() -> list[str]:
        events = fresh.get().stream("bench", PROMPT)
        return [event.delta async for event in events if type(event) is TextDelta]

    return once
