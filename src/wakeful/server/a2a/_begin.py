"""A caller's message on its way in: a new run, or the answer to what a run waits for; and only once."""

from __future__ import annotations

import asyncio
from hashlib import sha256

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError, UnsupportedOperationError
from msgspec import Struct

from ..._checks import message_of, thread_of
from ...dispatch import RunResult
from ...types.ids import new_id
from ...types.runs import Principal, RunRecord
from .._serving import Serving
from ._contexts import belongs, enter
from ._errors import no_task
from ._follow import Follower
from ._tasks import TERMINAL, find, is_unbegun, state_of, unbegun
from ._tickets import decisions_of
from ._wire import content_of

__all__ = ["Begun", "begin"]

POLL = 0.01
LOOKS = 20

# The ids that callers choose for their messages are kept with these.
LONGEST_ID = 256


class Begun(Struct, frozen=True, eq=False):
    """The run that took a message in, and what follows it. It is `fresh` if the message is new: then the follower
    shows all that came of it. `work` goes on with a run that was answered, until all below it rests too."""

    run: RunRecord
    follower: Follower
    work: asyncio.Task[RunResult] | None = None
    fresh: bool = False


async def begin(serving: Serving, agent_id: str, message: pb.Message, principal: Principal | None) -> Begun:
    """Take a message in. It is in the store when this returns."""
    if not message.message_id:
        raise InvalidParamsError("the message has no messageId; choose one, and send it again when in doubt")
    if len(message.message_id) > LONGEST_ID:
        raise InvalidParamsError(
            f"a messageId has at most {LONGEST_ID} characters, not {len(message.message_id):,}"
        )
    if not 1 <= len(message.parts) <= serving.limits.parts:
        raise InvalidParamsError(f"a message has 1 to {serving.limits.parts} parts, not {len(message.parts)}")
    who = "" if principal is None else principal.id
    digest = sha256(f"{who}\0{agent_id}\0{message.message_id}".encode(errors="replace")).hexdigest()
    request_id = f"a2a:{digest[:40]}"
    if message.task_id:
        return await _answer(serving, agent_id, message, principal, request_id)
    return await _start(serving, agent_id, message, principal, request_id)


# -- new runs ------------------------------------------------------------------------------------------------


async def _start(
    serving: Serving, agent_id: str, message: pb.Message, principal: Principal | None, request_id: str
) -> Begun:
    runtime, thread_id, content = serving.runtime, message.context_id or new_id(), content_of(message.parts)
    sent_as = message.message_id
    message_of(content, principal, sent_as)  # What can't be taken in makes no context anybody's.
    if message.context_id:
        await enter(runtime, thread_of(thread_id), principal)
    if await runtime.store.item(request_id) is not None:
        return await _joined(serving, await _taker(serving, request_id))
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
                message_id=sent_as,
            )
        )
        run = await runtime.store.run(handle.run_id) or await _taker(serving, request_id)
        if run.thread_id == thread_id:
            return Begun(run, follower, fresh=run.first_seq > head or run.status == "created")
    except BaseException:
        await follower.close()
        raise
    await follower.close()
    return await _joined(serving, run)


async def _joined(serving: Serving, run: RunRecord) -> Begun:
    """A run that a message began when it was sent before, in the context that it was given then."""
    store = serving.runtime.store
    follower = Follower(serving.runtime, run.thread_id, await store.head(run.thread_id))
    return Begun(await store.run(run.id) or run, await follower.listen())


async def _taker(serving: Serving, request_id: str) -> RunRecord:
    """The run that took a message in, or will when it has its turn, behind another run of its context."""
    store = serving.runtime.store
    for _ in range(LOOKS):
        item = await store.item(request_id)
        if item is not None and item.taken_by is None:
            return unbegun(item)
        run = None if item is None else await store.run(item.taken_by or "")
        if run is not None:
            return run
        await asyncio.sleep(POLL)  # It is being taken in at this very moment.
    raise TaskNotFoundError(
        "a message of that id was taken before, and its task is no longer kept; send the message with a new id"
    )


# -- answers -------------------------------------------------------------------------------------------------


async def _answer(
    serving: Serving, agent_id: str, message: pb.Message, principal: Principal | None, request_id: str
) -> Begun:
    runtime = serving.runtime
    run = await find(runtime, message.task_id)
    if run is None or not belongs(run, agent_id, principal):
        raise no_task(message.task_id)
    if message.context_id and message.context_id != run.thread_id:
        raise InvalidParamsError(f"task {run.id} is of context {run.thread_id!r}, not {message.context_id!r:.80}")
    follower = await Follower(runtime, run.thread_id, await runtime.store.head(run.thread_id)).listen()
    try:
        if run.status == "created":
            raise UnsupportedOperationError(f"task {run.id} waits its turn, and for no answer; subscribe to it")
        decision_id = f"{request_id}:0"
        work, fresh = None, await runtime.store.decision(decision_id) is None
        if fresh:
            if is_unbegun(run):
                raise _over(run)
            result = await runtime.result(run.id)
            _check_waiting(result)
            decisions, besides = decisions_of(message, result.tickets)
            said = content_of(besides) or None
            work = serving.detach(
                runtime.resume(
                    run.id,
                    *decisions,
                    said=said,
                    principal=principal,
                    request_id=request_id,
                    message_id=message.message_id,
                )
            )
            try:
                await _taken(serving, work, decision_id)
            finally:
                serving.leave(work)
        return Begun(await runtime.get_run(run.id), follower, work, fresh=fresh)
    except BaseException:
        await follower.close()
        raise


def _check_waiting(result: RunResult) -> None:
    """A run that works on one answer may still have other tickets open."""
    if state_of(result, result.tickets) in TERMINAL:
        raise _over(result)
    if not result.tickets:
        raise UnsupportedOperationError(
            f"task {result.run_id} is working and waits for no answer; subscribe to it, or send the message to "
            f"its context, {result.thread_id}, without a task id: it has its turn afterwards"
        )


def _over(run: RunRecord | RunResult) -> UnsupportedOperationError:
    task_id = run.id if isinstance(run, RunRecord) else run.run_id
    return UnsupportedOperationError(
        f"task {task_id} is over; send the message to its context, {run.thread_id}, without a task id"
    )


async def _taken(serving: Serving, work: asyncio.Task[RunResult], decision_id: str) -> None:
    """Wait until a decision is in the store, or was refused: others may answer the same ticket."""
    while not work.done() and await serving.runtime.store.decision(decision_id) is None:
        await asyncio.wait({work}, timeout=POLL)
    if work.done():
        work.result()
