"""`FakeClock.advance` on every store: what falls due on the way happens in its order, each at its time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from conformance.store_suite import STORES, StoreFactory
from wakeful import Agent, FunctionModel, ModelRequest, Runtime, ToolContext, call, tool
from wakeful.stores import Store
from wakeful.testing import FakeClock

MONDAY = datetime(2026, 1, 5, 8, 30, tzinfo=UTC)
HOUR = 3600


@pytest.fixture(params=STORES)
def open_store(request: pytest.FixtureRequest) -> StoreFactory:
    return STORES[request.param]


class Journal:
    """Notes what happened, with the minutes since it was opened."""

    def __init__(self) -> None:
        self.clock = FakeClock(round(MONDAY.timestamp() * 1000))
        self.notes: list[tuple[str, float]] = []
        self._began = self.clock.now()

    def note(self, what: str) -> None:
        self.notes.append((what, (self.clock.now() - self._began) / 60_000))

    def runtime(self, store: Store) -> Runtime:
        """A runtime whose agent naps or pays, as its input says; it notes any other input."""

        @tool(effect="pure")
        async def nap(ctx: ToolContext, minutes: int) -> str:
            """Sleep."""
            await ctx.sleep(minutes * 60)
            self.note(f"slept {minutes}")
            return "slept"

        @tool(approval=True, deadline=25 * 60, on_deadline="approve")
        async def pay() -> str:
            """Pay."""
            self.note("paid")
            return "paid"

        def answer(request: ModelRequest) -> Any:
            last = request.messages[-1]
            if last.role == "tool":
                return "done"
            what, _, minutes = last.text.partition(" ")
            if what in ("nap", "pay"):
                return call("nap", minutes=int(minutes)) if what == "nap" else call("pay")
            self.note(last.text)
            return "noted"

        return Runtime(
            [Agent("agent", model=FunctionModel(answer), tools=[nap, pay])], store=store, clock=self.clock
        )


async def test_due_work_happens_in_order_at_its_time(open_store: StoreFactory) -> None:
    journal = Journal()
    async with open_store() as store, journal.runtime(store) as runtime:
        for text in ("nap 37", "pay", "nap 15"):
            assert (await runtime.run("agent", text)).status == "waiting"
        await runtime.schedules.put("tick", "agent", "tick", cron="0,20,40 * * * *")
        await journal.clock.advance(HOUR)
        assert journal.notes == [
            ("tick", 10),
            ("slept 15", 15),
            ("paid", 25),
            ("tick", 30),
            ("slept 37", 37),
            ("tick", 50),
        ]
        runs = await runtime.runs.list(agent="agent")
        assert {run.status for run in runs} == {"done"}
        assert len(runs) == 6


async def test_schedule_runs_each_time_of_a_long_advance(open_store: StoreFactory) -> None:
    journal = Journal()
    async with open_store() as store, journal.runtime(store) as runtime:
        await runtime.schedules.put("hourly", "agent", "hour", cron="0 * * * *", missed="skip")
        await runtime.schedules.put("half", "agent", "half", cron="30 * * * *", thread="t")
        await journal.clock.advance(4 * HOUR)
        expected = [("hour" if minute % 60 else "half", minute) for minute in range(30, 241, 30)]
        assert journal.notes == expected


@pytest.mark.parametrize(("missed", "made_up"), [("once", 1), ("all", 4), ("skip", 0)])
async def test_skipped_times_are_made_up_by_advance(open_store: StoreFactory, missed: Any, made_up: int) -> None:
    journal = Journal()
    async with open_store() as store:
        runtime = journal.runtime(store)
        await runtime.schedules.put("hourly", "agent", "hour", cron="0 * * * *", missed=missed)
        await journal.clock.advance(4 * HOUR)
        assert journal.notes == []  # The runtime doesn't serve.
        async with runtime:
            await journal.clock.advance(HOUR)
            assert journal.notes == [("hour", 240)] * made_up + [("hour", 270)]
