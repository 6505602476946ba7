"""Running tools: a task for each call, timeouts, and letting go of what doesn't stop."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from ..clock import Clock, Timer
from ..errors import ToolError
from ..tools import Asked, Tool, ToolContext, ToolThreads, error_reply, reply_of
from ..types.content import ToolReply
from ..types.runs import Call

__all__ = ["Arrival", "Ended", "Executor"]

Ended = Literal["ok", "error", "asked", "timeout", "interrupted"]


class Arrival:
    """How a call ended in this process. For a timeout or an interruption there is no reply: whether the call
    took effect isn't known."""

    __slots__ = ("asked", "call_id", "context", "ended", "reply")

    def __init__(
        self,
        call_id: str,
        ended: Ended,
        context: ToolContext,
        reply: ToolReply | None = None,
        asked: Asked | None = None,
    ) -> None:
        self.call_id = call_id
        self.ended: Ended = ended
        self.context = context
        self.reply = reply
        self.asked = asked


class _Running:
    __slots__ = ("call", "context", "task", "thread", "timed_out", "timer", "tool")

    def __init__(self, call: Call, tool: Tool, context: ToolContext) -> None:
        self.call = call
        self.tool = tool
        self.context = context
        self.task: asyncio.Task[None] | None = None
        self.thread: asyncio.Future[Any] | None = None
        self.timer: Timer | None = None
        self.timed_out = False


class Executor:
    """The calls that one activation runs. Whatever way they end, each makes exactly one arrival."""

    def __init__(self, clock: Clock, threads: ToolThreads, abandoned: set[Any], grace: float) -> None:
        self._clock = clock
        self._threads = threads
        self._abandoned = abandoned
        self._grace = grace
        self.loop = asyncio.get_running_loop()
        self._running: dict[str, _Running] = {}
        self._waiter: asyncio.Future[None] | None = None
        self.arrivals: list[Arrival] = []

    def start(self, call: Call, tool: Tool, arguments: dict[str, Any], context: ToolContext) -> None:
        """Run a call; its end is an arrival."""
        running = self._running[call.id] = _Running(call, tool, context)
        running.task = self.loop.create_task(self._run(running, arguments))
        if tool.timeout is not None:
            running.timer = self._clock.call_later(tool.timeout, self._stop, running, True)

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
        for running in list(self._running.values()):
            self._stop(running, False)

    async def _run(self, running: _Running, arguments: dict[str, Any]) -> None:
        call, tool, context = running.call, running.tool, running.context
        try:
            if tool.is_async:
                value = await tool.call(arguments, context)
            else:
                value = await self._in_thread(running, arguments)
            reply = reply_of(value, call.id, call.name, tool.max_result_bytes)
            arrival = Arrival(call.id, "ok", context, reply)
        except Asked as asked:
            arrival = Arrival(call.id, "asked", context, asked=asked)
        except asyncio.CancelledError:
            arrival = Arrival(call.id, "timeout" if running.timed_out else "interrupted", context)
        except ToolError as error:
            reply = error_reply(call.id, call.name, error.kind, str(error), tool.max_result_bytes)
            arrival = Arrival(call.id, "error", context, reply)
        except (Exception, SystemExit) as error:
            text = f"{type(error).__name__}: {error}"
            reply = error_reply(call.id, call.name, "failed", text, tool.max_result_bytes)
            arrival = Arrival(call.id, "error", context, reply)
        self._arrive(running, arrival)

    async def _in_thread(self, running: _Running, arguments: dict[str, Any]) -> Any:
        tool, context = running.tool, running.context
        future = running.thread = self._threads.submit(lambda: tool.call(arguments, context))
        while True:
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                if future.cancelled() or running.call.id not in self._running:
                    raise
                # A thread can't be stopped: it was told, and has until the grace ends to come back.
                continue

    def _stop(self, running: _Running, timed_out: bool) -> None:
        if running.call.id not in self._running or running.context.cancelled:
            return
        running.timed_out = timed_out
        running.context.cancel()
        if running.timer is not None:
            running.timer.cancel()
        running.timer = self._clock.call_later(self._grace, self._let_go, running)
        if running.task is not None:
            running.task.cancel()

    def _let_go(self, running: _Running) -> None:
        task = running.task
        if running.call.id not in self._running or task is None:
            return
        ended: Ended = "timeout" if running.timed_out else "interrupted"
        self._arrive(running, Arrival(running.call.id, ended, running.context))
        if running.thread is not None:
            self._threads.abandon(running.thread)
            task.cancel()
        else:
            self._abandoned.add(task)
            task.add_done_callback(self._abandoned.discard)

    def _arrive(self, running: _Running, arrival: Arrival) -> None:
        if self._running.pop(running.call.id, None) is None:
            return
        if running.timer is not None:
            running.timer.cancel()
        self.arrivals.append(arrival)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
