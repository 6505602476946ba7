"""Schedules: runs and tasks that begin at a time, once each, whatever happens to processes meanwhile."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from itertools import takewhile
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from loop.helpers import soon
from wakeful import (
    Agent,
    ConfigurationError,
    InvalidArguments,
    Runtime,
    Schedule,
    ScriptedModel,
    UsageError,
    task,
)
from wakeful.stores import Commit, Fence, InboxItem, StateWrite
from wakeful.stores._rules import MAX_PENDING
from wakeful.tasks import Cron
from wakeful.testing import FakeClock
from wakeful.types.codec import encode
from wakeful.types.ids import new_id
from wakeful.types.messages import user_message
from wakeful.types.runs import Identity, RunRecord, Waiting

from .conftest import Place
from .helpers import eventually

MONDAY = datetime(2026, 1, 5, 8, 30, tzinfo=UTC)
# In UTC it is in the year 0, which no datetime can be in.
BEFORE_ALL = datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))

ran: list[str] = []


@task(effect="pure")
async def report(about: str) -> str:
    ran.append(about)
    return f"on {about}"


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def at(moment: datetime) -> FakeClock:
    return FakeClock(round(moment.timestamp() * 1000))


def office(place: Place, time: FakeClock, **options: Any) -> Runtime:
    agent = Agent("agent", model=ScriptedModel(["good morning"] * 20))
    return Runtime([agent], tasks=[report], store=place(), clock=time, **options)


async def runs(runtime: Runtime, agent: str = "agent") -> list[str]:
    return sorted(run.thread_id for run in await runtime.list_runs(agent=agent) if run.status == "done")


async def has_runs(runtime: Runtime, count: int, agent: str = "agent") -> bool:
    return len(await runs(runtime, agent)) == count


async def test_a_run_begins_at_each_time(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        schedule = await runtime.schedule("morning", "agent", "Wake up!", cron="0 9 * * MON")
        assert schedule.next_at == round(MONDAY.replace(hour=9, minute=0).timestamp() * 1000)
        await time.advance(29 * 60)
        assert await runs(runtime) == []
        await time.advance(60)
        await eventually(lambda: has_runs(runtime, 1))
        await time.advance(7 * 24 * 3600)
        await eventually(lambda: has_runs(runtime, 2))
        assert await runs(runtime) == ["morning-20260105T090000Z", "morning-20260112T090000Z"]
        (run, _) = await runtime.list_runs(agent="agent")
        assert run.identity.origin == "schedule"
        assert [m.text for m in await runtime.messages(run.thread_id)] == ["Wake up!", "good morning"]


async def test_times_are_by_the_clocks_of_the_time_zone(place: Place) -> None:
    time = at(MONDAY.replace(hour=0))
    async with office(place, time) as runtime:
        schedule = await runtime.schedule("m", "agent", "Hi", cron="0 9 * * *", tz="Europe/Berlin")
        assert schedule.next_at is not None
        local = datetime.fromtimestamp(schedule.next_at / 1000, ZoneInfo("Europe/Berlin"))
        assert (local.hour, local.utcoffset()) == (9, timedelta(hours=1))


async def test_a_function_is_scheduled_like_an_agent(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        await runtime.schedule("sales", report, cron="0 * * * *", arguments={"about": "sales"})
        await time.advance(1800)
        await eventually(lambda: has_runs(runtime, 1, "task:report"))
        assert ran == ["sales"]
        assert [s.target for s in await runtime.schedules()] == ["report"]


async def test_occurrences_for_one_thread_take_turns_there(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        await runtime.schedule("tick", "agent", "tick", cron="* * * * *", thread="t", missed="all")
        await time.advance(180)
        await eventually(lambda: has_runs(runtime, 3))
        assert [m.text for m in await runtime.messages("t") if m.role == "user"] == ["tick"] * 3


async def test_a_schedule_is_kept_over_a_restart_and_scheduling_it_again_changes_nothing(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        first = await runtime.schedule("morning", "agent", "Wake up!", cron="0 9 * * *")
    async with office(place, time) as runtime:
        again = await runtime.schedule("morning", "agent", "Wake up!", cron="0 9 * * *")
        assert again == first
        assert await runtime.schedules() == [first]
        changed = await runtime.schedule("morning", "agent", "Wake up!", cron="0 10 * * *")
        assert await runtime.schedules() == [changed]
        await time.advance(2 * 3600)
        await eventually(lambda: has_runs(runtime, 1))
        assert await runs(runtime) == ["morning-20260105T100000Z"]


@pytest.mark.parametrize(
    ("missed", "made_up"), [("once", ["12"]), ("all", ["09", "10", "11", "12"]), ("skip", [])]
)
async def test_what_becomes_of_times_that_nobody_was_there_for(
    place: Place, missed: Any, made_up: list[str]
) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        await runtime.schedule("hourly", "agent", "Hi", cron="0 * * * *", missed=missed)
    await time.advance(4 * 3600)
    async with office(place, time) as runtime:
        await eventually(lambda: next_is(runtime, MONDAY.replace(hour=13, minute=0)))
        await eventually(lambda: has_runs(runtime, len(made_up)))
        assert await runs(runtime) == [f"hourly-20260105T{hour}0000Z" for hour in made_up]


async def next_is(runtime: Runtime, moment: datetime) -> bool:
    (schedule,) = await runtime.schedules()
    return schedule.next_at == round(moment.timestamp() * 1000)


async def test_two_processes_begin_each_occurrence_once(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as one, office(place, time) as two:
        await one.schedule("tick", "agent", "tick", cron="*/10 * * * *", missed="all")
        await time.advance(3600)
        await asyncio.gather(*[runtime._dispatch.pump("(schedule)tick") for runtime in (one, two, one, two)])
        await eventually(lambda: has_runs(one, 6))
        assert len(await one.list_runs(agent="agent")) == 6


async def test_once_at_a_time_or_after_a_delay(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        await runtime.schedule("once", "agent", "Now", at=MONDAY + timedelta(minutes=5))
        await runtime.schedule("later", report, delay=timedelta(minutes=10), arguments={"about": "it"})
        assert [s.name for s in await runtime.schedules()] == ["later", "once"]
        await time.advance(300)
        await eventually(lambda: has_runs(runtime, 1))
        assert [s.name for s in await runtime.schedules()] == ["later"]
        await time.advance(300)
        await eventually(lambda: has_runs(runtime, 1, "task:report"))
        assert await runtime.schedules() == []
        await runtime.schedule("once", "agent", "Again", delay=60)
        await time.advance(60)
        await eventually(lambda: has_runs(runtime, 2))


async def test_the_same_delay_again_does_not_put_it_off(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        first = await runtime.schedule("later", "agent", "Hi", delay=3600)
    await time.advance(1800)
    async with office(place, time) as runtime:
        assert await runtime.schedule("later", "agent", "Hi", delay=timedelta(hours=1)) == first
        await time.advance(1800)
        await eventually(lambda: has_runs(runtime, 1))
        # It has happened: the next one is another.
        again = await runtime.schedule("later", "agent", "Hi", delay=3600)
        assert again.next_at == time.now() + 3600_000
        other = await runtime.schedule("later", "agent", "Hi", delay=1800)
        assert other.next_at == time.now() + 1800_000
        fixed = await runtime.schedule("later", "agent", "Hi", at=MONDAY + timedelta(days=1))
        assert fixed.next_at == round((MONDAY + timedelta(days=1)).timestamp() * 1000)
        assert await runtime.schedules() == [fixed]


async def test_a_schedule_is_changed_though_whoever_began_what_was_due_died(place: Place) -> None:
    runtime = office(place, at(MONDAY))
    await runtime.schedule("morning", "agent", "Wake up!", cron="0 9 * * MON")
    thread = await runtime.get_thread("(schedule)morning")
    await runtime.store.commit(Commit(thread.id, version=thread.version, claim="gone", lease=0))

    changed = await soon(runtime.schedule("morning", "agent", "Wake up!", cron="0 10 * * MON"))

    assert changed.next_at == round(MONDAY.replace(hour=10, minute=0).timestamp() * 1000)
    assert [schedule.next_at for schedule in await runtime.schedules()] == [changed.next_at]
    (due,) = await runtime.store.due()
    assert due.at == changed.next_at
    await runtime.close()


async def test_what_is_unscheduled_happens_no_more(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        await runtime.schedule("morning", "agent", "Wake up!", cron="0 9 * * *")
        assert await runtime.unschedule("morning")
        assert not await runtime.unschedule("morning")
        await time.advance(24 * 3600)
        await runtime._dispatch.pump("(schedule)morning")
        assert await runtime.schedules() == []
        assert await runs(runtime) == []


@pytest.mark.parametrize(("missed", "made_up"), [("once", 1), ("all", 2), ("skip", 0)])
async def test_an_occurrence_for_a_thread_without_room_is_made_up_for_as_if_missed(
    place: Place, missed: Any, made_up: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def has_tried() -> bool:
        return any("tried again in a while" in record.message for record in caplog.records)

    time, store = at(MONDAY), place()
    async with office(lambda: store, time) as runtime:
        far = round((MONDAY + timedelta(days=365)).timestamp() * 1000)
        items = [
            InboxItem(id=f"i{n}", thread_id="t", kind="input", message=user_message("x"), agent_id="agent", at=far)
            for n in range(MAX_PENDING)
        ]
        await runtime._store.commit(Commit("t", inbox=items))
        await runtime.schedule("hourly", "agent", "tick", cron="0 * * * *", thread="t", missed=missed)
        await time.advance(1800)
        await eventually(has_tried)
        assert await next_is(runtime, MONDAY.replace(hour=9, minute=0))
        caplog.clear()
        await time.advance(3900)
        if missed != "skip":
            await eventually(has_tried)
        for item in items[:2]:
            await runtime.retract(item.id)
        await time.advance(30)
        await eventually(lambda: next_is(runtime, MONDAY.replace(hour=11, minute=0)))
        await eventually(lambda: has_runs(runtime, made_up))
        assert [m.text for m in await runtime.messages("t") if m.role == "user"] == ["tick"] * made_up


@pytest.mark.parametrize("execute", [True, False])
async def test_cancelling_the_run_that_a_schedule_is_ends_it_and_begins_nothing(
    tmp_path: Path, execute: bool
) -> None:
    store, agent = tmp_path / "store.db", Agent("agent", model=ScriptedModel([]))
    async with Runtime([agent], store=store), Runtime([agent], store=store, execute=execute) as runtime:
        await runtime.schedule("morning", "agent", "Wake up!", delay=24 * 3600)
        (run,) = await runtime.list_runs(agent="(schedule)", status="waiting")
        assert await soon(runtime.cancel(run.id))
        assert await runtime.schedules() == []
        assert await runtime.list_runs(agent="agent") == []


async def test_schedules_are_no_threads_or_agents_of_the_application(place: Place) -> None:
    async with office(place, at(MONDAY)) as runtime:
        await runtime.schedule("morning", "agent", "Wake up!", cron="0 9 * * *")
        assert await runtime.threads() == []
        assert await runtime.parked_problems() == []
        assert list(runtime.agents) == ["agent"]


async def test_a_thread_called_after_its_schedule_is_like_any_other(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        await runtime.schedule("tick", "agent", "tick", cron="0 * * * *", thread="schedule-tick")
        assert (await soon(runtime.run("agent", "Hi", thread="schedule-tick"))).text == "good morning"
        await time.advance(3600)
        await eventually(lambda: has_runs(runtime, 2))
        assert [m.text for m in await runtime.messages("schedule-tick") if m.role == "user"] == ["Hi", "tick"]


async def test_a_schedules_own_thread_is_nobody_elses(place: Place) -> None:
    async with office(place, at(MONDAY)) as runtime:
        await runtime.schedule("tick", "agent", "tick", cron="0 * * * *")
        (run,) = await runtime.list_runs()
        assert (run.agent_id, run.thread_id) == ("(schedule)", "(schedule)tick")
        for name in (run.thread_id, "(schedule)other"):
            for given in (
                runtime.run("agent", "Hi", thread=name),
                runtime.start("agent", "Hi", thread=name),
                runtime.send(name, "Hi", agent="agent"),
                runtime.spawn(report, thread=name, about="it"),
                runtime.schedule("x", "agent", "Hi", delay=1, thread=name),
            ):
                with pytest.raises(UsageError, match=rf"thread '\(schedule\){name[10:]}'.*take an id that"):
                    await soon(given)
        assert [schedule.name for schedule in await runtime.schedules()] == ["tick"]


async def kept_of_old(runtime: Runtime, name: str, cron: str, now: int) -> None:
    """Keep a schedule as it was kept once: on a thread with an id that an application's could have."""
    thread_id, run_id = f"schedule-{name}", new_id()
    schedule = Schedule(name, "agent", user_message("Hi"), cron)
    identity = Identity(run_id, thread_id, "(schedule)", run_id, parent_thread_id="(schedules)", origin="schedule")
    waiting = Waiting("timer", now, until=schedule.first(now))
    run = RunRecord(
        identity=identity, agent_id="(schedule)", created_at=now, started_at=now, status="waiting", waiting=waiting
    )
    state = [StateWrite("__schedule", encode(schedule))]
    await runtime._store.commit(Commit(thread_id, identity, version=0, runs=[run], state=state))


async def test_a_schedule_that_was_kept_under_an_id_of_old_goes_on(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        await kept_of_old(runtime, "hourly", "0 * * * *", time.now())
        await runtime.schedule("hourly", "agent", "Hi", cron="0 * * * *")
        assert [schedule.name for schedule in await runtime.schedules()] == ["hourly"]
        await time.advance(1800)
        await eventually(lambda: has_runs(runtime, 1))
        changed = await runtime.schedule("hourly", "agent", "Hi", cron="30 * * * *")
        assert await runtime.schedules() == [changed]
        assert await runtime.unschedule("hourly")
        assert await runtime.schedules() == []
        assert not await runtime.unschedule("hourly")


async def test_what_has_happened_is_not_there_to_be_unscheduled(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        await runtime.schedule("once", "agent", "Hi", delay=60)
        await time.advance(60)
        await eventually(lambda: has_runs(runtime, 1))
        assert not await runtime.unschedule("once")


async def test_a_schedule_that_is_being_fired_is_changed_or_unscheduled_after_that(place: Place) -> None:
    async with office(place, at(MONDAY)) as runtime:
        await runtime.schedule("hourly", "agent", "Hi", cron="0 * * * *")
        store, thread_id = runtime._store, "(schedule)hourly"
        for change in (
            lambda: runtime.schedule("hourly", "agent", "Hi", cron="30 * * * *"),
            lambda: runtime.unschedule("hourly"),
        ):
            stored = await store.load(thread_id)
            assert stored is not None
            claim = Commit(thread_id, version=stored.thread.version, claim="another")
            fence = Fence((await store.commit(claim)).epoch, "another")
            changing = asyncio.create_task(change())
            await asyncio.wait({changing}, timeout=0.05)
            assert not changing.done()
            await store.commit(Commit(thread_id, fence=fence, release=True))
            assert await soon(changing)
        assert await runtime.schedules() == []


async def test_a_tenants_schedules_are_its_own(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        acme = runtime.tenant("acme")
        await acme.schedule("morning", "agent", "Wake up!", cron="0 9 * * *")
        assert await runtime.schedules() == []
        await time.advance(1800)
        await eventually(lambda: has_runs(acme, 1))
        assert await runs(runtime) == []


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"cron": "nope"}, ConfigurationError, "has 1 fields"),
        ({"cron": "* * * * *", "tz": "Nowhere"}, ConfigurationError, "no time zone"),
        ({}, UsageError, "one of cron"),
        ({"cron": "* * * * *", "delay": 1}, UsageError, "one of cron"),
        ({"at": datetime(2026, 1, 1)}, UsageError, "has no time zone"),
        ({"delay": 1, "missed": "perhaps"}, UsageError, "missed is one of"),
        ({"delay": 1, "missed": None}, UsageError, "missed is one of once, skip, all, not None"),
        ({"at": BEFORE_ALL}, UsageError, "a time is not before the year 1 in UTC"),
    ],
)
async def test_what_can_t_be_scheduled_is_refused(options: Any, error: type[Exception], said: str) -> None:
    runtime = Runtime([Agent("agent", model=ScriptedModel(["hi"]))], tasks=[report])
    with pytest.raises(error, match=said):
        await runtime.schedule("x", "agent", "Hi", **options)
    with pytest.raises(UsageError, match="a schedule's name"):
        await runtime.schedule("a b", "agent", "Hi", delay=1)
    with pytest.raises(InvalidArguments, match="takes an input"):
        await runtime.schedule("x", "agent", delay=1)
    with pytest.raises(InvalidArguments, match="missing required"):
        await runtime.schedule("x", report, delay=1)
    assert await soon(runtime.schedules()) == []
    await runtime.close()


async def test_the_first_time_there_is_begins_at_once(place: Place) -> None:
    async with office(place, at(MONDAY)) as runtime:
        await runtime.schedule("old", "agent", "Hi", at=datetime.min.replace(tzinfo=UTC))
        await eventually(lambda: has_runs(runtime, 1))


@pytest.mark.parametrize(("missed", "made_up"), [("once", 1), ("all", 100), ("skip", 0)])
def test_a_year_of_missed_minutes_is_no_work(missed: Any, made_up: int) -> None:
    begin = round(MONDAY.timestamp() * 1000)
    now = begin + 365 * 24 * 3600 * 1000 + 90_000
    schedule = Schedule("tick", "agent", user_message("tick"), "*/2 * * * *", missed=missed)
    due, following = schedule.due(begin, now)
    assert len(due) == made_up
    assert following == (due[-1] + 120_000 if due else now + 30_000)
    assert all(at <= now for at in due)


@pytest.mark.parametrize("cron", ["0 * * * *", "0 9 * * *", "0 9 1 * *", "0 9 1 1 *"])
def test_the_last_time_that_was_missed_is_found_however_rare_it_is(cron: str) -> None:
    begin = round(MONDAY.timestamp() * 1000)
    now = begin + 3 * 366 * 24 * 3600 * 1000
    times = [*takewhile(lambda one: one <= now, Cron(cron).times(begin))]
    due, _ = Schedule("tick", "agent", user_message("tick"), cron).due(begin, now)
    assert list(due) == times[-1:]
