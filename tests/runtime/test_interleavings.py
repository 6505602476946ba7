"""Inputs of every kind at any moment: each is handled exactly once and the thread comes to rest."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loop.helpers import assert_settled, events_of, soon, until_idle
from wakeful import Agent, FunctionModel, MemoryStore, ModelRequest, Runtime
from wakeful.testing import Leaks
from wakeful.types.events import RunFinish, RunStart

from .test_busy_threads import said

STEPS = st.lists(st.sampled_from(["run", "queue", "steer", "interrupt", "step", "release"]), max_size=14)


@given(STEPS)
def test_every_input_is_handled_exactly_once_in_any_interleaving(steps: list[str]) -> None:
    asyncio.run(_interleaved(steps))


async def _interleaved(steps: list[str]) -> None:
    leaks, gate = Leaks(), asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        if not opened:
            await gate.wait()
            gate.clear()
        return "ok"

    opened: list[bool] = []
    runtime = Runtime([Agent("agent", model=FunctionModel(answer))], store=MemoryStore())
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
        for _ in range(20):
            await asyncio.sleep(0)
    await soon(asyncio.gather(*calls))
    await until_idle(runtime)
    if sent:
        assert sorted(await said(runtime)) == sorted(sent)
        await assert_settled(runtime, "t")
        starts, ends = await events_of(runtime, "t", RunStart), await events_of(runtime, "t", RunFinish)
        assert len(starts) == len(ends)
    leaks.check()
