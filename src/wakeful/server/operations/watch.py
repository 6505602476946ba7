"""The operation of the watch feed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import msgspec

from ...api.watch import WatchQuery
from ...identity import AUTHENTICATED
from ...stores import ThreadRecord
from ...types.runs import RunRecord
from ...types.tickets import Ticket
from ..sse import frame
from ..streams import end_frame
from ..watch import Change, FeedReader
from .call import Call
from .operation import Stream, op
from .runs import resource_of
from .threads import resource_of as thread_resource
from .tickets import is_visible

__all__: list[str] = []


@op("watch.stream", "GET", "/v1/watch", scope=AUTHENTICATED, reply=Stream)
async def stream(call: Call, query: WatchQuery) -> Any:
    """Stream hints of what changed in the tenant: runs, threads, tickets and workers, without their content.

    The first event is `ready`: fetch your lists when it comes, and what a `hint` names from then on. `reset` says
    that hints were lost: fetch everything again. A caller gets hints of what it may read. Hints come within about
    a second of a change; of runs and threads that are not open, only for the newest 200.
    """
    return call.respond(_frames(call, query.seconds))


async def _frames(call: Call, seconds: float | None) -> AsyncGenerator[bytes]:
    watch = call.serving.watch
    reader = await watch.join(call.runtime, call.serving.cluster)
    try:
        yield frame("ready", b"{}")
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        while not reader.is_ended:
            changes = await _take(reader, deadline)
            if changes is None:
                break
            if reader.has_lost:
                reader.has_lost = False
                yield frame("reset", b"{}")
            for change in changes:
                if await _may_see(call, change):
                    yield frame("hint", msgspec.json.encode(change.hint))
        yield end_frame("draining" if reader.is_ended else "done")
    finally:
        await watch.leave(call.runtime, reader)


async def _take(reader: FeedReader, deadline: float | None) -> list[Change] | None:
    with suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):
            return await reader.take()
    return None


async def _may_see(call: Call, change: Change) -> bool:
    """Whether the caller may read what changed; of what was deleted, whether it is an operator."""
    match change.record:
        case RunRecord() as run:
            return await call.permits("runs:read", resource_of(run))
        case Ticket() as ticket:
            return call.caller.may("tickets:read") and await is_visible(call, ticket)
        case ThreadRecord() as thread:
            return await call.permits("threads:read", thread_resource(thread))
        case None if change.hint.kind == "worker":
            return call.caller.may("cluster:read") and call.serving.is_own(call.caller)
        case None:
            return call.caller.may("ops:read")
