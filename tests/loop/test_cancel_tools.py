"""Cancelling while tools run, alone or side by side: what stops, what doesn't, and what the model is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import pytest

from wakeful import Agent, Limits, Runtime, ToolContext, call, tool
from wakeful.testing import FakeClock
from wakeful.tools import Done, FunctionTool, NotDone, Tool, UnknownOutcome
from wakeful.types.runs import Cancelled, NaturalEnd

from .helpers import (
    Hold,
    Scripted,
    Spy,
    assert_cancelled,
    assert_settled,
    holding,
    outcomes,
    replies_on,
    reply_text,
    soon,
    spying,
    until,
)
from .test_cancel import begin, goes_on

BESIDES = pytest.mark.parametrize("besides", [(), ("quick",)], ids=["alone", "with a sibling"])


def runtime_of(scripted: Scripted, name: str, besides: Sequence[str], *tools: Tool, **options: Any) -> Runtime:
    """A runtime whose model asks for a tool, and quick ones besides it, and is at rest ever after."""
    quick = [spying(Spy(), other) for other in besides]
    model = scripted([*[call(other) for other in besides], call(name)], "hello again")
    return Runtime([Agent("agent", model=model, tools=[*tools, *quick])], **options)


def checked(hold: Hold, found: Any) -> FunctionTool:
    """A tool that waits, with a check for its outcome."""

    def check(key: str) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    return holding(hold, effect="reconcile", check=check)


@BESIDES
@pytest.mark.parametrize(
    ("effect", "found", "outcome", "error"),
    [
        ("pure", None, "cancelled", "cancelled"),
        ("idempotent", None, "unknown", "interrupted"),
        ("once", None, "unknown", "interrupted"),
        ("reconcile", Done("it went through"), "ok", None),
        ("reconcile", NotDone(), "cancelled", "cancelled"),
        ("reconcile", UnknownOutcome(), "unknown", "interrupted"),
        ("reconcile", RuntimeError("no"), "unknown", "interrupted"),
    ],
)
async def test_stopped_call_outcome_follows_effect(
    scripted: Scripted, besides: Sequence[str], effect: Any, found: Any, outcome: str, error: str | None
) -> None:
    hold = Hold()
    waits = checked(hold, found) if effect == "reconcile" else holding(hold, effect=effect)
    runtime = runtime_of(scripted, "wait", besides, waits)
    task, run_id = await begin(runtime, hold.reached)
    await soon(runtime.cancel(run_id, "enough"))
    assert (await soon(task)).termination == Cancelled("enough")
    assert hold.times == 1
    assert await outcomes(runtime, run_id) == {"wait": outcome, **dict.fromkeys(besides, "ok")}
    reply = (await replies_on(runtime, "t"))[-1]
    assert reply.error == error
    if error == "interrupted":
        assert "the run was stopped" in reply_text(reply)
    assert runtime.workers.abandoned == 0
    await assert_cancelled(runtime, "t", "enough")
    await goes_on(runtime)


@BESIDES
async def test_cancelled_caller_stops_tools(scripted: Scripted, besides: Sequence[str]) -> None:
    hold = Hold()
    runtime = runtime_of(scripted, "wait", besides, holding(hold))
    task, run_id = await begin(runtime, hold.reached)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    assert (await outcomes(runtime, run_id))["wait"] == "unknown"
    await assert_cancelled(runtime, "t", "the caller was cancelled")
    await goes_on(runtime)


@BESIDES
async def test_tool_result_after_cleanup_counts(scripted: Scripted, besides: Sequence[str]) -> None:
    hold, cleaned = Hold(), asyncio.Event()

    @tool
    async def careful(ctx: ToolContext) -> str:
        """Undo what was begun."""
        try:
            await hold.here()
        except asyncio.CancelledError:
            assert ctx.cancelled
            await cleaned.wait()
            return "undone"
        return "done"

    runtime = runtime_of(scripted, "careful", besides, careful)
    task, run_id = await begin(runtime, hold.reached)
    cancelling = asyncio.create_task(runtime.cancel(run_id))
    await asyncio.sleep(0)
    cleaned.set()
    assert await soon(cancelling) is True
    assert isinstance((await soon(task)).termination, Cancelled)
    assert (await outcomes(runtime, run_id))["careful"] == "ok"
    assert reply_text((await replies_on(runtime, "t"))[-1]) == "undone"
    await assert_cancelled(runtime, "t")
    await goes_on(runtime)


@BESIDES
@pytest.mark.parametrize("by", ["request", "caller"])
async def test_tool_swallowing_cancellation_is_abandoned_after_grace(
    scripted: Scripted, fake_clock: FakeClock, besides: Sequence[str], by: str
) -> None:
    hold = Hold()

    @tool
    async def stubborn() -> str:
        """Ignore every wish to stop."""
        while not hold.released.is_set():
            try:
                await hold.here()
            except asyncio.CancelledError:
                pass
        return "too late"

    runtime = runtime_of(scripted, "stubborn", besides, stubborn, clock=fake_clock, cancel_grace=5)
    try:
        task, run_id = await begin(runtime, hold.reached)
        cancelling = asyncio.create_task(runtime.cancel(run_id)) if by == "request" else None
        if by == "caller":
            task.cancel()
        await fake_clock.advance(0)
        await fake_clock.advance(4.9)
        assert not task.done()
        assert runtime.workers.abandoned == 0
        await fake_clock.advance(0.1)
        if cancelling is not None:
            assert await soon(cancelling) is True
            assert isinstance((await soon(task)).termination, Cancelled)
        else:
            with pytest.raises(asyncio.CancelledError):
                await soon(task)
        assert runtime.workers.abandoned == 1
        assert (await outcomes(runtime, run_id))["stubborn"] == "unknown"
        await assert_cancelled(runtime, "t")
        await goes_on(runtime)
    finally:
        hold.released.set()
    await until(lambda: runtime.workers.abandoned == 0)
    assert (await outcomes(runtime, run_id))["stubborn"] == "unknown"


@BESIDES
async def test_stuck_thread_is_abandoned_after_grace(
    scripted: Scripted, fake_clock: FakeClock, besides: Sequence[str]
) -> None:
    reached, end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool
    def stuck() -> str:
        """Never look."""
        loop.call_soon_threadsafe(reached.set)
        end.wait(120)
        return "too late"

    runtime = runtime_of(scripted, "stuck", besides, stuck, clock=fake_clock, cancel_grace=5)
    try:
        task, run_id = await begin(runtime, reached)
        cancelling = asyncio.create_task(runtime.cancel(run_id))
        await fake_clock.advance(0)
        await fake_clock.advance(4.9)
        assert not task.done()
        await fake_clock.advance(0.1)
        assert await soon(cancelling) is True
        assert isinstance((await soon(task)).termination, Cancelled)
        assert runtime.workers.abandoned == 1
        assert (await outcomes(runtime, run_id))["stuck"] == "unknown"
        await assert_cancelled(runtime, "t")
        await goes_on(runtime)
    finally:
        end.set()
    await until(lambda: runtime.workers.abandoned == 0)


async def test_thread_checking_cancelled_stops_within_grace(scripted: Scripted) -> None:
    reached = asyncio.Event()
    loop = asyncio.get_running_loop()

    @tool(effect="pure")
    def polite(ctx: ToolContext) -> str:
        """Look all the time."""
        loop.call_soon_threadsafe(reached.set)
        while True:
            ctx.check_cancelled()

    runtime = runtime_of(scripted, "polite", (), polite)
    task, run_id = await begin(runtime, reached)
    assert await soon(runtime.cancel(run_id)) is True
    await soon(task)
    (reply,) = await replies_on(runtime, "t")
    assert (reply.error, reply_text(reply)) == ("cancelled", "polite was told to stop")
    assert runtime.workers.abandoned == 0
    await assert_cancelled(runtime, "t")
    await goes_on(runtime)


async def test_running_tools_stop_together_and_others_never_start(
    scripted: Scripted, fake_clock: FakeClock
) -> None:
    hold = Hold()
    agent = Agent(
        "agent",
        model=scripted([call("wait") for _ in range(5)], "hello again"),
        tools=[holding(hold, effect="pure")],
        limits=Limits(parallel=3),
    )
    runtime = Runtime([agent], clock=fake_clock)
    task, run_id = await begin(runtime, hold.reached)
    await until(lambda: hold.times == 3)
    await soon(runtime.cancel(run_id))
    await soon(task)
    assert hold.times == 3
    assert [c.outcome for c in await runtime.runs.calls(run_id)] == ["cancelled"] * 5
    assert [c.started_at is not None for c in await runtime.runs.calls(run_id)] == [True] * 3 + [False] * 2
    await assert_cancelled(runtime, "t")
    await goes_on(runtime)


@BESIDES
async def test_sync_wrapper_of_async_tool_is_stopped(scripted: Scripted, besides: Sequence[str]) -> None:
    hold = Hold()

    async def inner() -> str:
        await hold.here()
        return "done"

    @tool(effect="pure")
    def outer() -> Any:
        """Hand a coroutine on."""
        return inner()

    runtime = runtime_of(scripted, "outer", besides, outer)
    task, run_id = await begin(runtime, hold.reached)
    await soon(runtime.cancel(run_id))
    assert isinstance((await soon(task)).termination, Cancelled)
    assert (await outcomes(runtime, run_id))["outer"] == "cancelled"
    assert runtime.workers.abandoned == 0
    await goes_on(runtime)


# -- what isn't a cancellation of the run --------------------------------------------------------------------


@BESIDES
async def test_timeout_inside_tool_stays_inside(
    scripted: Scripted, fake_clock: FakeClock, besides: Sequence[str]
) -> None:
    hold = Hold()

    @tool
    async def patient(ctx: ToolContext) -> str:
        """Give up one wait and continue with another."""
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            await hold.here()
        return f"cancelled: {ctx.cancelled}"

    runtime = runtime_of(scripted, "patient", besides, patient, clock=fake_clock, cancel_grace=5)
    task, _ = await begin(runtime, hold.reached)
    await fake_clock.advance(60)
    hold.released.set()
    assert (await soon(task)).termination == NaturalEnd()
    assert reply_text((await replies_on(runtime, "t"))[-1]) == "cancelled: False"
    assert hold.times == 1
    assert runtime.workers.abandoned == 0
    await assert_settled(runtime, "t")


@BESIDES
async def test_cancelled_task_inside_tool_stays_inside(
    scripted: Scripted, fake_clock: FakeClock, besides: Sequence[str]
) -> None:
    hold = Hold()

    @tool
    async def manager(ctx: ToolContext) -> str:
        """Start a helper, cancel it, and continue."""
        helper = asyncio.create_task(asyncio.Event().wait())
        await asyncio.sleep(0)
        helper.cancel()
        try:
            await helper
        except asyncio.CancelledError:
            await hold.here()
        return f"cancelled: {ctx.cancelled}"

    runtime = runtime_of(scripted, "manager", besides, manager, clock=fake_clock, cancel_grace=5)
    task, _ = await begin(runtime, hold.reached)
    await fake_clock.advance(60)
    hold.released.set()
    await soon(task)
    assert reply_text((await replies_on(runtime, "t"))[-1]) == "cancelled: False"
    assert hold.times == 1


@BESIDES
async def test_tool_can_be_cancelled_after_inner_timeout(scripted: Scripted, besides: Sequence[str]) -> None:
    hold = Hold()

    @tool(effect="pure")
    async def patient() -> str:
        """Give up one wait and continue with another."""
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            await hold.here()
        return "done"

    runtime = runtime_of(scripted, "patient", besides, patient)
    task, run_id = await begin(runtime, hold.reached)
    await soon(runtime.cancel(run_id))
    assert isinstance((await soon(task)).termination, Cancelled)
    assert (await outcomes(runtime, run_id))["patient"] == "cancelled"
    await goes_on(runtime)


@BESIDES
async def test_context_variables_reach_tool_but_not_back(scripted: Scripted, besides: Sequence[str]) -> None:
    user: ContextVar[str] = ContextVar("user", default="nobody")

    @tool
    async def whoami() -> str:
        """Say who asks, and pretend to be another."""
        found = user.get()
        user.set("intruder")
        return found

    runtime = runtime_of(scripted, "whoami", besides, whoami)
    user.set("Ann")
    await runtime.run("agent", "go", thread="t")
    assert user.get() == "Ann"
    assert reply_text((await replies_on(runtime, "t"))[-1]) == "Ann"
