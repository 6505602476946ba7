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
from wakeful import Agent, ConfigurationError, Runtime, ScriptedModel, UsageError, task
from wakeful.errors import InvalidArguments, UnknownSchedule
from wakeful.stores import Commit, Fence
from wakeful.stores.conditions import MAX_PENDING
from wakeful.tasks import Cron, Schedule
from wakeful.testing import FakeClock
from wakeful.types.inbox import InputItem
from wakeful.types.messages import user_message

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
    return sorted(run.thread_id for run in await runtime.runs.list(agent=agent) if run.status == "done")


async def has_runs(runtime: Runtime, count: int, agent: str = "agent") -> bool:
    return len(await runs(runtime, agent)) == count


async def test_schedule_starts_run_at_each_time(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        schedule = await runtime.schedules.put("morning", "agent", "Wake up!", cron="0 9 * * MON")
        assert schedule.next_at == round(MONDAY.replace(hour=9, minute=0).timestamp() * 1000)
        await time.advance(29 * 60)
        assert await runs(runtime) == []
        await time.advance(60)
        await eventually(lambda: has_runs(runtime, 1))
        await time.advance(7 * 24 * 3600)
        await eventually(lambda: has_runs(runtime, 2))
        assert await runs(runtime) == ["morning-20260105T090000Z", "morning-20260112T090000Z"]
        (run, _) = await runtime.runs.list(agent="agent")
        assert run.identity.origin == "schedule"
        assert [m.text for m in await runtime.threads.messages(run.thread_id)] == ["Wake up!", "good morning"]


async def test_schedule_uses_its_time_zone(place: Place) -> None:
    time = at(MONDAY.replace(hour=0))
    async with office(place, time) as runtime:
        schedule = await runtime.schedules.put("m", "agent", "Hi", cron="0 9 * * *", tz="Europe/Berlin")
        assert schedule.next_at is not None
        local = datetime.fromtimestamp(schedule.next_at / 1000, ZoneInfo("Europe/Berlin"))
        assert (local.hour, local.utcoffset()) == (9, timedelta(hours=1))


async def test_function_can_be_scheduled(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        await runtime.schedules.put("sales", report, cron="0 * * * *", arguments={"about": "sales"})
        await time.advance(1800)
        await eventually(lambda: has_runs(runtime, 1, "task:report"))
        assert ran == ["sales"]
        assert [s.target for s in await runtime.schedules.list()] == ["report"]


async def test_occurrences_on_one_thread_take_turns(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        await runtime.schedules.put("tick", "agent", "tick", cron="* * * * *", thread="t", missed="all")
        await time.advance(180)
        await eventually(lambda: has_runs(runtime, 3))
        assert [m.text for m in await runtime.threads.messages("t") if m.role == "user"] == ["tick"] * 3


async def test_schedule_survives_restart_and_repeated_put(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        first = await runtime.schedules.put("morning", "agent", "Wake up!", cron="0 9 * * *")
    async with office(place, time) as runtime:
        again = await runtime.schedules.put("morning", "agent", "Wake up!", cron="0 9 * * *")
        assert again == first
        assert await runtime.schedules.list() == [first]
        changed = await runtime.schedules.put("morning", "agent", "Wake up!", cron="0 10 * * *")
        assert await runtime.schedules.list() == [changed]
        await time.advance(2 * 3600)
        await eventually(lambda: has_runs(runtime, 1))
        assert await runs(runtime) == ["morning-20260105T100000Z"]


@pytest.mark.parametrize(
    ("missed", "made_up"), [("once", ["12"]), ("all", ["09", "10", "11", "12"]), ("skip", [])]
)
async def test_missed_occurrences_follow_policy(place: Place, missed: Any, made_up: list[str]) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        await runtime.schedules.put("hourly", "agent", "Hi", cron="0 * * * *", missed=missed)
    await time.advance(4 * 3600)
    async with office(place, time) as runtime:
        await eventually(lambda: next_is(runtime, MONDAY.replace(hour=13, minute=0)))
        await eventually(lambda: has_runs(runtime, len(made_up)))
        assert await runs(runtime) == [f"hourly-20260105T{hour}0000Z" for hour in made_up]


async def next_is(runtime: Runtime, moment: datetime) -> bool:
    (schedule,) = await runtime.schedules.list()
    return schedule.next_at == round(moment.timestamp() * 1000)


async def test_two_processes_start_each_occurrence_once(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as one, office(place, time) as two:
        await one.schedules.put("tick", "agent", "tick", cron="*/10 * * * *", missed="all")
        await time.advance(3600)
        await asyncio.gather(
            *[runtime._scope.dispatch.start_if_due("(schedule)tick") for runtime in (one, two, one, two)]
        )
        await eventually(lambda: has_runs(one, 6))
        assert len(await one.runs.list(agent="agent")) == 6


async def test_schedule_once_at_time_or_after_delay(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        await runtime.schedules.put("once", "agent", "Now", at=MONDAY + timedelta(minutes=5))
        await runtime.schedules.put("later", report, delay=timedelta(minutes=10), arguments={"about": "it"})
        assert [s.name for s in await runtime.schedules.list()] == ["later", "once"]
        await time.advance(300)
        await eventually(lambda: has_runs(runtime, 1))
        assert [s.name for s in await runtime.schedules.list()] == ["later"]
        await time.advance(300)
        await eventually(lambda: has_runs(runtime, 1, "task:report"))
        assert await runtime.schedules.list() == []
        await runtime.schedules.put("once", "agent", "Again", delay=60)
        await time.advance(60)
        await eventually(lambda: has_runs(runtime, 2))


async def test_repeated_delay_does_not_postpone(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        first = await runtime.schedules.put("later", "agent", "Hi", delay=3600)
    await time.advance(1800)
    async with office(place, time) as runtime:
        assert await runtime.schedules.put("later", "agent", "Hi", delay=timedelta(hours=1)) == first
        await time.advance(1800)
        await eventually(lambda: has_runs(runtime, 1))
        # It has happened: the next one is another.
        again = await runtime.schedules.put("later", "agent", "Hi", delay=3600)
        assert again.next_at == time.now() + 3600_000
        other = await runtime.schedules.put("later", "agent", "Hi", delay=1800)
        assert other.next_at == time.now() + 1800_000
        fixed = await runtime.schedules.put("later", "agent", "Hi", at=MONDAY + timedelta(days=1))
        assert fixed.next_at == round((MONDAY + timedelta(days=1)).timestamp() * 1000)
        assert await runtime.schedules.list() == [fixed]


async def test_schedule_can_be_changed_after_firing_process_died(place: Place) -> None:
    runtime = office(place, at(MONDAY))
    await runtime.schedules.put("morning", "agent", "Wake up!", cron="0 9 * * MON")
    thread = await runtime.threads.get("(schedule)morning")
    await runtime.store.commit(Commit(thread.id, version=thread.version, claim="gone", lease=0))

    changed = await soon(runtime.schedules.put("morning", "agent", "Wake up!", cron="0 10 * * MON"))

    assert changed.next_at == round(MONDAY.replace(hour=10, minute=0).timestamp() * 1000)
    assert [schedule.next_at for schedule in await runtime.schedules.list()] == [changed.next_at]
    (due,) = await runtime.store.due()
    assert due.at == changed.next_at
    await runtime.close()


async def test_deleted_schedule_fires_no_more(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        await runtime.schedules.put("morning", "agent", "Wake up!", cron="0 9 * * *")
        assert await runtime.schedules.delete("morning")
        assert not await runtime.schedules.delete("morning")
        await time.advance(24 * 3600)
        await runtime._scope.dispatch.start_if_due("(schedule)morning")
        assert await runtime.schedules.list() == []
        assert await runs(runtime) == []


@pytest.mark.parametrize(("missed", "made_up"), [("once", 1), ("all", 2), ("skip", 0)])
async def test_occurrence_for_full_inbox_counts_as_missed(
    place: Place, missed: Any, made_up: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def has_tried() -> bool:
        return any("will be retried" in record.message for record in caplog.records)

    time, store = at(MONDAY), place()
    async with office(lambda: store, time) as runtime:
        far = round((MONDAY + timedelta(days=365)).timestamp() * 1000)
        items = [
            InputItem(id=f"i{n}", thread_id="t", message=user_message("x"), agent_id="agent", at=far)
            for n in range(MAX_PENDING)
        ]
        await runtime.store.commit(Commit("t", inbox=items))
        await runtime.schedules.put("hourly", "agent", "tick", cron="0 * * * *", thread="t", missed=missed)
        await time.advance(1800)
        await eventually(has_tried)
        assert await next_is(runtime, MONDAY.replace(hour=9, minute=0))
        caplog.clear()
        await time.advance(3900)
        if missed != "skip":
            await eventually(has_tried)
        for item in items[:2]:
            await runtime.mail.retract(item.id)
        await time.advance(30)
        await eventually(lambda: next_is(runtime, MONDAY.replace(hour=11, minute=0)))
        await eventually(lambda: has_runs(runtime, made_up))
        assert [m.text for m in await runtime.threads.messages("t") if m.role == "user"] == ["tick"] * made_up


@pytest.mark.parametrize("execute", [True, False])
async def test_cancel_of_schedule_run_ends_schedule(tmp_path: Path, execute: bool) -> None:
    store, agent = tmp_path / "store.db", Agent("agent", model=ScriptedModel([]))
    async with Runtime([agent], store=store), Runtime([agent], store=store, execute=execute) as runtime:
        await runtime.schedules.put("morning", "agent", "Wake up!", delay=24 * 3600)
        (run,) = await runtime.runs.list(agent="(schedule)", status="waiting")
        assert await soon(runtime.cancel(run.id))
        assert await runtime.schedules.list() == []
        assert await runtime.runs.list(agent="agent") == []


async def test_schedules_are_not_listed_as_threads_or_agents(place: Place) -> None:
    async with office(place, at(MONDAY)) as runtime:
        await runtime.schedules.put("morning", "agent", "Wake up!", cron="0 9 * * *")
        assert await runtime.threads.list() == []
        assert await runtime.runs.check_parked() == []
        assert list(runtime.agents) == ["agent"]


async def test_thread_named_like_schedule_is_ordinary(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        await runtime.schedules.put("tick", "agent", "tick", cron="0 * * * *", thread="schedule-tick")
        assert (await soon(runtime.run("agent", "Hi", thread="schedule-tick"))).text == "good morning"
        await time.advance(3600)
        await eventually(lambda: has_runs(runtime, 2))
        assert [m.text for m in await runtime.threads.messages("schedule-tick") if m.role == "user"] == [
            "Hi",
            "tick",
        ]


async def test_schedule_thread_is_reserved(place: Place) -> None:
    async with office(place, at(MONDAY)) as runtime:
        await runtime.schedules.put("tick", "agent", "tick", cron="0 * * * *")
        (run,) = await runtime.runs.list()
        assert (run.agent_id, run.thread_id) == ("(schedule)", "(schedule)tick")
        for name in (run.thread_id, "(schedule)other"):
            for given in (
                runtime.run("agent", "Hi", thread=name),
                runtime.start("agent", "Hi", thread=name),
                runtime.send(name, "Hi", agent="agent"),
                runtime.tasks.spawn(report, thread=name, about="it"),
                runtime.schedules.put("x", "agent", "Hi", delay=1, thread=name),
            ):
                with pytest.raises(UsageError, match=rf"thread '\(schedule\){name[10:]}'.*take an id that"):
                    await soon(given)
        assert [schedule.name for schedule in await runtime.schedules.list()] == ["tick"]


async def test_finished_schedule_cannot_be_deleted(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        await runtime.schedules.put("once", "agent", "Hi", delay=60)
        await time.advance(60)
        await eventually(lambda: has_runs(runtime, 1))
        assert not await runtime.schedules.delete("once")


async def test_paused_schedule_starts_nothing_until_unpaused(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        await runtime.schedules.put("hourly", "agent", "Hi", cron="0 * * * *")
        assert (await runtime.schedules.pause("hourly")).next_at is None
        await time.advance(3 * 3600)
        replaced = await runtime.schedules.put("hourly", "agent", "Hi", cron="15 * * * *")
        assert (replaced.paused, replaced.next_at) == (True, None)
        assert await runtime.schedules.get("hourly") == replaced
        continued = await runtime.schedules.unpause("hourly")
        assert continued.next_at == time.now() + 45 * 60_000
        await time.advance(45 * 60)
        await eventually(lambda: has_runs(runtime, 1))
        assert await runs(runtime) == ["hourly-20260105T121500Z"]


async def test_schedule_runs_now_once_for_a_request(place: Place) -> None:
    async with office(place, at(MONDAY)) as runtime:
        made = await runtime.schedules.put("morning", "agent", "Wake up!", cron="0 9 * * *")
        await runtime.schedules.pause("morning")
        first = await runtime.schedules.run_now("morning", request_id="now")
        assert await runtime.schedules.run_now("morning", request_id="now") == first
        await eventually(lambda: has_runs(runtime, 1))
        assert await runs(runtime) == [first.thread_id]
        assert (await runtime.schedules.unpause("morning")).next_at == made.next_at
        with pytest.raises(UnknownSchedule):
            await runtime.schedules.run_now("evening")


async def test_firing_schedule_is_changed_afterwards(place: Place) -> None:
    async with office(place, at(MONDAY)) as runtime:
        await runtime.schedules.put("hourly", "agent", "Hi", cron="0 * * * *")
        store, thread_id = runtime.store, "(schedule)hourly"
        for change in (
            lambda: runtime.schedules.put("hourly", "agent", "Hi", cron="30 * * * *"),
            lambda: runtime.schedules.delete("hourly"),
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
        assert await runtime.schedules.list() == []


async def test_schedules_belong_to_tenant(place: Place) -> None:
    time = at(MONDAY)
    async with office(place, time) as runtime:
        acme = runtime.tenant("acme")
        await acme.schedules.put("morning", "agent", "Wake up!", cron="0 9 * * *")
        assert await runtime.schedules.list() == []
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
async def test_invalid_schedule_is_refused(options: Any, error: type[Exception], said: str) -> None:
    runtime = Runtime([Agent("agent", model=ScriptedModel(["hi"]))], tasks=[report])
    with pytest.raises(error, match=said):
        await runtime.schedules.put("x", "agent", "Hi", **options)
    with pytest.raises(UsageError, match="a schedule's name"):
        await runtime.schedules.put("a b", "agent", "Hi", delay=1)
    with pytest.raises(InvalidArguments, match="takes an input"):
        await runtime.schedules.put("x", "agent", delay=1)
    with pytest.raises(InvalidArguments, match="missing required"):
        await runtime.schedules.put("x", report, delay=1)
    assert await soon(runtime.schedules.list()) == []
    await runtime.close()


async def test_past_start_time_fires_at_once(place: Place) -> None:
    async with office(place, at(MONDAY)) as runtime:
        await runtime.schedules.put("old", "agent", "Hi", at=datetime.min.replace(tzinfo=UTC))
        await eventually(lambda: has_runs(runtime, 1))


@pytest.mark.parametrize(("missed", "made_up"), [("once", 1), ("all", 100), ("skip", 0)])
def test_year_of_missed_minutes_is_cheap(missed: Any, made_up: int) -> None:
    begin = round(MONDAY.timestamp() * 1000)
    now = begin + 365 * 24 * 3600 * 1000 + 90_000
    schedule = Schedule("tick", "agent", user_message("tick"), "*/2 * * * *", missed=missed)
    due, following = schedule.due(begin, now)
    assert len(due) == made_up
    assert following == (due[-1] + 120_000 if due else now + 30_000)
    assert all(at <= now for at in due)


@pytest.mark.parametrize("cron", ["0 * * * *", "0 9 * * *", "0 9 1 * *", "0 9 1 1 *"])
def test_last_missed_time_of_rare_schedule_is_found(cron: str) -> None:
    begin = round(MONDAY.timestamp() * 1000)
    now = begin + 3 * 366 * 24 * 3600 * 1000
    times = [*takewhile(lambda one: one <= now, Cron(cron).times(begin))]
    due, _ = Schedule("tick", "agent", user_message("tick"), cron).due(begin, now)
    assert list(due) == times[-1:]
