"""Input that one process has and another begins with at once, over the bus, which shows nothing of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from conformance.bus_suite import eventually
from loop.helpers import Hold, Scripted
from wakeful import Agent, Capacity, FunctionModel, ModelRequest
from wakeful.bus import MemoryBus, link
from wakeful.bus.memory import _MemoryLink
from wakeful.bus.wire import Reply, StartRequest
from wakeful.dispatch.seal import MAX_AGE_MS, RunOffer, open_sealed, seal
from wakeful.errors import ThreadBusy
from wakeful.types.codec import encode
from wakeful.types.content import Text
from wakeful.types.inbox import InputItem
from wakeful.types.messages import Message, user_message

from .test_bus import PLACES, Cluster, cluster, nobody_looks, soon

__all__ = ["nobody_looks"]

pytestmark = pytest.mark.usefixtures("nobody_looks")


async def ready(front: Any, worker: Any) -> None:
    """Until the worker has looked once, and the other knows of it."""
    await eventually(lambda: worker._scope.shared.worker.state.queue_is_empty)
    await eventually(
        lambda: front._scope.shared.signals._link._peers._serving(asyncio.get_running_loop().time()) != []
    )


async def pair(places: Cluster, agent: Agent, **options: Any) -> tuple[Any, Any]:
    worker = await places.runtime(agent, **options)
    front = await places.runtime(agent, serve=False, execute=False)
    await ready(front, worker)
    return front, worker


async def begun(front: Any, thread_id: str) -> Any:
    """A thread's runs, once it has one."""
    while not (runs := await front.store.runs(thread_id=thread_id)):
        await asyncio.sleep(0.005)
    return runs


class Watched(MemoryBus):
    """A bus that keeps what goes over it, and loses what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[bytes] = []
        self.loses = b"\0"

    def join(self, member_id: str, listener: Any) -> _MemoryLink:
        bus = self

        class Link(_MemoryLink):
            def deliver(self, body: bytes) -> None:
                bus.bodies.append(body)
                if bus.loses not in body:
                    super().deliver(body)

        return Link(self, member_id, listener)


@pytest.mark.parametrize("place", PLACES)
async def test_remote_start_accepts_input_for_new_thread(place: str, tmp_path: Path, scripted: Scripted) -> None:
    async with cluster(place, tmp_path) as places:
        front, worker = await pair(places, Agent("agent", model=scripted("one", "two", "three")))
        await soon(front.send("t", "hi", agent="agent"))
        (run,) = await front.store.runs(thread_id="t")
        await soon(worker.wait(run.id))
        assert (await soon(front.run("agent", "more", thread="t"))).text == "two"  # On a thread with a history.
        assert [m.text for m in await front.store.messages("t")] == ["hi", "one", "more", "two"]
        assert (await soon(front.run("agent", "new"))).text == "three"
        assert worker.workers.metrics.text().count("wakeful_claims_total 3") == 1


async def test_remote_start_hides_input_on_the_bus(tmp_path: Path, scripted: Scripted) -> None:
    bus = Watched()
    async with cluster("sqlite-local", tmp_path, bus) as places:
        front, worker = await pair(places, Agent("agent", model=scripted("fine")))
        await soon(front.send("t", "my secret words", agent="agent"))
        assert [run.thread_id for run in await worker.store.runs()] == ["t"]
        assert any(b'"start"' in body for body in bus.bodies)
        assert not any(b"secret words" in body for body in bus.bodies)


async def test_remote_start_proof_needs_the_key(tmp_path: Path, scripted: Scripted) -> None:
    bus = MemoryBus()
    async with cluster("sqlite-local", tmp_path, bus) as places:
        front, worker = await pair(places, Agent("agent", model=scripted("done")))
        (serving,) = [one for one in bus.links.values() if one.serves]

        async def lie(command: Any) -> Reply:
            return Reply(command.id, True, b"x" * 32)

        serving.execute = lie  # type: ignore[method-assign]
        assert (await soon(front.run("agent", "go", thread="t"))).text == "done"
        assert [run.thread_id for run in await worker.store.runs()] == ["t"]


async def test_remote_start_is_refused_without_store_access(tmp_path: Path, scripted: Scripted) -> None:
    bus = MemoryBus()
    async with cluster("sqlite-local", tmp_path, bus) as places:
        _, worker = await pair(places, Agent("agent", model=scripted()))
        (listener,) = [one.listener for one in bus.links.values() if one.serves]
        item = InputItem(id="i", thread_id="t", message=user_message("go", at=1), agent_id="agent")
        forged = seal(b"\0" * 32, RunOffer("default", worker._scope.env.clock.now(), item))
        for wrong in (b"", b"x", b"x" * 100, forged):
            assert not await soon(listener.on_start(wrong))
        assert await worker.store.thread("t") is None


async def test_remote_start_runs_once_when_reply_is_lost(
    tmp_path: Path, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "START_SECONDS", 0.05)
    bus = Watched()
    async with cluster("sqlite-local", tmp_path, bus) as places:
        front, _ = await pair(places, Agent("agent", model=scripted("one")))
        bus.loses = b'"reply"'
        await soon(front.send("t", "hi", agent="agent"))
        (run,) = await soon(begun(front, "t"))
        await soon(front.wait(run.id))
        assert [m.text for m in await front.store.messages("t")] == ["hi", "one"]
        assert await front.mail.pending("t") == []


async def test_remote_start_falls_back_to_inbox_when_peer_is_silent(
    tmp_path: Path, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "START_SECONDS", 0.05)
    bus = Watched()
    async with cluster("sqlite-local", tmp_path, bus) as places:
        front, _ = await pair(places, Agent("agent", model=scripted("one", "two")))
        bus.loses = b'"start"'
        assert (await soon(front.run("agent", "hi", thread="t"))).text == "one"  # By a wake-up, and a claim.
        bus.bodies.clear()
        assert (await soon(front.run("agent", "hi", thread="u"))).text == "two"
        assert not any(b'"start"' in body for body in bus.bodies)


async def test_remote_start_keeps_capacity_limit(tmp_path: Path) -> None:
    hold, most, now = Hold(), 0, 0

    async def answer(request: ModelRequest) -> str:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await hold.here()
        now -= 1
        return "done"

    async with cluster("sqlite-local", tmp_path) as places:
        agent = Agent("agent", model=FunctionModel(answer))
        front, worker = await pair(places, agent, capacity=Capacity(running=2))
        await soon(asyncio.gather(*[front.send(f"t{n}", "hi", agent="agent") for n in range(6)]))
        await eventually(lambda: now == 2)
        hold.released.set()
        await eventually(
            lambda: worker.workers.metrics.text().count('finished_total{status="natural_end"} 6') == 1
        )
        assert most == 2


async def test_remote_start_queues_behind_pending_input(tmp_path: Path, scripted: Scripted) -> None:
    async with cluster("sqlite-local", tmp_path) as places:
        front, worker = await pair(places, Agent("agent", model=scripted("one", "two")))
        silent = await places.runtime(Agent("agent", model=scripted()), serve=False, execute=False)
        await silent._scope.shared.signals.close()  # Nobody hears of what it sends.
        await silent.send("t", "first", agent="agent")
        await soon(front.send("t", "second", agent="agent"))
        await eventually(
            lambda: worker.workers.metrics.text().count('finished_total{status="natural_end"} 2') == 1
        )
        assert [m.text for m in await front.store.messages("t")] == ["first", "one", "second", "two"]


async def test_remote_start_claims_when_limits_are_shared(tmp_path: Path, scripted: Scripted) -> None:
    bus = Watched()
    async with cluster("sqlite-local", tmp_path, bus) as places:
        agent = Agent("agent", model=scripted("one"))
        front, _ = await pair(places, agent, capacity=Capacity(per_agent={"agent": 1}))
        assert (await soon(front.run("agent", "hi", thread="t"))).text == "one"
        (item,) = [await front.store.item(run.id) for run in await front.store.runs(thread_id="t")]
        assert item is not None
        assert item.kind == "input"  # It was in the inbox.


async def test_remote_start_deduplicates_requests(tmp_path: Path, scripted: Scripted) -> None:
    async with cluster("sqlite-local", tmp_path) as places:
        front, worker = await pair(places, Agent("agent", model=scripted("one")))
        await soon(front.send("t", "first", agent="agent", request_id="r"))
        await soon(worker.wait((await front.store.runs(thread_id="t"))[0].id))
        await soon(front.send("t", "second", agent="agent", request_id="r"))
        await soon(front.send("u", "third", agent="agent", request_id="r"))
        assert [m.text for m in await front.store.messages("t")] == ["first", "one"]
        assert await front.store.messages("u") == []
        assert await front.mail.pending("t") == []


async def test_remote_start_follows_policy_of_busy_thread(tmp_path: Path) -> None:
    hold = Hold()

    async def answer(request: ModelRequest) -> str:
        await hold.here()
        return f"to {request.messages[-1].text}"

    async with cluster("sqlite-local", tmp_path) as places:
        front, worker = await pair(places, Agent("agent", model=FunctionModel(answer)))
        await soon(front.send("t", "first", agent="agent"))
        await soon(hold.reached.wait())
        with pytest.raises(ThreadBusy):
            await front.send("t", "never", agent="agent", policy="reject")
        await soon(front.send("t", "second", agent="agent"))
        assert [one.text for one in await front.mail.pending("t")] == ["second"]
        hold.released.set()
        await eventually(
            lambda: worker.workers.metrics.text().count('finished_total{status="natural_end"} 2') == 1
        )
        assert [m.text for m in await front.store.messages("t")] == ["first", "to first", "second", "to second"]


# -- the seal --------------------------------------------------------------------------------------------------


def request(at: int = 1_000_000) -> RunOffer:
    message = Message("m", "user", (Text("héllo " * 50),), 1)
    return RunOffer("tenant", at, InputItem(id="i", thread_id="t", message=message))


def test_seal_opens_with_same_key_only() -> None:
    sealed = seal(b"k" * 32, request())
    assert open_sealed(b"k" * 32, sealed, 1_000_000) == request()
    assert open_sealed(b"l" * 32, sealed, 1_000_000) is None
    assert b"tenant" not in sealed
    assert seal(b"k" * 32, request()) != sealed


def test_seal_is_refused_when_any_byte_changed() -> None:
    sealed = seal(b"k" * 32, request())
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        assert open_sealed(b"k" * 32, bytes(changed), 1_000_000) is None
    assert open_sealed(b"k" * 32, sealed[:-1], 1_000_000) is None


def test_seal_is_refused_when_too_old_or_in_future() -> None:
    sealed = seal(b"k" * 32, request())
    for off in (-MAX_AGE_MS - 1, MAX_AGE_MS + 1):
        assert open_sealed(b"k" * 32, sealed, 1_000_000 + off) is None
    assert open_sealed(b"k" * 32, sealed, 1_000_000 + MAX_AGE_MS) is not None


def test_start_request_is_json() -> None:
    assert encode(StartRequest("a", "b", b"\0\xff")) == b'{"type":"start","sender":"a","id":"b","sealed":"AP8="}'
