"""A reader of the root's events sees the runs below it, in whichever process they execute."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loop.helpers import Hold, Scripted, holding, soon
from wakeful import Agent, Delegate, Runtime, call
from wakeful.testing import Recorder
from wakeful.types.events import RunFinish, RunStart, TextDelta, ToolCallDone

from .conftest import Place
from .helpers import ask, run_of


def nested(scripted: Scripted, how: Delegate, *tools: Any) -> list[Agent]:
    return [
        Agent("lead", scripted(ask("middle"), "done"), delegates=[how]),
        Agent("middle", scripted(ask("worker"), "middling"), delegates=[Delegate("worker", durable=how.durable)]),
        Agent("worker", scripted(*[call(t.name) for t in tools], "worked"), tools=tools),
    ]


@pytest.mark.parametrize("durable", [False, True], ids=["ephemeral", "durable"])
async def test_root_stream_has_events_of_all_children(durable: bool, place: Place, scripted: Scripted) -> None:
    runtime = Runtime(nested(scripted, Delegate("middle", durable=durable)), store=place())
    seen = await Recorder().record(runtime.stream("lead", "go", thread="t"))
    first = {(e.run.agent_id, e.run.depth) for e in seen.of(RunStart)}
    assert first == {("lead", 0), ("middle", 1), ("worker", 2)}
    root = seen.of(RunStart)[0].run.run_id
    assert {e.run.root_run_id for e in seen.events} == {root}
    said = [(e.run.depth, e.delta) for e in seen.of(TextDelta)]
    assert said == [(2, "worked"), (1, "middling"), (0, "done")]
    ends = [(e.run.depth, e.status) for e in seen.of(RunFinish) if e.status == "done"]
    assert ends == [(2, "done"), (1, "done"), (0, "done")]
    assert isinstance(seen.events[-1], RunFinish)
    await runtime.close()


@pytest.mark.parametrize("durable", [False, True], ids=["ephemeral", "durable"])
async def test_late_reader_sees_events_of_children(durable: bool, place: Place, scripted: Scripted) -> None:
    """The root may wait, and nobody may have watched it, when the child begins."""
    hold = Hold()
    runtime = Runtime(nested(scripted, Delegate("middle", durable=durable), holding(hold)), store=place())
    handle = await runtime.start("lead", "go", thread="t")
    await soon(hold.reached.wait())
    seen: list[Any] = []
    watched = asyncio.Event()

    async def watch() -> None:
        async for event in runtime.events("t"):
            seen.append(event)
            watched.set()
            if isinstance(event, RunFinish) and event.status == "done" and event.run.depth == 0:
                return

    watching = asyncio.create_task(watch())
    await soon(watched.wait())
    hold.released.set()
    assert (await soon(handle.result())).text == "done"
    await soon(watching)
    assert [e.name for e in seen if isinstance(e, ToolCallDone) and e.run.depth == 2] == ["wait"]
    assert [e.delta for e in seen if isinstance(e, TextDelta)] == ["worked", "middling", "done"]
    await runtime.close()


async def test_stream_follows_children_that_another_runtime_runs(tmp_path: Path, scripted: Scripted) -> None:
    """The stream is on one runtime, and a second one on the same file runs everything."""
    path = str(tmp_path / "store.db")
    agents = nested(scripted, Delegate("middle", durable=True))
    watching = Runtime(agents, store=path, execute=False)
    async with Runtime(agents, store=path) as working:
        async with asyncio.timeout(120):
            seen = await Recorder().record(watching.stream("lead", "go", thread="t"))
        assert (await run_of(working, "lead")).status == "done"
    ends = [(e.run.agent_id, e.status) for e in seen.of(RunFinish) if e.run.depth == 0]
    assert ends[-1] == ("lead", "done")
    await watching.close()


async def test_wait_for_tree_of_another_runtime(tmp_path: Path, scripted: Scripted) -> None:
    path = str(tmp_path / "store.db")
    hold = Hold()
    agents = nested(scripted, Delegate("middle", durable=True), holding(hold))
    watching = Runtime(agents, store=path, execute=False)
    async with Runtime(agents, store=path) as working:
        handle = await working.start("lead", "go", thread="t")
        await soon(hold.reached.wait())
        waiting = asyncio.create_task(watching.wait(handle.run_id))
        await asyncio.sleep(0.15)
        assert not waiting.done()
        hold.released.set()
        assert (await soon(waiting)).text == "done"
    await watching.close()
