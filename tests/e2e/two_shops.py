"""Two processes: `wakeful serve two_shops:served` runs the analyst, this file as a program the client."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from wakeful import Agent, FunctionModel, ModelRequest, Runtime, ToolContext, Turn, call, tool

HERE = Path(os.environ.get("SHOP", "."))


def note(name: str, line: str) -> None:
    with (HERE / name).open("a") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def waits_for(name: str) -> None:
    while not (HERE / name).exists():
        time.sleep(0.01)


@tool(effect="once")
def ship(order: str, ctx: ToolContext) -> str:
    """Ship an order, at most once."""
    note("shipped", order)
    if (HERE / "slow").exists():
        waits_for("go")
    return f"shipped {order}"


@tool(effect="idempotent")
def pack(order: str, ctx: ToolContext) -> str:
    """Pack an order; repeating it is harmless."""
    note("packed", f"{order} {ctx.idempotency_key}")
    if (HERE / "slow").exists():
        waits_for("go")
    return f"packed {order}"


@tool(effect="once", approval=True)
def refund(order: str) -> str:
    """Pay an order back."""
    note("refunded", order)
    return f"refunded {order}"


def analyst(request: ModelRequest) -> Any:
    """Calls the tool that the prompt names and answers with its result."""
    last = request.messages[-1]
    if last.role == "user":
        verb, _, order = last.text.partition(" ")
        return call(verb, order=order) if verb in ("ship", "pack", "refund") else Turn(text=f"I say {last.text}")
    return f"The analyst says: {last.reply.content[0].text}"  # type: ignore[union-attr]


def lead(request: ModelRequest) -> Any:
    """Delegates to the analyst."""
    last = request.messages[-1]
    if last.role == "user":
        return call("agent_run_analyst", prompt=last.text)
    return f"The lead says: {last.reply.content[0].text}"  # type: ignore[union-attr]


def middle(request: ModelRequest) -> Any:
    """Delegates to the lead, which delegates to the analyst."""
    last = request.messages[-1]
    if last.role == "user":
        return call("agent_run_lead", prompt=last.text)
    return f"The top says: {last.reply.content[0].text}"  # type: ignore[union-attr]


served = Runtime(
    [Agent("analyst", model=FunctionModel(analyst), tools=[ship, pack, refund])], store=str(HERE / "served.db")
)


def asking() -> Runtime:
    agents = [
        Agent("top", model=FunctionModel(middle), delegates=["lead"]),
        Agent("lead", model=FunctionModel(lead), delegates=["analyst"]),
        Agent.remote("analyst", a2a=os.environ["ANALYST"], allow_private=True),
    ]
    return Runtime(agents, store=str(HERE / "asking.db"))


def told(result: Any) -> None:
    tickets = [[t.id, t.message, t.asked_by] for t in result.tickets]
    print(json.dumps([result.run_id, result.status, result.text, tickets, result.error]), flush=True)


async def main(command: str, *arguments: str) -> None:
    async with asking() as runtime:
        match command:
            case "run":
                told(await runtime.run(arguments[0], arguments[1], thread="t"))
            case "wait":
                told(await runtime.wait((await runtime.runs.list(thread="t"))[0].id))
            case "answer":
                told(await runtime.tickets.answer(arguments[0], json.loads(arguments[1])))
            case "deny":
                (ticket,) = [t for t in await runtime.tickets.list(status="open") if t.id == arguments[0]]
                told(await runtime.tickets.answer(ticket.id, ticket.deny(arguments[1])))
            case "cancel":
                run = (await runtime.runs.list(thread="t"))[0]
                await runtime.cancel(run.id, "enough")
                told(await runtime.wait(run.id))
            case "stream":
                async for event in runtime.stream(arguments[0], arguments[1], thread="t"):
                    print(
                        json.dumps([type(event).__name__, event.run.depth, getattr(event, "delta", "")]),
                        flush=True,
                    )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
