"""Operations of threads."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from ...api.numbers import time_of
from ...api.pages import Page, page_of, position_of
from ...api.runs import EventsQuery
from ...api.threads import (
    DeleteThread,
    DescribeThread,
    Forked,
    ForkThread,
    ImportThread,
    ListMessages,
    ListThreads,
    Removed,
    SendMessage,
)
from ...errors import HasChildren, InvalidExport, Overloaded, ThreadBusy, ThreadExists
from ...identity import Filter, Resource
from ...stores import ThreadRecord
from ...types.mail import Receipt
from ...types.messages import Message
from ..streams import end_frame, event_frame
from .call import Call, Reply
from .operation import Lines, Stream, op

__all__ = ["check_thread", "resource_of", "thread_of"]


@op("threads.list", "GET", "/v1/threads", scope="threads:read", reply=Page[ThreadRecord])
async def list_(call: Call, query: ListThreads) -> Any:
    """List threads, newest first, without those of delegated runs."""
    narrowed = await call.narrow("thread")
    if narrowed.owner is not None and query.principal not in (None, narrowed.owner):
        narrowed = Filter(narrowed.owner, ())  # Others' threads: none that it may see.
    found = await call.runtime.threads.list(
        principal=narrowed.owner or query.principal,
        agent=call.agents_of(narrowed, query.agent),
        base=query.base,
        before=position_of(query),
        limit=query.limit + 1,
    )
    return page_of(query, found, "id")


@op("threads.get", "GET", "/v1/threads/{thread}", scope="threads:read", reply=ThreadRecord)
async def get(call: Call, thread: str) -> Any:
    """A thread's record, with its title and metadata."""
    return await thread_of(call, thread)


@op("threads.describe", "PATCH", "/v1/threads/{thread}", scope="threads:write", reply=ThreadRecord)
async def describe(call: Call, thread: str, body: DescribeThread) -> Any:
    """Set a thread's title, its metadata, or both."""
    await thread_of(call, thread)
    await call.runtime.threads.describe(thread, title=body.title, metadata=body.metadata)
    return await call.runtime.threads.get(thread)


@op(
    "threads.delete",
    "DELETE",
    "/v1/threads/{thread}",
    scope="threads:delete",
    reply=Removed,
    errors=(ThreadBusy, HasChildren),
)
async def delete(call: Call, thread: str, query: DeleteThread) -> Any:
    """Delete a thread with everything it owns."""
    await thread_of(call, thread)
    return Removed(threads=await call.runtime.threads.delete(thread, children=query.children))


@op("threads.messages", "GET", "/v1/threads/{thread}/messages", scope="threads:read", reply=Page[Message])
async def messages(call: Call, thread: str, query: ListMessages) -> Any:
    """A conversation in pages from its end, or from an entry. Internal messages are shown to operators."""
    await thread_of(call, thread)
    position, store = position_of(query), call.runtime.store
    if query.after is not None:
        after = query.after if position is None else int(position)
        found = await store.messages(thread, after=after, limit=query.limit + 1)
        page = page_of(query, found, "seq")
        items = page.items
    else:
        before = query.before if position is None else int(position)
        found = await store.messages(thread, before=before, newest=query.limit + 1)
        page = page_of(query, list(reversed(found)), "seq")
        items = tuple(reversed(page.items))
    shown = [m for m in items if m.visibility == "all" or call.caller.may("ops:read")]
    return Page(tuple(shown), page.next)


@op("threads.state", "GET", "/v1/threads/{thread}/state", scope="ops:read", reply=dict[str, Any])
async def state(call: Call, thread: str) -> Any:
    """The persistent state of a thread and of its open run, by the names of the keys."""
    await thread_of(call, thread)
    return await call.runtime.threads.state(thread)


@op("threads.events", "GET", "/v1/threads/{thread}/events", scope="threads:read", reply=Stream)
async def events(call: Call, thread: str, query: EventsQuery) -> Any:
    """Stream a thread's events, of all its runs, until it is deleted."""
    await thread_of(call, thread)
    after = call.http.headers.get("last-event-id") or query.after
    source = call.runtime.events(thread, after=after, follow=query.follow, snapshot=query.snapshot)
    return call.respond(_frames(call, thread, source, query))


@op(
    "threads.send",
    "POST",
    "/v1/threads/{thread}/messages",
    scope="runs:create",
    reply=Receipt,
    statuses=(202,),
    errors=(ThreadBusy, Overloaded),
    repeatable=True,
)
async def send(call: Call, thread: str, body: SendMessage) -> Any:
    """Put input into a thread's inbox, without waiting for its run."""
    found = await check_thread(call, thread)
    # Without a name it is the agent of the last run; a caller may not use it by leaving the name out.
    agent = body.agent if found is None else body.agent or found.last_agent_id
    call.check_agent(agent)
    return await call.runtime.send(
        thread,
        body.input,
        agent=agent,
        policy=body.policy,
        principal=call.caller.principal,
        request_id=call.request_id,
        at=time_of(body.at),
        priority=body.priority,
    )


@op(
    "threads.fork",
    "POST",
    "/v1/threads/{thread}/fork",
    scope="threads:write",
    reply=Forked,
    statuses=(201,),
    errors=(ThreadExists,),
    repeatable=True,
)
async def fork(call: Call, thread: str, body: ForkThread) -> Any:
    """Make a thread that shares this one's conversation up to an entry."""
    await thread_of(call, thread)
    made = await call.runtime.threads.fork(thread, at=body.at, into=body.into, request_id=call.request_id)
    return Reply(Forked(thread_id=made), location=f"/v1/threads/{made}")


@op(
    "threads.export",
    "GET",
    "/v1/threads/{thread}/export",
    scope="threads:read",
    reply=Lines,
    errors=(ThreadBusy,),
    content_type="application/x-ndjson",
)
async def export(call: Call, thread: str) -> Any:
    """A thread as lines of JSON, for `threads.import`; signed if the server has a key for exports."""
    await thread_of(call, thread)
    lines = [line async for line in call.runtime.threads.export(thread, key=call.serving.export_key)]
    return b"".join(lines)


@op(
    "threads.import",
    "POST",
    "/v1/threads:import",
    scope="threads:write",
    reply=Forked,
    statuses=(201,),
    errors=(InvalidExport, ThreadExists),
    repeatable=True,
)
async def import_(call: Call, body: ImportThread) -> Any:
    """Make a thread of the lines of an export. An imported thread belongs to operators.

    A server with a key for exports takes those that the key signed.
    """
    if not call.caller.may("ops:write"):
        raise call.refused("ops:write")
    made = await call.runtime.threads.import_(
        body.lines.encode().splitlines(keepends=True),
        into=body.into,
        key=call.serving.export_key,
        request_id=call.request_id,
    )
    return Reply(Forked(thread_id=made), location=f"/v1/threads/{made}")


async def thread_of(call: Call, thread: str, action: str | None = None) -> ThreadRecord:
    """A thread that the caller may use for an action, by default the operation's own."""
    found = await call.find(lambda: call.runtime.threads.get(thread), "thread", thread)
    await call.require(await _resource(call, found), action)
    return found


async def check_thread(call: Call, thread: str) -> ThreadRecord | None:
    """Refuse input to a thread that exists and isn't the caller's; returns it, or None for a new one."""
    found = await call.runtime.store.thread(thread)
    if found is not None:
        await call.require(await _resource(call, found))
    return found


def resource_of(thread: ThreadRecord) -> Resource:
    """A thread as the object of an action; its agent is that of its last run."""
    return Resource("thread", thread.id, thread.principal, thread.last_agent_id)


async def _resource(call: Call, thread: ThreadRecord) -> Resource:
    found = resource_of(thread)
    if thread.last_run_id is None or call.caller.may(call.operation.scope, found.agent):
        return found
    # A run that was handed off is of the agent that it began with.
    run = await call.runtime.store.run(thread.last_run_id)
    return found if run is None else replace(found, agent=run.identity.agent_id)


async def _frames(call: Call, thread: str, source: Any, query: EventsQuery) -> AsyncGenerator[bytes]:
    async with aclosing(source) as events:
        async for event in events:
            if query.depth is None or event.run.depth <= query.depth:
                yield event_frame(event)
    yield end_frame(await call.end_reason(thread, follow=query.follow))
