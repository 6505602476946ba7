"""A tool takes too long: it is stopped, or let go of, and its effect says what the model is told."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from wakeful import Agent, Runtime, ToolContext, call, tool
from wakeful.testing import FakeClock
from wakeful.tools import Done, NotDone, Tool, UnknownOutcome
from wakeful.types.runs import NaturalEnd

from .helpers import (
    Hold,
    Scripted,
    Spy,
    assert_settled,
    holding,
    outcomes,
    replies_on,
    reply_text,
    soon,
    spying,
    until,
)


def clocked(model: Any, clock: FakeClock, *tools: Tool, **options: Any) -> Runtime:
    """A runtime on the test's clock, with one agent."""
    return Runtime([Agent("agent", model=model, tools=tools)], clock=clock, **options)


def running(runtime: Runtime) -> asyncio.Task[Any]:
    """A run on thread `t`, in the background."""
    return asyncio.create_task(runtime.run("agent", "go", thread="t"))


@pytest.mark.parametrize(
    ("effect", "found", "outcome", "error"),
    [
        ("pure", None, "error", "timeout"),
        ("idempotent", None, "error", "timeout"),
        ("once", None, "unknown", "interrupted"),
        ("reconcile", Done("it went through"), "ok", None),
        ("reconcile", NotDone(), "error", "timeout"),
        ("reconcile", UnknownOutcome(), "unknown", "interrupted"),
        ("reconcile", RuntimeError("no"), "unknown", "interrupted"),
    ],
)
async def test_timeout_outcome_follows_effect(
    scripted: Scripted, fake_clock: FakeClock, effect: Any, found: Any, outcome: str, error: str | None
) -> None:
    def check(key: str) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    hold = Hold()
    options = {"check": check} if effect == "reconcile" else {}
    slow = holding(hold, "slow", effect=effect, timeout=10, **options)
    runtime = clocked(scripted(call("slow"), "noted"), fake_clock, slow)
    run = running(runtime)
    await soon(hold.reached.wait())
    await fake_clock.advance(9.9)
    assert not run.done()
    await fake_clock.advance(0.1)
    result = await soon(run)
    assert (result.text, result.termination) == ("noted", NaturalEnd())
    assert hold.times == 1
    assert await outcomes(runtime, result.run_id) == {"slow": outcome}
    (reply,) = await replies_on(runtime, "t")
    assert reply.error == error
    if error == "interrupted":
        assert "it took too long" in reply_text(reply)
    elif error == "timeout":
        assert "10 s" in reply_text(reply) or "took no effect" in reply_text(reply)
    assert runtime.workers.abandoned == 0
    await assert_settled(runtime, "t")


async def test_call_within_timeout_is_left_alone(scripted: Scripted, fake_clock: FakeClock) -> None:
    hold = Hold()
    runtime = clocked(scripted(call("slow"), "done"), fake_clock, holding(hold, "slow", timeout=10))
    run = running(runtime)
    await soon(hold.reached.wait())
    await fake_clock.advance(9)
    hold.released.set()
    result = await soon(run)
    await fake_clock.advance(60)
    assert await outcomes(runtime, result.run_id) == {"slow": "ok"}


async def test_siblings_of_timed_out_call_continue(scripted: Scripted, fake_clock: FakeClock) -> None:
    slow, quick = Hold(), Hold()
    tools = [holding(slow, "slow", timeout=10), holding(quick, "quick")]
    runtime = clocked(scripted([call("slow"), call("quick")], "done"), fake_clock, *tools)
    run = running(runtime)
    await soon(slow.reached.wait())
    await fake_clock.advance(10)
    assert not run.done()
    quick.released.set()
    result = await soon(run)
    assert await outcomes(runtime, result.run_id) == {"slow": "unknown", "quick": "ok"}


async def test_tool_finishing_during_stop_keeps_its_result(scripted: Scripted, fake_clock: FakeClock) -> None:
    reached = asyncio.Event()

    @tool(timeout=10)
    async def careful() -> str:
        """Finish what was begun."""
        reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "rolled back"
        raise AssertionError("never reached")

    runtime = clocked(scripted(call("careful"), "done"), fake_clock, careful)
    run = running(runtime)
    await soon(reached.wait())
    await fake_clock.advance(10)
    result = await soon(run)
    assert await outcomes(runtime, result.run_id) == {"careful": "ok"}
    assert reply_text((await replies_on(runtime, "t"))[0]) == "rolled back"


async def test_stuck_tool_is_abandoned_after_grace(scripted: Scripted, fake_clock: FakeClock) -> None:
    reached, end = asyncio.Event(), asyncio.Event()

    @tool(timeout=10)
    async def stubborn() -> str:
        """Ignore every wish to stop."""
        reached.set()
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                pass
        return "too late"

    runtime = clocked(scripted(call("stubborn"), "done"), fake_clock, stubborn, cancel_grace=5)
    run = running(runtime)
    try:
        await soon(reached.wait())
        await fake_clock.advance(14.9)
        assert not run.done()
        assert runtime.workers.abandoned == 0
        await fake_clock.advance(0.1)
        result = await soon(run)
        assert runtime.workers.abandoned == 1
        assert await outcomes(runtime, result.run_id) == {"stubborn": "unknown"}
    finally:
        end.set()
    await until(lambda: runtime.workers.abandoned == 0)
    (reply,) = await replies_on(runtime, "t")
    assert reply.error == "interrupted"
    await assert_settled(runtime, "t")


async def test_thread_returning_within_grace_keeps_its_result(scripted: Scripted, fake_clock: FakeClock) -> None:
    reached = asyncio.Event()
    loop = asyncio.get_running_loop()
    told = threading.Event()

    @tool(timeout=10)
    def polite(ctx: ToolContext) -> str:
        """Look now and then whether to stop."""
        loop.call_soon_threadsafe(reached.set)
        assert told.wait(120)
        return f"stopped: {ctx.cancelled}"

    runtime = clocked(scripted(call("polite"), "done"), fake_clock, polite)
    run = running(runtime)
    await soon(reached.wait())
    await fake_clock.advance(12)
    told.set()
    await soon(run)
    assert reply_text((await replies_on(runtime, "t"))[0]) == "stopped: True"
    assert runtime.workers.abandoned == 0


async def test_abandoned_thread_is_counted_until_it_returns(scripted: Scripted, fake_clock: FakeClock) -> None:
    reached = asyncio.Event()
    loop = asyncio.get_running_loop()
    end = threading.Event()

    @tool(timeout=10)
    def stuck() -> str:
        """Never look."""
        loop.call_soon_threadsafe(reached.set)
        end.wait(120)
        return "too late"

    spy = Spy()

    @tool
    def sync() -> str:
        """Run in another thread."""
        spy.note("sync")
        return "fine"

    runtime = clocked(scripted([call("stuck")], call("sync"), "done"), fake_clock, stuck, sync)
    run = running(runtime)
    try:
        await soon(reached.wait())
        await fake_clock.advance(15)
        result = await soon(run)
        assert runtime.workers.abandoned == 1
        assert await outcomes(runtime, result.run_id) == {"stuck": "unknown", "sync": "ok"}
        assert spy.ran == ["sync"]
    finally:
        end.set()
    await until(lambda: runtime.workers.abandoned == 0)
    await assert_settled(runtime, "t")


async def test_tool_raising_cancelled_error_has_failed(scripted: Scripted) -> None:
    spy = Spy()

    @tool(effect="pure")
    async def odd() -> str:
        """Await something that was cancelled."""
        spy.note("odd")
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    runtime = Runtime([Agent("agent", model=scripted(call("odd"), "done"), tools=[odd])])
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert spy.ran == ["odd"]
    assert await outcomes(runtime, result.run_id) == {"odd": "error"}
    assert "CancelledError" in reply_text((await replies_on(runtime, "t"))[0])


async def test_finished_tool_leaves_no_timer(scripted: Scripted, fake_clock: FakeClock) -> None:
    spy = Spy()
    runtime = clocked(scripted(call("quick"), "done"), fake_clock, spying(spy, "quick", timeout=10))
    await runtime.run("agent", "go", thread="t")
    # The one that looks after streams stands still by itself, once it finds none.
    await fake_clock.advance(2)
    assert all(timer.cancelled for _, _, timer in fake_clock._timers)
