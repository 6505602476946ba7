"""The buses that keep the contract, and what its tests are written with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import nats_server
import postgres_server
from wakeful.bus import Bus, Link, MemoryBus, NatsBus, PostgresBus, Update, Wake
from wakeful.types.events import TextDelta
from wakeful.types.ids import new_id
from wakeful.types.runs import Identity

__all__ = ["BUSES", "BusFactory", "Process", "delta", "eventually", "fresh_name", "met", "processes"]

BusFactory = Callable[[], Bus]


def fresh_name() -> str:
    """A cluster of its own for each test: servers are shared."""
    return f"t{new_id().replace('-', '')[-12:]}"


BUSES: dict[str, BusFactory] = {
    "local": MemoryBus,
    "postgres": lambda: PostgresBus(postgres_server.server().url(), name=fresh_name()),
    "nats": lambda: NatsBus(nats_server.server().url, name=fresh_name()),
}


class Process:
    """A member of the bus that records all it receives."""

    def __init__(self, bus: Bus, *, serves: bool = False, takes: bool = True) -> None:
        self.id = new_id()
        self.takes = takes
        self.runs: set[tuple[str, str]] = set()
        self.wakes: list[Wake] = []
        self.commands: list[tuple[str, str]] = []
        self.interest: list[tuple[str, str]] = []
        self.updates: list[Update] = []
        self.link: Link = bus.join(self.id, self)
        if serves:
            self.link.serve()

    def on_wake(self, wake: Wake) -> bool:
        if self.takes:
            self.wakes.append(wake)
        return self.takes

    async def on_inbox(self, tenant: str, thread_id: str) -> bool:
        self.commands.append((tenant, thread_id))
        return (tenant, thread_id) in self.runs

    def on_watch(self, tenant: str, thread_id: str, seconds: float) -> None:
        self.interest.append((tenant, thread_id))

    def on_updates(self, tenant: str, thread_id: str, updates: Sequence[Update]) -> None:
        self.updates += updates


@asynccontextmanager
async def processes(bus: Bus, *options: dict[str, Any]) -> AsyncIterator[list[Process]]:
    """So many processes that know of each other; all leave at the end."""
    async with AsyncExitStack() as stack:
        found: list[Process] = []
        for option in options:
            found.append(Process(bus, **option))
            stack.push_async_callback(found[-1].link.close)
        for one in found:
            await eventually(lambda one=one: one.link.is_healthy)
        for one in found:
            await met(one, [other for other in found if other is not one])
        yield found


async def met(one: Process, others: list[Process]) -> None:
    """Return once the others hear what goes to everybody, and this one's queue is theirs too."""
    probe = f"probe-{new_id()}"
    one.link.watch("probe", probe)
    for other in others:
        await eventually(lambda other=other: ("probe", probe) in other.interest)
    one.link.unwatch("probe", probe)


async def eventually(condition: Callable[[], Any], seconds: float = 120) -> None:
    """Wait until the condition holds; it must, in bounded time."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


def delta(offset: int, text: str, thread: str = "t1") -> TextDelta:
    return TextDelta(Identity("r1", thread, "agent", "r1"), 1, 7, "m1", 0, offset, text)


BusOpener = Callable[[], AbstractAsyncContextManager[Bus]]
