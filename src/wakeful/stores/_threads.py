"""A thread that works for an event loop: one job after the other, or all that wait at once."""

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
    """A future that is settled whatever happens: a cancellation of who waits for it comes after that."""

    def cancel(self, msg: Any | None = None) -> bool:
        """No."""
        return False


class Job(Struct, eq=False):
    """Work for the thread. `result` or `error` is there once it is done; `then` is told in the thread."""

    work: Callable[[], Any]
    future: asyncio.Future[Any] | None = None
    result: Any = None
    error: BaseException | None = None
    then: Callable[[BaseException | None], None] | None = None


class JobThread:
    """Runs jobs in batches: whatever queued up while the last batch ran is the next one. What comes after its end
    is given to `refuse`."""

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
        """Queue work; the future belongs to the running loop."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.put(Job(work, future))
        return future

    def promise(self, work: Callable[[], T]) -> Promise[T]:
        """The same for work that is waited for whatever happens."""
        future: Promise[T] = Promise(loop=asyncio.get_running_loop())
        self.put(Job(work, future))
        return future

    def post(self, work: Callable[[], Any], then: Callable[[BaseException | None], None] | None = None) -> None:
        """Queue work that nobody waits for, from any thread; `then` hears what went wrong, if anything did."""
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
        """End the thread once everything that was queued is done."""
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
            except BaseException as error:  # Whatever it is: who waits hears of it, and the thread goes on.
                for job in batch:
                    job.error = job.error or error
            hand_back(batch)
            if last:
                return


def hand_back(batch: list[Job]) -> None:
    """Tell the loops; jobs of one loop wake it once."""
    loops: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in batch:
        if job.then is not None:
            job.then(job.error)
        if (future := job.future) is not None:
            if (jobs := loops.get(loop := future.get_loop())) is None:
                jobs = loops[loop] = []
            jobs.append(job)
    for loop, jobs in loops.items():
        with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
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
    """The future's result, waited for whatever happens. A cancellation that comes meanwhile reaches the task at
    its next await: what is being written will be written, and its writer must hear of it."""
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
    """Let the event loop do what else there is to do. A cancellation reaches the task at its next await."""
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        cancel_again()


def cancel_again() -> None:
    """Let a cancellation that came while something was written reach the task at its next await."""
    task = asyncio.current_task()
    if task is not None:
        task.cancel()
        task.uncancel()  # It was counted when it came.
