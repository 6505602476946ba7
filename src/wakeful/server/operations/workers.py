"""Operations of workers, dispatches and usage."""

from __future__ import annotations

from typing import Any

from ...api.numbers import time_of
from ...api.operators import ListDispatches, ListWorkers, UsageQuery
from ...api.pages import Page, page_of, position_of
from ...api.runs import Wanted
from ...errors import NotAllowed
from ...runtime import Runtime
from ...stores import Backlog, Dispatch, UsageRow, WorkerSeen
from .call import Call
from .operation import op

__all__: list[str] = []


@op("workers.list", "GET", "/v1/workers", scope="cluster:read", reply=list[WorkerSeen])
async def list_(call: Call, query: ListWorkers) -> Any:
    """The workers that hold a lease on the store, and lost ones whose claims wait for a takeover."""
    return await _cluster(call).workers.list(limit=query.limit)


@op("workers.backlog", "GET", "/v1/workers/backlog", scope="cluster:read", reply=Backlog)
async def backlog(call: Call) -> Any:
    """Dispatches of all tenants that wait for a worker, by tenant and agent, and the number of dead ones."""
    return await _cluster(call).workers.backlog()


@op("workers.dispatches", "GET", "/v1/workers/dispatches", scope="ops:read", reply=Page[Dispatch])
async def dispatches(call: Call, query: ListDispatches) -> Any:
    """Threads that are due for a worker or claimed by one, by thread id."""
    found = await call.runtime.workers.dispatches(dead=query.dead, after=position_of(query), limit=query.limit + 1)
    return page_of(query, found, "thread_id")


@op(
    "workers.revive",
    "POST",
    "/v1/workers/dispatches/{thread}/revive",
    scope="ops:write",
    reply=Wanted,
)
async def revive(call: Call, thread: str) -> Any:
    """Put a thread's dead dispatch back, with a new count of attempts."""
    return Wanted(changed=await call.runtime.workers.revive(thread))


@op("usage.list", "GET", "/v1/usage", scope="usage:read", reply=list[UsageRow])
async def usage(call: Call, query: UsageQuery) -> Any:
    """Requests to models, their tokens, cost, latency and errors, summed by agent, model and day in UTC."""
    return await call.runtime.usage(since=time_of(query.since), until=time_of(query.until), by=query.by)


def _cluster(call: Call) -> Runtime:
    """The runtime of all tenants; raises `NotAllowed` on a server of one, and for callers of other tenants."""
    cluster = call.serving.cluster
    if cluster is None or not call.serving.is_own(call.caller):
        raise NotAllowed("workers concern all tenants, and this caller or server is of one", "cluster:read")
    return cluster
