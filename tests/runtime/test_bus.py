"""Two runtimes on one store with a bus between them: changes reach the other at once, or by polling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from conformance.bus_suite import eventually, fresh_name
from loop.helpers import Hold, Scripted, Spy, holding, spying
from nats_server import NatsServer
from nats_server import server as nats
from postgres_server import fresh_store
from postgres_server import server as postgres
from stores.postgres_suite import beside
from wakeful import Agent, FunctionModel, ModelRequest, Runtime, SqliteStore, ToolContext, call, task, tool
from wakeful.bus import Bus, MemoryBus, NatsBus, PostgresBus, link
from wakeful.dispatch import worker as worker_module
from wakeful.models import StopChunk, TextChunk
from wakeful.runtime import follower as following
from wakeful.stores import Store
from wakeful.testing import Recorder
from wakeful.types.events import AnyEvent, Event, TextDelta, ToolProgress
from wakeful.types.runs import Cancelled

PLACES = ["sqlite-local", "sqlite-nats", "postgres-postgres", "postgres-nats"]


class Cluster:
    """A store that several runtimes open, and the bus between them."""

    def __init__(self, stack: AsyncExitStack, store: Store, bus: Bus, path: Path | None) -> None:
        self.bus = bus
        self._stack, self._store, self._path = stack, store, path
        self._links: list[Any] = []

    async def runtime(self, *agents: Agent, serve: bool = True, **options: Any) -> Runtime:
        """One more process; with `serve` it takes what is due."""
        if self._path is not None:
            store: Store = SqliteStore(self._path, synchronous="NORMAL")
        else:
            store = await self._stack.enter_async_context(beside(self._store))  # type: ignore[arg-type]
        runtime = Runtime(list(agents), store=store, bus=self.bus, **options)
        self._stack.push_async_callback(runtime.close)
        runtime._scope.bind()
        await eventually(lambda: runtime._scope.shared.signals.healthy)
        if serve:
            await runtime.__aenter__()
        link: Any = runtime._scope.shared.signals._link
        for other in [one for one in self._links if one.is_healthy]:
            await eventually(lambda other=other: _knows(link, other) and _knows(other, link))
        self._links.append(link)
        return runtime


def _knows(one: Any, other: Any) -> bool:
    """Whether one link knows of another member, and whether that one serves."""
    peer = one._peers._known.get(other.member_id)
    return peer is not None and peer.serves == other.serves


@asynccontextmanager
async def cluster(place: str, path: Path, bus: Bus | None = None) -> AsyncIterator[Cluster]:
    store_kind, bus_kind = place.split("-")
    made: dict[str, Any] = {
        "local": MemoryBus,
        "nats": lambda: NatsBus(nats().url, name=fresh_name()),
        "postgres": lambda: PostgresBus(postgres().url(), name=fresh_name()),
    }
    async with AsyncExitStack() as stack:
        if store_kind == "sqlite":
            store, file = SqliteStore(path / "a.db", synchronous="NORMAL"), path / "a.db"
            stack.push_async_callback(store.close)
        else:
            store, file = await stack.enter_async_context(fresh_store()), None  # type: ignore[assignment]
        await store.tenants()
        yield Cluster(stack, store, bus or made[bus_kind](), file)


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls come after the end of the test, so only the bus can carry a change; replies may take long."""
    for name in ("PULSE", "PULSE_WITH_BUS", "IDLE", "IDLE_WITH_BUS"):
        monkeypatch.setattr(worker_module, name, 600)
    monkeypatch.setattr(following, "POLL_WITH_BUS", 600)
    for name in ("REPLY_SECONDS", "START_SECONDS"):
        monkeypatch.setattr(link, name, 20)


async def soon(work: Any) -> Any:
    return await asyncio.wait_for(work, 120)


def reading(*pieces: str, hold: Hold | None = None, hold_at: int = 1) -> FunctionModel:
    """A model that streams these pieces, and waits before one of them."""

    async def answer(request: ModelRequest) -> Any:
        for number, piece in enumerate(pieces):
            if hold is not None and number == hold_at:
                await hold.here()
            await asyncio.sleep(0)
            yield TextChunk(piece)
        yield StopChunk("end_turn")

    return FunctionModel(answer)


async def record(events: AsyncIterator[AnyEvent], seen: list[Event] | None = None) -> list[Event]:
    """The events until the end of the run."""
    seen = [] if seen is None else seen
    async for event in events:
        seen.append(event)
        if event.type == "run_finish" and event.run.parent_run_id is None:
            break
    return seen


async def both_read(
    front: Runtime, back: Runtime, agent: str, hold: Hold, last: tuple[str, str]
) -> tuple[list[Event], list[Event]]:
    """The events of a run on thread `t` for two readers, one in the process that asked for it and one where it
    executes. The run leaves its hold when both have seen the last event before, of this type and agent.
    """
    here, there = list[Event](), list[Event]()
    stream = front.stream(agent, "go", thread="t")
    reading = asyncio.gather(record(stream, here), record(back.events("t"), there))
    await soon(hold.reached.wait())
    await eventually(lambda: back._scope.shared.signals._forwards)
    for seen in (here, there):
        await eventually(lambda seen=seen: seen and (seen[-1].type, seen[-1].run.agent_id) == last)
    hold.released.set()
    await soon(reading)
    return here, there


async def streamed(runtime: Runtime) -> list[Event]:
    """The whole stream of a run on thread `t`."""
    return [event async for event in runtime.stream("agent", "go", thread="t")]


def text_of(events: list[Event]) -> str:
    """The text that deltas add up to; each must begin where the one before ended."""
    text = ""
    for event in events:
        if isinstance(event, TextDelta):
            assert event.offset == len(text)
            text += event.delta
    return text


def durable(events: list[Event]) -> list[Event]:
    return [event for event in events if event.durable]


# -- wake-ups ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("nobody_looks")
async def test_enqueued_input_runs_elsewhere_at_once(place: str, tmp_path: Path, scripted: Scripted) -> None:
    async with cluster(place, tmp_path) as places:
        agent = Agent("agent", model=scripted("one", "two", "three"))
        front = await places.runtime(agent, serve=False, execute=False)
        await places.runtime(agent)
        for text in ("one", "two"):
            assert (await soon(front.run("agent", "go", thread="t"))).text == text
        assert (await soon(front.tenant("acme").run("agent", "go"))).text == "three"


@task(effect="pure")
async def greet() -> str:
    return "hello"


@pytest.mark.usefixtures("nobody_looks")
async def test_task_of_idle_thread_starts_elsewhere_at_once(
    place: str, tmp_path: Path, scripted: Scripted
) -> None:
    async with cluster(place, tmp_path) as places:
        agent = Agent("agent", model=scripted("one", "two"))
        await places.runtime(agent, tasks=[greet])
        front = await places.runtime(agent, tasks=[greet], execute=False)
        assert await soon((await front.tasks.spawn(greet, thread="new")).value()) == "hello"
        assert await soon((await front.tasks.spawn("agent", "go", thread="new")).value()) == "one"
        # An owner that is known, and a request: the task's input and what the owner is told have ids of their own.
        again = await front.tasks.spawn("agent", "go", thread="new", request_id="r")
        assert await soon(again.value()) == "two"


@pytest.mark.usefixtures("nobody_looks")
async def test_task_of_running_thread_starts_elsewhere_at_once(place: str, tmp_path: Path) -> None:
    async with cluster(place, tmp_path) as places:
        hold = Hold()
        agent = Agent("agent", model=reading("a", "b", hold=hold))
        await places.runtime(agent, tasks=[greet])
        front = await places.runtime(agent, tasks=[greet], execute=False)
        run = await front.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        assert await soon((await front.tasks.spawn(greet, thread="t")).value()) == "hello"
        hold.released.set()
        await soon(run.result())


@pytest.mark.usefixtures("nobody_looks")
async def test_schedule_fires_in_another_process(place: str, tmp_path: Path) -> None:
    async with cluster(place, tmp_path) as places:
        hold = Hold()
        agent = Agent("agent", model=reading("hello", hold=hold, hold_at=0))
        await places.runtime(agent)
        front = await places.runtime(agent, execute=False)
        await front.schedules.put("soon", "agent", "go", delay=0.2)
        await soon(hold.reached.wait())
        hold.released.set()


@pytest.mark.usefixtures("nobody_looks")
async def test_run_goes_to_worker_that_knows_its_agent(place: str, tmp_path: Path, scripted: Scripted) -> None:
    async with cluster(place, tmp_path) as places:
        agent = Agent("agent", model=scripted("one", "two", "three", "four"))
        front = await places.runtime(agent, serve=False, execute=False)
        await places.runtime(Agent("other", model=scripted()))
        await places.runtime(agent)
        for text in ("one", "two", "three", "four"):
            assert (await soon(front.run("agent", "go"))).text == text


@pytest.mark.usefixtures("nobody_looks")
async def test_answer_from_another_process_wakes_run(place: str, tmp_path: Path, scripted: Scripted) -> None:
    async with cluster(place, tmp_path) as places:
        spy = Spy()
        agent = Agent("agent", model=scripted(call("ask"), "done"), tools=[spying(spy, "ask", approval=True)])
        front = await places.runtime(agent, serve=False, execute=False)
        await places.runtime(agent)
        waiting = await soon(front.run("agent", "go", thread="t"))
        assert waiting.status == "waiting"
        result = await soon(front.resume(waiting.run_id, waiting.tickets[0].approve()))
        assert (result.text, spy.ran) == ("done", ["ask"])


# -- live commands -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("nobody_looks")
async def test_cancel_from_another_process_is_immediate(place: str, tmp_path: Path, scripted: Scripted) -> None:
    async with cluster(place, tmp_path) as places:
        hold = Hold()
        agent = Agent("agent", model=scripted(call("wait")), tools=[holding(hold)])
        here, there = await places.runtime(agent), await places.runtime(agent, serve=False)
        run = await here.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        assert await soon(there.cancel(run.run_id, "enough"))
        assert (await soon(run.result())).termination == Cancelled("enough")


@pytest.mark.usefixtures("nobody_looks")
async def test_steering_from_another_process_is_immediate(place: str, tmp_path: Path, scripted: Scripted) -> None:
    async with cluster(place, tmp_path) as places:
        hold = Hold()
        agent = Agent("agent", model=scripted(call("wait"), "done"), tools=[holding(hold)])
        here, there = await places.runtime(agent), await places.runtime(agent, serve=False)
        run = await here.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        await there.send("t", "and hurry", policy="steer")
        await eventually(lambda: here._scope.dispatch.active["t"].view.inbox)
        hold.released.set()
        await soon(run.result())
        assert [m.text for m in await there.threads.messages("t") if m.role == "user"] == ["go", "and hurry"]


# -- live events ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("nobody_looks")
async def test_remote_stream_equals_local_stream(place: str, tmp_path: Path) -> None:
    async with cluster(place, tmp_path) as places:
        words, hold = [f"word{number} " for number in range(100)], Hold()
        agent = Agent("agent", model=reading(*words, hold=hold, hold_at=0))
        front = await places.runtime(agent, serve=False, execute=False)
        back = await places.runtime(agent)
        here, seen = await both_read(front, back, "agent", hold, ("step_start", "agent"))
        assert durable(here) == durable(seen)
        assert "".join(words).startswith(text_of(here))
        if isinstance(places.bus, MemoryBus):  # The log's own word may overtake the last of the deltas.
            assert here == [event for event in seen if event in here]


@pytest.mark.usefixtures("nobody_looks")
async def test_late_remote_reader_sees_whole_answer(place: str, tmp_path: Path) -> None:
    async with cluster(place, tmp_path) as places:
        hold = Hold()
        clock = count(1_700_000_000_000, 100)  # Checkpoints are written by the clock.

        class Clock:
            def now(self) -> int:
                return next(clock)

            def call_later(self, seconds: float, callback: Any) -> Any:
                return asyncio.get_running_loop().call_later(seconds, callback)

        words = [f"word{number} " for number in range(40)]
        agent = Agent("agent", model=reading(*words, hold=hold, hold_at=20))
        back = await places.runtime(agent, clock=Clock())
        front = await places.runtime(agent, serve=False, execute=False)
        run = await back.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        reader = asyncio.create_task(record(front.events("t")))
        await eventually(lambda: back._scope.shared.signals._forwards)
        hold.released.set()
        seen = await soon(reader)
        await soon(run.result())
        assert "".join(words).startswith(text_of(seen))
        assert durable(seen) == [event async for event in back.events("t", follow=False)]


@pytest.mark.usefixtures("nobody_looks")
@pytest.mark.parametrize("place", ["sqlite-local", "sqlite-nats"])
async def test_remote_stream_shows_progress_and_children(place: str, tmp_path: Path, scripted: Scripted) -> None:
    async with cluster(place, tmp_path) as places:

        @tool
        async def work(ctx: ToolContext) -> str:
            """Work."""
            await hold.here()
            ctx.progress(0.5, message="half")
            return "worked"

        hold = Hold()
        child = Agent("child", model=scripted(call("work"), "below"), tools=[work])
        asking = scripted(call("agent_run_child", prompt="go"), "above")
        parent = Agent("parent", model=asking, delegates=["child"])
        front = await places.runtime(parent, child, serve=False, execute=False)
        back = await places.runtime(parent, child)
        here, seen = await both_read(front, back, "parent", hold, ("tool_call_ready", "child"))
        assert here == seen
        assert [e.fraction for e in here if isinstance(e, ToolProgress)] == [0.5]
        assert {e.run.agent_id for e in here} == {"parent", "child"}


@pytest.mark.usefixtures("nobody_looks")
async def test_events_are_not_forwarded_without_watchers(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(place, tmp_path) as places:
        agent = Agent("agent", model=reading("a", "b"))
        back, front = await places.runtime(agent), await places.runtime(agent, serve=False, execute=False)
        shown: list[Any] = []
        back_link = back._scope.shared.signals._link
        assert back_link is not None
        monkeypatch.setattr(back_link, "publish", lambda *news: shown.append(news))
        await soon(back.run("agent", "go", thread="t"))
        assert shown == []
        reader = asyncio.create_task(record(front.events("t", after=100)))
        await eventually(lambda: back._scope.shared.signals._forwards)
        await soon(back.run("agent", "go", thread="t"))
        assert shown != []
        reader.cancel()
        await asyncio.wait({reader})
        for forward in back._scope.shared.signals._forwards.values():
            forward.until = 0  # As if it hadn't been renewed.
        back._scope.shared.signals._sweep()
        shown.clear()
        await soon(back.run("agent", "go", thread="t"))
        assert shown == []


async def test_live_events_of_unknown_run_are_dropped(
    tmp_path: Path,
) -> None:
    """Two clusters that share a bus by mistake, with threads of the same names."""
    bus = MemoryBus()
    agent = Agent("agent", model=reading("secret ", "words"))
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    async with (
        cluster("sqlite-local", tmp_path / "one", bus) as one,
        cluster("sqlite-local", tmp_path / "two", bus) as two,
    ):
        here, there = await one.runtime(agent), await two.runtime(agent)
        reader = asyncio.create_task(record(here.events("t")))
        await eventually(lambda: there._scope.shared.signals._forwards)
        other = await soon(there.run("agent", "go", thread="t"))
        await soon(here.run("agent", "go", thread="t"))
        assert other.run_id not in {event.run_id for event in await soon(reader)}


# -- without the bus -----------------------------------------------------------------------------------------


async def test_bus_outage_loses_no_events_or_input(tmp_path: Path, scripted: Scripted) -> None:
    server = NatsServer()
    server.start()
    try:
        async with cluster("sqlite-nats", tmp_path, NatsBus(server.url)) as places:
            hold = Hold()
            agent = Agent("agent", model=scripted(call("wait"), "done", "next"), tools=[holding(hold)])
            front = await places.runtime(agent, serve=False, execute=False)
            back = await places.runtime(agent)
            reader = asyncio.create_task(streamed(front))
            await soon(hold.reached.wait())
            server.kill()
            await eventually(
                lambda: not front._scope.shared.signals.healthy and not back._scope.shared.signals.healthy
            )
            await front.send("t", "more", policy="queue")
            hold.released.set()
            seen = await soon(reader)
            run = seen[0].run_id
            assert durable(seen) == [e async for e in back.events("t", follow=False) if e.run_id == run]
            await eventually(lambda: not back._scope.dispatch.active)

            async def texts() -> list[str]:
                return [m.text for m in await back.threads.messages("t") if m.role == "assistant"]

            async with asyncio.timeout(120):
                while (await texts())[-1:] != ["next"]:
                    await asyncio.sleep(0.01)
            server.start()
            await eventually(lambda: front._scope.shared.signals.healthy and back._scope.shared.signals.healthy)
    finally:
        server.close()


async def test_missing_bus_does_not_stop_runs(tmp_path: Path, scripted: Scripted) -> None:
    server = NatsServer()
    try:
        agent = Agent("agent", model=scripted("one", "two"))
        store = SqliteStore(tmp_path / "a.db", synchronous="NORMAL")
        async with Runtime([agent], store=store, bus=server.url) as runtime:
            assert (await soon(runtime.run("agent", "go"))).text == "one"
            recorder = Recorder()
            async for event in runtime.stream("agent", "go"):
                recorder.events.append(event)
            assert recorder.types[-1] == "run_finish"
    finally:
        server.close()
