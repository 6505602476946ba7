"""Code shared by wakeful's contenders on databases."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from benchmarks.contenders.wakeful import Scripted, agent_of, delegating
from benchmarks.delegation import Delegations
from benchmarks.measures import PROMPT, Durable, Plan, Run, Tally, Turn
from wakeful import Agent, Decision, Limits, ModelRequest, Runtime, tool
from wakeful.models import CallStartChunk, Chunk, StopChunk, TextChunk
from wakeful.stores import Store

THREAD = "conversation"
HISTORY = 20


@asynccontextmanager
async def durable(store: Any, plan: Plan, tally: Tally) -> AsyncIterator[Durable]:
    async with Runtime([agent_of(plan, tally)], store=store) as runtime:

        async def once() -> str:
            return (await runtime.run("bench", PROMPT)).text

        yield Durable(once, lambda: store.batches)


@asynccontextmanager
async def delegation(store: Any, plan: Plan, tally: Tally) -> AsyncIterator[Delegations]:
    """A plain run and runs with a delegated call, on one store."""
    agents = {"direct": [agent_of(Plan(), tally)]}
    agents |= {"durable": delegating(plan, tally, durable=True), "ephemeral": delegating(plan, tally)}
    async with AsyncExitStack() as stack:

        async def run_of(agents: list[Agent]) -> Run:
            # The runtimes don't serve: each would claim runs of the others' agents, which have the same names.
            runtime = Runtime(agents, store=store)
            stack.push_async_callback(runtime.close)

            async def once() -> str:
                return (await runtime.run("bench", PROMPT)).text

            return once

        runs = {name: await run_of(own) for name, own in agents.items()}
        yield Delegations(runs.pop("direct"), runs, lambda: store.batches[0])


@asynccontextmanager
async def growth(store: Store, plan: Plan, tally: Tally) -> AsyncIterator[Turn]:
    agent = Agent("bench", model=Scripted(plan, tally), limits=Limits(history=HISTORY))
    async with Runtime([agent], store=store) as runtime:
        # Wait for the tables, which are created on first use, and for the worker's record.
        while not await store.workers():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

        async def turn(prompt: str) -> str:
            return (await runtime.run("bench", prompt, thread=THREAD)).text

        yield turn


# -- a waiting run at the end of a long thread ----------------------------------------------------------------


class Asking:
    """Answers hello, or, when told to ask, requests an approval again and again."""

    name = "asking"
    live = False

    def __init__(self) -> None:
        self.called = 0.0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self.called = time.perf_counter()
        last = request.messages[-1]
        if last.reply is None and last.content[0].text != "Ask.":
            yield TextChunk("Hello.")
            yield StopChunk("end_turn")
            return
        yield CallStartChunk(0, "guarded", "call")
        yield StopChunk("tool_use")


@tool(approval=True)
async def guarded() -> str:
    """Do something that needs an approval."""
    return "done"


def _asking() -> Agent:
    return Agent("bench", model=Asking(), tools=[guarded], limits=Limits(history=HISTORY, steps=1000))


async def park(store: Store, messages: int) -> tuple[str, str]:
    """Make a thread with a waiting run at its end; returns the ids of the run and its ticket."""
    async with Runtime([_asking()], store=store) as runtime:
        for _ in range(messages // 2 - 1):
            await runtime.run("bench", "Hello.", thread=THREAD)
        result = await runtime.run("bench", "Ask.", thread=THREAD)
        return result.run_id, result.tickets[0].id


async def _opened(open_store: Callable[[], Store]) -> tuple[Store, float, float]:
    start = time.perf_counter()
    store = open_store()
    await store.head("nothing")  # A store may connect on first use.
    return store, start, time.perf_counter()


async def view(open_store: Callable[[], Store]) -> dict[str, float]:
    """Load the thread's view and its last messages; returns the seconds."""
    store, start, opened = await _opened(open_store)
    stored = await store.load(THREAD)
    messages = await store.messages(THREAD, newest=HISTORY)
    spent = time.perf_counter() - opened
    assert stored is not None
    assert stored.run is not None
    assert len(messages) == HISTORY
    await store.close()
    return {"open": opened - start, "spent": spent}


async def answer(open_store: Callable[[], Store], run_id: str, ticket_id: str) -> dict[str, Any]:
    """Answer the ticket; returns the seconds until the model call, and the run's next ticket."""
    agent = _asking()
    store, start, opened = await _opened(open_store)
    runtime = Runtime([agent], store=store)
    begun = time.perf_counter()
    result = await runtime.resume(run_id, Decision(ticket_id, mode="proceed"))
    spent = agent.model.called - begun
    await runtime.close()
    return {"open": opened - start, "spent": spent, "ticket": result.tickets[0].id}
