"""A runtime for `wakeful serve`, on a file in the current directory, without state in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

from wakeful import Agent, Approval, FunctionModel, ModelRequest, Runtime, call, tool
from wakeful.models import ScriptedCall


def touch(name: str) -> None:
    Path(name).touch()


def is_there(name: str) -> bool:
    return Path(name).exists()


@tool(effect="pure")
async def wait_for_go() -> str:
    """Wait until a file of that name exists."""
    touch("reached")
    while not is_there("go"):
        await asyncio.sleep(0.01)
    return "went"


@tool(approval=Approval(requester=True))
def refund(order: str) -> str:
    return f"refunded {order}"


def answer(request: ModelRequest) -> str | ScriptedCall:
    last = request.messages[-1]
    if last.reply is not None:
        return f"It is done: {last.reply.content[0].text}."  # type: ignore[union-attr]
    return call("refund", order="7") if "refund" in last.text else call("wait_for_go")


def runtime() -> Runtime:
    model = FunctionModel(answer)
    helper = Agent("helper", model=model, tools=[wait_for_go, refund], description="Helps.")
    return Runtime([helper, Agent("other", model=model)], store="app.db")
