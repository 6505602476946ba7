"""Callers that wait for what another process runs hear of it over the bus, and else look ever more rarely."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from conformance.bus_suite import eventually
from loop.helpers import Hold, Scripted, Spy, holding, soon, spying
from wakeful import Agent, Runtime, SqliteStore, call, tool
from wakeful.bus import MemoryBus, link
from wakeful.dispatch import waits as waiting
from wakeful.dispatch import worker as worker_module
from wakeful.dispatch.waits import pause_after
from wakeful.runtime import follower as following
from wakeful.stores import Commit, Committed


class Counting(SqliteStore):
    """A store that counts what is asked of it."""

    queries = 0

    async def _query(self, sql: str, *args: Any) -> list[Any]:
        self.queries += 1
        return await super()._query(sql, *args)


@pytest.mark.parametrize(("bus", "most"), [(False, 80), (True, 60)])
def test_waiter_polls_rarely(bus: bool, most: int) -> None:
    looks, waited = 0, 0.0
    while waited < 60:
        pause = pause_after(waited, bus=bus)
        # Nobody learns of it later than by a quarter of the time that it took, or than that.
        assert pause <= max(waited / 4, waiting.SHORTEST)
        waited, looks = waited + pause, looks + 1
    assert looks < most  # It was 600, at one every 100 ms.


async def test_reader_of_idle_thread_polls_with_backoff(tmp_path: Path) -> None:
    runtime = Runtime([Agent("agent", model="scripted:x")], store=tmp_path / "a.db", models={"scripted": _model})
    follower = following.Follower(runtime._scope.env, "t")
    assert follower.poll_interval(bus=False) == following.POLL
    follower._seen_at -= 5
    assert 0.4 < follower.poll_interval(bus=False) < 0.6
    follower._seen_at -= 60
    assert follower.poll_interval(bus=False) == following.POLL_IDLE
    await runtime.close()


def _model(name: str) -> Any:
    raise NotImplementedError


@pytest.fixture
def nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls come after the end of the test, so only the bus can carry a change; replies may take long."""
    for name in ("PULSE", "PULSE_WITH_BUS", "IDLE", "IDLE_WITH_BUS"):
        monkeypatch.setattr(worker_module, name, 600)
    monkeypatch.setattr(waiting, "SHORTEST", 600)
    for name in ("REPLY_SECONDS", "START_SECONDS"):
        monkeypatch.setattr(link, name, 20)


class Pair:
    """A worker, and one who only asks, with a bus between them."""

    def __init__(self, path: Path, *agents: Agent) -> None:
        self.bus = bus = MemoryBus()
        self.store = Counting(path)
        self.worker = Runtime(list(agents), store=path, bus=bus)
        self.front = Runtime(list(agents), store=self.store, bus=bus, execute=False)

    async def __aenter__(self) -> Pair:
        await self.worker.__aenter__()
        self.front._scope.bind()
        await eventually(
            lambda: self.front._scope.shared.signals.healthy and self.worker._scope.shared.signals.healthy
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.front.close()
        await self.worker.close()

    async def watched(self) -> None:
        """The worker knows that somebody waits."""
        await eventually(lambda: bool(self.worker._scope.shared.signals._forwards))


@pytest.mark.usefixtures("nobody_looks")
async def test_result_arrives_over_bus_without_polling(tmp_path: Path, scripted: Scripted) -> None:
    hold = Hold()
    agent = Agent("agent", model=scripted(call("wait"), "done"), tools=[holding(hold)])
    async with Pair(tmp_path / "a.db", agent) as pair:
        task = asyncio.create_task(pair.front.run("agent", "go", thread="t"))
        await soon(hold.reached.wait())
        await pair.watched()
        before = pair.store.queries
        for _ in range(100):
            await asyncio.sleep(0)
        hold.released.set()
        assert (await soon(task)).text == "done"
        assert pair.store.queries - before < 20
        assert not pair.front._scope.shared.signals._readers  # Nobody waits any more.


@pytest.mark.usefixtures("nobody_looks")
async def test_enqueue_needs_no_poll(tmp_path: Path, scripted: Scripted) -> None:
    ran = asyncio.Event()
    agent = Agent("agent", model=scripted(call("run"), "done", call("run"), "done"), tools=[noting(ran)])
    async with Pair(tmp_path / "a.db", agent) as pair:
        for _ in range(2):  # A new thread, and one that has had a run.
            before = pair.store.queries
            await pair.front.send("t", "go", agent="agent")
            await soon(ran.wait())  # Nobody looks: it was told.
            assert pair.store.queries == before
            await eventually(lambda: "t" not in pair.worker._scope.dispatch.active)
            ran.clear()


def noting(ran: asyncio.Event) -> Any:
    @tool(name="run")
    async def run() -> str:
        """Say that it runs."""
        ran.set()
        return "ok"

    return run


@pytest.mark.usefixtures("nobody_looks")
async def test_input_reaches_new_owner_of_thread(tmp_path: Path, scripted: Scripted) -> None:
    hold, path = Hold(), tmp_path / "a.db"
    agent = Agent("agent", model=scripted(call("wait"), "done"), tools=[holding(hold)])

    class Late(SqliteStore):
        async def commit(self, commit: Commit) -> Committed:
            if commit.idle:
                await pair.front.send("t", "go", agent="agent")
                await soon(hold.reached.wait())
            return await super().commit(commit)

    async with Pair(path, agent) as pair:
        late = Runtime([agent], store=Late(path), bus=pair.bus, execute=False)
        await late.send("t", "and hurry", agent="agent", policy="steer")
        await eventually(lambda: pair.worker._scope.dispatch.active["t"].view.inbox)
        hold.released.set()
        await eventually(lambda: "t" not in pair.worker._scope.dispatch.active)
        assert [m.text for m in await late.threads.messages("t") if m.role == "user"] == ["go", "and hurry"]
        await late.close()


@pytest.mark.usefixtures("nobody_looks")
async def test_cancellation_arrives_over_bus(tmp_path: Path, scripted: Scripted) -> None:
    hold = Hold()
    agent = Agent("agent", model=scripted(call("wait")), tools=[holding(hold)])
    async with Pair(tmp_path / "a.db", agent) as pair:
        handle = await pair.front.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        await pair.watched()
        before = pair.store.queries
        assert await soon(handle.cancel())
        assert pair.store.queries - before < 25


async def test_answer_to_remote_run_returns_its_result(tmp_path: Path, scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted(call("ask"), "done"), tools=[spying(Spy(), "ask", approval=True)])
    async with Pair(tmp_path / "a.db", agent) as pair:
        result = await soon(pair.front.run("agent", "go", thread="t"))
        (ticket,) = result.tickets
        assert (await soon(pair.front.resume(result.run_id, ticket.approve()))).text == "done"


async def test_answer_can_be_submitted_for_another_worker(tmp_path: Path, scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted(call("ask"), "done"), tools=[spying(Spy(), "ask", approval=True)])
    async with Pair(tmp_path / "a.db", agent) as pair:
        result = await soon(pair.front.run("agent", "go", thread="t"))
        (ticket,) = result.tickets
        assert (await pair.front.tickets.submit(ticket.approve())).id == ticket.id
        assert (await soon(pair.front.wait(result.run_id))).text == "done"
