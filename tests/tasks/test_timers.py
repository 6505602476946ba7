"""Tools that sleep: unwound if they may run again, else in memory; by the runtime's clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from loop.helpers import Hold, Scripted, Spy, holding, replies_on, reply_text, soon, spying, until
from wakeful import Agent, Runtime, ToolContext, call, tool
from wakeful.clock import SystemClock
from wakeful.stores import open_store
from wakeful.testing import FakeClock
from wakeful.types.runs import Cancelled

from .conftest import Place
from .helpers import assert_quiet, clock, eventually


def sleeping(name: str, *naps: float, ran: list[str], **options: Any) -> Any:
    async def run(ctx: ToolContext) -> str:
        """Sleep."""
        for nap in naps:
            ran.append(f"{name} {nap:g}")
            await ctx.sleep(nap)
        return f"{name} slept"

    return tool(name=name, **({"effect": "pure"} | options))(run)


async def test_sleeping_run_frees_resources_and_wakes_in_time(place: Place, scripted: Scripted) -> None:
    time, ran = clock(), list[str]()
    agent = Agent("agent", model=scripted(call("nap"), "rested"), tools=[sleeping("nap", 3600, ran=ran)])
    async with Runtime([agent], store=place(), clock=time) as runtime:
        result = await soon(runtime.run("agent", "go", thread="t"))
        run = await runtime.runs.get(result.run_id)
        assert run.waiting is not None
        assert (run.waiting.reason, run.waiting.until) == ("timer", time.now() + 3600_000)
        assert not runtime._scope.dispatch.active
        await time.advance(3599)
        assert (await runtime.runs.get(result.run_id)).status == "waiting"
        await passing(time, 2, lambda: done(runtime, result.run_id))
        assert (await runtime.runs.result(result.run_id)).text == "rested"
        assert ran == ["nap 3600", "nap 3600"]
        await assert_quiet(runtime)


class Late(SystemClock):
    """The clock of a machine that is a second behind the store's."""

    def now(self) -> int:
        return super().now() - 1000


async def test_slow_clock_does_not_reclaim_sleeping_run(
    place: Place, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent("agent", model=scripted(call("nap"), "rested"), tools=[sleeping("nap", 0.3, ran=[])])
    store, claims = open_store(place()), 0
    claim = store.claim

    async def counted(*args: Any, **options: Any) -> Any:
        nonlocal claims
        claims += bool((found := await claim(*args, **options)).claimed)
        return found

    monkeypatch.setattr(store, "claim", counted)
    async with Runtime([agent], store=store, clock=Late()) as runtime:
        result = await soon(runtime.run("agent", "go", thread="t"))
        await eventually(lambda: done(runtime, result.run_id))
    assert claims < 10


async def done(runtime: Runtime, run_id: str) -> bool:
    return (await runtime.runs.get(run_id)).status == "done"


async def passing(time: FakeClock, seconds: float, look: Any) -> None:
    """Let time pass, until something is there that it brings about."""
    await time.advance(seconds)
    await eventually(look)


async def test_sleeping_run_can_be_paused(place: Place, scripted: Scripted) -> None:
    time, ran = clock(), list[str]()
    agent = Agent("agent", model=scripted(call("nap"), "rested"), tools=[sleeping("nap", 3600, ran=ran)])
    async with Runtime([agent], store=place(), clock=time) as runtime:
        run_id = (await soon(runtime.run("agent", "go", thread="t"))).run_id
        for paused in (True, False, True):
            assert await (runtime.runs.pause if paused else runtime.runs.unpause)(run_id)
            run = await runtime.runs.get(run_id)
            assert run.waiting is not None
            assert (run.paused, run.waiting.reason) == (paused, "timer")
        await passing(time, 3601, lambda: stands_still(runtime, run_id))
        assert ran == ["nap 3600", "nap 3600"]
        await runtime.runs.unpause(run_id)
        assert (await soon(runtime.wait(run_id))).text == "rested"
        await assert_quiet(runtime)


async def stands_still(runtime: Runtime, run_id: str) -> bool:
    waiting = (await runtime.runs.get(run_id)).waiting
    return waiting is not None and waiting.reason == "manual_pause"


async def test_timer_survives_process(place: Place, scripted: Scripted) -> None:
    time, ran = clock(), list[str]()
    agent = Agent("agent", model=scripted(call("nap"), "rested"), tools=[sleeping("nap", 3600, ran=ran)])
    async with Runtime([agent], store=place(), clock=time) as runtime:
        result = await soon(runtime.run("agent", "go", thread="t"))
    await time.advance(4000)
    async with Runtime([agent], store=place(), clock=time) as runtime:
        await eventually(lambda: done(runtime, result.run_id))
        assert (await runtime.runs.result(result.run_id)).text == "rested"


async def test_several_sleeps_in_one_tool_happen_once_each(place: Place, scripted: Scripted) -> None:
    time, ran = clock(), list[str]()
    agent = Agent("agent", model=scripted(call("nap"), "rested"), tools=[sleeping("nap", 10, 20, ran=ran)])
    async with Runtime([agent], store=place(), clock=time) as runtime:
        begin = time.now()
        result = await soon(runtime.run("agent", "go", thread="t"))
        await passing(time, 10, lambda: waits_until(runtime, result.run_id, begin + 30_000))
        await passing(time, 20, lambda: done(runtime, result.run_id))
        assert ran == ["nap 10", "nap 10", "nap 20", "nap 10", "nap 20"]


async def test_parallel_sleeps_wake_independently(place: Place, scripted: Scripted) -> None:
    time, woke = clock(), list[int]()

    @tool(effect="pure")
    async def nap(ctx: ToolContext) -> str:
        """Sleep twice at once."""
        await asyncio.gather(ctx.sleep(20), ctx.sleep(10))
        woke.append(ctx.now)
        return "slept"

    agent = Agent("agent", model=scripted(call("nap"), "rested"), tools=[nap])
    async with Runtime([agent], store=place(), clock=time) as runtime:
        begin = time.now()
        result = await soon(runtime.run("agent", "go", thread="t"))
        assert await waits_until(runtime, result.run_id, begin + 10_000)
        await passing(time, 10, lambda: waits_until(runtime, result.run_id, begin + 20_000))
        await passing(time, 10, lambda: done(runtime, result.run_id))
        assert woke == [begin + 20_000]


async def waits_until(runtime: Runtime, run_id: str, at: int) -> bool:
    run = await runtime.runs.get(run_id)
    return run.waiting is not None and run.waiting.until == at


async def test_earliest_sleeping_call_wakes_run(place: Place, scripted: Scripted) -> None:
    time, ran = clock(), list[str]()
    tools = [sleeping("long", 100, ran=ran), sleeping("short", 10, ran=ran)]
    agent = Agent("agent", model=scripted([call("long"), call("short")], "rested"), tools=tools)
    async with Runtime([agent], store=place(), clock=time) as runtime:
        begin = time.now()
        result = await soon(runtime.run("agent", "go", thread="t"))
        assert await waits_until(runtime, result.run_id, begin + 10_000)
        await passing(time, 10, lambda: waits_until(runtime, result.run_id, begin + 100_000))
        calls = {one.name: one.state for one in await runtime.runs.calls(result.run_id)}
        assert calls == {"long": "suspended", "short": "finished"}
        await passing(time, 90, lambda: done(runtime, result.run_id))
        assert sorted(ran) == ["long 100", "long 100", "short 10", "short 10"]


async def test_sleeping_call_wakes_while_sibling_runs(place: Place, scripted: Scripted) -> None:
    time, ran, hold = clock(), list[str](), Hold()
    tools = [sleeping("nap", 10, ran=ran), holding(hold)]
    agent = Agent("agent", model=scripted([call("nap"), call("wait")], "rested"), tools=tools)
    async with Runtime([agent], store=place(), clock=time) as runtime:
        handle = await runtime.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        await eventually(lambda: has_parked(runtime, handle.run_id))
        await time.advance(11)
        await until(lambda: len(ran) == 2)
        hold.released.set()
        assert (await soon(handle.result())).text == "rested"


async def has_parked(runtime: Runtime, run_id: str) -> bool:
    return any(one.state == "suspended" for one in await runtime.runs.calls(run_id))


async def test_once_tool_sleeps_in_memory(scripted: Scripted) -> None:
    time, ran = clock(), list[str]()
    agent = Agent(
        "agent", model=scripted(call("nap"), "rested"), tools=[sleeping("nap", 10, ran=ran, effect="once")]
    )
    runtime = Runtime([agent], clock=time)
    handle = await runtime.start("agent", "go", thread="t")
    await until(lambda: ran)
    await time.advance(11)
    assert (await soon(handle.result())).text == "rested"
    assert ran == ["nap 10"]
    await runtime.close()


async def test_sleep_until_time(scripted: Scripted) -> None:
    time = clock()

    @tool(effect="pure")
    async def until_noon(ctx: ToolContext, naive: bool = False) -> str:
        """Sleep."""
        at = datetime.fromtimestamp(ctx.now / 1000, UTC) - timedelta(seconds=1)
        await ctx.sleep_until(at.replace(tzinfo=None) if naive else at)
        return "it is past"

    model = scripted(call("until_noon"), call("until_noon", naive=True), "ok")
    runtime = Runtime([Agent("agent", model=model, tools=[until_noon])], clock=time)
    await soon(runtime.run("agent", "go", thread="t"))
    first, second = [reply_text(reply) for reply in await replies_on(runtime, "t")]
    assert first == "it is past"
    assert "has no time zone" in second
    await runtime.close()


async def test_sleeping_run_can_be_cancelled(place: Place, scripted: Scripted) -> None:
    ran = list[str]()
    agent = Agent("agent", model=scripted(call("nap")), tools=[sleeping("nap", 3600, ran=ran)])
    async with Runtime([agent], store=place(), clock=clock()) as runtime:
        result = await soon(runtime.run("agent", "go", thread="t"))
        assert await soon(runtime.cancel(result.run_id, "enough"))
        assert (await runtime.runs.result(result.run_id)).termination == Cancelled("enough")
        await assert_quiet(runtime)


async def test_new_input_waits_for_sleeping_run(place: Place, scripted: Scripted) -> None:
    time, ran = clock(), list[str]()
    model = scripted(call("nap"), "rested", "and hello")
    agent = Agent("agent", model=model, tools=[sleeping("nap", 10, ran=ran)])
    async with Runtime([agent], store=place(), clock=time) as runtime:
        first = await soon(runtime.run("agent", "go", thread="t"))
        second = await runtime.start("agent", "hello?", thread="t")
        assert (await runtime.runs.get(first.run_id)).status == "waiting"
        await passing(time, 11, lambda: done(runtime, first.run_id))
        assert (await soon(second.result())).text == "and hello"
        assert (await runtime.runs.result(first.run_id)).text == "rested"


async def test_question_and_timer_wait_together(place: Place, scripted: Scripted) -> None:
    time, ran = clock(), list[str]()
    tools = [sleeping("nap", 10, ran=ran), spying(Spy(), "pay", approval=True)]
    agent = Agent("agent", model=scripted([call("nap"), call("pay")], "both"), tools=tools)
    async with Runtime([agent], store=place(), clock=time) as runtime:
        result = await soon(runtime.run("agent", "go", thread="t"))
        (ticket,) = result.tickets
        await passing(time, 11, lambda: finished(runtime, result.run_id, "nap"))
        result = await soon(runtime.resume(result.run_id, ticket.approve()))
        assert (result.text, result.status) == ("both", "done")


async def finished(runtime: Runtime, run_id: str, name: str) -> bool:
    return any(one.name == name and one.state == "finished" for one in await runtime.runs.calls(run_id))


@pytest.mark.parametrize("seconds", [0, -5])
async def test_zero_sleep_returns_at_once(scripted: Scripted, seconds: float) -> None:
    ran = list[str]()
    agent = Agent("agent", model=scripted(call("nap"), "ok"), tools=[sleeping("nap", seconds, ran=ran)])
    runtime = Runtime([agent])
    assert (await soon(runtime.run("agent", "go"))).text == "ok"
    await runtime.close()


async def test_sleeping_child_is_awaited(place: Place, scripted: Scripted) -> None:
    time, ran = clock(), list[str]()
    agents = [
        Agent("agent", model=scripted(call("agent_run_child", prompt="nap"), "all rested"), delegates=["child"]),
        Agent("child", model=scripted(call("nap"), "rested"), tools=[sleeping("nap", 10, ran=ran)]),
    ]
    async with Runtime(agents, store=place(), clock=time) as runtime:
        result = await soon(runtime.run("agent", "go", thread="t"))
        assert result.status == "waiting"
        await passing(time, 11, lambda: done(runtime, result.run_id))
        assert (await runtime.runs.result(result.run_id)).text == "all rested"
        assert ran == ["nap 10", "nap 10"]


async def test_steering_reaches_sleeping_run_after_its_step(place: Place, scripted: Scripted) -> None:
    time, ran = clock(), list[str]()
    agent = Agent("agent", model=scripted(call("nap"), "rested"), tools=[sleeping("nap", 10, ran=ran)])
    async with Runtime([agent], store=place(), clock=time) as runtime:
        result = await soon(runtime.run("agent", "go", thread="t"))
        await runtime.send("t", "by the way")
        assert (await runtime.runs.get(result.run_id)).status == "waiting"
        await passing(time, 11, lambda: done(runtime, result.run_id))
        assert [m.text for m in await runtime.threads.messages("t") if m.role == "user"] == ["go", "by the way"]
