"""The backend that executes functions and coroutines as runs of their own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable
from inspect import isawaitable
from typing import Any, cast

import msgspec

from ..backends import (
    BackendOutput,
    BackendResult,
    Capabilities,
    DelegateRequest,
    ExecutionBackend,
    ExecutionFailed,
    FailedStatus,
    RootRequest,
    TimedOut,
)
from ..errors import InvalidArguments, StoreError, ToolError, quote
from ..loop import Activation, disclose
from ..stores import Commit
from ..tools import reply_of
from ..types.content import text_of
from ..types.events import ToolProgress
from ..types.inbox import TaskItem
from ..types.runs import Failed, TaskEvent
from .environment import TaskEnvironment
from .function import FunctionTask, TaskContext

__all__ = ["LOST", "TaskBackend"]

Request = RootRequest | DelegateRequest

_log = logging.getLogger("wakeful")

LOST = "task lost: the process that ran it ended"


class TaskBackend(ExecutionBackend):
    """Executes one function, or the coroutines of this process."""

    capabilities = Capabilities(
        cancellation="none",
        decisions=False,
        overrides=False,
        frontend_tools=False,
        continuation="none",
        waits="none",
        transcript="single_prompt",
        output="text_and_artifacts",
        persistence=("ephemeral", "durable"),
        steering=False,
    )

    def __init__(self, env: TaskEnvironment, function: FunctionTask | None) -> None:
        self._env = env
        self._function = function

    async def execute_root(self, request: RootRequest) -> BackendResult:
        """Execute a run without a parent."""
        return await self._execute(request)

    async def execute_delegate(self, request: DelegateRequest) -> BackendResult:
        """Execute a task of another run."""
        return await self._execute(request)

    async def _execute(self, request: Request) -> BackendResult:
        if self._function is not None:
            return await self._call(request, self._function)
        found = self._env.coroutines.pop(request.identity.run_id, None)
        if found is None:
            raise ExecutionFailed(LOST)
        name, coroutine = found
        return _result(request, name, await coroutine)

    # -- functions -------------------------------------------------------------------------------------------

    async def _call(self, request: Request, function: FunctionTask) -> BackendResult:
        before = _attempts(request)
        if before and function.effect == "once":
            return _unknown(request, function, "its process ended")
        arguments = _arguments(request, function)
        # Committed before the function starts: if no end follows, its outcome is unknown.
        await request.save({"run": request.identity.run_id, "started": before + 1})
        host = _Host(cast(Activation, request.local), function.name)
        context = TaskContext(request.identity, function.name, before + 1, host, request.deps)
        if (parameter := function.parameters.context) is not None:
            arguments[parameter] = context
        try:
            value = await self._run(function, arguments, context)
        except TimeoutError as error:
            if not context.cancelled:
                raise  # The function's own.
            if function.effect == "once":
                return _unknown(request, function, str(error))
            return BackendResult(request.agent_id, TimedOut(), Failed("TimedOut", str(error)), state={})
        except Exception as error:
            act = cast(Activation, request.local)
            act.failure = error
            text = disclose(act, error, f"task {function.name}")
            text = text.partition(": ")[2] if isinstance(error, ToolError) else text
            failed = Failed(type(error).__name__, text)
            return BackendResult(request.agent_id, FailedStatus(text), failed, state={})
        finally:
            await host.settle()
        return _result(request, function.name, value)

    async def _run(self, function: FunctionTask, arguments: dict[str, Any], context: TaskContext) -> Any:
        if function.is_async:
            work: asyncio.Future[Any] = asyncio.ensure_future(cast(Awaitable[Any], function.function(**arguments)))
        else:
            work = self._env.threads.submit(lambda: function.function(**arguments))
        try:
            if await self._done(work, function.timeout):
                value = work.result()
                return await value if isawaitable(value) else value
        except asyncio.CancelledError:
            if not work.done():
                await self._stop(function, work, context)
            raise
        await self._stop(function, work, context)
        raise TimeoutError(f"it took longer than {function.timeout:g} s and was stopped")

    async def _done(self, work: asyncio.Future[Any], seconds: float | None) -> bool:
        """Wait for work, at most so many seconds of the runtime's clock; returns whether it is done."""
        if seconds is None:
            await asyncio.wait({work})
            return True
        late: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._env.clock.call_later(seconds, lambda: late.done() or late.set_result(None))
        try:
            await asyncio.wait({work, late}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            late.cancel()
        return work.done()

    async def _stop(self, function: FunctionTask, work: asyncio.Future[Any], context: TaskContext) -> None:
        """Cancel a function, and abandon it if it doesn't stop within most of the grace."""
        context.cancel()
        if function.is_async:
            work.cancel()
        stopped = await self._done(work, self._env.grace * 0.8)
        if stopped:
            if not work.cancelled():
                work.exception()
        elif function.is_async:
            work.add_done_callback(lambda late: late.cancelled() or late.exception())
        else:
            self._env.threads.abandon(work)


def _attempts(request: Request) -> int:
    """How many times this run started its function without an end."""
    state = request.state or {}
    return int(state.get("started", 0)) if state.get("run") == request.identity.run_id else 0


def _arguments(request: Request, function: FunctionTask) -> dict[str, Any]:
    text = text_of(request.new_messages[-1].content) if request.new_messages else "{}"
    try:
        given = msgspec.json.decode(text or "{}")
        if not isinstance(given, dict):
            raise InvalidArguments("they are not an object")
        return dict(function.parameters.bind(cast(dict[str, Any], given)))
    except (InvalidArguments, msgspec.DecodeError) as error:
        raise ExecutionFailed(f"the arguments of task {function.name} don't fit it: {error}") from error


def _unknown(request: Request, function: FunctionTask, why: str) -> BackendResult:
    text = (
        f"task {function.name} was interrupted ({why}) and its outcome is unknown: it may or may not have taken "
        "effect. Look before you start it again."
    )
    return BackendResult(request.agent_id, FailedStatus(text), Failed("UnknownOutcome", text), state={})


def _result(request: Request, name: str, value: Any) -> BackendResult:
    """The result of a function: a string as it is, any other value as JSON."""
    try:
        text = text_of(reply_of(value, "", name).content)
    except ToolError as error:
        raise quote(ExecutionFailed, f"task {name} is done, but its result can't be kept", error) from error
    raw: Any = value
    if not isinstance(value, str):
        try:
            raw = msgspec.json.decode(text)
        except msgspec.DecodeError:
            raw = text  # It was truncated, or isn't JSON.
    output = BackendOutput(text="" if value is None else text, raw=raw)
    return BackendResult(request.agent_id, output=output, state={})


class _Host:
    """The services of a task's context, through the run that executes it."""

    def __init__(self, act: Activation, name: str) -> None:
        self._act = act
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._last: asyncio.Future[None] | None = None

    def progress(self, fraction: float | None, done: int | None, total: int | None, message: str) -> None:
        """Publish the task's progress."""
        act = self._act
        if not act.channel.is_watched():
            return
        call_id = act.identity.parent_call_id or ""
        event = ToolProgress(
            act.identity, act.head, act.clock.now(), call_id, self._name, fraction, done, total, message
        )
        if threading.get_ident() == self._thread:
            act.channel.publish(event)
        else:
            self._loop.call_soon_threadsafe(act.channel.publish, event)

    def send_event(self, number: int, event: TaskEvent) -> asyncio.Future[None]:
        """Put an event into the owner's inbox, after those before it."""
        if threading.get_ident() == self._thread:
            self._last = self._loop.create_task(self._send_event(self._last, number, event))
            self._last.add_done_callback(_retrieve)
            return self._last
        asyncio.run_coroutine_threadsafe(self._send_event(None, number, event), self._loop).result()
        done: asyncio.Future[None] = asyncio.Future(loop=self._loop)
        done.set_result(None)
        return done

    async def _send_event(self, before: asyncio.Future[None] | None, number: int, event: TaskEvent) -> None:
        if before is not None:
            await asyncio.wait({before})
        act = self._act
        owner, task = act.identity.parent_thread_id, act.view.run.task
        if owner is None or task is None:
            return  # The task has no owner.
        item = TaskItem(
            id=f"{act.identity.run_id}:event:{number}",
            thread_id=owner,
            task_id=task.id,
            event=event,
            background=True,
        )
        try:
            await act.env.store.commit(Commit(owner, inbox=[item]))
        except StoreError as error:
            _log.warning("task %s: an event for its owner is lost: %s", act.identity.run_id, error)
            raise
        act.env.children.wake(owner)

    async def settle(self) -> None:
        """Wait until all events are in the owner's inbox."""
        if self._last is not None:
            await asyncio.wait({self._last})


def _retrieve(sent: asyncio.Future[None]) -> None:
    """Mark the exception as retrieved: it was logged, and is raised where the event is awaited."""
    if not sent.cancelled():
        sent.exception()
