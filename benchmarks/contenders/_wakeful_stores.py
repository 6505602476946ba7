"""wakeful with a store: what its contenders have in common, whichever store it is."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from benchmarks._delegation import Delegations
from benchmarks._measures import PROMPT, Durable, Plan, Run, Tally, Turn
from benchmarks.contenders.wakeful import Scripted, agent_of, delegating
from wakeful import Agent, Decision, Limits, ModelRequest, Runtime, Store, tool
from wakeful.models import CallStartChunk, Chunk, StopChunk, TextChunk

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
    """A plain run and runs that call another agent, on one store."""
    agents = {"direct": [agent_of(Plan(), tally)]}
    agents |= {"durable": delegating(plan, tally, durable=True), "ephemeral": delegating(plan, tally)}
    async with AsyncExitStack() as stack:

        async def run_of(agents: list[Agent]) -> Run:
            # Not served: each would claim what is due for the others' agents, which have the same names.
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
        # A store makes its tables when it is first asked something; soon after, who serves is written down.
        while not await store.workers():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

        async def turn(prompt: str) -> str:
            return (await runtime.run("bench", prompt, thread=THREAD)).text

        yield turn


# -- a run that waits at the end of a long thread -------------------------------------------------------------


class Asking:
    """Says hello, and once it is told to ask, asks for an approval time and again."""

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
    """Do what needs an approval."""
    return "done"


def _asking() -> Agent:
    return Agent("bench", model=Asking(), tools=[guarded], limits=Limits(history=HISTORY, steps=1000))


async def park(store: Store, messages: int) -> tuple[str, str]:
    """Make a thread with so many messages and a run that waits at its end: its id and its ticket's."""
    async with Runtime([_asking()], store=store) as runtime:
        for _ in range(messages // 2 - 1):
            await runtime.run("bench", "Hello.", thread=THREAD)
        result = await runtime.run("bench", "Ask.", thread=THREAD)
        return result.run_id, result.tickets[0].id


async def _opened(open_store: Callable[[], Store]) -> tuple[Store, float, float]:
    start = time.perf_counter()
    store = open_store()
    await store.head("nothing")  # a store may connect when it is first used
    return store, start, time.perf_counter()


async def view(open_store: Callable[[], Store]) -> dict[str, float]:
    """Load what it takes to go on with the thread."""
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
    """Answer the ticket; the time until the model is called, and the ticket the run waits for next."""
    agent = _asking()
    store, start, opened = await _opened(open_store)
    runtime = Runtime([agent], store=store)
    begun = time.perf_counter()
    result = await runtime.resume(run_id, Decision(ticket_id, mode="replay"))
    spent = agent.model.called - begun
    await runtime.close()
    return {"open": opened - start, "spent": spent, "ticket": result.tickets[0].id}
