"""Two runtimes on one store: what one of them puts into an inbox reaches the run that the other one runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loop.helpers import Hold, Scripted, Spy, assert_settled, holding, soon, spying, until_idle
from wakeful import Agent, MemoryStore, Runtime, call
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


async def test_steering_from_another_runtime_is_seen_before_run_ends() -> None:
    hold = Hold()
    here, there = two(hold)
    task = await running(here, hold)
    await there.send("t", "psst", policy="steer")
    hold.released.set()
    result = await soon(task)
    assert (result.text, result.steps) == ("you said psst", 2)
    assert len(await here.runs.list(thread="t")) == 1
    await assert_settled(here, "t")


async def test_input_from_another_runtime_runs_when_thread_is_free() -> None:
    hold = Hold()
    here, there = two(hold)
    task = await running(here, hold)
    await there.send("t", "two")
    hold.released.set()
    assert (await soon(task)).text == "you said one"
    await until_idle(here)
    assert await said(here) == ["one", "two"]
    assert len(await here.runs.list(thread="t")) == 2
    await assert_settled(here, "t")


async def test_input_from_another_runtime_survives_cancellation() -> None:
    hold = Hold()
    here, there = two(hold)
    task = await running(here, hold)
    await there.send("t", "two")
    (run,) = await here.runs.list(thread="t")
    await soon(here.cancel(run.id))
    assert isinstance((await soon(task)).termination, Cancelled)
    await until_idle(here)
    assert await said(here) == ["one", "two"]
    await assert_settled(here, "t")


async def test_run_is_answered_wherever_it_runs(scripted: Scripted) -> None:
    hold, store = Hold(), MemoryStore()
    tools = [holding(hold), spying(Spy(), "ask", approval=True)]
    agent = Agent("agent", model=scripted([call("wait"), call("ask")], "done"), tools=tools)
    here, there = Runtime([agent], store=store), Runtime([agent], store=store)
    task = asyncio.create_task(here.run("agent", "go", thread="t"))
    await soon(hold.reached.wait())
    (run,) = await here.runs.list(thread="t")
    (ticket,) = await store.tickets(run.id)
    answer = asyncio.create_task(there.resume(run.id, ticket.approve()))
    while not (await store.load("t")).inbox:
        await asyncio.sleep(0)
    hold.released.set()
    assert [(await soon(work)).text for work in (task, answer)] == ["done", "done"]
    await assert_settled(there, "t")


async def test_run_is_cancelled_wherever_it_runs(scripted: Scripted) -> None:
    hold, store = Hold(), MemoryStore()
    agent = Agent("agent", model=scripted([call("wait")]), tools=[holding(hold)])
    here, there = Runtime([agent], store=store), Runtime([agent], store=store)
    task = asyncio.create_task(here.run("agent", "go", thread="t"))
    await soon(hold.reached.wait())
    (run,) = await here.runs.list(thread="t")
    stopped = asyncio.create_task(there.cancel(run.id, "enough"))
    while not (await store.load("t")).inbox:
        await asyncio.sleep(0)
    hold.released.set()
    assert await soon(stopped)
    assert (await soon(task)).termination == Cancelled("enough")
    await assert_settled(there, "t")


async def test_input_waits_for_run_of_another_runtime() -> None:
    hold = Hold()
    here, there = two(hold)
    task = await running(here, hold)
    second = asyncio.create_task(there.run("agent", "two", thread="t"))
    while not (await there.store.load("t")).inbox:
        await asyncio.sleep(0)
    hold.released.set()
    assert [(await soon(work)).text for work in (task, second)] == ["you said one", "you said two"]
    await assert_settled(here, "t")


async def test_waiting_run_is_resumed_once(scripted: Scripted) -> None:
    spy, store = Spy(), MemoryStore()
    agent = Agent("agent", model=scripted(call("ask"), "done"), tools=[spying(spy, "ask", approval=True)])
    here, there = Runtime([agent], store=store), Runtime([agent], store=store)
    waiting = await here.run("agent", "go", thread="t")
    answers = [r.resume(waiting.run_id, waiting.tickets[0].approve()) for r in (here, there)]
    outcomes = await soon(asyncio.gather(*answers, return_exceptions=True))
    assert spy.ran == ["ask"]
    assert sum(not isinstance(outcome, Exception) for outcome in outcomes) == 1
    await assert_settled(here, "t")


async def test_cancelled_input_is_withdrawn_from_remote_thread() -> None:
    hold = Hold()
    here, there = two(hold)
    task = await running(here, hold)
    left = asyncio.create_task(there.run("agent", "two", thread="t"))
    while not await there.mail.pending("t"):
        await asyncio.sleep(0)
    left.cancel()
    await asyncio.wait([left])
    await until_idle(there)
    assert await there.mail.pending("t") == []
    hold.released.set()
    await soon(task)
    await until_idle(here)
    assert await said(here) == ["one"]
    await assert_settled(here, "t")


async def test_input_for_unknown_agent_is_left_to_its_runtime(caplog: pytest.LogCaptureFixture) -> None:
    hold, store = Hold(), MemoryStore()
    here = Runtime([Agent("agent", model=echo(hold))], store=store)
    there = Runtime([Agent("other", model=echo())], store=store)
    task = await running(here, hold)
    next_one = asyncio.create_task(there.run("other", "two", thread="t"))
    while not await there.mail.pending("t"):
        await asyncio.sleep(0)
    hold.released.set()
    assert (await soon(task)).text == "you said one"
    await until_idle(here)
    assert (await soon(next_one)).text == "you said two"
    assert not caplog.records
