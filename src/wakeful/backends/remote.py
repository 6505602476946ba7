"""Execution of a step by a backend instead of a model: request, stream, cancellation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ..agents import Backend, BackendHandles
from ..errors import ExecutionFailed, StoreError, explain
from ..loop import Answer, Checkpoints, flush
from ..models import TextChunk
from ..types.content import clean_text
from ..types.messages import Message, Producer
from ..types.runs import BackendEnd
from .contract import (
    Capabilities,
    Control,
    DelegateRequest,
    can_abort,
    check_delegate,
    check_root,
    is_cooperative,
)
from .outcomes import apply_result, check_result, failure_of
from .requests import Request, abort_request, request_of, saved_state
from .status import CancelledStatus, FailedStatus, TimedOut

if TYPE_CHECKING:
    from ..loop import Activation

__all__ = ["abort_remote", "execute_remote"]

_log = logging.getLogger("wakeful")


async def execute_remote(act: Activation, cut_off: tuple[str, int] | None = None) -> None:
    """Execute the step by the agent's backend, and commit the result before the step is closed."""
    if act.view.run.ending is not None or act.view.run.cancel is not None:
        return
    await flush(act)
    if act.view.run.cancel is not None:  # The commit found a cancellation in the inbox.
        return
    exchange = _Exchange(act, cut_off)
    started = act.now
    try:
        result = check_result(await exchange.run(), exchange.capabilities)
    except Exception as error:
        result = failure_of(act.agent.id, error)
    except BaseException:
        await exchange.close()
        exchange.keep_partial()
        raise
    await exchange.close()
    act.now = act.clock.now()
    failed = isinstance(result.status, FailedStatus | CancelledStatus | TimedOut)
    message_id, text = exchange.settle(clean_text(result.text), failed)
    apply_result(act, result, message_id, text, started)
    await flush(act)


async def abort_remote(act: Activation) -> None:
    """Stop the remote work of a cancelled run within the cancel grace; a failure is logged, not raised."""
    act.set_run(backend=BackendEnd("cancelled", "cancelled"))
    await _abort(act)


async def _abort(act: Activation) -> None:
    backend = act.agent.backend
    if backend is None or not can_abort(backend.capabilities.cancellation):
        return
    try:
        await _run_within_grace(act, backend.abort(abort_request(act)))
    except Exception as error:
        _log.warning("agent %r: aborting run %s failed: %s", act.agent.id, act.identity.run_id, explain(error))


async def _run_within_grace(act: Activation, work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine, and abandon it when the grace is over."""
    task = asyncio.get_running_loop().create_task(work)
    if not await _wait(act, task, act.env.grace):
        _abandon(act, task)
        raise TimeoutError(f"it took longer than the cancel grace of {act.env.grace:g} s")
    task.result()


async def _wait(act: Activation, task: asyncio.Task[Any], seconds: float | None) -> bool:
    """Wait up to `seconds` by the runtime's clock; returns whether the task is done."""
    if seconds is None:
        await asyncio.wait({task})
        return True
    late: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = act.clock.call_later(seconds, _resolve, late)
    try:
        await asyncio.wait({task, late}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
        late.cancel()
    return task.done()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _abandon(act: Activation, task: asyncio.Task[Any]) -> None:
    """Cancel a task without waiting for it; it counts as abandoned until it ends."""
    if not task.cancelling():
        task.cancel()
    act.env.abandoned.add(task)
    task.add_done_callback(act.env.abandoned.discard)
    task.add_done_callback(_retrieve_exception)


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


class _Exchange:
    """One request to a backend, from its start to its result."""

    def __init__(self, act: Activation, cut_off: tuple[str, int] | None) -> None:
        self._act = act
        self._backend = cast(Backend, act.agent.backend)
        self.capabilities = cast(Capabilities, self._backend.capabilities)
        self._answer = self._new_answer(*(cut_off or (None, 0)))
        self._cancelled = asyncio.Event()
        self._checkpoints = Checkpoints(act, lambda: self._answer.unsaved()) if act.env.store.durable else None
        self._writer: asyncio.Task[None] | None = None
        self._saving = asyncio.Lock()
        self._pieces: list[str] = []
        self._broken: StoreError | None = None
        self._over = False

    def _new_answer(self, message_id: str | None, attempt: int) -> Answer:
        act = self._act
        answer = act.remote = Answer(act.identity, act.head, act.channel, act.clock)
        if message_id is not None:
            answer.message_id, answer.attempt = message_id, attempt
        return answer

    async def run(self) -> Any:
        """Call the backend and wait for its result; raises TimeoutError after the backend's timeout."""
        cooperative = is_cooperative(self.capabilities.cancellation)
        control = Control(self._cancelled if cooperative else None)
        request = request_of(self._act, self.capabilities, control, self.emit, self.save)
        task = asyncio.get_running_loop().create_task(self._execute(request))
        try:
            if await _wait(self._act, task, self._backend.timeout):
                return task.result()
        except asyncio.CancelledError:
            if task.done() and task.cancelled() and not self._act.cancellation.is_pending:
                raise ExecutionFailed("the backend's task was cancelled, but the run was not") from None
            await self._stop(task, cooperative)
            raise
        await self._stop(task, cooperative)
        await _abort(self._act)
        raise TimeoutError(f"the backend took longer than its timeout of {self._backend.timeout:g} s")

    async def _execute(self, request: Request) -> Any:
        if isinstance(request, DelegateRequest):
            check_delegate(self.capabilities, request)
            return await self._backend.execute_delegate(request)
        check_root(self.capabilities, request)
        return await self._backend.execute_root(request)

    async def _stop(self, task: asyncio.Task[Any], cooperative: bool) -> None:
        """Stop the backend: a cooperative one gets half the grace to return, then its task is cancelled."""
        self._cancelled.set()
        grace = self._act.env.grace / (2 if cooperative else 1)
        try:
            if not (cooperative and await _wait(self._act, task, grace)):
                task.cancel()
                await _wait(self._act, task, grace)
        finally:
            if task.done():
                _retrieve_exception(task)
            else:
                _abandon(self._act, task)

    # -- callbacks of the backend -----------------------------------------------------------------------------

    def emit(self, text: str) -> None:
        """Stream a piece of the answer to readers."""
        if self._over:
            raise ExecutionFailed("the request is over; emit before the backend returns")
        if not isinstance(cast(Any, text), str):
            raise ExecutionFailed(f"emit takes a text, not {type(text).__name__}")
        if not text:
            return
        self._pieces.append(text)
        self._answer.add(TextChunk(text))
        idle = self._writer is None or self._writer.done()
        if self._checkpoints is not None and idle and self._checkpoints.is_due():
            self._writer = asyncio.get_running_loop().create_task(self._checkpoints.write())

    async def save(self, state: dict[str, Any]) -> None:
        """Save the backend's state; it is durable when this returns."""
        async with self._saving:
            if self._over:
                raise ExecutionFailed("the request is over; save before the backend returns")
            act = self._act
            if not isinstance(cast(Any, state), dict):
                raise ExecutionFailed(f"save takes a JSON object, not {type(state).__name__}")
            if saved_state(act) == state:
                return
            try:
                state = msgspec.json.decode(msgspec.json.encode(state))
            except (TypeError, ValueError, RecursionError) as error:
                raise ExecutionFailed(f"save takes a JSON object; this one can't be encoded: {error}") from error
            act.now = act.clock.now()
            act.state.apply([(BackendHandles, (act.identity.thread_id, act.agent.id, state))])
            try:
                await flush(act)
            except StoreError as error:
                self._broken = error
                raise

    # -- the end ----------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Refuse further callbacks and wait for pending writes; raises the store error of a failed save."""
        self._over = True
        if self._saving.locked():
            async with self._saving:
                pass
        if self._writer is not None:
            await asyncio.wait({self._writer})
            self._writer.result()
        if self._broken is not None:
            raise self._broken  # Also if the backend caught it: the run can't continue without its commit.

    def settle(self, text: str, failed: bool) -> tuple[str, str]:
        """Return the answer's message id and text.

        The streamed text is completed, or withdrawn if it isn't a prefix of the final answer.
        """
        streamed = clean_text("".join(self._pieces))
        answer = self._answer
        if streamed and (failed or text) and not text.startswith(streamed):
            answer.withdraw("the backend failed" if failed else "the backend's final answer is another one")
            answer = self._new_answer(answer.message_id, answer.attempt + 1)
            streamed = ""
        if rest := text[len(streamed) :]:
            answer.add(TextChunk(rest))
        return answer.message_id, text or streamed

    def keep_partial(self) -> None:
        """Keep the text streamed before a cancellation as a message of the conversation."""
        act, text = self._act, clean_text("".join(self._pieces))
        if not text:
            return
        run = act.view.run
        act.now = act.clock.now()
        producer = Producer(run.identity.run_id, run.steps, act.agent.id)
        message = Message(self._answer.message_id, "assistant", self._answer.content(), act.now, producer)
        act.view.answer = message
        act.log(message)
        act.set_run(stage="acting", answer_id=message.id)
