"""The scenario: a model begins work in the background, and the process is killed while that runs.

What the work does to the world is a line in a file, so it outlives the processes. A file `hold-work` holds it up
until it is gone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crash.shop import held
from wakeful import Agent, FunctionModel, ModelRequest, Runtime, TaskContext, ToolContext, call, task, tool
from wakeful.testing import CrashSite


def work_in(folder: Path, effect: Any) -> Any:
    @task(name="work", effect=effect)
    async def work(ctx: TaskContext) -> str:
        with (folder / "done").open("a") as done:
            done.write(f"{ctx.idempotency_key}\n")
        await ctx.emit("begun", "work")
        await held(folder, "work")
        return f"worked in attempt {ctx.attempt}"

    return work


def answer(request: ModelRequest) -> Any:
    """First it begins the work; then it says what it was told about that."""
    if not any(message.reply is not None for message in request.messages):
        return call("begin")
    told = [m.text for m in request.messages if m.role == "user" and "<background-task-event" in m.text]
    return " | ".join(told) or "working on it"


def workshop(site: CrashSite, effect: Any) -> Runtime:
    work = work_in(site.folder, effect or "once")

    @tool
    async def begin(ctx: ToolContext) -> str:
        """Begin the work."""
        bare = held(site.folder, "work") if effect is None else None
        begun = await ctx.spawn(work if bare is None else bare, name="the-work")
        return f"began {begun.name}"

    agent = Agent("boss", model=FunctionModel(answer), tools=[begin])
    return Runtime([agent], tasks=[work], store=site.store)


async def order(site: CrashSite, effect: Any) -> None:
    """Have the work done, from where it stands."""
    async with workshop(site, effect) as runtime:
        await runtime.run("boss", "Do it.", thread="t", request_id="order")


async def pure(site: CrashSite) -> None:
    await order(site, "pure")


async def idempotent(site: CrashSite) -> None:
    await order(site, "idempotent")


async def once(site: CrashSite) -> None:
    await order(site, "once")


async def bare(site: CrashSite) -> None:
    await order(site, None)
