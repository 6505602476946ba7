"""A thread pool for synchronous tools, in which a thread that never returns can be abandoned and counted."""

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
    """Daemon threads, started on demand and ended when idle.

    Up to `abandoned` threads that were abandoned don't count against `limit`: tools that never return can't use
    up the pool one by one, nor the process's threads.
    """

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
        """Run a function in a thread with a copy of this task's context variables."""
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
        """Abandon a function that doesn't stop: its thread is counted until it ends. A queued one never runs."""
        with self._lock:
            if future in self._waiting:
                self._waiting.remove(future)
                return
            self.abandoned += 1

        def ended(late: asyncio.Future[Any]) -> None:
            self.abandoned -= 1
            if not late.cancelled():
                late.exception()  # Retrieved, or asyncio logs it as never retrieved.

        future.add_done_callback(ended)

    @property
    def alive(self) -> int:
        """The number of threads, abandoned ones included."""
        return self._threads

    def close(self) -> None:
        """End the idle threads."""
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
                pass  # The event loop is closed.
            del context, function, future, value, error, job

    def _next(self) -> _Job | None:
        """The next job; None if the thread is no longer counted and must end."""
        while True:
            with self._lock:
                self._idle += 1
            try:
                job = self._jobs.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                job = None
            # `submit` compares idle threads with waiting jobs: both change under one lock.
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
        # A future can't hold StopIteration, and a tool's SystemExit must not end the application.
        future.set_exception(error if _portable(error) else RuntimeError(explain(error)))


def _portable(error: BaseException) -> bool:
    ends = (StopIteration, GeneratorExit, SystemExit, KeyboardInterrupt, asyncio.CancelledError)
    return not isinstance(error, ends)
