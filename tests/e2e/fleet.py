"""What the workers of `test_workers.py` run: a shop whose tools write down what they did."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from wakeful import Agent, FunctionModel, ModelRequest, Runtime, TaskContext, ToolContext, call, task, tool

FOLDER = Path(os.environ.get("FLEET", "."))


def note(name: str, *words: str) -> None:
    """Add a line to a file; lines this short are written whole."""
    with (FOLDER / name).open("a") as file:
        file.write(" ".join(words) + "\n")


@tool(effect="once")
async def charge(ctx: ToolContext) -> str:
    """Charge, which must not happen twice."""
    note("charges", ctx.run.thread_id, str(os.getpid()))
    while (FOLDER / "hold").exists():
        await asyncio.sleep(0.01)
    return "charged"


@tool(effect="pure")
async def die(ctx: ToolContext) -> str:
    """Take the process along."""
    note("deaths", str(os.getpid()))
    os._exit(9)


@task(effect="idempotent")
async def index(ctx: TaskContext) -> str:
    """Work that may be begun again."""
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
