"""Execution of tool calls: one asyncio task a call, timeouts, and a bounded grace for calls that don't stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from inspect import isawaitable
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from ...clock import Clock, Timer
from ...errors import InDoubt, ToolError
from ...tools import Asked, Parked, Services, Tool, ToolContext, ToolThreads, reply_of
from ...traces import CallSpan, Tracer
from ...types.calls import Call
from ...types.content import ToolReply

__all__ = ["CallEnd", "Ended", "Executor", "StartedCall"]

_log = logging.getLogger("wakeful")

Ended = Literal["ok", "error", "asked", "parked", "timeout", "interrupted", "in_doubt"]


class CallEnd(Struct, eq=False):
    """The end of a call in this process.

    A timeout or an interruption has neither a reply nor an error: whether the call took effect isn't known.
    """

    call_id: str
    ended: Ended
    context: ToolContext
    reply: ToolReply | None = None
    asked: Asked | None = None
    parked: Parked | None = None
    error: BaseException | None = None


class StartedCall(Struct, eq=False):
    """A call that runs in this process."""

    call: Call
    tool: Tool
    arguments: dict[str, Any]
    context: ToolContext
    task: asyncio.Task[None] | None = None
    thread: asyncio.Future[Any] | None = None
    timer: Timer | None = None
    timed_out: bool = False
    span: CallSpan | None = None


class Executor:
    """Runs the calls of one activation. Every call appends exactly one `CallEnd` to `ended`."""

    __slots__ = (
        "_abandoned",
        "_children",
        "_clock",
        "_grace",
        "_interrupted",
        "_loop",
        "_raised",
        "_running",
        "_threads",
        "_tracer",
        "_waiter",
        "ended",
        "services",
    )

    def __init__(
        self,
        clock: Clock,
        threads: ToolThreads,
        abandoned: set[asyncio.Task[Any]],
        grace: float,
        services: Services,
        tracer: Tracer | None = None,
    ) -> None:
        self._tracer = tracer
        self._clock = clock
        self._threads = threads
        self._abandoned = abandoned
        self._grace = grace
        self._loop = asyncio.get_running_loop()
        self._running: dict[str, StartedCall] = {}
        # Stop functions of the child activations that calls run here, each with its call's id.
        self._children: list[tuple[Callable[[], None], str]] = []
        self._interrupted = False
        self._raised: KeyboardInterrupt | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.services = services
        self.ended: list[CallEnd] = []

    def start(self, calls: Sequence[StartedCall]) -> None:
        """Start calls; after an interruption they end at once as interrupted."""
        for started in calls:
            call_id, tool = started.call.id, started.tool
            if self._interrupted:
                self.ended.append(_end(call_id, "interrupted", started.context))
                continue
            self._running[call_id] = started
            if tool.timeout is not None:
                started.timer = self._clock.call_later(tool.timeout, self._stop, started, True)
            task = started.task = self._loop.create_task(self._run(started))
            task.add_done_callback(lambda _, started=started: self._end_unstarted(started))

    async def wait(self) -> None:
        """Wait until a call has ended or `nudge` is called; raises a call's `KeyboardInterrupt`."""
        if not self.ended:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised

    def nudge(self) -> None:
        """End a wait."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def interrupt(self) -> None:
        """Cancel every running call, and abandon those that haven't stopped after the grace."""
        self._interrupted = True
        for started in list(self._running.values()):
            self._stop(started, False)

    def give_up(self) -> None:
        """Stop the calls of a lost run. Their child activations write nothing more: nobody cancelled them."""
        for stop, _ in self._children:
            stop()
        self.interrupt()

    def attach_child(self, call_id: str, stop: Callable[[], None]) -> Callable[[], None]:
        """Register a child activation that a call runs in its task; returns the function that removes it."""
        child = (stop, call_id)
        self._children.append(child)
        return lambda: self._children.remove(child)

    async def _run(self, started: StartedCall) -> None:
        call, tool, context = started.call, started.tool, started.context
        if self._tracer is not None and self._is_running(started):
            started.span = self._tracer.begin_call(started)
        try:
            if tool.is_async:
                value = await tool.call(started.arguments, context)
            else:
                value = await self._run_in_thread(started)
        except KeyboardInterrupt as error:
            # Raised in the activation, where it ends the run before it ends the process.
            self._raised = error
            end = _end(call.id, "interrupted", context)
        except BaseException as error:
            end = _failed(started, error)
        else:
            end = _returned(call, tool, context, value)
        self._append(started, end)

    async def _run_in_thread(self, started: StartedCall) -> Any:
        tool, context, arguments = started.tool, started.context, started.arguments
        future = started.thread = self._threads.submit(lambda: tool.call(arguments, context))
        while True:
            try:
                value = await asyncio.shield(future)
                break
            except asyncio.CancelledError:
                if future.cancelled() or not self._is_running(started):
                    raise
                # A thread can't be stopped: the context says "cancelled", and the grace is running.
        # A plain function around an async one returns its coroutine.
        return await value if isawaitable(value) else value

    def _stop(self, started: StartedCall, timed_out: bool) -> None:
        context = started.context
        if not self._is_running(started) or context.cancelled:
            return
        started.timed_out = timed_out
        context.cancel()
        if started.timer is not None:
            started.timer.cancel()
        started.timer = self._clock.call_later(self._grace, self._abandon, started)
        if started.task is not None:
            started.task.cancel()

    def _abandon(self, started: StartedCall) -> None:
        """End a call whose task is still running after the grace."""
        call_id, task = started.call.id, started.task
        if not self._is_running(started):
            return
        if any(owner == call_id for _, owner in self._children):
            # Child activations have a grace of their own, which ends first.
            started.timer = self._clock.call_later(self._grace, self._abandon, started)
            return
        self._append(started, _end(call_id, _stopped(started), started.context))
        if task is not None and started.thread is not None:
            self._threads.abandon(started.thread)
            task.cancel()
        elif task is not None:
            self._abandoned.add(task)
            task.add_done_callback(self._abandoned.discard)

    def _end_unstarted(self, started: StartedCall) -> None:
        """End a call whose task was cancelled before its first turn: `_run` never saw it."""
        if self._is_running(started):
            self._append(started, _end(started.call.id, _stopped(started), started.context))

    def _is_running(self, started: StartedCall) -> bool:
        # A later attempt at the call has the same id.
        return self._running.get(started.call.id) is started

    def _append(self, started: StartedCall, end: CallEnd) -> None:
        if not self._is_running(started):
            return
        del self._running[started.call.id]
        if started.timer is not None:
            started.timer.cancel()
        if started.span is not None:
            started.span.end(end)
        self.ended.append(end)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def _stopped(started: StartedCall) -> Ended:
    return "timeout" if started.timed_out else "interrupted"


def _end(
    call_id: str,
    ended: Ended,
    context: ToolContext,
    reply: ToolReply | None = None,
    error: BaseException | None = None,
) -> CallEnd:
    """The end of a call. Its context refuses whatever a leftover of the tool still tries."""
    context.end()
    return CallEnd(call_id, ended, context, reply, error=error)


def _returned(call: Call, tool: Tool, context: ToolContext, value: Any) -> CallEnd:
    if context.unwinding is not None:
        return _unwound(call, context)
    call_id, limit = call.id, tool.max_result_bytes
    try:
        reply = reply_of(value, call_id, call.name, limit)
        if context.surfaces:
            reply = replace(reply, artifacts=(*reply.artifacts, *context.surfaces))
        return _end(call_id, "ok", context, reply)
    except Exception as error:
        return _end(call_id, "error", context, error=error)


def _failed(started: StartedCall, error: BaseException) -> CallEnd:
    call, context, task = started.call, started.context, started.task
    if isinstance(error, GeneratorExit):
        raise error
    if context.unwinding is not None:
        return _unwound(call, context)
    if isinstance(error, InDoubt):
        return _end(call.id, "in_doubt", context)
    if isinstance(error, asyncio.CancelledError):
        if task is None or task.cancelling():
            return _end(call.id, _stopped(started), context)
        # Nobody cancelled the call: something that it awaited was cancelled.
        error = ToolError("CancelledError: an awaited task was cancelled")
    return _end(call.id, "error", context, error=error)


def _unwound(call: Call, context: ToolContext) -> CallEnd:
    """The end of a tool that waits, which holds even if a task group or `gather` wrapped the signal."""
    waits = context.unwinding
    if isinstance(waits, Asked):
        return CallEnd(call.id, "asked", context, asked=waits)
    return CallEnd(call.id, "parked", context, parked=waits)
