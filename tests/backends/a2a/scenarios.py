"""What the processes do that `test_runtime` kills."""

from __future__ import annotations

import os

from wakeful import Agent, Runtime
from wakeful.testing import CrashSite


async def talk(site: CrashSite) -> None:
    """Ask the remote agent for something that it must not do twice."""
    await _say(site, f"tell {site.folder}")


async def converse(site: CrashSite) -> None:
    """The same, with a question that it asks back."""
    await _say(site, f"ask {site.folder}")


async def _say(site: CrashSite, prompt: str) -> None:
    agent = Agent.remote("analyst", a2a=os.environ["REMOTE_URL"], allow_private=True, timeout=20)
    async with Runtime([agent], store=site.store) as runtime:
        result = await runtime.run("analyst", prompt, thread="t", request_id="talk")
        if result.tickets:
            (ticket,) = result.tickets
            await runtime.resume(result.run_id, ticket.result(f"confirm {site.folder}"), request_id="answer")


if __name__ == "__main__":  # A process of its own, which a test kills while the remote is at work.
    import asyncio
    import sys
    from pathlib import Path

    store = sys.argv[1]
    asyncio.run(_say(CrashSite(store, Path(store).parent), "work"))
