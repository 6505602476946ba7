"""The demo's other processes: one runs the order, one answers its ticket."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from .agents import make_runtime

__all__ = ["ORDER"]

ORDER = "order-7"


async def work(folder: Path) -> None:
    """Run the order, or resume it: the request id identifies it."""
    async with make_runtime(folder) as runtime:
        await runtime.run("shop", "Order 7, please.", thread=ORDER, request_id=ORDER)


async def answer(folder: Path) -> None:
    """Approve the open tickets and resume their runs."""
    async with make_runtime(folder) as runtime:
        for ticket in await runtime.tickets.list(status="open"):
            await runtime.resume(ticket.run_id, ticket.approve())


if __name__ == "__main__":
    asyncio.run({"work": work, "answer": answer}[sys.argv[1]](Path(sys.argv[2])))
