"""Helpers of the tests of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from loop.helpers import assert_settled, until_idle
from wakeful import Runtime, ToolContext, tool
from wakeful.testing import FakeClock
from wakeful.tools import FunctionTool
from wakeful.types import TaskRecord
from wakeful.types.ids import now_ms


def clock() -> FakeClock:
    """A clock that begins with the time it is: what the store writes down is by that."""
    return FakeClock(now_ms())


def spawning(target: Any, tool_name: str = "begin", /, *, effect: Any = "once", **options: Any) -> FunctionTool:
    """A tool that begins something in the background."""

    async def run(ctx: ToolContext) -> str:
        """Begin it."""
        given = target() if callable(target) and not hasattr(target, "agent_id") else target
        task = await ctx.spawn(given, **options)
        return f"began {task.name or task.function}"

    return tool(name=tool_name, effect=effect)(run)


async def told(runtime: Runtime, thread: str = "t") -> list[str]:
    """The task events that the model was shown, in order."""
    return [
        m.text for m in await runtime.threads.messages(thread) if m.role == "user" and m.visibility == "internal"
    ]


async def task_of(runtime: Runtime, thread: str = "t") -> TaskRecord:
    """The only task that a thread owns."""
    (task,) = await runtime.tasks.list(thread)
    return task


async def eventually(look: Callable[[], Any]) -> Any:
    """The first result of a function that isn't empty."""
    async with asyncio.timeout(120):
        while not (found := await look()):
            await asyncio.sleep(0.005)
    return found


async def assert_quiet(runtime: Runtime, thread: str = "t") -> None:
    """Fail unless a thread comes to rest."""
    await until_idle(runtime)
    await assert_settled(runtime, thread)
