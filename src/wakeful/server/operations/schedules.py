"""Operations of schedules."""

from __future__ import annotations

from typing import Any

from ...api.numbers import time_of
from ...api.operators import PutSchedule, TimesQuery
from ...api.runs import Wanted
from ...errors import Overloaded, UnknownAgent
from ...tasks import Schedule
from ...types.mail import Receipt
from .call import Call
from .operation import op

__all__: list[str] = []


@op("schedules.list", "GET", "/v1/schedules", scope="schedules:read", reply=list[Schedule])
async def list_(call: Call) -> Any:
    """All schedules by name, with their last and next times."""
    return await call.runtime.schedules.list()


@op("schedules.get", "GET", "/v1/schedules/{name}", scope="schedules:read", reply=Schedule)
async def get(call: Call, name: str) -> Any:
    """A schedule."""
    return await call.runtime.schedules.get(name)


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
    """Start an agent's run at given times. Putting an equal schedule changes nothing."""
    call.check_agent(body.agent)
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
    agent = (await call.runtime.schedules.get(name)).agent_id
    if not call.caller.may("schedules:write", agent):
        raise call.refused(f"schedules:write:{agent}")
    return await call.runtime.schedules.run_now(name, request_id=call.request_id)


@op(
    "schedules.pause",
    "POST",
    "/v1/schedules/{name}/pause",
    scope="schedules:write",
    reply=Schedule,
    repeatable=True,
)
async def pause(call: Call, name: str) -> Any:
    """Start no more occurrences until the schedule is continued."""
    return await call.runtime.schedules.pause(name)


@op(
    "schedules.unpause",
    "POST",
    "/v1/schedules/{name}/unpause",
    scope="schedules:write",
    reply=Schedule,
    repeatable=True,
)
async def unpause(call: Call, name: str) -> Any:
    """Continue a paused schedule with its first time from now on."""
    return await call.runtime.schedules.unpause(name)
