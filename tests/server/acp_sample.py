"""A runtime for `wakeful acp`, on a file in the current directory, without state in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from wakeful import Agent, Approval, FunctionModel, ModelRequest, Runtime, ToolContext, call, tool
from wakeful.models import StopChunk, TextChunk

print("a module may print")


@tool(approval=Approval(requester=True), hints=["delete"])
async def drop(name: str) -> str:
    """Drop a table."""
    return f"dropped {name}"


@tool(approval=True)
async def pay(order: str) -> str:
    """Pay for an order."""
    return f"paid {order}"


@tool(effect="pure")
def pick(ctx: ToolContext) -> str:
    """Let the user pick a colour."""
    return f"picked {ctx.ask('Which colour?')}"


SCRIPTS: dict[str, Any] = {
    "drop": [call("drop", name="a"), call("drop", name="b")],
    "pay": call("pay", order="7"),
    "pick": call("pick"),
    "read": call("read_text_file", path="/project/a.txt"),
    "write": call("write_text_file", path="/project/a.txt", content="new"),
    "run": call("run_command", command="make", args=["test"]),
}


def answer(request: ModelRequest) -> Any:
    last = request.messages[-1]
    if last.reply is not None or last.text in ("go on", "please"):
        results = [message.text for message in request.messages if message.reply is not None]
        return f"Done: {'; '.join(results)}."
    if last.text == "slow":
        return slow()
    return SCRIPTS.get(last.text, f"You said: {last.text}")


async def slow() -> AsyncIterator[Any]:
    """Stop in the middle of the answer until a file of the name `go` exists."""
    yield TextChunk("half of it, ")
    while not await asyncio.to_thread(Path("go").exists):
        await asyncio.sleep(0.01)
    yield TextChunk("and the rest")
    yield StopChunk("end_turn")


def runtime() -> Runtime:
    model = FunctionModel(answer)
    helper = Agent("helper", model=model, tools=[drop, pay, pick], description="Helps.")
    return Runtime([helper, Agent("other", model=model)], store="app.db")
