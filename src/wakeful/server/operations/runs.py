"""Operations of runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from ...api.agents import WrittenTest
from ...api.numbers import time_of
from ...api.pages import Page, page_of, position_of
from ...api.runs import (
    CancelRun,
    CountRuns,
    CreateRun,
    EventsQuery,
    ListRuns,
    ResumeRun,
    WaitQuery,
    Wanted,
)
from ...dispatch import RunResult
from ...errors import (
    CannotResume,
    InvalidDecision,
    NotAllowed,
    Overloaded,
    RunNotFailed,
    RunNotWaiting,
    ThreadBusy,
    TicketClosed,
    UnknownAgent,
    UsageError,
)
from ...identity import Filter, Resource
from ...runtime import Ledger, ParkedProblem, RunHandle, RunTree
from ...stores import Tally, reused
from ...testing.runs import slug, write_test
from ...tools import ClientTool
from ...types.calls import Call as ToolCall
from ...types.events import RunFinish
from ...types.runs import ErrorDetail, RunRecord
from ...types.tickets import Ticket
from ..sse import EventStream
from ..streams import end_frame, event_frame
from .call import Call, Reply
from .operation import Stream, op
from .threads import check_thread

__all__ = ["resource_of", "run_of"]


@op(
    "runs.create",
    "POST",
    "/v1/runs",
    scope="runs:create",
    reply=RunResult[Any],
    statuses=(201, 200, 202),
    errors=(UnknownAgent, ThreadBusy, Overloaded),
    repeatable=True,
)
async def create(call: Call, body: CreateRun) -> Any:
    """Start a run.

    201 once the run is stored. With `wait`, 200 when it finished or asks within that time, else 202; it continues
    in any case. A repeated `Idempotency-Key` starts nothing and replies with the first run.
    """
    handle = await _start(call, body)
    location = f"/v1/runs/{handle.run_id}"
    if body.wait:
        result, settled = await _wait(call, handle.run_id, body.wait)
        return Reply(result, 200 if settled else 202, location=location)
    result = RunResult[Any](
        run_id=handle.run_id, thread_id=handle.thread_id, agent_id=body.agent, status="created", text=""
    )
    return Reply(result, location=location)


@op(
    "runs.stream",
    "POST",
    "/v1/runs:stream",
    scope="runs:create",
    reply=Stream,
    errors=(UnknownAgent, ThreadBusy, Overloaded),
    repeatable=True,
)
async def stream(call: Call, body: CreateRun) -> Any:
    """Start a run and stream its events, and those of the runs below it.

    Leaving the stream doesn't cancel the run.
    """
    handle = await _start(call, body)
    run = await _begun(call, handle)
    return _events(call, run, "0", EventsQuery(), location=f"/v1/runs/{handle.run_id}")


@op("runs.list", "GET", "/v1/runs", scope="runs:read", reply=Page[RunRecord])
async def list_(call: Call, query: ListRuns) -> Any:
    """List runs, newest first."""
    found = await call.runtime.runs.list(
        before=position_of(query), limit=query.limit + 1, **await _filters(call, query)
    )
    return page_of(query, found, "id")


@op("runs.count", "GET", "/v1/runs:count", scope="runs:read", reply=Tally)
async def count(call: Call, query: CountRuns) -> Any:
    """Count runs by the filters of `runs.list`, up to 10,000."""
    return await call.runtime.runs.count(**await _filters(call, query))


async def _filters(call: Call, query: CountRuns) -> dict[str, Any]:
    """The conditions of a list: those that the caller asks for, within what it may see."""
    narrowed = await call.narrow("run")
    if narrowed.owner is not None and query.principal not in (None, narrowed.owner):
        narrowed = Filter(narrowed.owner, ())  # Others' runs: none that it may see.
    return {
        "thread": query.thread,
        "status": query.status,
        "agent": call.agents_of(narrowed, query.agent),
        "principal": narrowed.owner or query.principal,
        "root": query.root,
        "parent": query.parent,
        "outcome": query.outcome,
        "waits_for": query.waits_for,
        "since": time_of(query.since),
        "until": time_of(query.until),
    }


@op("runs.parked", "GET", "/v1/runs:parked", scope="ops:read", reply=list[ParkedProblem])
async def parked(call: Call) -> Any:
    """The waiting runs that the present code can't continue, and why, newest first."""
    return await call.runtime.runs.check_parked()


@op("runs.get", "GET", "/v1/runs/{run}", scope="runs:read", reply=RunRecord)
async def get(call: Call, run: str) -> Any:
    """A run's record."""
    return await run_of(call, run)


@op("runs.result", "GET", "/v1/runs/{run}/result", scope="runs:read", reply=RunResult[Any], statuses=(200, 202))
async def result(call: Call, run: str, query: WaitQuery) -> Any:
    """A run's result so far; with `wait`, once it finished or asks. 202 if it still runs."""
    await run_of(call, run)
    found, settled = await _wait(call, run, query.wait)
    return Reply(found, 200 if settled else 202)


@op("runs.calls", "GET", "/v1/runs/{run}/calls", scope="runs:read", reply=list[ToolCall])
async def calls(call: Call, run: str) -> Any:
    """A run's tool calls, in order."""
    await run_of(call, run)
    return await call.runtime.runs.calls(run)


@op("runs.errors", "GET", "/v1/runs/{run}/errors", scope="ops:read", reply=list[ErrorDetail])
async def errors(call: Call, run: str) -> Any:
    """The texts of a run's unexpected exceptions, which the model, events and results name by references only."""
    await run_of(call, run)
    return await call.runtime.runs.errors(run)


@op("runs.ledger", "GET", "/v1/runs/{run}/ledger", scope="runs:read", reply=Ledger)
async def ledger(call: Call, run: str) -> Any:
    """A run's tool calls by state."""
    await run_of(call, run)
    return await call.runtime.runs.ledger(run)


@op("runs.test", "GET", "/v1/runs/{run}/test", scope="runs:read", reply=WrittenTest)
async def test(call: Call, run: str) -> Any:
    """A test for pytest that repeats a finished run: the model's answers and the tools' results are scripted."""
    found = await run_of(call, run)
    may_inspect = call.caller.may("agents:inspect", found.agent_id)
    source = await write_test(call.runtime, run, instructions=may_inspect)
    return WrittenTest(name=f"test_{slug(found.agent_id)}.py", source=source)


@op("runs.tree", "GET", "/v1/runs/{run}/tree", scope="runs:read", reply=RunTree)
async def tree(call: Call, run: str) -> Any:
    """A run with all runs below it."""
    await run_of(call, run)
    return await call.runtime.runs.tree(run)


@op("runs.tickets", "GET", "/v1/runs/{run}/tickets", scope="runs:read", reply=list[Ticket])
async def tickets(call: Call, run: str) -> Any:
    """The tickets of a run and of the runs below it, oldest first."""
    await run_of(call, run)
    return await call.runtime.tickets.list(run)


@op("runs.events", "GET", "/v1/runs/{run}/events", scope="runs:read", reply=Stream, statuses=(200, 204))
async def events(call: Call, run: str, query: EventsQuery) -> Any:
    """Stream the events of a run and of the runs below it.

    The stream ends with an `end` event when the run is done or waits. A reader that returns after the end of a run
    that is done gets 204.
    """
    found = await run_of(call, run)
    after = call.http.headers.get("last-event-id") or query.after
    if found.status == "done" and after != "0" and await _is_over(call, found, after):
        return Reply(None, 204)
    return _events(call, found, after, query)


@op(
    "runs.cancel",
    "POST",
    "/v1/runs/{run}/cancel",
    scope="runs:control",
    reply=Wanted,
)
async def cancel(call: Call, run: str, body: CancelRun) -> Any:
    """Cancel a run with everything below it, and wait until that has ended."""
    await run_of(call, run, "runs:control")
    return Wanted(changed=await call.serving.finish(call.runtime.cancel(run, body.reason)))


@op(
    "runs.resume",
    "POST",
    "/v1/runs/{run}/resume",
    scope="tickets:answer",
    reply=RunResult[Any],
    statuses=(200, 202),
    errors=(TicketClosed, RunNotWaiting, CannotResume, InvalidDecision),
    repeatable=True,
)
async def resume(call: Call, run: str, body: ResumeRun) -> Any:
    """Answer tickets of a run and of the runs below it. All answers are valid, or none is taken."""
    await run_of(call, run, "runs:read")
    decisions = [each.decision(each.ticket_id) for each in body.decisions]
    work = call.runtime.resume(
        run,
        *decisions,
        message=body.message,
        principal=call.author,
        request_id=call.request_id,
        message_id=body.message_id,
        check=False,
    )
    if body.wait or not decisions:
        return await settle(call, run, work, body.wait)
    return await _accepted(call, run, work, decisions[0].id)


@op(
    "runs.retry",
    "POST",
    "/v1/runs/{run}/retry",
    scope="runs:control",
    reply=RunResult[Any],
    statuses=(200, 202),
    errors=(RunNotFailed,),
    repeatable=True,
)
async def retry(call: Call, run: str, query: WaitQuery) -> Any:
    """Continue a failed run from its last committed step."""
    await run_of(call, run, "runs:control")
    return await settle(
        call, run, call.runtime.runs.retry(run, request_id=call.request_id, check=False), query.wait
    )


@op("runs.pause", "POST", "/v1/runs/{run}/pause", scope="runs:control", reply=Wanted)
async def pause(call: Call, run: str) -> Any:
    """Pause a run at its next step."""
    await run_of(call, run, "runs:control")
    return Wanted(changed=await call.runtime.runs.pause(run))


@op("runs.unpause", "POST", "/v1/runs/{run}/unpause", scope="runs:control", reply=Wanted)
async def unpause(call: Call, run: str) -> Any:
    """Continue a paused run."""
    await run_of(call, run, "runs:control")
    return Wanted(changed=await call.runtime.runs.unpause(run))


# -- helpers ---------------------------------------------------------------------------------------------------


async def run_of(call: Call, run: str, action: str | None = None) -> RunRecord:
    """A run that the caller may use for an action, by default the operation's own."""
    found = await call.find(lambda: call.runtime.runs.get(run), "run", run)
    await call.require(resource_of(found), action)
    return found


def resource_of(run: RunRecord) -> Resource:
    """A run as the object of an action."""
    return Resource("run", run.id, run.owner_id, run.identity.agent_id)


async def _start(call: Call, body: CreateRun) -> RunHandle[Any]:
    runtime, caller = call.runtime, call.caller
    call.check_agent(body.agent)
    if body.thread is not None:
        await check_thread(call, body.thread)
    if body.settings is not None and not caller.may("runs:settings", body.agent):
        raise NotAllowed("settings of a run need the scope 'runs:settings'", "runs:settings")
    if body.delay is not None and body.at is not None:
        raise UsageError("a run starts after a delay or at a time, not both")
    return await runtime.start(
        body.agent,
        body.input,
        thread=body.thread,
        principal=caller.principal,
        settings=body.settings,
        client_tools=[ClientTool(one.name, one.description, one.parameters) for one in body.client_tools],
        request_id=call.request_id,
        message_id=body.message_id,
        delay=body.delay,
        at=time_of(body.at),
        priority=body.priority,
    )


async def _begun(call: Call, handle: RunHandle[Any]) -> RunRecord:
    return await call.runtime.runs.get(handle.run_id)


async def _wait(call: Call, run: str, seconds: float) -> tuple[RunResult[Any], bool]:
    """A run's result once it is done or waits, or after these seconds; and whether it is."""
    found = await call.runtime.runs.result(run)
    if found.status in ("done", "waiting") or not seconds:
        return found, found.status in ("done", "waiting")
    return await _until(call, run, call.runtime.wait(run, check=False), seconds)


async def settle(call: Call, run: str, work: Any, seconds: float) -> Any:
    """Do work on a run that continues if the request ends, and reply with the run's result after these seconds."""
    found, settled = await _until(call, run, work, seconds)
    return Reply(found, 200 if settled else 202)


async def _accepted(call: Call, run: str, work: Any, decision_id: str) -> Any:
    """Reply once decisions are in the store. A repeated request is done when its digest is compared."""
    store, request = call.runtime.store, call.request_id
    if request is not None:
        decision_id = f"{request.id}:0"
        made = await store.decision(decision_id)
        if made is not None:
            work.close()
            if made.request_digest != request.digest:
                raise reused(request.id)
            return Reply(await call.runtime.runs.result(run), 202, idempotency_replayed="true")
    task = await call.serving.detach_until(work, lambda: store.has_id(decision_id))
    if task.done():
        return Reply(task.result(), 200)
    return Reply(await call.runtime.runs.result(run), 202)


async def _until(call: Call, run: str, work: Any, seconds: float) -> tuple[RunResult[Any], bool]:
    task = call.serving.detach(work)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await asyncio.shield(task), True
    call.serving.log_errors(task)
    return await call.runtime.runs.result(run), False


async def _is_over(call: Call, run: RunRecord, after: str) -> bool:
    """Whether nothing of a finished run comes after a cursor."""
    async for event in call.runtime.events(run.identity.thread_id, after=after, follow=False):
        if event.run.root_run_id == run.identity.root_run_id:
            return False
    return True


def _events(call: Call, run: RunRecord, after: str, query: EventsQuery, **headers: str) -> EventStream:
    # A malformed cursor is refused here, before the stream begins.
    start = str(max(run.first_seq - 1, 0)) if after == "0" else after
    source = call.runtime.events(run.identity.thread_id, after=start, follow=query.follow)
    return call.respond(_run_frames(call, source, run, query), **headers)


async def _run_frames(call: Call, source: Any, run: RunRecord, query: EventsQuery) -> AsyncGenerator[bytes]:
    """The frames of a run's events, up to the end of the run or of its activation."""
    depth = query.depth
    identity = run.identity
    try:
        async for event in source:
            if event.run.root_run_id != identity.root_run_id:
                continue
            if depth is not None and event.run.depth - identity.depth > depth:
                continue
            yield event_frame(event)
            if isinstance(event, RunFinish) and event.run.run_id == identity.run_id:
                yield end_frame("run_done" if event.status == "done" else "run_waiting")
                return
        yield end_frame(await call.end_reason(identity.thread_id, follow=query.follow))
    finally:
        await source.aclose()
