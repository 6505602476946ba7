"""wakeful: an Agent on a Runtime with the memory store, every event emitted and every step committed."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count
from typing import Any

from benchmarks.contenders._wakeful_tree import open_trees
from benchmarks.measures import CHILD, INSTRUCTIONS, PROMPT, Plan, Run, Tally
from wakeful import Agent, Delegate, Limits, MemoryStore, ModelRequest, Runtime, tool
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

    async def stream(self, request: ModelRequest) -> list[Chunk]:
        # A whole answer, as the peers' scripted clients return it.
        plan = self.plan
        self.tally.models += 1
        reply = request.messages[-1].reply
        calls = plan.ask(reply.content[0].text if reply is not None else None)
        chunks: list[Chunk] = []
        for index, call in enumerate(calls):
            chunks += (CallStartChunk(index, plan.tool, call.id), CallDeltaChunk(index, call.json))
        if not calls:
            chunks += map(TextChunk, plan.parts)
        chunks.append(StopChunk("tool_use" if calls else "end_turn"))
        if plan.latency:
            await asyncio.sleep(plan.latency)
        return chunks


class Streaming(Scripted):
    """Yields the answer chunk by chunk."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        for chunk in await super().stream(request):
            yield chunk


def agent_of(plan: Plan, tally: Tally, model: type[Scripted | Streaming] = Scripted) -> Agent:
    @tool
    async def step(n: int) -> str:
        """Do one step."""
        tally.tools += 1
        return str(n)

    tools = [step] if plan.turns else []
    return Agent(
        "bench",
        model=model(plan, tally),
        instructions=INSTRUCTIONS,
        tools=tools,
        # Peers have no limit of concurrent calls.
        limits=Limits(steps=plan.turns + 10, parallel=max(plan.calls, 1)),
    )


class Fresh:
    """A runtime that is replaced from time to time, as a memory store never drops a thread."""

    def __init__(self, agents: list[Agent], plan: Plan) -> None:
        self.agents = agents
        self.runs = 1000 if plan.latency else 20 + 1000 // (plan.turns * plan.calls + plan.deltas)
        self.used = count()
        self.runtime = Runtime(agents)

    def get(self) -> Runtime:
        if next(self.used) % self.runs == self.runs - 1:
            self.runtime = Runtime(self.agents)
        return self.runtime


def run(plan: Plan, tally: Tally) -> Run:
    fresh = Fresh([agent_of(plan, tally)], plan)

    async def once() -> str:
        return (await fresh.get().run("bench", PROMPT)).text

    return once


def delegating(plan: Plan, tally: Tally, *, durable: bool = False) -> list[Agent]:
    """An agent and the agent that it calls."""
    model = Scripted(replace(plan, tool=f"agent_run_{plan.tool}", argument="prompt"), tally)
    child = Agent(plan.tool, model=Scripted(CHILD, tally), instructions=INSTRUCTIONS)
    how = Delegate(plan.tool, durable=durable)
    return [Agent("bench", model=model, instructions=INSTRUCTIONS, delegates=[how]), child]


def delegation(plan: Plan, tally: Tally) -> Run:
    fresh = Fresh(delegating(plan, tally), plan)

    async def once() -> str:
        return (await fresh.get().run("bench", PROMPT)).text

    return once


def cancel_tree(address: None, children: int) -> Any:
    return open_trees(MemoryStore(), children)


def stream(plan: Plan, tally: Tally) -> Run:
    fresh = Fresh([agent_of(plan, tally, Streaming)], plan)

    async def once() -> list[str]:
        events = fresh.get().stream("bench", PROMPT)
        return [event.delta async for event in events if type(event) is TextDelta]

    return once
