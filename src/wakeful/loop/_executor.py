"""Running tools: a task for each call that waits, timeouts, and letting go of what doesn't stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from contextvars import copy_context
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import Struct

from ..clock import Timer
from ..errors import ToolError, explain
from ..tools import Asked, Parked, Tool, ToolContext, error_reply, reply_of
from ..types.content import ToolReply
from ..types.runs import Call
from ._inline import Inline, LeftBehind, as_task, first_turn
from ._services import CallServices

if TYPE_CHECKING:
    from ._activation import Activation

__all__ = ["Arrival", "Ended", "Executor", "Running", "Starting"]

_log = logging.getLogger("wakeful")

Ended = Literal["ok", "error", "asked", "parked", "timeout", "interrupted"]


class Arrival(Struct, eq=False):
    """How a call ended in this process. For a timeout or an interruption there is no reply: whether the call
    took effect isn't known."""

    call_id: str
    ended: Ended
    context: ToolContext
    reply: ToolReply | None = None
    asked: Asked | None = None
    parked: Parked | None = None


class Running(Struct, eq=False):
    """A call that runs in this process."""

    call: Call
    tool: Tool
    context: ToolContext
    task: asyncio.Task[None] | None = None
    thread: asyncio.Future[Any] | None = None
    timer: Timer | None = None
    timed_out: bool = False
    # A call that runs inside its awaiter's task is stopped through that task.
    inline: Inline | None = None
    awaiter: asyncio.Task[Any] | None = None
    own_cancels: int = 0
    pending: int = 0


Starting = tuple[Call, Tool, dict[str, Any], ToolContext]


class _Waiting:
    """The call that a task goes on with, once there is one."""

    __slots__ = ("inline", "running")

    def __init__(self) -> None:
        self.running: Running | None = None
        self.inline: Inline | None = None


class Executor:
    """The calls that one activation runs. Whatever way they end, each makes exactly one arrival."""

    __slots__ = (
        "_abandoned",
        "_clock",
        "_grace",
        "_running",
        "_stopped",
        "_threads",
        "_waiter",
        "arrivals",
        "below",
        "loop",
        "passed_on",
        "services",
    )

    def __init__(self, act: Activation) -> None:
        env = act.env
        self._clock = env.clock
        self._threads = env.threads
        self._abandoned = env.abandoned
        self._grace = env.grace
        self.loop = asyncio.get_running_loop()
        # What running tools reach through their context.
        self.services = CallServices(act, self.loop)
        self._running: dict[str, Running] = {}
        self._stopped = False
        self._waiter: asyncio.Future[None] | None = None
        self.arrivals: list[Arrival] = []
        self.passed_on = False
        # The runs below the calls that run here, each with its call.
        self.below: dict[Activation, str] = {}

    def start(self, task: asyncio.Task[Any] | None, calls: list[Starting]) -> None:
        """Run calls side by side; the end of each is an arrival. Async ones are begun right here, and what doesn't
        wait has arrived then. `passed_on` says whether one of them cancelled this task."""
        left, pending = calls[::-1], 0 if task is None else task.cancelling()
        try:
            while left and not self._stopped:
                if left[-1][1].is_async:
                    self._begin(left)
                else:
                    self._submit(*left.pop())
        finally:
            # One of them stopped the run, or raised what ends the process: these never ran.
            self.arrivals += [Arrival(call.id, "interrupted", context) for call, _, _, context in reversed(left)]
            self.passed_on = task is not None and task.cancelling() > pending

    def _begin(self, left: list[Starting]) -> None:
        """Begin calls in the name of one task, up to the first that waits: the task goes on with that."""
        waiting = _Waiting()
        work = self._go_on(waiting)
        work.send(None)
        task = asyncio.Task(work, loop=self.loop)  # Not by a factory, which may run it at once.
        with as_task(task, self.loop):
            while left and left[-1][1].is_async and not (self._stopped or task.cancelling()):
                call, tool, arguments, context = left[-1]
                variables = copy_context()
                try:
                    coroutine = tool.call(arguments, context)
                    waits_for = variables.run(coroutine.send, None)
                except StopIteration as stop:
                    self.arrivals.append(self._returned(call, tool, context, stop.value))
                except BaseException as error:
                    self.arrivals.append(self._raised(Running(call, tool, context, task), error))
                else:
                    waiting.running = self._enlist(call, tool, context, task)
                    waiting.inline = Inline(coroutine, variables, waits_for, None)
                left.pop()
                if waiting.running is not None:
                    return

    def _submit(self, call: Call, tool: Tool, arguments: dict[str, Any], context: ToolContext) -> None:
        """Run a call in a thread."""
        running = self._enlist(call, tool, context, None)
        running.task = self.loop.create_task(self._run_in_thread(running, arguments))

    def _enlist(self, call: Call, tool: Tool, context: ToolContext, task: asyncio.Task[None] | None) -> Running:
        running = self._running[call.id] = Running(call, tool, context, task)
        if tool.timeout is not None:
            running.timer = self._clock.call_later(tool.timeout, self._stop, running, True)
        return running

    async def wait(self) -> None:
        """Wait until there is an arrival, or somebody nudges."""
        if not self.arrivals:
            self._waiter = self.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def nudge(self) -> None:
        """End a wait."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def interrupt(self) -> None:
        """Tell every running call to stop, and let go of those that don't within the grace."""
        self._stopped = True
        for running in list(self._running.values()):
            self._stop(running, False)

    def give_up(self) -> None:
        """The run was lost: stop its calls; what runs below them writes nothing more, as nobody cancelled it."""
        for act in self.below:
            act.cut_off(interrupt=False)
        self.interrupt()

    def begin_inline(self, task: asyncio.Task[Any] | None, starting: Starting) -> Arrival | Running:
        """Run a step's only call in this task: up to its end, or to where it waits and `end_inline` goes on.
        `passed_on` says whether the caller's cancellation went through the tool; whoever takes the arrival must
        raise it then."""
        call, tool, arguments, context = starting
        pending = 0 if task is None else task.cancelling()
        coroutine, variables = tool.call(arguments, context), copy_context()
        waits_for = raised = None
        try:
            waits_for = variables.run(coroutine.send, None)
        except StopIteration as stop:
            # It never waited: there is nothing to watch over.
            self.passed_on = task is not None and task.cancelling() > pending
            return self._returned(call, tool, context, stop.value)
        except BaseException as error:
            raised = error
        inline = Inline(coroutine, variables, waits_for, raised)
        running = self._running[call.id] = Running(call, tool, context)
        running.awaiter, running.inline, running.pending = task, inline, pending
        return running

    async def end_inline(self, running: Running) -> Arrival:
        """Go on with a call that `begin_inline` began and that waits now."""
        call, tool, task, inline = running.call, running.tool, running.awaiter, cast(Inline, running.inline)
        inline.told = lambda: self._noticed(running)
        if tool.timeout is not None:
            running.timer = self._clock.call_later(tool.timeout, self._stop, running, True)
        arrival: Arrival | None = None
        try:
            arrival = self._returned(call, tool, running.context, await inline)
        except LeftBehind:
            rest = self.loop.create_task(inline.rest())
            self._abandoned.add(rest)
            rest.add_done_callback(self._abandoned.discard)
        except BaseException as error:
            arrival = self._raised(running, error)
        if self._running.pop(call.id, None) is None or arrival is None:
            # It was let go of: before it ended, or in the very moment in which it did.
            arrival = self.arrivals.pop()
        if running.timer is not None:
            running.timer.cancel()
        if task is not None:
            while running.own_cancels:
                running.own_cancels -= 1
                task.uncancel()
            for _ in inline.forgotten:
                task.uncancel()
            self.passed_on = task.cancelling() > running.pending
        return arrival

    def _returned(self, call: Call, tool: Tool, context: ToolContext, value: Any) -> Arrival:
        if context.unwinding is not None:
            return _unwound(call, context)
        call_id, limit = call.id, tool.max_result_bytes
        try:
            return _over(call_id, "ok", context, reply_of(value, call_id, call.name, limit))
        except Exception as error:
            return _over(call_id, "error", context, _told(call, error, limit))

    async def _go_on(self, waiting: _Waiting) -> None:
        """Go on with the call that waits of those that were begun in this task's name, if there is one."""
        try:
            await first_turn()
        except asyncio.CancelledError as error:
            if waiting.inline is not None:
                waiting.inline.interrupt(error)
        if waiting.running is not None and waiting.inline is not None:
            await self._run(waiting.running, waiting.inline)

    async def _run_in_thread(self, running: Running, arguments: dict[str, Any]) -> None:
        await self._run(running, self._in_thread(running, arguments))

    async def _run(self, running: Running, work: Awaitable[Any]) -> None:
        try:
            value = await work
        except BaseException as error:
            arrival = self._raised(running, error)
        else:
            arrival = self._returned(running.call, running.tool, running.context, value)
        self._arrive(running, arrival)

    def _raised(self, running: Running, error: BaseException) -> Arrival:
        call, context = running.call, running.context
        if isinstance(error, GeneratorExit | KeyboardInterrupt):
            raise error
        if context.unwinding is not None:
            return _unwound(call, context)
        if isinstance(error, asyncio.CancelledError):
            task = running.task or running.awaiter
            if task is None or task.cancelling() > running.pending:
                return _over(call.id, "timeout" if running.timed_out else "interrupted", context)
            # Nobody told it to stop: something that it awaits was cancelled, an error like any other.
            reply = error_reply(call.id, call.name, "failed", "CancelledError: what it waited for was cancelled")
        else:
            reply = _told(call, error, running.tool.max_result_bytes)
        return _over(call.id, "error", context, reply)

    async def _in_thread(self, running: Running, arguments: dict[str, Any]) -> Any:
        tool, context = running.tool, running.context
        future = running.thread = self._threads.submit(lambda: tool.call(arguments, context))
        while True:
            try:
                value = await asyncio.shield(future)
                break
            except asyncio.CancelledError:
                if future.cancelled() or running.call.id not in self._running:
                    raise
                # A thread can't be stopped: it was told, and has until the grace ends to come back.
                continue
        # A plain function around an async one hands its coroutine on.
        return await value if isawaitable(value) else value

    def _stop(self, running: Running, timed_out: bool) -> None:
        if running.call.id not in self._running or running.context.cancelled:
            return
        running.timed_out = timed_out
        self._cancelled(running)
        if running.task is not None:
            running.task.cancel()
        elif running.awaiter is not None:
            running.own_cancels += 1
            running.awaiter.cancel()

    def _cancelled(self, running: Running) -> None:
        """The call was told to stop; from now on the grace runs."""
        if running.context.cancelled:
            return
        running.context.cancel()
        if running.timer is not None:
            running.timer.cancel()
        running.timer = self._clock.call_later(self._grace, self._let_go, running)

    def _noticed(self, running: Running) -> None:
        """A cancellation passes through to an inline call: the caller's, or one of the tool's own, such as a
        time limit inside it, which it takes back. Which of them shows when the grace is over."""
        if not running.context.cancelled:
            self._clock.call_later(self._grace, self._reconsider, running)

    def _reconsider(self, running: Running) -> None:
        task = running.awaiter
        if task is not None and task.cancelling() > running.pending and not running.context.cancelled:
            running.context.cancel()
            self._let_go(running)

    def _let_go(self, running: Running) -> None:
        if running.call.id not in self._running:
            return
        if running.call.id in self.below.values():
            # The runs below it have a grace of their own, and end before it does.
            running.timer = self._clock.call_later(self._grace, self._let_go, running)
            return
        ended: Ended = "timeout" if running.timed_out else "interrupted"
        self._arrive(running, _over(running.call.id, ended, running.context))
        if running.inline is not None and running.awaiter is not None:
            running.inline.leave = True
            running.own_cancels += 1
            running.awaiter.cancel()
        elif running.task is not None and running.thread is not None:
            self._threads.abandon(running.thread)
            running.task.cancel()
        elif running.task is not None:
            self._abandoned.add(running.task)
            running.task.add_done_callback(self._abandoned.discard)

    def _arrive(self, running: Running, arrival: Arrival) -> None:
        if self._running.pop(running.call.id, None) is None:
            return
        if running.timer is not None:
            running.timer.cancel()
        self.arrivals.append(arrival)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def _over(call_id: str, ended: Ended, context: ToolContext, reply: ToolReply | None = None) -> Arrival:
    """The arrival of a call that has ended. What is left of its tool can't do a thing that nobody would see; one
    that was unwound runs again, and what is left of it counts then."""
    context.end()
    return Arrival(call_id, ended, context, reply)


def _unwound(call: Call, context: ToolContext) -> Arrival:
    """A tool waits for somebody. It may be that a task group wrapped the signal, or `gather` made it a result."""
    waits = context.unwinding
    if isinstance(waits, Asked):
        return Arrival(call.id, "asked", context, asked=waits)
    return Arrival(call.id, "parked", context, parked=waits)


def _told(call: Call, error: BaseException, limit: int) -> ToolReply:
    if isinstance(error, ToolError):
        return error_reply(call.id, call.name, error.kind, explain(error).partition(": ")[2], limit)
    _log.debug("tool %s failed in call %s", call.name, call.id, exc_info=error)
    return error_reply(call.id, call.name, "failed", explain(error), limit)
