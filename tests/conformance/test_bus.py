"""The contract of a bus, on every kind: hints reach their recipients, and delay nobody."""

from __future__ import annotations

import asyncio
import time

import pytest
from bus_suite import BUSES, BusFactory, delta, eventually, met, processes
from msgspec.structs import replace

from wakeful.bus import Bus, LiveUpdate, LogAdvanced, StreamAdvanced, Update, Wake, link

ODD = [
    "",
    "a b",
    "a.b",
    "*",
    ">",
    "wake.>",
    "=2E",
    "ünïcødé ✓",
    "x" * 128,
    "line\nbreak",
    "tab\t",
    "nul\x00",
    "'\"",
    "%",
]


@pytest.fixture(params=BUSES)
def bus(request: pytest.FixtureRequest) -> Bus:
    factory: BusFactory = BUSES[request.param]
    return factory()


@pytest.fixture
def time_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow a long time for replies and for goodbyes."""
    monkeypatch.setattr(link, "REPLY_SECONDS", 20)


# -- wake-ups ------------------------------------------------------------------------------------------------


async def test_wake_reaches_one_worker(bus: Bus) -> None:
    async with processes(bus, {}, {"serves": True}, {"serves": True}, {"serves": True}, {}) as (sender, *others):
        for number in range(30):
            sender.link.wake(Wake("default", f"t{number}", "agent"))
        await eventually(lambda: sum(len(one.wakes) for one in others) == 30)
        got = sorted(wake.thread_id for one in others for wake in one.wakes)
        assert got == sorted(f"t{number}" for number in range(30))
        assert others[-1].wakes == []


async def test_refused_wake_reaches_another_worker(bus: Bus) -> None:
    async with processes(bus, {}, {"serves": True, "takes": False}, {"serves": True}) as (sender, _, taker):
        for number in range(4):
            sender.link.wake(Wake("default", f"t{number}"))
        await eventually(lambda: len({wake.thread_id for wake in taker.wakes}) == 4)


async def test_pending_wakes_of_one_thread_are_merged(bus: Bus) -> None:
    async with processes(bus, {}, {"serves": True}) as (sender, taker):
        for _ in range(100):
            sender.link.wake(Wake("default", "t1"))
        sender.link.wake(Wake("default", "t2"))
        await eventually(lambda: Wake("default", "t2") in taker.wakes)
        assert taker.wakes.count(Wake("default", "t1")) == 1


@pytest.mark.usefixtures("time_to_answer")
async def test_departed_worker_gets_no_wakes(bus: Bus) -> None:
    async with processes(bus, {}, {"serves": True}, {"serves": True}) as (sender, leaver, stayer):
        await leaver.link.close()
        await met(stayer, [sender])  # What was said before that is known too.
        for number in range(6):
            sender.link.wake(Wake("default", f"t{number}"))
            await eventually(lambda number=number: len(stayer.wakes) == number + 1)
        assert leaver.wakes == []


# -- live commands -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("time_to_answer")
async def test_command_reaches_owner_only_and_is_acknowledged(bus: Bus) -> None:
    async with processes(bus, {}, {}, {}) as (sender, owner, other):
        owner.runs.add(("acme", "t1"))
        assert await sender.link.notify_owner(owner.id, "acme", "t1")
        assert not await sender.link.notify_owner(owner.id, "acme", "t2")
        assert owner.commands == [("acme", "t1"), ("acme", "t2")]
        assert other.commands == []


async def test_command_to_absent_member_fails(bus: Bus) -> None:
    async with asyncio.timeout(120), processes(bus, {}) as (sender,):
        assert not await sender.link.notify_owner("nobody", "default", "t1")


@pytest.mark.usefixtures("time_to_answer")
async def test_concurrent_commands_have_their_own_replies(bus: Bus) -> None:
    async with processes(bus, {}, {}) as (sender, owner):
        owner.runs |= {("default", f"t{number}") for number in range(0, 50, 2)}
        tells = [sender.link.notify_owner(owner.id, "default", f"t{number}") for number in range(50)]
        assert await asyncio.gather(*tells) == [number % 2 == 0 for number in range(50)]


# -- live events ---------------------------------------------------------------------------------------------


async def test_updates_reach_all_watchers_in_order(bus: Bus) -> None:
    async with processes(bus, {}, {}, {}, {}) as (owner, first, second, other):
        for one in (first, second):
            one.link.watch("default", "t1")
        other.link.watch("default", "t2")
        await eventually(
            lambda: owner.interest.count(("default", "t1")) >= 2 and ("default", "t2") in owner.interest
        )
        sent: list[Update] = []
        for number in range(0, 200, 2):
            sent += [LogAdvanced("t1", number, number + 1), LogAdvanced("below", number, number + 1)]
            sent += [LiveUpdate(replace(delta(number, "xy"), seq=number + 1))] if owner.link.carries_deltas else []
        for one in sent:
            owner.link.publish("default", "t1", [one])
        await eventually(lambda: first.updates and first.updates[-1] == sent[-1])
        await eventually(lambda: second.updates and second.updates[-1] == sent[-1])
        assert first.updates == second.updates == sent
        assert owner.updates == other.updates == []


async def test_repeated_pending_update_is_sent_once(bus: Bus) -> None:
    async with processes(bus, {}, {}) as (owner, reader):
        reader.link.watch("default", "t1")
        await eventually(lambda: ("default", "t1") in owner.interest)
        for number in range(1000):
            owner.link.publish("default", "t1", [LogAdvanced("t1", number, number + 1)])
        for _ in range(100):
            owner.link.publish("default", "t1", [StreamAdvanced("t1")])
        await eventually(lambda: len(reader.updates) >= 2)
        assert reader.updates == [LogAdvanced("t1", 0, 1000), StreamAdvanced("t1")]


async def test_large_update_is_sent_in_several_messages(bus: Bus) -> None:
    async with processes(bus, {}, {}) as (owner, reader):
        reader.link.watch("default", "t1")
        await eventually(lambda: ("default", "t1") in owner.interest)
        moved = [LogAdvanced(f"below-{number}", 0, 1) for number in range(2000)]
        owner.link.publish(
            "default", "t1", [*moved, LiveUpdate(delta(0, "x" * 3_000_000)), LogAdvanced("t1", 0, 1)]
        )
        await eventually(lambda: reader.updates and reader.updates[-1] == LogAdvanced("t1", 0, 1))
        assert [one for one in reader.updates if isinstance(one, LogAdvanced)] == [*moved, LogAdvanced("t1", 0, 1)]


async def test_thousands_of_threads_may_be_watched(bus: Bus) -> None:
    async with processes(bus, {}, {}) as (owner, reader):
        wanted = {("default", f"thread-{number}-{'x' * 60}") for number in range(500)}
        for tenant, thread_id in wanted:
            reader.link.watch(tenant, thread_id)
        await eventually(lambda: wanted <= set(owner.interest))


async def test_interest_is_announced_to_later_members(bus: Bus) -> None:
    async with processes(bus, {}) as (reader,):
        reader.link.watch("default", "t1")
        async with processes(bus, {}) as (late,):
            await eventually(lambda: ("default", "t1") in late.interest)


async def test_unwatched_thread_sends_no_updates(bus: Bus) -> None:
    async with processes(bus, {}, {}) as (owner, reader):
        for _ in range(2):
            reader.link.watch("default", "t1")
        reader.link.watch("default", "t2")
        await eventually(lambda: ("default", "t2") in owner.interest)
        reader.link.unwatch("default", "t1")
        owner.link.publish("default", "t1", [LogAdvanced("t1", 0, 1)])
        await eventually(lambda: reader.updates == [LogAdvanced("t1", 0, 1)])
        reader.link.unwatch("default", "t1")
        owner.link.publish("default", "t1", [LogAdvanced("t1", 1, 2)])
        owner.link.publish("default", "t2", [LogAdvanced("t2", 0, 1)])
        await eventually(lambda: LogAdvanced("t2", 0, 1) in reader.updates)
        assert LogAdvanced("t1", 1, 2) not in reader.updates


async def test_slow_reader_delays_nobody(bus: Bus) -> None:
    async with processes(bus, {}, {}) as (owner, reader):
        reader.link.watch("default", "t1")
        await eventually(lambda: ("default", "t1") in owner.interest)
        handle = reader.on_updates

        is_publishing, reads = True, 0

        def slowly(tenant: str, thread_id: str, updates: list[Update]) -> None:
            nonlocal reads
            assert not is_publishing, "publishing waits for its readers"
            reads += 1
            time.sleep(0.02)  # As a process does whose event loop is busy.
            handle(tenant, thread_id, updates)

        reader.on_updates = slowly  # type: ignore[method-assign]
        for number in range(20_000):
            owner.link.publish("default", "t1", [LiveUpdate(delta(number, "x"))])
        is_publishing = False
        owner.link.publish("default", "t1", [LogAdvanced("t1", 0, 9)])
        await eventually(lambda: LogAdvanced("t1", 0, 9) in reader.updates)
        assert reads < 1_000, "the reader was given every delta by itself"


# -- names and lifetimes -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("time_to_answer")
@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
async def test_tenants_and_threads_may_have_any_name(bus: Bus, odd: str) -> None:
    async with processes(bus, {}, {"serves": True}) as (one, other):
        one.runs.add((odd, odd))
        other.link.watch(odd, odd)
        await eventually(lambda: (odd, odd) in one.interest)
        one.link.publish(odd, odd, [LogAdvanced(odd, 0, 1)])
        one.link.wake(Wake(odd, odd, odd))
        assert await other.link.notify_owner(one.id, odd, odd)
        await eventually(
            lambda: other.updates == [LogAdvanced(odd, 0, 1)] and other.wakes == [Wake(odd, odd, odd)]
        )


async def test_names_that_look_alike_are_kept_apart(bus: Bus) -> None:
    names = [("a", "b.c"), ("a.b", "c"), ("a", "b=2Ec"), ("a", "b"), ("ab", ""), ("", "ab"), ("a", "B")]
    async with processes(bus, {}, {}) as (owner, reader):
        reader.link.watch(*names[0])
        await eventually(lambda: names[0] in owner.interest)
        for number, name in enumerate(reversed(names)):
            owner.link.publish(*name, [LogAdvanced(str(number), 0, 1)])
        await eventually(lambda: reader.updates)
        assert reader.updates == [LogAdvanced(str(len(names) - 1), 0, 1)]


async def test_close_is_idempotent_before_and_after_connect(bus: Bus) -> None:
    async with processes(bus, {"serves": True}) as (one,):
        await one.link.close()
        one.link.wake(Wake("default", "t1"))
        one.link.watch("default", "t1")
        one.link.publish("default", "t1", [StreamAdvanced("t1")])
        assert not one.link.is_healthy
        assert not await one.link.notify_owner(one.id, "default", "t1")
    early = bus.join("early", one)
    await early.close()
