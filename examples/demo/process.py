"""The demo's other processes: one that runs the order, and one that answers what it asks."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from .agents import make_runtime

__all__ = ["ORDER"]

ORDER = "order-7"


async def work(folder: Path) -> None:
    """Run the order, or go on with it: the request's id says that it is the same."""
    async with make_runtime(folder) as runtime:
        await runtime.run("shop", "Order 7, please.", thread=ORDER, request_id=ORDER)


async def answer(folder: Path) -> None:
    """Say yes to what waits for a person, and go on with the run."""
    async with make_runtime(folder) as runtime:
        for ticket in await runtime.tickets(status="open"):
            await runtime.resume(ticket.run_id, ticket.approve())


if __name__ == "__main__":
    asyncio.run({"work": work, "answer": answer}[sys.argv[1]](Path(sys.argv[2])))
