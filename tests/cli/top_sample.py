"""The worker of `test_cli_top.py`: runs that last until they are cancelled, and runs that ask."""

from __future__ import annotations

import asyncio
import os

from wakeful import Agent, FunctionModel, ModelRequest, Runtime, ToolContext, call, tool
from wakeful.types.content import text_of


@tool
async def block() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return "never"


@tool(approval=True)
async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


@tool(resumable=True)
async def register(ctx: ToolContext) -> str:
    """Ask for a name."""
    return f"registered {ctx.ask('What is your name?')}"


def answer(request: ModelRequest) -> object:
    last = request.messages[-1]
    if last.reply is not None:
        return text_of(last.reply.content)
    return {
        "block": call("block"),
        "refund": call("refund", order="A7"),
        "register": call("register"),
        "delegate": call("agent_run_shop", prompt="block"),
    }.get(last.text, "hello")


shop = Agent("shop", model=FunctionModel(answer), tools=[block, refund, register])
lead = Agent("lead", model=FunctionModel(answer), delegates=["shop"])
runtime = Runtime([shop, lead], store=os.environ.get("TOP_STORE", "top.db"))
