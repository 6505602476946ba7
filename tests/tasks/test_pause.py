"""Paused runs: they stop before the next step and hold nothing until they are continued."""

from __future__ import annotations

import pytest

from loop.helpers import Hold, Scripted, Spy, assert_settled, holding, soon, spying
from wakeful import Agent, MemoryStore, Plugin, Runtime, ScriptedModel, call
from wakeful.errors import UnknownRun
from wakeful.plugins import RunEnd, notice
from wakeful.stores import Commit
from wakeful.types.ids import new_id
from wakeful.types.inbox import UnpauseItem
from wakeful.types.runs import Cancelled

from .conftest import Place
from .helpers import eventually


async def paused(place: Place, scripted: Scripted, hold: Hold) -> tuple[Runtime, str]:
    """A runtime with a run that was paused in the middle of its first step."""
    agent = Agent("agent", model=scripted(call("wait"), "done"), tools=[holding(hold)])
    runtime = Runtime([agent], store=place())
    await runtime.__aenter__()
    handle = await runtime.start("agent", "go", thread="t")
    await soon(hold.reached.wait())
    assert await runtime.runs.pause(handle.run_id)
    hold.released.set()
    result = await soon(handle.result())
    assert result.status == "waiting"
    return runtime, handle.run_id


async def test_paused_run_finishes_its_step_and_frees_resources(place: Place, scripted: Scripted) -> None:
    runtime, run_id = await paused(place, scripted, Hold())
    run = await runtime.runs.get(run_id)
    assert run.waiting is not None
    assert (run.waiting.reason, run.stage, run.steps) == ("manual_pause", "between", 1)
    assert not runtime._scope.dispatch.active
    assert await runtime.runs.unpause(run_id)
    assert (await soon(runtime.wait(run_id))).text == "done"
    assert not await runtime.runs.pause(run_id)
    await assert_settled(runtime, "t")
    await runtime.close()


async def test_paused_run_continues_in_another_process(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    runtime, run_id = await paused(place, scripted, hold)
    agents = list(runtime.agents.values())
    await runtime.close()
    async with Runtime(agents, store=place()) as second:
        assert (await soon(second.wait(run_id))).status == "waiting"
        assert await second.runs.unpause(run_id)
        await eventually(lambda: is_done(second, run_id))
        assert (await second.runs.result(run_id)).text == "done"


async def is_done(runtime: Runtime, run_id: str) -> bool:
    return (await runtime.runs.get(run_id)).status == "done"


async def test_paused_run_can_be_cancelled(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    agent = Agent("agent", model=scripted(call("wait")), tools=[holding(hold)])
    async with Runtime([agent], store=place()) as runtime:
        handle = await runtime.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        await runtime.runs.pause(handle.run_id)
        hold.released.set()
        assert (await soon(handle.result())).status == "waiting"
        assert await soon(runtime.cancel(handle.run_id, "enough"))
        assert (await runtime.runs.result(handle.run_id)).termination == Cancelled("enough")


async def test_waiting_run_pauses_after_its_answer(place: Place, scripted: Scripted) -> None:
    spy = Spy()
    tools = [spying(spy, "pay", approval=True)]
    agent = Agent("agent", model=scripted(call("pay"), "paid"), tools=tools)
    async with Runtime([agent], store=place()) as runtime:
        result = await soon(runtime.run("agent", "go", thread="t"))
        await runtime.runs.pause(result.run_id)
        assert (await runtime.runs.get(result.run_id)).status == "waiting"
        result = await soon(runtime.resume(result.run_id, result.tickets[0].approve()))
        assert (result.status, spy.ran) == ("waiting", ["pay"])
        await runtime.runs.unpause(result.run_id)
        assert (await soon(runtime.wait(result.run_id))).text == "paid"


async def test_pause_withdrawn_in_time_has_no_effect(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    agent = Agent("agent", model=scripted(call("wait"), "done"), tools=[holding(hold)])
    async with Runtime([agent], store=place()) as runtime:
        handle = await runtime.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        await runtime.runs.pause(handle.run_id)
        await runtime.runs.unpause(handle.run_id)
        hold.released.set()
        assert (await soon(handle.result())).text == "done"


async def test_unpause_found_before_parking_continues_run(scripted: Scripted) -> None:
    class Told(Plugin):
        async def run_end(self, ctx: RunEnd) -> None:
            if ctx.status == "waiting":  # Another process lets it go on in this very moment.
                item = UnpauseItem(id=new_id(), thread_id="t", run_id=ctx.run.run_id)
                await store.commit(Commit("t", inbox=[item]))
                ctx.notify("waits")

        @notice("waits")
        async def waits(self, payload: None) -> None: ...

    hold, store = Hold(), MemoryStore()
    agent = Agent("agent", model=scripted(call("wait"), "done"), tools=[holding(hold)], plugins=[Told()])
    async with Runtime([agent], store=store) as runtime:
        handle = await runtime.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        await runtime.runs.pause(handle.run_id)
        hold.released.set()
        assert (await soon(handle.result())).text == "done"


async def test_new_input_waits_for_paused_run(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    agent = Agent("agent", model=scripted(call("wait"), "done", "hello"), tools=[holding(hold)])
    async with Runtime([agent], store=place()) as runtime:
        first = await runtime.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        await runtime.runs.pause(first.run_id)
        hold.released.set()
        await soon(first.result())
        second = await runtime.start("agent", "hello?", thread="t")
        assert (await runtime.runs.get(first.run_id)).status == "waiting"
        await runtime.runs.unpause(first.run_id)
        assert (await soon(second.result())).text == "hello"
        assert (await runtime.runs.result(first.run_id)).text == "done"


async def test_unknown_run_cannot_be_paused() -> None:
    runtime = Runtime([Agent("agent", model=ScriptedModel(["hi"]))])
    with pytest.raises(UnknownRun):
        await runtime.runs.pause("nope")
    await runtime.close()
