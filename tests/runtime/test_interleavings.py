"""Inputs of every kind at any moment: each is handled exactly once and the thread comes to rest."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loop.helpers import Spy, assert_settled, events_of, soon, spying, until_idle
from wakeful import Agent, FunctionModel, MemoryStore, ModelRequest, Runtime, ScriptedModel, call
from wakeful.testing import Leaks
from wakeful.types.events import RunFinish, RunStart

from .stores import SlowStore
from .test_busy_threads import said

STEPS = st.lists(st.sampled_from(["run", "queue", "steer", "interrupt", "step", "release"]), max_size=14)


@pytest.mark.parametrize("store", [MemoryStore, SlowStore])
@given(steps=STEPS)
@example(steps=["steer", "step", "step", "step", "run"])
@example(steps=["queue", "run"])
@example(steps=["run", "release", "step", "step", "step", "steer", "interrupt"])
def test_every_input_is_handled_exactly_once_in_any_interleaving(
    store: type[MemoryStore], steps: list[str]
) -> None:
    asyncio.run(_interleaved(steps, store()))


async def _interleaved(steps: list[str], store: MemoryStore) -> None:
    leaks, gate = Leaks(), asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        if not opened:
            await gate.wait()
            gate.clear()
        return "ok"

    opened: list[bool] = []
    runtime = Runtime([Agent("agent", model=FunctionModel(answer))], store=store)
    calls: list[asyncio.Task[Any]] = []
    sent: list[str] = []
    for number, step in enumerate(steps):
        text = f"{step} {number}"
        if step == "run":
            calls.append(asyncio.create_task(runtime.run("agent", text, thread="t")))
            sent.append(text)
        elif step == "release":
            gate.set()
        elif step == "step":
            await asyncio.sleep(0)
        else:
            policy: Any = step
            calls.append(asyncio.create_task(runtime.send("t", text, agent="agent", policy=policy)))
            sent.append(text)
    opened.append(True)
    for _ in range(len(steps) + 2):
        gate.set()
        for _ in range(40):
            await asyncio.sleep(0)
    await soon(asyncio.gather(*calls))
    await until_idle(runtime)
    if sent:
        assert sorted(await said(runtime)) == sorted(sent)
        await assert_settled(runtime, "t")
        starts, ends = await events_of(runtime, "t", RunStart), await events_of(runtime, "t", RunFinish)
        assert len(starts) == len(ends)
    leaks.check()


ORDERS = st.permutations(["a", "b", "c", "step", "step", "step"])


@pytest.mark.parametrize("store", [MemoryStore, SlowStore])
@given(order=ORDERS)
def test_concurrent_answers_are_all_applied(store: type[MemoryStore], order: list[str]) -> None:
    asyncio.run(_answered(order, store()))


async def _answered(order: list[str], store: MemoryStore) -> None:
    leaks, spy = Leaks(), Spy()
    model = ScriptedModel([[call(name) for name in "abc"], "done"])
    tools = [spying(spy, name, approval=True) for name in "abc"]
    runtime = Runtime([Agent("agent", model=model, tools=tools)], store=store)
    waiting = await runtime.run("agent", "go", thread="t")
    tickets = {ticket.tool: ticket for ticket in waiting.tickets}
    answers: list[asyncio.Task[Any]] = []
    for step in order:
        if step == "step":
            await asyncio.sleep(0)
        else:
            answers.append(asyncio.create_task(runtime.resume(waiting.run_id, tickets[step].approve())))
    await soon(asyncio.gather(*answers))
    await until_idle(runtime)
    assert sorted(spy.ran) == ["a", "b", "c"]
    assert (await runtime.threads.messages("t"))[-1].text == "done"
    await assert_settled(runtime, "t")
    leaks.check()
