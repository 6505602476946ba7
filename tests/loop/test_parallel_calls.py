"""Calls that run side by side: each has a task of its own from its first line on, whether it waits or not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import pytest

from wakeful import Agent, Runtime, call, tool

from .helpers import Scripted, assert_settled, replies_on, reply_text, soon


def runtime_of(scripted: Scripted, *functions: Any, then: Sequence[str] = ("done",)) -> Runtime:
    """A runtime whose model asks for all of the tools at once."""
    model = scripted([call(function.__name__) for function in functions], *then)
    tools = [tool(function) for function in dict.fromkeys(functions)]
    return Runtime([Agent("agent", model=model, tools=tools)])


async def told(runtime: Runtime) -> list[str]:
    """The results in the last request, in order."""
    return [reply_text(reply) for reply in await replies_on(runtime, "t")]


async def test_synchronous_calls_finish_without_loop_turn(scripted: Scripted) -> None:
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


async def test_each_call_stays_in_its_own_task(scripted: Scripted) -> None:
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


async def test_timeout_inside_call_ends_its_block_only(scripted: Scripted) -> None:
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


async def test_context_variables_stay_in_call(scripted: Scripted) -> None:
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


async def test_call_cancelled_before_its_first_turn_never_runs(scripted: Scripted) -> None:
    ran: list[str] = []

    async def one() -> str:
        """One."""
        ran.append("one")
        return "one"

    runtime = runtime_of(scripted, one, one, then=())

    def cancel() -> None:
        (act,) = runtime._scope.dispatch.active.values()
        act.cancel("enough")

    task = asyncio.create_task(runtime.run("agent", "go", thread="t"))
    # Called after the calls' tasks were created and before they have had a turn.
    asyncio.get_running_loop().call_soon(cancel)
    result = await soon(task)
    assert result.error == "cancelled: enough"
    assert ran == []
    await assert_settled(runtime, "t")
    assert [c.outcome for c in await runtime.runs.calls(result.run_id)] == ["unknown", "unknown"]


async def test_call_cancelling_its_task_harms_no_other(scripted: Scripted) -> None:
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
async def test_calls_after_a_stop_do_not_run(scripted: Scripted, behind: int) -> None:
    ran: list[str] = []

    async def stops() -> str:
        """It has its own run cancelled."""
        (act,) = runtime._scope.dispatch.active.values()
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
    assert [c.outcome for c in await runtime.runs.calls(result.run_id)] == ["ok", *["unknown"] * behind]


async def test_base_exception_passes_through_call(scripted: Scripted) -> None:
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
