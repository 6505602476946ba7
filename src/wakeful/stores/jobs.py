"""Threads that run jobs for event loops, and futures that cancellation doesn't interrupt."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from msgspec import Struct

__all__ = ["Job", "JobThread", "Promise", "cancel_again", "hand_back", "next_turn", "settled"]

T = TypeVar("T")

MAX_BATCH = 256


class Promise(asyncio.Future[T]):
    """A future that can't be cancelled. See `settled`."""

    def cancel(self, msg: Any | None = None) -> bool:
        """Do nothing."""
        return False


class Job(Struct, eq=False):
    """Work for a thread. It ends with `result` or `error`; the thread calls `then` with the error or None."""

    work: Callable[[], Any]
    future: asyncio.Future[Any] | None = None
    result: Any = None
    error: BaseException | None = None
    then: Callable[[BaseException | None], None] | None = None


class JobThread:
    """Runs jobs in batches: the jobs that were queued while the last batch ran are the next one.

    Jobs that are put after the thread was closed are passed to `refuse`.
    """

    def __init__(
        self, name: str, run_batch: Callable[[list[Job]], None], refuse: Callable[[list[Job]], None]
    ) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._run_batch = run_batch
        self._refuse = refuse
        self._ended = False
        self._ending = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Queue work. The future belongs to the running loop and can be cancelled."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.put(Job(work, future))
        return future

    def promise(self, work: Callable[[], T]) -> Promise[T]:
        """Queue work whose future can't be cancelled."""
        future: Promise[T] = Promise(loop=asyncio.get_running_loop())
        self.put(Job(work, future))
        return future

    def post(self, work: Callable[[], Any], then: Callable[[BaseException | None], None] | None = None) -> None:
        """Queue work that nobody waits for, from any thread. `then` is called with its error or None."""
        self.put(Job(work, then=then))

    def put(self, *jobs: Job) -> None:
        """Queue jobs, from any thread."""
        with self._ending:
            if not self._ended:
                for job in jobs:
                    self._jobs.put(job)
                return
        self._refuse([*jobs])

    def close(self) -> None:
        """End the thread after the jobs that are queued. Blocks."""
        with self._ending:
            self._ended = True
            self._jobs.put(None)
        self._thread.join()

    def _serve(self) -> None:
        get, get_nowait = self._jobs.get, self._jobs.get_nowait
        while (job := get()) is not None:
            batch, last = [job], False
            try:
                while len(batch) < MAX_BATCH:
                    if (job := get_nowait()) is None:
                        last = True
                        break
                    batch.append(job)
            except Empty:
                pass
            try:
                self._run_batch(batch)
            except BaseException as error:  # The thread outlives every error.
                for job in batch:
                    job.error = job.error or error
            hand_back(batch)
            if last:
                return


def hand_back(batch: list[Job]) -> None:
    """Resolve the futures of jobs in their event loops. Jobs of one loop wake it once."""
    loops: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in batch:
        if job.then is not None:
            job.then(job.error)
        if (future := job.future) is not None:
            if (jobs := loops.get(loop := future.get_loop())) is None:
                jobs = loops[loop] = []
            jobs.append(job)
    for loop, jobs in loops.items():
        with suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(_resolve, jobs)


def _resolve(jobs: list[Job]) -> None:
    for job in jobs:
        future = job.future
        if future is None or future.done():
            continue
        if job.error is not None:
            future.set_exception(job.error)
        else:
            future.set_result(job.result)


async def settled(future: asyncio.Future[T]) -> T:
    """Wait for a future even if the task is cancelled, and return its result.

    A cancellation is delivered at the next await of the task: a commit that is being written can't be undone, and
    its writer has to know the result.
    """
    cancelled = False
    while True:
        try:
            result = await (future if isinstance(future, Promise) else asyncio.shield(future))
            break
        except asyncio.CancelledError:
            if future.cancelled():
                raise
            cancelled = True
        except BaseException:
            if cancelled:
                cancel_again()
            raise
    if cancelled:
        cancel_again()
    return result


async def next_turn() -> None:
    """Let other tasks of the event loop run. A cancellation is delivered at the next await of the task."""
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        cancel_again()


def cancel_again() -> None:
    """Deliver a cancellation again, at the next await of the task."""
    task = asyncio.current_task()
    if task is not None:
        task.cancel()
        task.uncancel()  # It was counted the first time.
