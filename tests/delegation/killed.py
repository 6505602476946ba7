"""The scenario for trees whose processes are killed: a plan in a file, and people who always say the same."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from zlib import crc32

from wakeful import Runtime
from wakeful.testing import CrashSite
from wakeful.types.tickets import Decision, Ticket

from .trees import Act, Ledger, Node, agents_of, load, things_of


def is_denied(label: str) -> bool:
    return crc32(label.encode()) % 3 == 0


def denied_in(root: Node) -> set[str]:
    """The labels of the approvals that are denied."""
    gated = [thing for thing in things_of(root) if isinstance(thing, Act) and thing.gated]
    return {thing.label for thing in gated if is_denied(thing.label)}


def ledger_in(folder: Path) -> Ledger:
    return Ledger(folder / "ledger")


def decision(ticket: Ticket) -> Decision:
    if ticket.asked_by == "remote":
        return ticket.result("the blue one")
    return ticket.deny("no") if is_denied(ticket.arguments["label"]) else ticket.approve()


async def grow(site: CrashSite) -> None:
    """Run the tree to its end, whatever was done of it before."""
    root = load(site.folder)
    agents = agents_of(root, ledger_in(site.folder), lambda: asyncio.sleep(random.uniform(0, 0.01)))
    async with Runtime(agents, store=site.store) as runtime:
        result = await runtime.run(root.id, "go", thread="t", request_id="grow")
        while result.status == "waiting":
            ticket = random.choice(result.tickets)
            result = await runtime.resume(result.run_id, decision(ticket), request_id=f"answer-{ticket.id}")
