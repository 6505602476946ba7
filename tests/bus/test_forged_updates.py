"""Forged messages on the bus never reach the stream of a reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import nats_server
import postgres_server
from wakeful import Agent, Runtime, ScriptedModel
from wakeful.bus import Bus, LiveUpdate, LogAdvanced, NatsBus, PostgresBus, Update, Wake
from wakeful.events import AnyEvent, RunFinish, TextDelta
from wakeful.types.ids import new_id


class Stranger:
    """A member of the bus that knows who reads what."""

    def __init__(self) -> None:
        self.read = set[tuple[str, str]]()

    def on_wake(self, wake: Wake) -> bool:
        return False

    async def on_inbox(self, tenant: str, thread_id: str) -> bool:
        return False

    async def on_start(self, sealed: bytes) -> bytes:
        return b""

    def on_watch(self, tenant: str, thread_id: str, seconds: float) -> None:
        self.read.add((tenant, thread_id))

    def on_updates(self, tenant: str, thread_id: str, updates: Any) -> None: ...


async def postgres_stranger(name: str) -> tuple[Bus, Bus]:
    """The bus, and the bus as a role that may log in and do nothing else."""
    server = postgres_server.server()
    connection = await asyncpg.connect(server.url())
    try:
        await connection.execute(f"CREATE ROLE {name} LOGIN")
    finally:
        await connection.close()
    return PostgresBus(server.url(), name=name), PostgresBus(server.url(user=name), name=name)


async def nats_stranger(name: str) -> tuple[Bus, Bus]:
    bus = NatsBus(nats_server.server().url, name=name)
    return bus, NatsBus(nats_server.server().url, name=name)


async def until_finish(events: AsyncIterator[AnyEvent]) -> list[AnyEvent]:
    found = [await anext(events)]
    while not isinstance(found[-1], RunFinish):
        found.append(await anext(events))
    return found


@pytest.mark.parametrize("kind", [postgres_stranger, nats_stranger])
async def test_reader_sees_no_forged_update(kind: Callable[[str], Any], tmp_path: Path) -> None:
    """Neither another thread's log, nor live events of its run; over Postgres no live event at all."""
    name = f"forged{new_id().replace('-', '')[-12:]}"
    bus, forged = await kind(name)
    desk = Agent("desk", model=ScriptedModel(["Yours.", "A secret.", "Yours again."]))
    async with (
        Runtime([desk], store=tmp_path / "a.db", bus=bus) as worker,
        Runtime([desk], store=tmp_path / "a.db", bus=bus, execute=False) as front,
    ):
        own = await worker.run("desk", "Hi", thread="own")
        other = await worker.run("desk", "Hi", thread="other")
        events = front.events("own")
        await until_finish(events)
        ids = {thread: (await worker.runs.get(run)).identity for thread, run in _runs(own, other)}
        reading = asyncio.create_task(until_finish(events))
        targets = ["other"] if kind is nats_stranger else ["other", "own"]
        updates: list[Update] = [LogAdvanced("other", 0, 100)]
        updates += [LiveUpdate(TextDelta(ids[each], 99, 7, "m1", 0, 0, "forged")) for each in targets]
        stranger = Stranger()
        link = forged.join(new_id(), stranger)
        link.carries_deltas = True
        while ("default", "own") not in stranger.read:
            await asyncio.sleep(0.01)
        link.publish("default", "own", updates)
        await link.close()
        await worker.run("desk", "Hi again", thread="own")
        seen = await reading
        await events.aclose()
    assert {event.run.thread_id for event in seen} == {"own"}
    assert not any("forged" in str(event) or "secret" in str(event) for event in seen)


def _runs(own: Any, other: Any) -> list[tuple[str, str]]:
    return [("own", own.run_id), ("other", other.run_id)]
