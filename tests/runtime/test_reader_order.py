"""Readers of a thread that this process runs and others too: nothing is missing, and what happens here is live."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loop.helpers import soon
from wakeful import Agent, Runtime, ScriptedModel, SqliteStore
from wakeful.runtime import follower as following
from wakeful.types.events import AnyEvent, Event, RunFinish, TextDelta


class Slow(SqliteStore):
    """A store whose log is read at once only the first time; after that when it is let go."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, synchronous="NORMAL")
        self.looked, self.go = asyncio.Event(), asyncio.Event()
        self._first = True

    async def events(self, thread_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        first, self._first = self._first, False
        if not first:
            self.looked.set()
            await self.go.wait()
        return await super().events(thread_id, after=after, limit=limit)


async def read(runtime: Runtime, until: int, seen: list[AnyEvent]) -> None:
    """Read thread `t` until so many runs are done."""
    async for event in runtime.events("t"):
        seen.append(event)
        until -= isinstance(event, RunFinish)
        if not until:
            return


def log_of(seen: list[AnyEvent]) -> list[int]:
    return [event.seq for event in seen if event.durable]


@pytest.mark.parametrize("first", ["elsewhere", "here"])
async def test_remote_events_come_before_later_local_events(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("POLL", "POLL_IDLE"):
        monkeypatch.setattr(following, name, 600)  # Nobody looks.
    agent = Agent("agent", model=ScriptedModel(["one", "two", "three"]))
    here, there = (Runtime([agent], store=SqliteStore(tmp_path / "a.db")) for _ in range(2))
    begun, seen = int(first == "here"), list[AnyEvent]()
    if begun:
        await soon(here.run("agent", "go", thread="t"))
    reading = asyncio.create_task(read(here, begun + 2, seen))
    while here._scope.bus.readers == 0 or len(log_of(seen)) < begun * 5:
        await asyncio.sleep(0)
    await soon(there.run("agent", "go", thread="t"))
    await soon(here.run("agent", "go", thread="t"))
    await soon(reading)
    assert log_of(seen) == list(range(1, log_of(seen)[-1] + 1))
    await here.close()
    await there.close()


async def test_store_read_keeps_concurrent_local_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLL", "POLL_IDLE"):
        monkeypatch.setattr(following, name, 0.001)
    store = Slow(tmp_path / "a.db")
    runtime = Runtime([Agent("agent", model=ScriptedModel(["one two"]))], store=store)
    seen: list[Any] = []
    reading = asyncio.create_task(read(runtime, 1, seen))
    await soon(store.looked.wait())
    await soon(runtime.run("agent", "go", thread="t"))
    store.go.set()
    await soon(reading)
    assert [event.delta for event in seen if isinstance(event, TextDelta)] == ["one two"]
    assert log_of(seen) == list(range(1, log_of(seen)[-1] + 1))
    await runtime.close()
