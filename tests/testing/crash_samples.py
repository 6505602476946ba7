"""Scenarios for the tests of `crash_matrix`: one correct, the others with one fault each."""

from __future__ import annotations

import asyncio
from typing import Any

from wakeful import Agent, FunctionModel, ModelRequest, Runtime, call, tool
from wakeful.testing import CrashSite


def answer(request: ModelRequest) -> Any:
    return "done" if request.messages[-1].role == "tool" else call("note")


async def noted(site: CrashSite, *, effect: Any = "once", **options: Any) -> None:
    @tool(effect=effect)
    async def note() -> str:
        """Write a line."""
        with (site.folder / "notes").open("a") as notes:
            notes.write("noted\n")
        return "noted"

    runtime = Runtime([Agent("agent", model=FunctionModel(answer), tools=[note])], store=site.store)
    await runtime.run("agent", "go", **options)
    await runtime.close()


async def repeated(site: CrashSite) -> None:
    await noted(site, effect="idempotent", request_id="repeated")


async def good(site: CrashSite) -> None:
    await noted(site, request_id="good")


async def careless(site: CrashSite) -> None:
    """Declare a tool with a side effect as pure."""
    await noted(site, request_id="careless", effect="pure")


async def not_repeatable(site: CrashSite) -> None:
    await noted(site)


async def elsewhere(site: CrashSite) -> None:
    await noted(CrashSite(str(site.folder / "other.db"), site.folder), request_id="elsewhere")


async def fails(site: CrashSite) -> None:
    raise ValueError("the shop is closed")


async def hangs(site: CrashSite) -> None:
    await asyncio.Event().wait()


async def silent(site: CrashSite) -> None:
    """Commits nothing."""
