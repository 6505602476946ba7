"""Calls that run side by side: each has a task of its own from its first line on, whether it waits or not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest

from wakeful import Agent, Runtime, call, tool
from wakeful.stores._threads import Promise, settled

from .helpers import Scripted, assert_settled, replies_on, reply_text, soon


def runtime_of(scripted: Scripted, *functions: Any, then: Sequence[str] = ("done",)) -> Runtime:
    """A runtime whose model asks for all of the tools at once."""
    model = scripted([call(function.__name__) for function in functions], *then)
    tools = [tool(function) for function in dict.fromkeys(functions)]
    return Runtime([Agent("agent", model=model, tools=tools)])


async def told(runtime: Runtime) -> list[str]:
    """What the model was told, in order."""
    return [reply_text(reply) for reply in await replies_on(runtime, "t")]


async def test_calls_that_do_not_wait_are_through_before_the_loop_turns(scripted: Scripted) -> None:
    turns: list[int] = []

    async def first() -> str:
        """First."""
        asyncio.get_running_loop().call_soon(turns.append, 1)
        return "a"

    async def second() -> str:
        """Second."""
        return f"b{len(turns)}"

    runtime = runtime_of(scripted, first, second)
    await runtime.run("agent", "go", thread="t")
    assert await told(runtime) == ["a", "b0"]


async def test_a_call_is_in_one_task_before_and_after_it_waits_and_no_other_is(scripted: Scripted) -> None:
    seen: dict[str, list[Any]] = {}

    async def look(name: str) -> str:
        seen[name] = [asyncio.current_task()]
        await asyncio.sleep(0)
        seen[name].append(asyncio.current_task())
        await asyncio.sleep(0.001)
        seen[name].append(asyncio.current_task())
        return name

    async def one() -> str:
        """One."""
        return await look("one")

    async def two() -> str:
        """Two."""
        return await look("two")

    async def quick() -> str:
        """It doesn't wait."""
        seen["quick"] = [asyncio.current_task()]
        return "quick"

    runtime = runtime_of(scripted, one, two, quick)
    await runtime.run("agent", "go", thread="t")
    tasks = [set(found) for found in seen.values()]
    assert [len(found) for found in tasks] == [1, 1, 1]
    assert len(set.union(*tasks)) == 3
    assert asyncio.current_task() not in set.union(*tasks)
    assert sorted(await told(runtime)) == ["one", "quick", "two"]


async def test_a_time_limit_inside_a_call_ends_only_what_it_is_around(scripted: Scripted) -> None:
    async def late() -> str:
        """It gives up."""
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            return "gave up"
        return "never"

    async def grouped() -> str:
        """It fails inside."""

        async def fail() -> None:
            raise ValueError

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                await asyncio.Event().wait()
        except* ValueError:
            pass
        await asyncio.sleep(0)
        return "went on"

    runtime = runtime_of(scripted, late, grouped)
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert result.text == "done"
    assert sorted(await told(runtime)) == ["gave up", "went on"]


async def test_context_variables_of_a_call_are_its_own(scripted: Scripted) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="outside")

    async def one() -> str:
        """One."""
        variable.set("one")
        await asyncio.sleep(0)
        return variable.get()

    async def two() -> str:
        """Two."""
        before = variable.get()
        variable.set("two")
        return before

    runtime = runtime_of(scripted, two, one, two)
    await runtime.run("agent", "go", thread="t")
    assert sorted(await told(runtime)) == ["one", "outside", "outside"]
    assert variable.get() == "outside"


async def test_a_call_that_is_cancelled_before_its_first_turn_takes_what_it_waits_for_along(
    scripted: Scripted,
) -> None:
    ends: list[str] = []

    async def gathers() -> str:
        """It waits for others."""
        part = asyncio.ensure_future(asyncio.Event().wait())
        try:
            await asyncio.gather(part)
        except asyncio.CancelledError:
            ends.append("whole" if part.cancelled() else "too early")
            raise
        return "never"

    async def sleeps() -> str:
        """It waits for a turn."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            ends.append("sleeper")
            raise
        return "never"

    runtime = runtime_of(scripted, gathers, sleeps, gathers, then=())

    def cancel() -> None:
        (act,) = runtime._dispatch.active.values()
        act.cancel("enough")

    task = asyncio.create_task(runtime.run("agent", "go", thread="t"))
    # In the turn in which its calls begin: before a task of theirs has had one.
    asyncio.get_running_loop().call_soon(cancel)
    assert (await soon(task)).error == "cancelled: enough"
    await assert_settled(runtime, "t")
    assert sorted(ends) == ["sleeper", "whole", "whole"]


async def test_a_call_that_is_cancelled_before_its_first_turn_hears_of_what_it_writes(scripted: Scripted) -> None:
    loop, ends = asyncio.get_running_loop(), list[str]()
    written: Promise[str] = Promise(loop=loop)

    async def writes() -> str:
        """It waits for a store, which finishes what it was given."""
        try:
            ends.append(await settled(written))
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("stopped")
            raise
        return "never"

    async def reads() -> str:
        """It waits for a store that fails, and would go on."""
        failing: Promise[str] = Promise(loop=loop)
        loop.call_soon(failing.set_exception, OSError("no disk"))
        with suppress(OSError):
            await failing
        ends.append("went on")
        return "never"

    runtime = runtime_of(scripted, writes, reads, then=())

    def cancel() -> None:
        (act,) = runtime._dispatch.active.values()
        act.cancel("enough")
        write(turns=5)

    def write(turns: int) -> None:
        _ = loop.call_soon(write, turns - 1) if turns else written.set_result("written")

    task = asyncio.create_task(runtime.run("agent", "go", thread="t"))
    loop.call_soon(cancel)
    assert (await soon(task)).error == "cancelled: enough"
    await assert_settled(runtime, "t")
    assert ends == ["written", "stopped"]


async def test_a_call_that_cancels_its_task_harms_no_other(scripted: Scripted) -> None:
    async def rude() -> str:
        """It cancels itself, and returns."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "rude"

    async def waits() -> str:
        """It waits."""
        await asyncio.sleep(0.001)
        return "fine"

    runtime = runtime_of(scripted, rude, waits, rude, waits)
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert result.text == "done"
    assert sorted(await told(runtime)) == ["fine", "fine", "rude", "rude"]


@pytest.mark.parametrize("behind", [0, 1, 2])
async def test_calls_behind_one_that_stops_the_run_do_not_run(scripted: Scripted, behind: int) -> None:
    ran: list[str] = []

    async def stops() -> str:
        """It has its own run cancelled."""
        (act,) = runtime._dispatch.active.values()
        act.cancel("enough")
        return "stopped"

    async def other() -> str:
        """It isn't reached."""
        ran.append("other")
        return "other"

    runtime = runtime_of(scripted, stops, *[other] * behind, then=())
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert result.error == "cancelled: enough"
    assert ran == []
    await assert_settled(runtime, "t")
    assert [c.outcome for c in await runtime.calls(result.run_id)] == ["ok", *["unknown"] * behind]


async def test_what_ends_the_process_passes_through_a_call_and_leaves_nothing_open(scripted: Scripted) -> None:
    async def quits() -> str:
        """Somebody pressed Ctrl-C."""
        raise KeyboardInterrupt

    async def other() -> str:
        """It isn't reached."""
        return "other"

    runtime = runtime_of(scripted, other, quits, other, then=())
    with pytest.raises(KeyboardInterrupt):
        await runtime.run("agent", "go", thread="t")
    await assert_settled(runtime, "t")
