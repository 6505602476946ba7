"""A tree of wakeful runs, foreground and background, whose leaves block in tools."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.delegation import Tree
from benchmarks.measures import PROMPT
from wakeful import Agent, Delegate, Limits, ModelRequest, Runtime, tool
from wakeful.models import CallDeltaChunk, CallStartChunk, Chunk, StopChunk
from wakeful.stores import Store

CONNECTIONS = 20
LEADS = 5


class Calling:
    """Makes these calls in its first turn; it is cancelled before the second."""

    name = "calling"
    live = False

    def __init__(self, calls: list[tuple[str, dict[str, Any]]]) -> None:
        self.calls = calls

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        calls = [] if request.messages[-1].reply is not None else self.calls
        for index, (name, arguments) in enumerate(calls):
            yield CallStartChunk(index, name, f"call_{index}")
            yield CallDeltaChunk(index, json.dumps(arguments))
        yield StopChunk("tool_use" if calls else "end_turn")


def _delegating(name: str, to: str, number: int) -> Agent:
    """Calls of an agent: every other one in the background, the rest in the foreground."""
    calls = [(f"agent_run_{to}", {"prompt": PROMPT, "background": bool(index % 2)}) for index in range(number)]
    limits = Limits(parallel=number)
    return Agent(name, model=Calling(calls), delegates=[Delegate(to, background=True)], limits=limits)


@asynccontextmanager
async def open_trees(store: Store, children: int) -> AsyncIterator[Tree]:
    """Trees on a store: a root, its children, and `children` grandchildren in all."""
    blocked, full = 0, asyncio.Event()

    @tool
    async def block() -> str:
        """Wait until cancelled."""
        nonlocal blocked
        blocked += 1
        if blocked == children:
            full.set()
        await asyncio.Event().wait()
        return "never"

    agents = [
        _delegating("root", "lead", LEADS),
        _delegating("lead", "worker", children // LEADS),
        Agent("worker", model=Calling([("block", {})]), tools=[block]),
    ]
    async with Runtime(agents, store=store) as runtime:
        # All pool connections are opened now: one opened later would count as left over.
        await asyncio.gather(*[store.head(f"nothing-{n}") for n in range(CONNECTIONS)])

        async def start() -> str:
            nonlocal blocked
            blocked = 0
            full.clear()
            handle = await runtime.start("root", PROMPT)
            async with asyncio.timeout(30):
                await full.wait()
            return handle.run_id

        async def running() -> int:
            return len(await store.runs(status="running")) + len(await store.runs(status="waiting"))

        yield Tree(start, runtime.cancel, running, lambda: runtime.workers.abandoned)
