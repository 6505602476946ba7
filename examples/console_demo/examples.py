"""Runs of every kind: waiting, failed, unknown, long, a tree, scheduled, and one that streams."""

from __future__ import annotations

import asyncio
from typing import Any

from wakeful import ClientTool, Principal, Runtime

from .agents import make_runtime

__all__ = ["crash", "fill"]

ANN = Principal("ann", groups=("support",))
BOB = Principal("bob", groups=("finance",))
LONG = "conversation"


async def crash(store: str) -> None:
    """Run the cashier, in whose tool this process dies."""
    async with make_runtime(store) as runtime:
        await runtime.run("cashier", "Charge 20 euros.", thread="cash", principal=ANN)


async def fill(runtime: Runtime, *, turns: int = 20) -> dict[str, Any]:
    """Make the examples in an open runtime; the ids of one of each kind, by the nouns of the console's paths."""
    tree = await runtime.run("manager", "Order A7 arrived broken.", principal=ANN, thread="order-a7")
    waiting = await runtime.run("refunds", "Pay A7 back.", principal=ANN)
    await runtime.run("delivery", "Deliver A7.", principal=BOB)
    await runtime.run("stock", "When are there lamps?", principal=ANN)
    scan = ClientTool("scan", "Scan a parcel with the caller's camera.")
    await runtime.run("desk", "Where is A7?", principal=ANN, client_tools=[scan])
    failed = await runtime.start("broken", "Write about A7.", principal=BOB)
    await runtime.wait(failed.run_id, check=False)
    for turn in range(turns):
        await runtime.run("desk", f"And where is order {turn}?", thread=LONG, principal=ANN)
    await runtime.threads.describe(LONG, title="A long conversation", metadata={"customer": "c-17"})
    fork = await runtime.threads.fork(LONG)
    await runtime.start("writer", "Tell me a story.", thread="story", principal=ANN)
    await runtime.send("story", "A shorter one, please.", policy="queue", principal=ANN)
    await runtime.send("story", "And one about a chair.", policy="queue", principal=ANN)
    await runtime.schedules.put("stock-report", "desk", "What is in stock?", cron="0 7 * * 1-5", tz="Europe/Rome")
    await runtime.schedules.put("goodnight", "desk", "Good night.", cron="@daily")
    await runtime.schedules.pause("goodnight")
    await runtime.start("desk", "Tomorrow's orders?", delay=24 * 3600, principal=BOB)
    cash = await runtime.runs.list(thread="cash", limit=1)
    for _ in range(200):  # The cashier's process died: its run is taken over at once.
        if not cash or cash[0].status == "waiting":
            break
        await asyncio.sleep(0.05)
        cash = await runtime.runs.list(thread="cash", limit=1)
    (ticket,) = await runtime.tickets.list(waiting.run_id)
    unknown = cash[0].id if cash else waiting.run_id
    return {
        "run": tree.run_id,
        "thread": LONG,
        "ticket": ticket.id,
        "agent": "desk",
        "waiting": waiting.run_id,
        "failed": failed.run_id,
        "unknown": unknown,
        "fork": fork,
        "schedule": "stock-report",
    }
