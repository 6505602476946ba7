"""The contract of a bus, on every kind: hints get through, to whom they concern, and nobody is held up by them."""

from __future__ import annotations

import asyncio
import time

import pytest
from bus_suite import BUSES, BusFactory, delta, eventually, met, processes
from msgspec.structs import replace

from wakeful.bus import Bus, Grown, Moved, News, Shown, Wake
from wakeful.bus import _link as link

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
    """Whoever is told may take its time to say that it heard, and whoever leaves to say so."""
    monkeypatch.setattr(link, "ANSWER_SECONDS", 20)


# -- wake-ups ------------------------------------------------------------------------------------------------


async def test_a_wake_up_reaches_one_of_those_who_serve(bus: Bus) -> None:
    async with processes(bus, {}, {"serves": True}, {"serves": True}, {"serves": True}, {}) as (sender, *others):
        for number in range(30):
            sender.link.wake(Wake("default", f"t{number}", "agent"))
        await eventually(lambda: sum(len(one.wakes) for one in others) == 30)
        got = sorted(wake.thread_id for one in others for wake in one.wakes)
        assert got == sorted(f"t{number}" for number in range(30))
        assert others[-1].wakes == []


async def test_a_wake_up_that_one_refuses_reaches_another(bus: Bus) -> None:
    async with processes(bus, {}, {"serves": True, "takes": False}, {"serves": True}) as (sender, _, taker):
        for number in range(4):
            sender.link.wake(Wake("default", f"t{number}"))
        await eventually(lambda: len({wake.thread_id for wake in taker.wakes}) == 4)


async def test_wake_ups_for_one_thread_that_wait_to_be_sent_are_one(bus: Bus) -> None:
    async with processes(bus, {}, {"serves": True}) as (sender, taker):
        for _ in range(100):
            sender.link.wake(Wake("default", "t1"))
        sender.link.wake(Wake("default", "t2"))
        await eventually(lambda: Wake("default", "t2") in taker.wakes)
        assert taker.wakes.count(Wake("default", "t1")) == 1


@pytest.mark.usefixtures("time_to_answer")
async def test_whoever_leaves_gets_no_wake_ups(bus: Bus) -> None:
    async with processes(bus, {}, {"serves": True}, {"serves": True}) as (sender, leaver, stayer):
        await leaver.link.close()
        await met(stayer, [sender])  # What was said before that is known too.
        for number in range(6):
            sender.link.wake(Wake("default", f"t{number}"))
            await eventually(lambda number=number: len(stayer.wakes) == number + 1)
        assert leaver.wakes == []


# -- live commands -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("time_to_answer")
async def test_a_command_reaches_the_owner_alone_and_the_sender_knows_that_it_was_heard(bus: Bus) -> None:
    async with processes(bus, {}, {}, {}) as (sender, owner, other):
        owner.runs.add(("acme", "t1"))
        assert await sender.link.tell(owner.id, "acme", "t1")
        assert not await sender.link.tell(owner.id, "acme", "t2")
        assert owner.commands == [("acme", "t1"), ("acme", "t2")]
        assert other.commands == []


async def test_a_command_to_nobody_is_not_heard_and_keeps_nobody_waiting(bus: Bus) -> None:
    async with processes(bus, {}) as (sender,):
        began = time.monotonic()
        assert not await sender.link.tell("nobody", "default", "t1")
        assert time.monotonic() - began < 8


@pytest.mark.usefixtures("time_to_answer")
async def test_commands_at_once_have_their_own_answers(bus: Bus) -> None:
    async with processes(bus, {}, {}) as (sender, owner):
        owner.runs |= {("default", f"t{number}") for number in range(0, 50, 2)}
        tells = [sender.link.tell(owner.id, "default", f"t{number}") for number in range(50)]
        assert await asyncio.gather(*tells) == [number % 2 == 0 for number in range(50)]


# -- live events ---------------------------------------------------------------------------------------------


async def test_what_happens_reaches_all_who_watch_in_order_and_nobody_else(bus: Bus) -> None:
    async with processes(bus, {}, {}, {}, {}) as (owner, first, second, other):
        for one in (first, second):
            one.link.watch("default", "t1")
        other.link.watch("default", "t2")
        await eventually(
            lambda: owner.interest.count(("default", "t1")) >= 2 and ("default", "t2") in owner.interest
        )
        sent: list[News] = []
        for number in range(0, 200, 2):
            sent += [Moved("t1", number, number + 1), Moved("below", number, number + 1)]
            sent += [Shown(replace(delta(number, "xy"), seq=number + 1))] if owner.link.deltas else []
        for one in sent:
            owner.link.show("default", "t1", [one])
        await eventually(lambda: first.news and first.news[-1] == sent[-1])
        await eventually(lambda: second.news and second.news[-1] == sent[-1])
        assert first.news == second.news == sent
        assert owner.news == other.news == []


async def test_saying_the_same_again_before_it_is_sent_says_it_once(bus: Bus) -> None:
    async with processes(bus, {}, {}) as (owner, reader):
        reader.link.watch("default", "t1")
        await eventually(lambda: ("default", "t1") in owner.interest)
        for number in range(1000):
            owner.link.show("default", "t1", [Moved("t1", number, number + 1)])
        for _ in range(100):
            owner.link.show("default", "t1", [Grown("t1")])
        await eventually(lambda: len(reader.news) >= 2)
        assert reader.news == [Moved("t1", 0, 1000), Grown("t1")]


async def test_more_than_one_letter_holds_is_sent_in_several(bus: Bus) -> None:
    async with processes(bus, {}, {}) as (owner, reader):
        reader.link.watch("default", "t1")
        await eventually(lambda: ("default", "t1") in owner.interest)
        moved = [Moved(f"below-{number}", 0, 1) for number in range(2000)]
        owner.link.show("default", "t1", [*moved, Shown(delta(0, "x" * 3_000_000)), Moved("t1", 0, 1)])
        await eventually(lambda: reader.news and reader.news[-1] == Moved("t1", 0, 1))
        assert [one for one in reader.news if isinstance(one, Moved)] == [*moved, Moved("t1", 0, 1)]


async def test_thousands_may_be_watched(bus: Bus) -> None:
    async with processes(bus, {}, {}) as (owner, reader):
        wanted = {("default", f"thread-{number}-{'x' * 60}") for number in range(500)}
        for tenant, thread_id in wanted:
            reader.link.watch(tenant, thread_id)
        await eventually(lambda: wanted <= set(owner.interest))


async def test_interest_is_told_to_those_who_come_later(bus: Bus) -> None:
    async with processes(bus, {}) as (reader,):
        reader.link.watch("default", "t1")
        async with processes(bus, {}) as (late,):
            await eventually(lambda: ("default", "t1") in late.interest)


async def test_whoever_leaves_a_thread_hears_no_more_of_it(bus: Bus) -> None:
    async with processes(bus, {}, {}) as (owner, reader):
        for _ in range(2):
            reader.link.watch("default", "t1")
        reader.link.watch("default", "t2")
        await eventually(lambda: ("default", "t2") in owner.interest)
        reader.link.leave("default", "t1")
        owner.link.show("default", "t1", [Moved("t1", 0, 1)])
        await eventually(lambda: reader.news == [Moved("t1", 0, 1)])
        reader.link.leave("default", "t1")
        owner.link.show("default", "t1", [Moved("t1", 1, 2)])
        owner.link.show("default", "t2", [Moved("t2", 0, 1)])
        await eventually(lambda: Moved("t2", 0, 1) in reader.news)
        assert Moved("t1", 1, 2) not in reader.news


async def test_a_slow_reader_holds_nobody_up(bus: Bus) -> None:
    async with processes(bus, {}, {}) as (owner, reader):
        reader.link.watch("default", "t1")
        await eventually(lambda: ("default", "t1") in owner.interest)
        hear = reader.heard

        def slowly(tenant: str, thread_id: str, news: list[News]) -> None:
            time.sleep(0.2)  # As a process does whose event loop is busy.
            hear(tenant, thread_id, news)

        reader.heard = slowly  # type: ignore[method-assign]
        began = time.monotonic()
        for number in range(20_000):
            owner.link.show("default", "t1", [Shown(delta(number, "x"))])
        assert time.monotonic() - began < 10
        owner.link.show("default", "t1", [Moved("t1", 0, 9)])
        await eventually(lambda: Moved("t1", 0, 9) in reader.news)


# -- names and lifetimes -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("time_to_answer")
@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
async def test_tenants_and_threads_may_have_any_name(bus: Bus, odd: str) -> None:
    async with processes(bus, {}, {"serves": True}) as (one, other):
        one.runs.add((odd, odd))
        other.link.watch(odd, odd)
        await eventually(lambda: (odd, odd) in one.interest)
        one.link.show(odd, odd, [Moved(odd, 0, 1)])
        one.link.wake(Wake(odd, odd, odd))
        assert await other.link.tell(one.id, odd, odd)
        await eventually(lambda: other.news == [Moved(odd, 0, 1)] and other.wakes == [Wake(odd, odd, odd)])


async def test_names_that_look_alike_are_kept_apart(bus: Bus) -> None:
    names = [("a", "b.c"), ("a.b", "c"), ("a", "b=2Ec"), ("a", "b"), ("ab", ""), ("", "ab"), ("a", "B")]
    async with processes(bus, {}, {}) as (owner, reader):
        reader.link.watch(*names[0])
        await eventually(lambda: names[0] in owner.interest)
        for number, name in enumerate(reversed(names)):
            owner.link.show(*name, [Moved(str(number), 0, 1)])
        await eventually(lambda: reader.news)
        assert reader.news == [Moved(str(len(names) - 1), 0, 1)]


async def test_closing_twice_or_before_it_is_connected_leaves_nothing_behind(bus: Bus) -> None:
    async with processes(bus, {"serves": True}) as (one,):
        await one.link.close()
        one.link.wake(Wake("default", "t1"))
        one.link.watch("default", "t1")
        one.link.show("default", "t1", [Grown("t1")])
        assert not one.link.healthy
        assert not await one.link.tell(one.id, "default", "t1")
    early = bus.join("early", one)
    await early.close()
