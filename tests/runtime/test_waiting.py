"""Callers that wait for what another process runs hear of it over the bus, and else look ever more rarely."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from conformance.bus_suite import eventually
from loop.helpers import Hold, Scripted, Spy, holding, soon, spying
from wakeful import Agent, Runtime, SqliteStore, call, tool
from wakeful import _following as following
from wakeful.bus import MemoryBus
from wakeful.bus import _link as link
from wakeful.dispatch import _keeper as keeper
from wakeful.dispatch import _waiting as waiting
from wakeful.dispatch._waiting import pause_after
from wakeful.stores import Commit, Committed


class Counting(SqliteStore):
    """A store that counts what is asked of it."""

    queries = 0

    async def _query(self, sql: str, *args: Any) -> list[Any]:
        self.queries += 1
        return await super()._query(sql, *args)


@pytest.mark.parametrize(("bus", "most"), [(False, 80), (True, 60)])
def test_who_waits_for_a_minute_looks_once_in_a_while(bus: bool, most: int) -> None:
    looks, waited = 0, 0.0
    while waited < 60:
        pause = pause_after(waited, bus=bus)
        # Nobody learns of it later than by a quarter of the time that it took, or than that.
        assert pause <= max(waited / 4, waiting.SOONEST)
        waited, looks = waited + pause, looks + 1
    assert looks < most  # It was 600, at one every 100 ms.


async def test_a_reader_of_a_thread_on_which_nothing_happens_looks_ever_more_rarely(tmp_path: Path) -> None:
    runtime = Runtime([Agent("agent", model="scripted:x")], store=tmp_path / "a.db", models={"scripted": _model})
    follower = following.Follower(runtime._env, "t")
    assert follower.pause(bus=False) == following.POLL
    follower._seen_at -= 5
    assert 0.4 < follower.pause(bus=False) < 0.6
    follower._seen_at -= 60
    assert follower.pause(bus=False) == following.POLL_IDLE
    await runtime.close()


def _model(name: str) -> Any:
    raise NotImplementedError


@pytest.fixture
def nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What isn't said over the bus is found out when the test is long over; whoever is asked may take its time."""
    for name in ("PULSE", "PULSE_WITH_BUS", "IDLE", "IDLE_WITH_BUS"):
        monkeypatch.setattr(keeper, name, 600)
    monkeypatch.setattr(waiting, "SOONEST", 600)
    for name in ("ANSWER_SECONDS", "BEGIN_SECONDS"):
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
        self.front._bind()
        await eventually(lambda: self.front._signals.healthy and self.worker._signals.healthy)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.front.close()
        await self.worker.close()

    async def watched(self) -> None:
        """The worker knows that somebody waits."""
        await eventually(lambda: bool(self.worker._signals._forwards))


@pytest.mark.usefixtures("nobody_looks")
async def test_a_result_is_heard_of_over_the_bus_without_looking(tmp_path: Path, scripted: Scripted) -> None:
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
        assert not pair.front._signals._readers  # Nobody waits any more.


@pytest.mark.usefixtures("nobody_looks")
async def test_who_enqueues_needs_no_look(tmp_path: Path, scripted: Scripted) -> None:
    ran = asyncio.Event()
    agent = Agent("agent", model=scripted(call("run"), "done", call("run"), "done"), tools=[noting(ran)])
    async with Pair(tmp_path / "a.db", agent) as pair:
        for _ in range(2):  # A new thread, and one that has had a run.
            before = pair.store.queries
            await pair.front.send("t", "go", agent="agent")
            await soon(ran.wait())  # Nobody looks: it was told.
            assert pair.store.queries == before
            await eventually(lambda: "t" not in pair.worker._dispatch.active)
            ran.clear()


def noting(ran: asyncio.Event) -> Any:
    @tool(name="run")
    async def run() -> str:
        """Say that it runs."""
        ran.set()
        return "ok"

    return run


@pytest.mark.usefixtures("nobody_looks")
async def test_input_for_a_thread_that_was_claimed_meanwhile_reaches_its_owner(
    tmp_path: Path, scripted: Scripted
) -> None:
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
        await eventually(lambda: pair.worker._dispatch.active["t"].view.inbox)
        hold.released.set()
        await eventually(lambda: "t" not in pair.worker._dispatch.active)
        assert [m.text for m in await late.messages("t") if m.role == "user"] == ["go", "and hurry"]
        await late.close()


@pytest.mark.usefixtures("nobody_looks")
async def test_a_cancellation_is_heard_of_over_the_bus(tmp_path: Path, scripted: Scripted) -> None:
    hold = Hold()
    agent = Agent("agent", model=scripted(call("wait")), tools=[holding(hold)])
    async with Pair(tmp_path / "a.db", agent) as pair:
        handle = await pair.front.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        await pair.watched()
        before = pair.store.queries
        assert await soon(handle.cancel())
        assert pair.store.queries - before < 25


async def test_an_answer_to_a_run_elsewhere_comes_back_with_its_result(tmp_path: Path, scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted(call("ask"), "done"), tools=[spying(Spy(), "ask", approval=True)])
    async with Pair(tmp_path / "a.db", agent) as pair:
        result = await soon(pair.front.run("agent", "go", thread="t"))
        (ticket,) = result.tickets
        assert (await soon(pair.front.resume(result.run_id, ticket.approve()))).text == "done"


async def test_an_answer_can_be_left_for_whoever_runs_it(tmp_path: Path, scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted(call("ask"), "done"), tools=[spying(Spy(), "ask", approval=True)])
    async with Pair(tmp_path / "a.db", agent) as pair:
        result = await soon(pair.front.run("agent", "go", thread="t"))
        (ticket,) = result.tickets
        assert (await pair.front.leave_answer(ticket.approve())).id == ticket.id
        assert (await soon(pair.front.wait(result.run_id))).text == "done"
