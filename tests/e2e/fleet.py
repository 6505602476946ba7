"""The agents of `test_workers.py`: a shop whose tools record their effects."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from wakeful import Agent, FunctionModel, ModelRequest, Runtime, ToolContext, call, task, tool
from wakeful.tasks import TaskContext

FOLDER = Path(os.environ.get("FLEET", "."))


def note(name: str, *words: str) -> None:
    """Append a line to a file; such short lines are written atomically."""
    with (FOLDER / name).open("a") as file:
        file.write(" ".join(words) + "\n")


@tool(effect="once")
async def charge(ctx: ToolContext) -> str:
    """Charge, at most once."""
    note("charges", ctx.run.thread_id, str(os.getpid()))
    while (FOLDER / "hold").exists():
        await asyncio.sleep(0.01)
    return "charged"


@tool(effect="pure")
async def die(ctx: ToolContext) -> str:
    """Kill the process."""
    note("deaths", str(os.getpid()))
    os._exit(9)


@task(effect="idempotent")
async def index(ctx: TaskContext) -> str:
    """Do work that may be repeated."""
    note("indexed", ctx.idempotency_key, str(os.getpid()))
    while (FOLDER / "hold").exists():
        await asyncio.sleep(0.01)
    return "indexed"


async def answer(request: ModelRequest) -> object:
    if request.messages[-1].role == "tool":
        return "done"
    wanted = request.messages[-1].text
    return call("die") if wanted == "die" else call("charge") if wanted == "charge" else "hello"


agents = [Agent("shop", model=FunctionModel(answer), tools=[charge, die])]
runtime = Runtime(agents, tasks=[index], store=os.environ.get("FLEET_STORE", "fleet.db"))
