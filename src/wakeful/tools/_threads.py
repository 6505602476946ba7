"""Threads for synchronous tools: ours, so that one which never returns can be let go and counted."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

from ..errors import explain

__all__ = ["ToolThreads"]

_Job = tuple[contextvars.Context, Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]

IDLE_SECONDS = 10.0


class ToolThreads:
    """Daemon threads, made when needed and ended when idle. An abandoned one no longer counts as busy, up to so
    many of them: a tool that never comes back can't take the process's threads one by one."""

    def __init__(self, limit: int = 64, abandoned: int = 256) -> None:
        self._limit = limit
        self._replaced = abandoned
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting: set[asyncio.Future[Any]] = set()
        self._threads = 0
        self._idle = 0
        self.abandoned = 0

    def submit(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run the function in a thread with this task's context variables."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            self._waiting.add(future)
            self._jobs.put((contextvars.copy_context(), function, loop, future))
            busy = self._threads - min(self.abandoned, self._replaced)
            if self._idle < len(self._waiting) and busy < self._limit:
                self._threads += 1
                threading.Thread(target=self._work, name="wakeful-tool", daemon=True).start()
        return future

    def abandon(self, future: asyncio.Future[Any]) -> None:
        """Let go of a function that doesn't stop; its thread is counted until it ends. One that didn't begin
        yet never does."""
        with self._lock:
            if future in self._waiting:
                self._waiting.remove(future)
                return
            self.abandoned += 1

        def ended(late: asyncio.Future[Any]) -> None:
            self.abandoned -= 1
            if not late.cancelled():
                late.exception()  # Asked for, so that asyncio doesn't warn about an error nobody waits for.

        future.add_done_callback(ended)

    @property
    def alive(self) -> int:
        """Threads that exist now, abandoned ones included."""
        return self._threads

    def close(self) -> None:
        """Send the idle threads home."""
        with self._lock:
            for _ in range(self._threads):
                self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            context, function, loop, future = job
            try:
                value, error = context.run(function), None
            except BaseException as raised:
                value, error = None, raised
            try:
                loop.call_soon_threadsafe(_settle, future, value, error)
            except RuntimeError:
                pass  # The loop is closed: nobody waits for the answer any more.
            del context, function, future, value, error, job

    def _next(self) -> _Job | None:
        """The next job, or None once the thread has left the count and must end."""
        while True:
            with self._lock:
                self._idle += 1
            try:
                job = self._jobs.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                job = None
            # Idle threads and waiting jobs change together, so that `submit` never counts on a thread that is
            # about to take another job, or to end.
            with self._lock:
                self._idle -= 1
                if job is None and not self._waiting:
                    self._threads -= 1
                    return None
                if job is not None and job[3] in self._waiting:
                    self._waiting.remove(job[3])
                    return job


def _settle(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(value)
    else:
        # A future can't hold StopIteration, GeneratorExit is the end of whoever waits for it, and a tool's
        # SystemExit is not the application's.
        future.set_exception(error if _portable(error) else RuntimeError(explain(error)))


def _portable(error: BaseException) -> bool:
    ends = (StopIteration, GeneratorExit, SystemExit, KeyboardInterrupt, asyncio.CancelledError)
    return not isinstance(error, ends)
