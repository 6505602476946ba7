"""Bare coroutines as tasks: they run in this process only, and are reported like all others."""

from __future__ import annotations

from loop.helpers import Hold, Scripted, soon
from wakeful import Agent, Runtime, ToolContext, call, tool
from wakeful.types.runs import Cancelled

from .conftest import Place
from .helpers import assert_quiet, eventually, spawning, task_of, told


async def test_coroutine_reports_to_its_owner(place: Place, scripted: Scripted) -> None:
    async def looks() -> dict[str, int]:
        return {"found": 7}

    tools = [spawning(looks, name="look")]
    agent = Agent("agent", model=scripted(call("begin"), "wait", "seven"), tools=tools)
    async with Runtime([agent], store=place()) as runtime:
        assert (await soon(runtime.run("agent", "go", thread="t"))).text == "seven"
        (said,) = await told(runtime)
        assert 'name="look"' in said
        assert '{"found":7}' in said
        assert (await task_of(runtime)).status == "completed"
        await assert_quiet(runtime)


async def test_coroutine_is_cancelled_with_its_run(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    agent = Agent("agent", model=scripted(call("begin"), "wait"), tools=[spawning(hold.here)])
    async with Runtime([agent], store=place()) as runtime:
        handle = await runtime.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        await eventually(lambda: waits(runtime, handle.run_id))
        assert await soon(handle.cancel("stop"))
        task = await task_of(runtime)
        assert task.status == "cancelled"
        assert isinstance((await soon((await runtime.tasks.get(task.id)).result())).termination, Cancelled)


async def waits(runtime: Runtime, run_id: str) -> bool:
    return (await runtime.runs.get(run_id)).status == "waiting"


async def test_refused_coroutine_is_closed(scripted: Scripted) -> None:
    hold = Hold()

    @tool
    async def begin(ctx: ToolContext) -> str:
        """Begin twice."""
        await ctx.spawn(hold.here(), name="same")
        await ctx.spawn(hold.here(), name="same")  # It is never awaited, and nothing warns of that.
        return ""

    agent = Agent("agent", model=scripted(call("begin"), "wait", "done"), tools=[begin])
    runtime = Runtime([agent])
    handle = await runtime.start("agent", "go", thread="t")
    await soon(hold.reached.wait())
    hold.released.set()
    assert (await soon(handle.result())).text == "done"
    assert hold.times == 1
    await runtime.close()


async def test_rerun_tool_finds_its_coroutine(place: Place, scripted: Scripted) -> None:
    hold = Hold()

    @tool(effect="pure")
    async def begin(ctx: ToolContext) -> str:
        """Begin, then ask."""
        task = await ctx.spawn(hold.here(), name="one")
        ctx.ask("go on?")
        return task.id

    agent = Agent("agent", model=scripted(call("begin"), "done"), tools=[begin])
    async with Runtime([agent], store=place()) as runtime:
        result = await soon(runtime.run("agent", "go", thread="t"))
        task = await task_of(runtime)
        await soon(hold.reached.wait())
        hold.released.set()
        await soon((await runtime.tasks.get(task.id)).result())
        result = await soon(runtime.resume(result.run_id, result.tickets[0].answer("yes")))
        assert (result.status, hold.times) == ("done", 1)
        assert (await task_of(runtime)).id == task.id


async def test_restore_keeps_live_tasks_running(place: Place, scripted: Scripted) -> None:
    hold = Hold()
    agent = Agent("agent", model=scripted(call("begin"), "wait", "done"), tools=[spawning(hold.here)])
    async with Runtime([agent], store=place()) as runtime, Runtime([agent], store=place()) as other:
        handle = await runtime.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        await eventually(lambda: waits(runtime, handle.run_id))
        task = await task_of(other)
        await other._scope.dispatch.start_if_due(task.target_thread)
        await other._scope.dispatch.start_if_due("t")
        assert task.status == "running"
        hold.released.set()
        assert (await soon(handle.result())).text == "done"
        assert hold.times == 1
