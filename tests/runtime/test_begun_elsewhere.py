"""Input that one process has and another begins with at once, over the bus, which shows nothing of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from conformance.bus_suite import eventually
from loop.helpers import Hold, Scripted
from wakeful import Agent, Capacity, FunctionModel, ModelRequest
from wakeful.bus import MemoryBus
from wakeful.bus import _link as link
from wakeful.bus._memory import _MemoryLink
from wakeful.bus._wire import Begin, Heard
from wakeful.dispatch._sealing import MAX_AGE_MS, Begins, opened, sealed
from wakeful.errors import ThreadBusy
from wakeful.stores import InboxItem
from wakeful.types.codec import encode
from wakeful.types.content import Text
from wakeful.types.messages import Message, user_message

from .test_bus import PLACES, Cluster, cluster, nobody_looks, soon

__all__ = ["nobody_looks"]

pytestmark = pytest.mark.usefixtures("nobody_looks")


async def ready(front: Any, worker: Any) -> None:
    """Until the worker has looked once, and the other knows of it."""
    await eventually(lambda: worker._shared.keeper._empty)
    await eventually(lambda: front._signals._link._peers._serving(asyncio.get_running_loop().time()) != [])


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
            def arrive(self, body: bytes) -> None:
                bus.bodies.append(body)
                if bus.loses not in body:
                    super().arrive(body)

        return Link(self, member_id, listener)


@pytest.mark.parametrize("place", PLACES)
async def test_input_for_a_new_thread_is_accepted_when_its_run_has_begun(
    place: str, tmp_path: Path, scripted: Scripted
) -> None:
    async with cluster(place, tmp_path) as places:
        front, worker = await pair(places, Agent("agent", model=scripted("one", "two", "three")))
        await soon(front.send("t", "hi", agent="agent"))
        (run,) = await front.store.runs(thread_id="t")
        await soon(worker.wait(run.id))
        assert (await soon(front.run("agent", "more", thread="t"))).text == "two"  # On a thread with a history.
        assert [m.text for m in await front.store.messages("t")] == ["hi", "one", "more", "two"]
        assert (await soon(front.run("agent", "new"))).text == "three"
        assert worker.metrics.text().count("wakeful_claims_total 3") == 1


async def test_what_goes_over_the_bus_shows_nothing_of_the_input(tmp_path: Path, scripted: Scripted) -> None:
    bus = Watched()
    async with cluster("sqlite-local", tmp_path, bus) as places:
        front, worker = await pair(places, Agent("agent", model=scripted("fine")))
        await soon(front.send("t", "my secret words", agent="agent"))
        assert [run.thread_id for run in await worker.store.runs()] == ["t"]
        assert any(b'"begin"' in body for body in bus.bodies)
        assert not any(b"secret words" in body for body in bus.bodies)


async def test_who_has_no_key_cannot_say_that_a_run_began(tmp_path: Path, scripted: Scripted) -> None:
    bus = MemoryBus()
    async with cluster("sqlite-local", tmp_path, bus) as places:
        front, worker = await pair(places, Agent("agent", model=scripted("done")))
        (serving,) = [one for one in bus.links.values() if one.serves]

        async def lie(command: Any) -> Heard:
            return Heard(command.id, True, b"x" * 32)

        serving.obey = lie  # type: ignore[method-assign]
        assert (await soon(front.run("agent", "go", thread="t"))).text == "done"
        assert [run.thread_id for run in await worker.store.runs()] == ["t"]


async def test_nobody_without_the_store_can_have_a_run_begun(tmp_path: Path, scripted: Scripted) -> None:
    bus = MemoryBus()
    async with cluster("sqlite-local", tmp_path, bus) as places:
        _, worker = await pair(places, Agent("agent", model=scripted()))
        (listener,) = [one.listener for one in bus.links.values() if one.serves]
        item = InboxItem(id="i", thread_id="t", kind="input", message=user_message("go", at=1), agent_id="agent")
        forged = sealed(b"\0" * 32, Begins("default", worker._env.clock.now(), item))
        for wrong in (b"", b"x", b"x" * 100, forged):
            assert not await soon(listener.asked(wrong))
        assert await worker.store.thread("t") is None


async def test_an_answer_that_is_lost_leads_to_one_run_nevertheless(
    tmp_path: Path, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "BEGIN_SECONDS", 0.05)
    bus = Watched()
    async with cluster("sqlite-local", tmp_path, bus) as places:
        front, _ = await pair(places, Agent("agent", model=scripted("one")))
        bus.loses = b'"heard"'
        await soon(front.send("t", "hi", agent="agent"))
        (run,) = await soon(begun(front, "t"))
        await soon(front.wait(run.id))
        assert [m.text for m in await front.store.messages("t")] == ["hi", "one"]
        assert await front.pending("t") == []


async def test_who_is_not_heard_is_passed_over_and_the_input_waits_in_the_inbox(
    tmp_path: Path, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "BEGIN_SECONDS", 0.05)
    bus = Watched()
    async with cluster("sqlite-local", tmp_path, bus) as places:
        front, _ = await pair(places, Agent("agent", model=scripted("one", "two")))
        bus.loses = b'"begin"'
        assert (await soon(front.run("agent", "hi", thread="t"))).text == "one"  # By a wake-up, and a claim.
        bus.bodies.clear()
        assert (await soon(front.run("agent", "hi", thread="u"))).text == "two"
        assert not any(b'"begin"' in body for body in bus.bodies)


async def test_a_worker_begins_no_more_than_it_has_room_for(tmp_path: Path) -> None:
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
        await eventually(lambda: worker.metrics.text().count('finished_total{status="naturalend"} 6') == 1)
        assert most == 2


async def test_input_has_its_turn_behind_what_waits_in_the_inbox(tmp_path: Path, scripted: Scripted) -> None:
    async with cluster("sqlite-local", tmp_path) as places:
        front, worker = await pair(places, Agent("agent", model=scripted("one", "two")))
        silent = await places.runtime(Agent("agent", model=scripted()), serve=False, execute=False)
        await silent._signals.close()  # Nobody hears of what it sends.
        await silent.send("t", "first", agent="agent")
        await soon(front.send("t", "second", agent="agent"))
        await eventually(lambda: worker.metrics.text().count('finished_total{status="naturalend"} 2') == 1)
        assert [m.text for m in await front.store.messages("t")] == ["first", "one", "second", "two"]


async def test_what_is_limited_for_all_workers_is_claimed(tmp_path: Path, scripted: Scripted) -> None:
    bus = Watched()
    async with cluster("sqlite-local", tmp_path, bus) as places:
        agent = Agent("agent", model=scripted("one"))
        front, _ = await pair(places, agent, capacity=Capacity(per_agent={"agent": 1}))
        assert (await soon(front.run("agent", "hi", thread="t"))).text == "one"
        (item,) = [await front.store.item(run.id) for run in await front.store.runs(thread_id="t")]
        assert item is not None
        assert item.kind == "input"  # It was in the inbox.


async def test_a_request_that_is_made_again_is_what_it_was_first(tmp_path: Path, scripted: Scripted) -> None:
    async with cluster("sqlite-local", tmp_path) as places:
        front, worker = await pair(places, Agent("agent", model=scripted("one")))
        await soon(front.send("t", "first", agent="agent", request_id="r"))
        await soon(worker.wait((await front.store.runs(thread_id="t"))[0].id))
        await soon(front.send("t", "second", agent="agent", request_id="r"))
        await soon(front.send("u", "third", agent="agent", request_id="r"))
        assert [m.text for m in await front.store.messages("t")] == ["first", "one"]
        assert await front.store.messages("u") == []
        assert await front.pending("t") == []


async def test_a_thread_with_an_open_run_keeps_to_the_policy(tmp_path: Path) -> None:
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
        assert [one.text for one in await front.pending("t")] == ["second"]
        hold.released.set()
        await eventually(lambda: worker.metrics.text().count('finished_total{status="naturalend"} 2') == 1)
        assert [m.text for m in await front.store.messages("t")] == ["first", "to first", "second", "to second"]


# -- the seal ------------------------------------------------------------------------------------------------


def begins(at: int = 1_000_000) -> Begins:
    message = Message("m", "user", (Text("héllo " * 50),), 1)
    return Begins("tenant", at, InboxItem(id="i", thread_id="t", kind="input", message=message))


def test_what_is_sealed_is_opened_with_the_same_key_alone() -> None:
    seal = sealed(b"k" * 32, begins())
    assert opened(b"k" * 32, seal, 1_000_000) == begins()
    assert opened(b"l" * 32, seal, 1_000_000) is None
    assert b"tenant" not in seal
    assert sealed(b"k" * 32, begins()) != seal


def test_a_seal_that_was_changed_anywhere_is_not_opened() -> None:
    seal = sealed(b"k" * 32, begins())
    for place in range(len(seal)):
        changed = bytearray(seal)
        changed[place] ^= 1
        assert opened(b"k" * 32, bytes(changed), 1_000_000) is None
    assert opened(b"k" * 32, seal[:-1], 1_000_000) is None


def test_what_was_sealed_long_ago_or_in_the_future_is_not_opened() -> None:
    seal = sealed(b"k" * 32, begins())
    for off in (-MAX_AGE_MS - 1, MAX_AGE_MS + 1):
        assert opened(b"k" * 32, seal, 1_000_000 + off) is None
    assert opened(b"k" * 32, seal, 1_000_000 + MAX_AGE_MS) is not None


def test_a_letter_to_begin_is_json() -> None:
    assert encode(Begin("a", "b", b"\0\xff")) == b'{"type":"begin","sender":"a","id":"b","sealed":"AP8="}'
