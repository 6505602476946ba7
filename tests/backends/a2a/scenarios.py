"""The scenarios of `test_runtime`."""

from __future__ import annotations

import os

from wakeful import Agent, Runtime
from wakeful.testing import CrashSite


async def talk(site: CrashSite) -> None:
    """Request work that must not be repeated."""
    await _say(site, f"tell {site.folder}")


async def converse(site: CrashSite) -> None:
    """Request work about which the agent asks a question."""
    await _say(site, f"ask {site.folder}")


async def _say(site: CrashSite, prompt: str) -> None:
    agent = Agent.remote("analyst", a2a=os.environ["REMOTE_URL"], allow_private=True, timeout=20)
    async with Runtime([agent], store=site.store) as runtime:
        result = await runtime.run("analyst", prompt, thread="t", request_id="talk", check=False)
        if result.tickets:
            (ticket,) = result.tickets
            answer = ticket.result(f"confirm {site.folder}")
            await runtime.resume(result.run_id, answer, request_id="answer", check=False)


if __name__ == "__main__":  # Run in a process that a test kills while the remote works.
    import asyncio
    import sys
    from pathlib import Path

    store = sys.argv[1]
    asyncio.run(_say(CrashSite(store, Path(store).parent), "work"))
