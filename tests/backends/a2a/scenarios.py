"""What the processes do that `test_runtime` kills."""

from __future__ import annotations

import os

from wakeful import Agent, Runtime
from wakeful.testing import CrashSite


async def talk(site: CrashSite) -> None:
    """Ask the remote agent for something that it must not do twice, and answer what it asks back."""
    agent = Agent.remote("analyst", a2a=os.environ["REMOTE_URL"], allow_private=True, timeout=20)
    runtime = Runtime([agent], store=site.store)
    try:
        result = await runtime.run("analyst", f"begin {site.folder}", thread="t", request_id="talk")
        if result.tickets:
            (ticket,) = result.tickets
            await runtime.resume(result.run_id, ticket.result(f"confirm {site.folder}"), request_id="answer")
    finally:
        await runtime.close()
