"""A request id is processed once, also by another process."""

from __future__ import annotations

import asyncio

from loop.helpers import Hold, Scripted, Spy, holding, soon, spying
from wakeful import Agent, MemoryStore, Runtime, call


async def test_input_is_not_delivered_again_by_next_activation(scripted: Scripted) -> None:
    first, second = Hold(), Hold()
    tools = [holding(first, "early"), holding(second, "late"), spying(Spy(), "ask", approval=True)]
    model = scripted(call("early"), call("ask"), call("late"), "done")
    runtime = Runtime([Agent("agent", model=model, tools=tools)], store=MemoryStore())
    running = asyncio.create_task(runtime.run("agent", "go", thread="t"))
    await soon(first.reached.wait())
    await runtime.send("t", "psst", policy="steer", request_id="once")
    first.released.set()
    waiting = await soon(running)
    answered = asyncio.create_task(runtime.resume(waiting.run_id, waiting.tickets[0].approve()))
    await soon(second.reached.wait())
    await runtime.send("t", "psst", policy="steer", request_id="once")
    second.released.set()
    await soon(answered)
    said = [message.text for message in await runtime.threads.messages("t") if message.role == "user"]
    assert said == ["go", "psst"]
    await runtime.close()


async def test_request_is_answered_by_its_own_run(scripted: Scripted) -> None:
    hold, store = Hold(), MemoryStore()
    agent = Agent("agent", model=scripted("first", call("wait"), "second"), tools=[holding(hold)])
    here, there = Runtime([agent], store=store), Runtime([agent], store=store)
    first = await here.run("agent", "one", thread="t", request_id="first")
    second = asyncio.create_task(here.run("agent", "two", thread="t", request_id="second"))
    await soon(hold.reached.wait())
    again = await soon(there.run("agent", "one", thread="t", request_id="first"))
    handle = await soon(there.start("agent", "two", thread="t", request_id="second"))
    hold.released.set()
    assert again == first
    assert handle.run_id == (await soon(second)).run_id
    assert len(await here.runs.list(thread="t")) == 2
    for runtime in (here, there):
        await runtime.close()
