"""Intake of a caller's message, once: it starts a run, or answers a waiting one."""

from __future__ import annotations

import asyncio
from hashlib import sha256

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError, UnsupportedOperationError
from msgspec import Struct
from msgspec.structs import replace

from ...dispatch import RunResult
from ...identity import Caller
from ...runtime.arguments import check_thread_id, make_message
from ...types.ids import new_id
from ...types.inbox import InputItem
from ...types.messages import Message, Producer, user_message
from ...types.runs import Author, Principal, RunRecord
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

# The number of messages read at once in search of one.
PAGE = 50


class Accepted(Struct, frozen=True, eq=False):
    """The run of an accepted message, with a follower of its thread.

    `is_new` is false for a message that was sent before; for a new one, the follower has all its events. `work`
    resumes an answered run, and ends when the run and its children wait or are done.
    """

    run: RunRecord
    follower: Follower
    work: asyncio.Task[RunResult] | None = None
    is_new: bool = False


async def accept_message(serving: Serving, agent_id: str, message: pb.Message, caller: Caller) -> Accepted:
    """Accept a message; it is durable when this returns."""
    if not message.message_id:
        raise InvalidParamsError("the message has no messageId; choose one, and repeat it when you send again")
    if len(message.message_id) > MAX_MESSAGE_ID:
        raise InvalidParamsError(
            f"a messageId has at most {MAX_MESSAGE_ID} characters, not {len(message.message_id):,}"
        )
    if not 1 <= len(message.parts) <= serving.limits.parts:
        raise InvalidParamsError(f"a message has 1 to {serving.limits.parts} parts, not {len(message.parts)}")
    digest = sha256(f"{caller.id or ''}\0{agent_id}\0{message.message_id}".encode(errors="replace")).hexdigest()
    request_id = f"a2a:{digest[:40]}"
    if message.task_id:
        return await _answer(serving, agent_id, message, caller, request_id)
    return await _start(serving, agent_id, message, caller.principal, request_id)


# -- repeated messages ---------------------------------------------------------------------------------------


async def _find_sent(serving: Serving, request_id: str, message: pb.Message) -> RunRecord | None:
    """The run of the same message if it was sent before; raises if its id was used for another message."""
    store = serving.runtime.store
    if await store.item(request_id) is not None:
        run = await _run_of_message(serving, request_id)
        await _check_sent(serving, request_id, run, message)
        return run
    decision = await store.decision(f"{request_id}:0")
    if decision is None:
        return None
    ticket = await store.ticket(decision.ticket_id)
    answered = None if ticket is None else await store.run(ticket.run_id)
    run = None if answered is None else await store.run(answered.identity.root_run_id)
    if run is None:
        raise _task_deleted()
    sent = decision.message
    if sent is None or sent.producer is None or sent.producer.digest != _digest(message):
        raise _id_reused(message)
    return run


async def _check_sent(serving: Serving, request_id: str, run: RunRecord, message: pb.Message) -> None:
    """Raise unless the run's message of this request is the same one, with the same content and context.

    A message that named no context may name the one that it was given when it is sent again.
    """
    producer = await _find_producer(serving, request_id, run, message.message_id)
    digest = None if producer is None else producer.digest
    is_same = digest == _digest(message)
    if not is_same and message.context_id == run.thread_id:
        is_same = digest == _digest(message, with_context=False)
    if not is_same:
        raise _id_reused(message)


async def _find_producer(serving: Serving, request_id: str, run: RunRecord, message_id: str) -> Producer | None:
    store = serving.runtime.store
    if isinstance(item := await store.item(request_id), InputItem):
        return item.message.producer
    after = run.first_seq - 1
    while page := await store.messages(run.thread_id, after=after, limit=PAGE):
        for sent in page:
            if sent.producer is not None and sent.producer.message_id == message_id:
                return sent.producer
        after = page[-1].seq
    return None


def _digest(message: pb.Message, *, with_context: bool = True) -> str:
    """A hash of a message without its id; a task's context is not part of it, as the task implies it."""
    sent = pb.Message()
    sent.CopyFrom(message)
    sent.ClearField("message_id")
    if message.task_id or not with_context:
        sent.ClearField("context_id")
    return sha256(sent.SerializeToString(deterministic=True)).hexdigest()[:32]


def _id_reused(message: pb.Message) -> InvalidParamsError:
    return InvalidParamsError(
        f"messageId {message.message_id!r:.80} was used before, for a message of other content or in another "
        "context; send a message again unchanged, and give a new one a new id. Nothing was changed"
    )


def _task_deleted() -> TaskNotFoundError:
    return TaskNotFoundError(
        "a message of that id was accepted before, and its task was deleted; send the message with a new id"
    )


# -- new runs ------------------------------------------------------------------------------------------------


async def _start(
    serving: Serving, agent_id: str, message: pb.Message, principal: Principal | None, request_id: str
) -> Accepted:
    runtime, thread_id, content = serving.runtime, message.context_id or new_id(), content_of(message.parts)
    make_message(content, principal, message.message_id)  # An invalid message must not claim its context.
    if (sent := await _find_sent(serving, request_id, message)) is not None:
        return await _join(serving, sent)
    if message.context_id:
        await enter_context(runtime, check_thread_id(thread_id), principal)
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
                message_digest=_digest(message),
            )
        )
        run = await runtime.store.run(handle.run_id) or await _run_of_message(serving, request_id)
        await _check_sent(serving, request_id, run, message)  # Another message of the id may have been faster.
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
    raise _task_deleted()


# -- answers -------------------------------------------------------------------------------------------------


async def _answer(
    serving: Serving, agent_id: str, message: pb.Message, caller: Caller, request_id: str
) -> Accepted:
    runtime, principal = serving.runtime, caller.principal
    run = await find_run(runtime, message.task_id)
    if run is None or not is_task_of(run, agent_id, principal):
        raise no_task(message.task_id)
    if message.context_id and message.context_id != run.thread_id:
        raise InvalidParamsError(f"task {run.id} is of context {run.thread_id!r}, not {message.context_id!r:.80}")
    follower = await Follower(runtime, run.thread_id, await runtime.store.head(run.thread_id)).listen()
    try:
        if run.status == "created":
            raise UnsupportedOperationError(f"task {run.id} is queued and waits for no answer; subscribe to it")
        work, sent = None, await _find_sent(serving, request_id, message)
        if sent is None:
            if is_queued(run):
                raise _task_over(run)
            result = await runtime.runs.result(run.id)
            _check_waiting(result)
            decisions, other_parts = decisions_of(message, result.tickets)
            decisions[0] = replace(decisions[0], message=_answer_message(message, principal))
            work = serving.detach(
                runtime.resume(
                    run.id,
                    *decisions,
                    message=content_of(other_parts) or None,
                    # The caller is the requester, who doesn't override its own approvals.
                    principal=None if principal is None else Author(principal, auth=caller.auth),
                    request_id=request_id,
                    message_id=message.message_id,
                    check=False,
                )
            )
            try:
                await _wait_for_decision(serving, work, f"{request_id}:0")
            finally:
                serving.log_errors(work)
        return Accepted(await runtime.runs.get(run.id), follower, work, is_new=sent is None)
    except BaseException:
        await follower.close()
        raise


def _answer_message(message: pb.Message, principal: Principal | None) -> Message:
    """An answer as its caller sent it, for the task's history."""
    producer = Producer(
        principal_id=None if principal is None else principal.id,
        message_id=message.message_id,
        digest=_digest(message),
    )
    return user_message(tuple(content_of(message.parts, keep_data=True)), producer=producer)


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
