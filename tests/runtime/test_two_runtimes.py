"""Two runtimes on one store: what one of them puts into an inbox reaches the run that the other one runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loop.helpers import Hold, Scripted, Spy, assert_settled, holding, soon, spying, until_idle
from wakeful import Agent, MemoryStore, Runtime, call
from wakeful.errors import ThreadBusy
from wakeful.types.runs import Cancelled

from .test_busy_threads import echo, said


def two(*holds: Hold) -> tuple[Runtime, Runtime]:
    """Two runtimes with the same agent on the same store."""
    store, model = MemoryStore(), echo(*holds)
    first, second = [Runtime([Agent("agent", model=model)], store=store) for _ in range(2)]
    return first, second


async def running(runtime: Runtime, hold: Hold) -> asyncio.Task[Any]:
    """A run of that runtime on thread `t`, which waits at the hold."""
    task = asyncio.create_task(runtime.run("agent", "one", thread="t"))
    await soon(hold.reached.wait())
    return task


async def test_steering_from_another_runtime_is_seen_before_the_run_ends() -> None:
    hold = Hold()
    here, there = two(hold)
    task = await running(here, hold)
    await there.send("t", "psst", policy="steer")
    hold.released.set()
    result = await soon(task)
    assert (result.text, result.steps) == ("you said psst", 2)
    assert len(await here.list_runs(thread="t")) == 1
    await assert_settled(here, "t")


async def test_input_queued_by_another_runtime_runs_when_the_thread_is_free() -> None:
    hold = Hold()
    here, there = two(hold)
    task = await running(here, hold)
    await there.send("t", "two")
    hold.released.set()
    assert (await soon(task)).text == "you said one"
    await until_idle(here)
    assert await said(here) == ["one", "two"]
    assert len(await here.list_runs(thread="t")) == 2
    await assert_settled(here, "t")


async def test_input_from_another_runtime_is_not_forgotten_when_the_run_is_cancelled() -> None:
    hold = Hold()
    here, there = two(hold)
    task = await running(here, hold)
    await there.send("t", "two")
    (run,) = await here.list_runs(thread="t")
    await soon(here.cancel(run.id))
    assert isinstance((await soon(task)).termination, Cancelled)
    await until_idle(here)
    assert await said(here) == ["one", "two"]
    await assert_settled(here, "t")


async def test_what_another_runtime_runs_is_not_answered_or_cancelled_here(scripted: Scripted) -> None:
    hold, store = Hold(), MemoryStore()
    tools = [holding(hold), spying(Spy(), "ask", approval=True)]
    agent = Agent("agent", model=scripted([call("wait"), call("ask")], "done"), tools=tools)
    here, there = Runtime([agent], store=store), Runtime([agent], store=store)
    task = asyncio.create_task(here.run("agent", "go", thread="t"))
    await soon(hold.reached.wait())
    (run,) = await here.list_runs(thread="t")
    (ticket,) = await store.tickets(run.id)
    with pytest.raises(ThreadBusy, match="another runtime"):
        await there.resume(run.id, ticket.approve())
    with pytest.raises(ThreadBusy, match="another runtime"):
        await there.cancel(run.id)
    hold.released.set()
    waiting = await soon(task)
    assert (await there.resume(run.id, waiting.tickets[0].approve())).text == "done"
    await assert_settled(there, "t")


async def test_a_run_that_waits_is_resumed_by_whoever_is_first_and_only_once(scripted: Scripted) -> None:
    spy, store = Spy(), MemoryStore()
    agent = Agent("agent", model=scripted(call("ask"), "done"), tools=[spying(spy, "ask", approval=True)])
    here, there = Runtime([agent], store=store), Runtime([agent], store=store)
    waiting = await here.run("agent", "go", thread="t")
    answers = [r.resume(waiting.run_id, waiting.tickets[0].approve()) for r in (here, there)]
    outcomes = await soon(asyncio.gather(*answers, return_exceptions=True))
    assert spy.ran == ["ask"]
    assert sum(not isinstance(outcome, Exception) for outcome in outcomes) == 1
    await assert_settled(here, "t")
