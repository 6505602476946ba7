"""Intake of a caller's message, once: it starts a run, or answers a waiting one."""

from __future__ import annotations

import asyncio
from hashlib import sha256

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError, UnsupportedOperationError
from msgspec import Struct

from ...dispatch import RunResult
from ...runtime.arguments import check_thread_id, make_message
from ...types.ids import new_id
from ...types.runs import Principal, RunRecord
from ..serving import Serving
from .contexts import enter_context, is_task_of
from .errors import no_task
from .follower import Follower
from .tasks import TERMINAL, find_run, is_queued, queued_run, state_of
from .tickets import decisions_of
from .wire import content_of

__all__ = ["Accepted", "accept_message"]

POLL_SECONDS = 0.01
MAX_POLLS = 20

MAX_MESSAGE_ID = 256


class Accepted(Struct, frozen=True, eq=False):
    """The run of an accepted message, with a follower of its thread.

    `is_new` is false for a message that was sent before; for a new one, the follower has all its events. `work`
    resumes an answered run, and ends when the run and its children have come to rest.
    """

    run: RunRecord
    follower: Follower
    work: asyncio.Task[RunResult] | None = None
    is_new: bool = False


async def accept_message(
    serving: Serving, agent_id: str, message: pb.Message, principal: Principal | None
) -> Accepted:
    """Accept a message; it is durable when this returns."""
    if not message.message_id:
        raise InvalidParamsError("the message has no messageId; choose one, and repeat it when you send again")
    if len(message.message_id) > MAX_MESSAGE_ID:
        raise InvalidParamsError(
            f"a messageId has at most {MAX_MESSAGE_ID} characters, not {len(message.message_id):,}"
        )
    if not 1 <= len(message.parts) <= serving.limits.parts:
        raise InvalidParamsError(f"a message has 1 to {serving.limits.parts} parts, not {len(message.parts)}")
    principal_id = "" if principal is None else principal.id
    digest = sha256(f"{principal_id}\0{agent_id}\0{message.message_id}".encode(errors="replace")).hexdigest()
    request_id = f"a2a:{digest[:40]}"
    if message.task_id:
        return await _answer(serving, agent_id, message, principal, request_id)
    return await _start(serving, agent_id, message, principal, request_id)


# -- new runs ------------------------------------------------------------------------------------------------


async def _start(
    serving: Serving, agent_id: str, message: pb.Message, principal: Principal | None, request_id: str
) -> Accepted:
    runtime, thread_id, content = serving.runtime, message.context_id or new_id(), content_of(message.parts)
    make_message(content, principal, message.message_id)  # An invalid message must not claim its context.
    if message.context_id:
        await enter_context(runtime, check_thread_id(thread_id), principal)
    if await runtime.store.item(request_id) is not None:
        return await _join(serving, await _run_of_message(serving, request_id))
    head = await runtime.store.head(thread_id)
    follower = await Follower(runtime, thread_id, head).listen()
    try:
        handle = await serving.finish(
            runtime.start(
                agent_id,
                content,
                thread=thread_id,
                principal=principal,
                request_id=request_id,
                message_id=message.message_id,
            )
        )
        run = await runtime.store.run(handle.run_id) or await _run_of_message(serving, request_id)
        if run.thread_id == thread_id:
            return Accepted(run, follower, is_new=run.first_seq > head or run.status == "created")
    except BaseException:
        await follower.close()
        raise
    await follower.close()
    return await _join(serving, run)


async def _join(serving: Serving, run: RunRecord) -> Accepted:
    """Follow the run of a message that was sent before, in the context of that time."""
    store = serving.runtime.store
    follower = Follower(serving.runtime, run.thread_id, await store.head(run.thread_id))
    return Accepted(await store.run(run.id) or run, await follower.listen())


async def _run_of_message(serving: Serving, request_id: str) -> RunRecord:
    """The run of an accepted message, or the queued run if another run of its context comes first."""
    store = serving.runtime.store
    for _ in range(MAX_POLLS):
        item = await store.item(request_id)
        if item is not None and item.taken_by is None:
            return queued_run(item)
        run = None if item is None else await store.run(item.taken_by or "")
        if run is not None:
            return run
        await asyncio.sleep(POLL_SECONDS)  # The item is being taken from the inbox.
    raise TaskNotFoundError(
        "a message of that id was accepted before, and its task was deleted; send the message with a new id"
    )


# -- answers -------------------------------------------------------------------------------------------------


async def _answer(
    serving: Serving, agent_id: str, message: pb.Message, principal: Principal | None, request_id: str
) -> Accepted:
    runtime = serving.runtime
    run = await find_run(runtime, message.task_id)
    if run is None or not is_task_of(run, agent_id, principal):
        raise no_task(message.task_id)
    if message.context_id and message.context_id != run.thread_id:
        raise InvalidParamsError(f"task {run.id} is of context {run.thread_id!r}, not {message.context_id!r:.80}")
    follower = await Follower(runtime, run.thread_id, await runtime.store.head(run.thread_id)).listen()
    try:
        if run.status == "created":
            raise UnsupportedOperationError(f"task {run.id} is queued and waits for no answer; subscribe to it")
        decision_id = f"{request_id}:0"
        work, is_new = None, await runtime.store.decision(decision_id) is None
        if is_new:
            if is_queued(run):
                raise _task_over(run)
            result = await runtime.runs.result(run.id)
            _check_waiting(result)
            decisions, other_parts = decisions_of(message, result.tickets)
            work = serving.detach(
                runtime.resume(
                    run.id,
                    *decisions,
                    message=content_of(other_parts) or None,
                    principal=principal,
                    request_id=request_id,
                    message_id=message.message_id,
                )
            )
            try:
                await _wait_for_decision(serving, work, decision_id)
            finally:
                serving.log_errors(work)
        return Accepted(await runtime.runs.get(run.id), follower, work, is_new=is_new)
    except BaseException:
        await follower.close()
        raise


def _check_waiting(result: RunResult) -> None:
    """Refuse an answer to a run without open tickets; a running one may still have some."""
    if state_of(result, result.tickets) in TERMINAL:
        raise _task_over(result)
    if not result.tickets:
        raise UnsupportedOperationError(
            f"task {result.run_id} is working and waits for no answer; subscribe to it, or send the message to "
            f"its context, {result.thread_id}, without a task id: it is queued behind the task"
        )


def _task_over(run: RunRecord | RunResult) -> UnsupportedOperationError:
    task_id = run.id if isinstance(run, RunRecord) else run.run_id
    return UnsupportedOperationError(
        f"task {task_id} is over; send the message to its context, {run.thread_id}, without a task id"
    )


async def _wait_for_decision(serving: Serving, work: asyncio.Task[RunResult], decision_id: str) -> None:
    """Wait until a decision is committed, or raise its refusal: another caller may answer the same ticket."""
    while not work.done() and await serving.runtime.store.decision(decision_id) is None:
        await asyncio.wait({work}, timeout=POLL_SECONDS)
    if work.done():
        work.result()
