"""Scenario: a model calls two tools at once, `charge` and `slow`, and the process is killed.

The bank is a folder of files, which outlives the processes. It dedupes by key for `idempotent`, can be asked about
a key for `reconcile`, and does neither for `once`. A file `hold-…` blocks a tool until it is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wakeful import Agent, FunctionModel, ModelRequest, Runtime, Tool, ToolContext, call, tool
from wakeful.stores import Commit, Committed
from wakeful.stores.postgres import PostgresStore
from wakeful.stores.sqlite import SqliteStore
from wakeful.testing import CrashSite
from wakeful.tools import Done, NotDone
from wakeful.types.content import text_of

EFFECTS = ("once", "idempotent", "reconcile")

ORDER = "order-7"


class Bank:
    """A bank with a line for each charge."""

    def __init__(self, folder: Path) -> None:
        self._ledger = folder / "ledger"

    @property
    def charges(self) -> list[str]:
        """The keys of all charges."""
        return self._ledger.read_text().splitlines() if self._ledger.exists() else []

    def charge(self, key: str) -> None:
        with self._ledger.open("a") as ledger:
            ledger.write(f"{key}\n")


async def held(folder: Path, name: str) -> None:
    """Report that a tool reached this point, and wait while its hold file exists."""
    (folder / f"{name}-reached").touch()
    while (folder / f"hold-{name}").exists():
        await asyncio.sleep(0.005)


def charging(folder: Path, effect: Any) -> Tool:
    """The tool `charge`, with this effect."""
    bank = Bank(folder)

    async def check(key: str) -> Done | NotDone:
        return Done("charged before") if key in bank.charges else NotDone()

    @tool(name="charge", effect=effect, check=check if effect == "reconcile" else None)
    async def charge(ctx: ToolContext) -> str:
        """Charge the customer."""
        await held(folder, "charge-before")
        if effect != "idempotent" or ctx.idempotency_key not in bank.charges:
            bank.charge(ctx.idempotency_key)
        await held(folder, "charge-after")
        return "charged"

    return charge


def slow_in(folder: Path) -> Tool:
    @tool(effect="pure")
    async def slow() -> str:
        """Take some time."""
        await held(folder, "slow")
        await asyncio.sleep(0.1)
        return "slow is done"

    return slow


def answer(request: ModelRequest) -> Any:
    """Call both tools, then answer with their results."""
    replies = [message.reply for message in request.messages if message.reply is not None]
    if not replies:
        return [call("charge"), call("slow")]
    return "; ".join(f"{reply.name}: {reply.error or text_of(reply.content)}" for reply in replies)


def agents(site: CrashSite, effect: Any) -> list[Agent]:
    tools = [charging(site.folder, effect), slow_in(site.folder)]
    return [Agent("shop", model=FunctionModel(answer), tools=tools)]


def shop(site: CrashSite, effect: Any) -> Runtime:
    return Runtime(agents(site, effect), store=site.store)


async def order(site: CrashSite, effect: Any) -> None:
    runtime = shop(site, effect)
    await runtime.run("shop", "One of these, please.", thread="t", request_id=ORDER)
    await runtime.close()


async def once(site: CrashSite) -> None:
    await order(site, "once")


async def idempotent(site: CrashSite) -> None:
    await order(site, "idempotent")


async def reconcile(site: CrashSite) -> None:
    await order(site, "reconcile")


SCENARIOS: dict[str, Callable[[CrashSite], Any]] = {f.__name__: f for f in (once, idempotent, reconcile)}


async def serve(site: CrashSite) -> None:
    """Serve due runs until stopped."""
    await serving(shop(site, "once"), site)


async def serving(runtime: Runtime, site: CrashSite) -> None:
    async with runtime:
        (site.folder / "serving").touch()
        while not (site.folder / "stop").exists():
            await asyncio.sleep(0.01)


# -- short leases --------------------------------------------------------------------------------------------

LEASE = 1000


class _Short:
    """A store with leases of one second."""

    def keep(self, worker_id: str, lease: int = LEASE) -> Any:
        return super().keep(worker_id, lease)  # type: ignore[misc]

    async def commit(self, commit: Commit) -> Committed:
        commit.lease = LEASE
        return await super().commit(commit)  # type: ignore[misc]


def on_a_short_lease(site: CrashSite) -> Runtime:
    kind: Any = PostgresStore if "://" in site.store else SqliteStore
    store = type("Short", (_Short, kind), {})(site.store)
    return Runtime(agents(site, "once"), store=store)


async def once_on_a_short_lease(site: CrashSite) -> None:
    runtime = on_a_short_lease(site)
    await runtime.run("shop", "One of these, please.", thread="t", request_id=ORDER)
    await runtime.close()


async def serve_on_a_short_lease(site: CrashSite) -> None:
    await serving(on_a_short_lease(site), site)
