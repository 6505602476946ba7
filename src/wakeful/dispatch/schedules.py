"""Schedules in the store: each is a run that waits for its next time, on a hidden thread.

When the time comes, one commit delivers the input and sets the following time. A crash before that commit changes
nothing, and of two processes only one can write it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from ..errors import Conflict, DuplicateRequest, InboxFull, ThreadBusy, UnknownSchedule
from ..stores import Commit, Fence, StateWrite, Store, ThreadView, reused
from ..tasks import SCHEDULE, Schedule
from ..types.codec import decode, encode
from ..types.ids import new_id
from ..types.inbox import InputItem, Request
from ..types.runs import Identity, NaturalEnd, Outcome, RunRecord, Waiting
from .activations import ActivationFactory
from .results import first_item

__all__ = [
    "find_schedule",
    "fire_schedule",
    "input_now",
    "is_schedule_due",
    "remove_schedule",
    "schedule_thread",
    "schedules",
    "write_paused",
    "write_schedule",
]

_log = logging.getLogger("wakeful")

# The state key of the schedule on its thread, and a parent that hides the thread from lists.
_STATE = "__schedule"
_PARENT = "(schedules)"
_PAGE = 100

# How long a schedule is postponed if the inbox of its thread is full, in milliseconds.
FULL_INBOX_PAUSE = 30_000

# How long to wait for a process that fires the schedule right now, in seconds.
CONFLICT_PAUSE = 0.01


def schedule_thread(name: str) -> str:
    """The thread of a schedule."""
    return f"{SCHEDULE}{name}"


def _read(stored: ThreadView, run: RunRecord) -> Schedule:
    found = decode(stored.state[_STATE], Schedule)
    return replace(found, next_at=None if run.waiting is None else run.waiting.until)


async def write_schedule(
    activations: ActivationFactory, schedule: Schedule, request: Request | None = None
) -> Schedule:
    """Write a schedule, or replace one of the same name. An equal schedule stays as it is, with its next time.

    A schedule that replaces a paused one is paused. A repeated request writes nothing, and returns the present
    schedule.
    """
    env, thread_id = activations.env, schedule_thread(schedule.name)
    while True:
        now = env.clock.now()
        stored = await env.store.load(thread_id)
        run = None if stored is None else stored.run
        known = None if stored is None or run is None else _read(stored, run)
        if request is not None and (first := await first_item(env.store, request)) is not None:
            if known is None or first.thread_id != thread_id:
                raise reused(request.id)
            return known
        is_equal = known is not None and _is_equal(known, schedule)
        if known is not None and is_equal and request is None:
            return known
        if run is None:
            run_id = new_id()
            identity = Identity(run_id, thread_id, SCHEDULE, run_id, parent_thread_id=_PARENT, origin="schedule")
            run = RunRecord(identity=identity, agent_id=SCHEDULE, created_at=now, started_at=now)
        version = 0 if stored is None else stored.thread.version
        if known is not None and is_equal:
            written, commit = known, Commit(thread_id, run.identity, version=version, runs=[run])
        else:
            written = replace(schedule, paused=known is not None and known.paused)
            written, run, commit = _set(written, run, version, now)
        commit.request = request
        try:
            await activations.write(commit, run)
        except (Conflict, DuplicateRequest):
            await asyncio.sleep(CONFLICT_PAUSE)
            continue
        return written


def _is_equal(one: Schedule, other: Schedule) -> bool:
    def definition(schedule: Schedule) -> Schedule:
        message = replace(schedule.message, id="", created_at=0)
        at = schedule.at if schedule.delay is None else None
        return replace(schedule, message=message, at=at, last_at=None, next_at=None, paused=False)

    return encode(definition(one)) == encode(definition(other))


async def schedules(store: Store) -> list[Schedule]:
    """All schedules, by name."""
    found: list[Schedule] = []
    before: str | None = None
    while page := await store.runs(status="waiting", agent_id=SCHEDULE, before=before, limit=_PAGE):
        for run in page:
            stored = await store.load(run.thread_id)
            if stored is not None and stored.run is not None:
                found.append(_read(stored, stored.run))
        before = page[-1].id
    return sorted(found, key=lambda schedule: schedule.name)


def _set(schedule: Schedule, run: RunRecord, version: int, now: int) -> tuple[Schedule, RunRecord, Commit]:
    """A schedule that waits for its first time from now on, with its run and the commit that writes it."""
    until = None if schedule.paused else schedule.first(now)
    run = replace(run, status="waiting", waiting=Waiting("timer", now, until=until), updated_at=now)
    schedule = replace(schedule, next_at=None)
    state = [StateWrite(_STATE, encode(schedule))]
    commit = Commit(run.thread_id, run.identity, version=version, runs=[run], state=state)
    return replace(schedule, next_at=until), run, commit


async def find_schedule(store: Store, name: str) -> Schedule:
    """A schedule; raises `UnknownSchedule`."""
    return _found(await store.load(schedule_thread(name)), name)[1]


def _found(stored: ThreadView | None, name: str) -> tuple[ThreadView, Schedule, RunRecord]:
    if stored is None or stored.run is None:
        raise UnknownSchedule(f"no schedule {name!r:.80} in this store, or it has ended; schedules.list() has all")
    return stored, _read(stored, stored.run), stored.run


async def write_paused(activations: ActivationFactory, name: str, *, paused: bool) -> Schedule:
    """Pause a schedule, or continue it with its first time from now on; raises `UnknownSchedule`."""
    env = activations.env
    while True:
        stored, schedule, run = _found(await env.store.load(schedule_thread(name)), name)
        if schedule.paused == paused:
            return schedule
        changed = replace(schedule, paused=paused)
        written, run, commit = _set(changed, run, stored.thread.version, env.clock.now())
        try:
            await activations.write(commit, run)
        except Conflict:
            await asyncio.sleep(CONFLICT_PAUSE)
            continue
        return written


async def input_now(store: Store, name: str, now: int, request: Request | None) -> InputItem:
    """The input of an occurrence at once, on a thread of its own unless the schedule names one."""
    schedule, run_id = await find_schedule(store, name), new_id()
    request = Request(f"schedule:{name}:{run_id}") if request is None else request
    item = _input(replace(schedule, thread=schedule.thread or f"{name}-{run_id}"), now, now)
    return replace(item, id=request.id, digest=request.digest)


async def remove_schedule(store: Store, name: str) -> bool:
    """Remove a schedule; False if there is none of that name."""
    thread_id = schedule_thread(name)
    while True:
        stored = await store.load(thread_id)
        try:
            return bool(await store.delete(thread_id)) and stored is not None and stored.run is not None
        except ThreadBusy:
            await asyncio.sleep(CONFLICT_PAUSE)


def is_schedule_due(run: RunRecord, now: int) -> bool:
    """Whether a run is a schedule whose time has come."""
    waiting = run.waiting
    return run.agent_id == SCHEDULE and waiting is not None and waiting.until is not None and waiting.until <= now


async def fire_schedule(
    store: Store, now: int, stored: ThreadView, run: RunRecord, fence: Fence | None
) -> Sequence[InputItem]:
    """Deliver the input of a due schedule and set its next time, in one commit that releases a claim.

    Returns the delivered items: none if another process fired it, or if the inbox of its thread is full.
    """
    waiting = run.waiting
    if waiting is None or waiting.until is None:
        return ()
    schedule = _read(stored, run)
    due, following = schedule.due(waiting.until, now)
    if following is None:
        ended = {"status": "done", "waiting": None, "outcome": Outcome(NaturalEnd()), "finished_at": now}
        run = replace(run, updated_at=now, **ended)
    else:
        run = replace(run, waiting=Waiting("timer", now, until=following), updated_at=now)
    schedule = replace(schedule, last_at=due[-1] if due else schedule.last_at, next_at=None)
    items = [_input(schedule, at, now) for at in due]
    commit = Commit(
        run.thread_id,
        run.identity,
        fence,
        version=None if fence is not None else stored.thread.version,
        release=fence is not None,
        runs=[run],
        state=[StateWrite(_STATE, encode(schedule))],
        inbox=items,
    )
    try:
        await store.commit(commit)
    except Conflict:
        return ()  # Another process fired it, or it was replaced.
    except InboxFull as error:
        _log.warning("schedule %r is due and will be retried: %s", schedule.name, error)
        if fence is not None:  # Without a claim it stays due; the process that claims it postpones it.
            later = now + FULL_INBOX_PAUSE
            await store.commit(Commit(run.thread_id, fence=fence, release=True, later=later))
        return ()
    return items


def _input(schedule: Schedule, at: int, now: int) -> InputItem:
    run_id, moment = new_id(), datetime.fromtimestamp(at / 1000, UTC)
    thread_id = schedule.thread or f"{schedule.name}-{moment:%Y%m%dT%H%M%SZ}"
    return InputItem(
        id=f"schedule:{schedule.name}:{at}",
        thread_id=thread_id,
        message=replace(schedule.message, id=new_id(), created_at=now),
        agent_id=schedule.agent_id,
        principal=schedule.principal,
        run_id=run_id,
        lineage=Identity(run_id, thread_id, schedule.agent_id, run_id, origin="schedule"),
    )
