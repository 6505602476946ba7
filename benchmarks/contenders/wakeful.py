"""wakeful: an Agent on a Runtime with the memory store, every event emitted and every step committed."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from benchmarks.contenders._wakeful_long_threads import long_thread as open_long_thread
from benchmarks.contenders._wakeful_tree import open_trees
from benchmarks.measures import CHILD, INSTRUCTIONS, PROMPT, Plan, Run, Tally
from wakeful import Agent, Delegate, Limits, MemoryStore, ModelRequest, Plugin, Runtime, Usage, tool
from wakeful.events import TextDelta
from wakeful.models import CallDeltaChunk, CallStartChunk, Chunk, ModelFacts, StopChunk, TextChunk, UsageChunk
from wakeful.plugins import AfterInference, AfterTool, BeforeInference, BeforeTool

PACKAGES = ("wakeful", "msgspec")
IMPORT = "from wakeful import Agent, Runtime, tool"


_USAGE = Usage(100, 10)


class Scripted:
    name = "scripted"
    live = False
    facts = ModelFacts(context_window=128_000, max_output=4096)

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
        chunks += (UsageChunk(_USAGE), StopChunk("tool_use" if calls else "end_turn"))
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

    tools, limits = [step] if plan.turns else [], Limits()
    if plan.turns >= limits.steps:
        limits = Limits(steps=plan.turns + 10)
    return Agent("bench", model=model(plan, tally), instructions=INSTRUCTIONS, tools=tools, limits=limits)


class Fresh:
    """A runtime that is replaced from time to time, as a memory store never drops a thread."""

    def __init__(self, agents: list[Agent], plan: Plan, plugins: Sequence[Plugin] = ()) -> None:
        self.agents, self.plugins = agents, plugins
        self.runs = 1000 if plan.latency else 20 + 1000 // (plan.turns * plan.calls + plan.deltas)
        self.used = count()
        self.runtime = Runtime(agents, plugins=plugins)

    def get(self) -> Runtime:
        if next(self.used) % self.runs == self.runs - 1:
            self.runtime = Runtime(self.agents, plugins=self.plugins)
        return self.runtime


def run(plan: Plan, tally: Tally) -> Run:
    fresh = Fresh([agent_of(plan, tally)], plan)

    async def once() -> str:
        return (await fresh.get().run("bench", PROMPT)).text

    return once


class Hooks(Plugin):
    """Four hooks that do nothing."""

    def __init__(self, number: int) -> None:
        self.name = f"hooks-{number}"

    async def before_inference(self, ctx: BeforeInference) -> None:
        pass

    async def after_inference(self, ctx: AfterInference) -> None:
        pass

    async def before_tool(self, ctx: BeforeTool) -> None:
        pass

    async def after_tool(self, ctx: AfterTool) -> None:
        pass


def hooks(plan: Plan, tally: Tally) -> Run:
    fresh = Fresh([agent_of(plan, tally)], plan, [Hooks(number) for number in range(plan.plugins)])

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


def long_thread(plan: Plan, tally: Tally, address: None, messages: int) -> Any:
    return open_long_thread(MemoryStore(), plan, tally, messages)


def stream(plan: Plan, tally: Tally) -> Run:
    fresh = Fresh([agent_of(plan, tally, Streaming)], plan)

    async def once() -> list[str]:
        events = fresh.get().stream("bench", PROMPT)
        return [event.delta async for event in events if type(event) is TextDelta]

    return once
