"""Steps of the wall clock on SQLite: no run leaves a living process, and what is due is late at most."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from loop.helpers import soon
from wakeful import Agent, Runtime, ScriptedModel
from wakeful.clock import SystemClock
from wakeful.errors import StoreError
from wakeful.stores import Claims, Commit, SqliteStore
from wakeful.types import ids

HOUR_MS = 3_600_000


class WallClock:
    """The wall clock of all stores in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._step = 0
        for name in ("_ms", "_ms_end", "_unused"):  # Ids never go back; later tests need the real time again.
            monkeypatch.setattr(ids, name, getattr(ids, name))
        monkeypatch.setattr(ids, "time_ns", lambda: time.time_ns() + self._step * 1_000_000)
        monkeypatch.setattr("wakeful.clock.time_ns", lambda: time.time_ns() + self._step * 1_000_000)

    def step(self, ms: int) -> None:
        self._step += ms


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    return WallClock(monkeypatch)


async def claim(store: SqliteStore, worker: str) -> Claims:
    return await store.claim(worker, agents=["agent"], limit=9)


@pytest.mark.parametrize("step", [HOUR_MS, -HOUR_MS], ids=["forwards", "backwards"])
async def test_clock_step_takes_no_run_from_living_process(tmp_path: Path, wall: WallClock, step: int) -> None:
    first, second = SqliteStore(tmp_path / "a.db"), SqliteStore(tmp_path / "a.db")
    lease = first.keep("first")
    done = await first.commit(Commit("t", claim="first", version=0))
    wall.step(step)
    assert not (await claim(second, "second")).claimed
    with pytest.raises(StoreError):
        await second.commit(Commit("t", claim="second", version=done.version))
    assert (await second.thread("t")).owner == "first"  # type: ignore[union-attr]
    await lease.close()
    assert (await second.commit(Commit("t", claim="second", version=done.version))).epoch == 2
    await first.close()
    await second.close()


async def test_stalled_worker_releases_its_lock(tmp_path: Path) -> None:
    """Its event loop doesn't beat, so it may be taken over when its lease ends, and never writes again."""
    first, second = SqliteStore(tmp_path / "a.db"), SqliteStore(tmp_path / "a.db")
    lease = first.keep("first", 300)
    done = await first.commit(Commit("t", claim="first", version=0, lease=300))

    async def take() -> int:
        while True:
            try:
                return (await second.commit(Commit("t", claim="second", version=done.version))).epoch
            except StoreError:
                await asyncio.sleep(0.01)

    assert await soon(take()) == 2
    assert lease.renewals.stalled
    await lease.close()
    await first.close()
    await second.close()


@pytest.mark.parametrize("step", [HOUR_MS, -500], ids=["forwards", "backwards"])
async def test_due_input_survives_clock_step(tmp_path: Path, wall: WallClock, step: int) -> None:
    runtime = Runtime([Agent("agent", model=ScriptedModel(["one"]))], store=str(tmp_path / "a.db"))
    at = SystemClock().now() + 700
    async with runtime:
        await runtime.send("t", "go", agent="agent", at=datetime.fromtimestamp(at / 1000, UTC))
        wall.step(step)
        await soon(_answered(runtime))
    assert SystemClock().now() >= at


async def _answered(runtime: Runtime) -> None:
    async for event in runtime.events("t"):
        if event.type == "run_finish":
            return
