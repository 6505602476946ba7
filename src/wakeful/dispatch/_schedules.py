"""Schedules in the store: each is a run that waits for its next time, on a thread that nobody is shown.

When its time has come, one commit puts the input into the inbox of what it begins and lets it wait for the time
after. A crash before that commit changes nothing, and two processes can't both make it.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..errors import Conflict, InboxFull, ThreadBusy
from ..stores import Commit, Fence, InboxItem, StateWrite, Store, ThreadView
from ..tasks import SCHEDULE, Schedule
from ..types.codec import decode, encode
from ..types.ids import new_id
from ..types.runs import Identity, NaturalEnd, Outcome, RunRecord, Waiting

if TYPE_CHECKING:
    from ._local import Dispatcher

__all__ = ["fire", "is_time", "put_schedule", "remove_schedule", "schedules"]

_log = logging.getLogger("wakeful")

# What a schedule is called in the state of its thread, and what its thread is below of, so that it isn't listed.
_STATE = "__schedule"
_ABOVE = "(schedules)"
_PAGE = 100

# How long a schedule is left alone whose thread has no room for it, in milliseconds.
ROOM_PAUSE = 30_000

# How long to wait for whoever fires a schedule in this very moment, in seconds.
FIRED_PAUSE = 0.01


async def _find(store: Store, name: str) -> tuple[str, ThreadView | None]:
    """Where a schedule of that name is, or will be. One that is open under an id of old, which threads of
    applications could have, too, stays there."""
    thread_id, before = f"{SCHEDULE}{name}", f"schedule-{name}"
    stored = await store.load(thread_id)
    if stored is None or stored.run is None:
        old = await store.load(before)
        if old is not None and old.run is not None and old.run.agent_id == SCHEDULE:
            return before, old
    return thread_id, stored


def _read(stored: ThreadView, run: RunRecord) -> Schedule:
    found = decode(stored.state[_STATE], Schedule)
    return replace(found, next_at=None if run.waiting is None else run.waiting.until)


async def put_schedule(dispatch: Dispatcher, schedule: Schedule) -> Schedule:
    """Keep a schedule. One of the same name is replaced, unless it is the same: then nothing changes, nor when it
    happens after a delay."""
    store = dispatch.env.store
    while True:
        now = dispatch.env.clock.now()
        thread_id, stored = await _find(store, schedule.name)
        run = None if stored is None else stored.run
        if stored is not None and run is not None and _same(known := _read(stored, run), schedule):
            return known
        if run is None:
            run_id = new_id()
            identity = Identity(run_id, thread_id, SCHEDULE, run_id, parent_thread_id=_ABOVE, origin="schedule")
            run = RunRecord(identity=identity, agent_id=SCHEDULE, created_at=now, started_at=now)
        first = schedule.first(now)
        waiting = Waiting("timer", now, until=first)
        run = replace(run, status="waiting", waiting=waiting, updated_at=now)
        version = 0 if stored is None else stored.thread.version
        written = [StateWrite(_STATE, encode(schedule))]
        try:
            commit = Commit(thread_id, run.identity, version=version, runs=[run], state=written)
            await dispatch.opener.write(commit, run)
        except Conflict:
            await asyncio.sleep(FIRED_PAUSE)
            continue
        dispatch.keeper.look()
        if not dispatch.execute:
            # Whoever hears of it looks when it will be due.
            dispatch.signals.wake(dispatch.tenant, thread_id, SCHEDULE)
        return replace(schedule, next_at=first)


def _same(one: Schedule, other: Schedule) -> bool:
    def said(schedule: Schedule) -> Schedule:
        message = replace(schedule.message, id="", created_at=0)
        at = schedule.at if schedule.delay is None else None
        return replace(schedule, message=message, at=at, last_at=None, next_at=None)

    return encode(said(one)) == encode(said(other))


async def schedules(store: Store) -> list[Schedule]:
    """What is scheduled, by name."""
    found: list[Schedule] = []
    before: str | None = None
    while page := await store.runs(status="waiting", agent_id=SCHEDULE, before=before, limit=_PAGE):
        for run in page:
            stored = await store.load(run.thread_id)
            if stored is not None and stored.run is not None:
                found.append(_read(stored, stored.run))
        before = page[-1].id
    return sorted(found, key=lambda schedule: schedule.name)


async def remove_schedule(store: Store, name: str) -> bool:
    """Forget a schedule; False if there is none of that name."""
    while True:
        thread_id, stored = await _find(store, name)
        try:
            return bool(await store.delete(thread_id)) and stored is not None and stored.run is not None
        except ThreadBusy:
            await asyncio.sleep(FIRED_PAUSE)


def is_time(run: RunRecord, now: int) -> bool:
    """Whether a run is a schedule's, and the time that it waits for has come."""
    waiting = run.waiting
    return run.agent_id == SCHEDULE and waiting is not None and waiting.until is not None and waiting.until <= now


async def fire(dispatch: Dispatcher, stored: ThreadView, run: RunRecord, fence: Fence | None = None) -> None:
    """Begin what is due by a schedule, and let it wait for its next time: one commit, or nothing, as where the
    thread that it is for has no room. A claim is given back with it."""
    waiting = run.waiting
    if waiting is None or waiting.until is None:
        return
    now, schedule = dispatch.env.clock.now(), _read(stored, run)
    due, following = schedule.due(waiting.until, now)
    if following is None:
        ended = {"status": "done", "waiting": None, "outcome": Outcome(NaturalEnd()), "finished_at": now}
        run = replace(run, updated_at=now, **ended)
    else:
        run = replace(run, waiting=Waiting("timer", now, until=following), updated_at=now)
    schedule = replace(schedule, last_at=due[-1] if due else schedule.last_at, next_at=None)
    commit = Commit(
        run.thread_id,
        run.identity,
        fence,
        version=None if fence is not None else stored.thread.version,
        release=fence is not None,
        runs=[run],
        state=[StateWrite(_STATE, encode(schedule))],
        inbox=[_input(schedule, at, now) for at in due],
    )
    try:
        await dispatch.env.store.commit(commit)
    except Conflict:
        return  # Somebody else did it, or the schedule was changed.
    except InboxFull as error:
        _log.warning("schedule %r is due, and tried again in a while: %s", schedule.name, error)
        if fence is not None:  # Without a claim it is due as before: whoever claims it puts it off.
            later = Commit(run.thread_id, fence=fence, release=True, later=now + ROOM_PAUSE)
            await dispatch.env.store.commit(later)
        dispatch.keeper.look()
        return
    for item in commit.inbox:
        dispatch.wake(item.thread_id, item.agent_id)
    dispatch.keeper.look()


def _input(schedule: Schedule, at: int, now: int) -> InboxItem:
    run_id, moment = new_id(), datetime.fromtimestamp(at / 1000, UTC)
    thread_id = schedule.thread or f"{schedule.name}-{moment:%Y%m%dT%H%M%SZ}"
    return InboxItem(
        id=f"schedule:{schedule.name}:{at}",
        thread_id=thread_id,
        kind="input",
        message=replace(schedule.message, id=new_id(), created_at=now),
        agent_id=schedule.agent_id,
        principal=schedule.principal,
        run_id=run_id,
        lineage=Identity(run_id, thread_id, schedule.agent_id, run_id, origin="schedule"),
    )
