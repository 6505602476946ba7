"""Live events in one process."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.bus import LocalBus, Subscription, local
from wakeful.types.events import Event, StepStart
from wakeful.types.runs import Identity


def event(number: int = 1, thread: str = "t1") -> Event:
    return StepStart(Identity("r1", thread, "a", "r1"), number, 0, number)


def taken(reader: Subscription) -> list[int]:
    """Take the buffered events and return their numbers."""
    numbers = [e.seq for e in reader.events]
    reader.events.clear()
    return numbers


@pytest.fixture
def short_backlog(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(local, "MAX_BACKLOG", 3)
    return 3


# -- reading -------------------------------------------------------------------------------------------------


def test_local_bus_delivers_every_event_in_order() -> None:
    bus = LocalBus()
    channel, readers = bus.hold("t1"), [bus.watch("t1"), bus.watch("t1")]
    for number in (1, 2, 3):
        channel.publish(event(number))
    assert [taken(reader) for reader in readers] == [[1, 2, 3], [1, 2, 3]]


def test_reader_gets_events_while_subscribed() -> None:
    bus = LocalBus()
    channel = bus.hold("t1")
    channel.publish(event(1))
    reader = bus.watch("t1")
    channel.publish(event(2))
    reader.close()
    channel.publish(event(3))
    assert taken(reader) == [2]
    reader.close()


def test_reader_may_subscribe_before_the_publisher() -> None:
    bus = LocalBus()
    reader = bus.watch("t1")
    bus.hold("t1").publish(event())
    assert taken(reader) == [1]


def test_local_bus_separates_threads() -> None:
    bus = LocalBus()
    other = bus.watch("t2")
    bus.hold("t1").publish(event())
    assert taken(other) == []


async def test_wait_ends_with_the_next_event() -> None:
    bus = LocalBus()
    channel, reader = bus.hold("t1"), bus.watch("t1")
    waiting = asyncio.create_task(reader.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    channel.publish(event())
    channel.publish(event(2))
    await waiting
    assert taken(reader) == [1, 2]


async def test_wait_returns_at_once_when_an_event_is_buffered() -> None:
    bus = LocalBus()
    reader = bus.watch("t1")
    reader.push(event())
    await asyncio.wait_for(reader.wait(), 120)


async def test_reader_gets_events_after_a_cancelled_wait() -> None:
    bus = LocalBus()
    channel, reader = bus.hold("t1"), bus.watch("t1")
    waiting = asyncio.create_task(reader.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    channel.publish(event())
    await reader.wait()
    assert taken(reader) == [1]


# -- slow readers --------------------------------------------------------------------------------------------


def test_slow_reader_is_marked_lagged_and_continues(short_backlog: int) -> None:
    bus = LocalBus()
    channel, slow, quick = bus.hold("t1"), bus.watch("t1"), bus.watch("t1")
    seen: list[int] = []
    for number in range(1, 6):
        channel.publish(event(number))
        seen += taken(quick)
    assert slow.lagged
    assert taken(slow) == [4, 5]
    assert not quick.lagged
    assert seen == [1, 2, 3, 4, 5]


def test_reader_does_not_lag_at_the_limit(short_backlog: int) -> None:
    bus = LocalBus()
    channel, reader = bus.hold("t1"), bus.watch("t1")
    for number in range(short_backlog):
        channel.publish(event(number))
    assert not reader.lagged
    assert taken(reader) == [0, 1, 2]


@given(st.lists(st.booleans(), max_size=60))
def test_backlog_is_bounded_and_ends_with_the_newest(short_backlog: int, steps: list[bool]) -> None:
    bus = LocalBus()
    channel, reader, number = bus.hold("t1"), bus.watch("t1"), 0
    for publish in steps:
        if publish:
            number += 1
            channel.publish(event(number))
            assert reader.events[-1].seq == number
        elif reader.events:
            reader.events.popleft()
        assert len(reader.events) <= short_backlog
    numbers = taken(reader)
    assert numbers == list(range(number - len(numbers) + 1, number + 1))


def test_publish_never_blocks_on_unread_events() -> None:
    bus = LocalBus()
    channel, reader = bus.hold("t1"), bus.watch("t1")
    for number in range(3 * local.MAX_BACKLOG):
        channel.publish(event(number))
    assert reader.lagged
    assert 0 < len(reader.events) <= local.MAX_BACKLOG


def test_publish_without_readers_does_nothing() -> None:
    channel = LocalBus().hold("t1")
    assert not channel.is_watched()
    channel.publish(event())


# -- children ------------------------------------------------------------------------------------------------


def test_child_events_reach_the_parents_readers() -> None:
    bus = LocalBus()
    parent = bus.hold("t1")
    child = bus.hold("child", parent.path)
    grandchild = bus.hold("grandchild", child.path)
    above, beside = bus.watch("t1"), bus.watch("child")
    grandchild.publish(event(1))
    child.publish(event(2))
    parent.publish(event(3))
    assert (taken(above), taken(beside)) == ([1, 2, 3], [1, 2])


def test_child_is_watched_when_a_thread_above_is() -> None:
    bus = LocalBus()
    parent = bus.hold("t1")
    child = bus.hold("child", parent.path)
    assert not child.is_watched()
    reader = bus.watch("t1")
    assert child.is_watched()
    assert parent.is_watched()
    reader.close()
    assert not child.is_watched()


def test_early_reader_does_not_cut_a_child_from_its_parent() -> None:
    bus = LocalBus()
    early, above = bus.watch("child"), bus.watch("t1")
    bus.hold("child", bus.hold("t1").path).publish(event())
    assert (taken(early), taken(above)) == ([1], [1])


# -- what nobody uses ----------------------------------------------------------------------------------------


def test_channel_is_shared_while_in_use() -> None:
    bus = LocalBus()
    channel = bus.hold("t1")
    assert bus.hold("t1") is channel
    bus.release("t1")
    assert bus.hold("t1") is channel


def test_channel_is_dropped_when_unused() -> None:
    bus = LocalBus()
    held = bus.hold("t1")
    reader = bus.watch("t1")
    bus.release("t1")
    assert bus.hold("t1") is held
    bus.release("t1")
    reader.close()
    assert bus.hold("t1") is not held


def test_channel_is_kept_until_its_reader_leaves() -> None:
    bus = LocalBus()
    reader = bus.watch("t1")
    bus.hold("t1")
    bus.release("t1")
    bus.hold("t1").publish(event())
    assert taken(reader) == [1]


@given(st.lists(st.sampled_from(["hold", "release", "watch", "close"]), max_size=30))
def test_local_bus_is_empty_when_all_have_left(steps: list[str]) -> None:
    bus, held, readers = LocalBus(), 0, list[Subscription]()
    for step in steps:
        if step == "hold":
            bus.hold("t1")
            held += 1
        elif step == "release" and held:
            bus.release("t1")
            held -= 1
        elif step == "watch":
            readers.append(bus.watch("t1"))
        elif step == "close" and readers:
            readers.pop().close()
        assert ("t1" in bus._channels) == bool(held or readers)
    for reader in readers:
        reader.close()
    for _ in range(held):
        bus.release("t1")
    assert not bus._channels
