"""Operations of schedules."""

from __future__ import annotations

from typing import Any

from ...api.numbers import time_of
from ...api.operators import PutSchedule
from ...api.runs import Wanted
from ...errors import UnknownAgent
from ...tasks import Schedule
from .call import Call
from .operation import op

__all__: list[str] = []


@op("schedules.list", "GET", "/v1/schedules", scope="schedules:read", reply=list[Schedule])
async def list_(call: Call) -> Any:
    """All schedules by name, with their last and next times."""
    return await call.runtime.schedules.list()


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
