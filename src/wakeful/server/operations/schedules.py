"""Operations of schedules."""

from __future__ import annotations

from typing import Any

from ...api.numbers import time_of
from ...api.operators import PutSchedule, TimesQuery
from ...api.runs import Wanted
from ...errors import Overloaded, UnknownAgent, UnknownSchedule
from ...identity import Resource, admits
from ...tasks import Schedule
from ...types.mail import Receipt
from .call import Call
from .operation import op
from .threads import check_thread

__all__: list[str] = []

SEES = "schedules:read"


@op("schedules.list", "GET", "/v1/schedules", scope="schedules:read", reply=list[Schedule])
async def list_(call: Call) -> Any:
    """The schedules that the caller may see, by name, with their last and next times."""
    narrowed = await call.narrow("schedule")
    found = await call.runtime.schedules.list()
    return [each for each in found if admits(narrowed, _resource(each)) and call.caller.may(SEES, each.agent_id)]


@op("schedules.get", "GET", "/v1/schedules/{name}", scope="schedules:read", reply=Schedule)
async def get(call: Call, name: str) -> Any:
    """A schedule."""
    return await _schedule_of(call, name)


@op("schedules.times", "GET", "/v1/schedules/{name}/times", scope="schedules:read", reply=list[int])
async def times(call: Call, name: str, query: TimesQuery) -> Any:
    """The next times of a schedule, in milliseconds; none while it is paused."""
    return await call.runtime.schedules.times(name, query.count)


@op(
    "schedules.put",
    "PUT",
    "/v1/schedules/{name}",
    scope="schedules:write",
    reply=Schedule,
    errors=(UnknownAgent,),
)
async def put(call: Call, name: str, body: PutSchedule) -> Any:
    """Start an agent's run at given times. Putting an equal schedule changes nothing.

    A schedule belongs to its caller, whose principal its runs have.
    """
    call.check_agent(body.agent)
    if body.thread is not None:
        await check_thread(call, body.thread)
    await _check_schedule(call, name)
    return await call.runtime.schedules.put(
        name,
        body.agent,
        body.input,
        cron=body.cron,
        tz=body.tz,
        at=time_of(body.at),
        delay=body.delay,
        missed=body.missed,
        thread=body.thread,
        principal=call.caller.principal,
    )


@op("schedules.delete", "DELETE", "/v1/schedules/{name}", scope="schedules:write", reply=Wanted)
async def delete(call: Call, name: str) -> Any:
    """Delete a schedule; runs that it started continue."""
    await _check_schedule(call, name)
    return Wanted(changed=await call.runtime.schedules.delete(name))


@op(
    "schedules.run_now",
    "POST",
    "/v1/schedules/{name}/run-now",
    scope="schedules:write",
    reply=Receipt,
    statuses=(202,),
    errors=(Overloaded,),
    repeatable=True,
)
async def run_now(call: Call, name: str) -> Any:
    """Start an occurrence at once, also of a paused schedule; its other times stay."""
    await _schedule_of(call, name)
    return await call.runtime.schedules.run_now(name, request_id=call.request_id)


@op(
    "schedules.pause",
    "POST",
    "/v1/schedules/{name}/pause",
    scope="schedules:write",
    reply=Schedule,
)
async def pause(call: Call, name: str) -> Any:
    """Start no more occurrences until the schedule is continued."""
    await _schedule_of(call, name)
    return await call.runtime.schedules.pause(name)


@op(
    "schedules.unpause",
    "POST",
    "/v1/schedules/{name}/unpause",
    scope="schedules:write",
    reply=Schedule,
)
async def unpause(call: Call, name: str) -> Any:
    """Continue a paused schedule with its first time from now on."""
    await _schedule_of(call, name)
    return await call.runtime.schedules.unpause(name)


async def _schedule_of(call: Call, name: str) -> Schedule:
    """A schedule that the caller may use for the operation."""
    found = await call.runtime.schedules.get(name)
    await call.require(_resource(found))
    return found


async def _check_schedule(call: Call, name: str) -> None:
    """Refuse a schedule that exists and isn't the caller's."""
    try:
        found = await call.runtime.schedules.get(name)
    except UnknownSchedule:
        return
    await call.require(_resource(found))


def _resource(schedule: Schedule) -> Resource:
    owner = None if schedule.principal is None else schedule.principal.id
    return Resource("schedule", schedule.name, owner, schedule.agent_id)
