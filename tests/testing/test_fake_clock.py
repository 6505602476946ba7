"""`FakeClock`."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from wakeful import Agent, Runtime, call, tool
from wakeful.testing import FakeClock


async def test_clock_moves_only_when_advanced() -> None:
    clock = FakeClock(now=1000)
    await asyncio.sleep(0)
    assert clock.now() == 1000
    await clock.advance(2.5)
    assert clock.now() == 3500


async def test_timers_fire_in_order_at_their_time() -> None:
    clock, seen = FakeClock(now=0), list[tuple[str, int]]()
    for name, after in (("late", 3.0), ("soon", 1.0), ("soon too", 1.0), ("never", 9.0), ("now", 0.0)):
        clock.call_later(after, lambda name=name: seen.append((name, clock.now())))
    await clock.advance(0)
    assert seen == [("now", 0)]
    await clock.advance(3)
    assert seen[1:] == [("soon", 1000), ("soon too", 1000), ("late", 3000)]
    assert clock.now() == 3000


async def test_timer_fires_without_advance_when_due_now() -> None:
    clock, seen = FakeClock(), list[str]()
    clock.call_later(0, seen.append, "now")
    clock.call_later(-1, seen.append, "before")
    assert seen == []
    await asyncio.sleep(0)
    assert seen == ["now", "before"]


async def test_timer_passes_arguments() -> None:
    clock, seen = FakeClock(), list[Any]()
    clock.call_later(1, seen.append, "x")
    await clock.advance(1)
    assert seen == ["x"]


async def test_cancelled_timer_does_not_fire() -> None:
    clock, seen = FakeClock(), list[str]()
    first = clock.call_later(1, seen.append, "first")
    second = clock.call_later(2, seen.append, "second")
    clock.call_later(1, second.cancel)
    first.cancel()
    await clock.advance(5)
    assert seen == []


async def test_tasks_woken_by_timer_run_before_next_timer() -> None:
    clock, seen = FakeClock(), list[str]()
    woken = asyncio.Event()

    async def sleeper() -> None:
        await woken.wait()
        seen.append("woken")
        clock.call_later(0.5, seen.append, "set by the woken")

    task = asyncio.create_task(sleeper())
    clock.call_later(1, woken.set)
    clock.call_later(2, seen.append, "second")
    await clock.advance(2)
    assert seen == ["woken", "set by the woken", "second"]
    await task


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=8), st.lists(st.integers(0, 8), max_size=5))
def test_due_timers_fire_once_in_order(timers: list[tuple[int, bool]], steps: list[int]) -> None:
    async def check() -> None:
        clock, seen = FakeClock(now=0), list[int]()
        for number, (after, cancelled) in enumerate(timers):
            timer = clock.call_later(after, seen.append, number)
            if cancelled:
                timer.cancel()
        for seconds in steps:
            await clock.advance(seconds)
        due = [(after, n) for n, (after, cancelled) in enumerate(timers) if not cancelled and after <= sum(steps)]
        assert seen == [n for _, n in sorted(due)] if steps else seen == []

    asyncio.run(check())


async def test_runtime_uses_fake_clock(scripted: Any, fake_clock: FakeClock) -> None:
    started = asyncio.Event()

    @tool(effect="pure", timeout=60)
    async def sleepy() -> str:
        """Sleep for ever."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    agents = [Agent("a", model=scripted(call("sleepy"), "too slow"), tools=[sleepy])]
    async with Runtime(agents, clock=fake_clock) as runtime:
        run = asyncio.create_task(runtime.run("a", "go", thread="t1"))
        await started.wait()
        await fake_clock.advance(59)
        assert not run.done()
        await fake_clock.advance(1)
        assert (await run).text == "too slow"
        (record,) = await runtime.runs.list()
    assert (record.created_at, record.finished_at) == (1_700_000_000_000, 1_700_000_060_000)
