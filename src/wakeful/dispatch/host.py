"""The activations of one tenant in this process, and the asyncio tasks around them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

from ..bus import LocalBus
from ..errors import (
    Conflict,
    InputRetracted,
    RuntimeClosed,
    StaleFence,
    StoreError,
    StoreUnavailable,
    explain,
    report,
)
from ..loop import Activation, Environment
from ..stores import Commit, Fence
from .parked_activations import ParkedActivations
from .results import RunResult, result_of
from .worker_state import WorkerState

__all__ = ["Host", "enclosing_threads", "is_inside_run"]

_log = logging.getLogger("wakeful")

# The threads whose runs the present code is part of: a tool, a hook, or a task that one started. An empty string
# marks a task that its run doesn't wait for.
enclosing_threads: ContextVar[tuple[str, ...]] = ContextVar("wakeful_threads", default=())

# Backoff before each attempt to release a thread, in seconds.
RELEASE_BACKOFF = (0, 0.1, 0.5, 2, 5, 10)


def is_inside_run() -> bool:
    """Whether a run of this process waits for the present code."""
    enclosing = enclosing_threads.get()
    return bool(enclosing) and bool(enclosing[-1])


class Host:
    """Owns the activations of one tenant: at most one on a thread."""

    def __init__(
        self, env: Environment, bus: LocalBus, worker: WorkerState, *, tenant: str, execute: bool
    ) -> None:
        self.env = env
        self.bus = bus
        self.worker = worker
        self.tenant = tenant
        self.execute = execute
        self.active: dict[str, Activation] = {}
        self.parked = ParkedActivations(self.active)
        self.tasks: set[asyncio.Task[Any]] = set()
        # Threads whose work is scheduled and has no activation yet.
        self.starting: set[str] = set()
        # How many times in a row a claimed thread was released because it can't be run here.
        self.postponed: dict[str, int] = {}
        self.closed = False
        self._metrics = worker.metrics
        self._next_ends: dict[str, asyncio.Future[Activation]] = {}

    def check_open(self) -> None:
        """Raise `RuntimeClosed` once the runtime is closed."""
        if self.closed:
            raise RuntimeClosed

    def runs_agent(self, agent_id: str) -> bool:
        """Whether this process executes an agent's runs."""
        return self.execute and agent_id not in self.worker.excluded

    def leaves_to_others(self, agent_id: str) -> bool:
        """Whether due work of an agent is left to other processes, now or always."""
        return not self.execute or not self.worker.accepts(agent_id)

    async def refresh_inbox(self, thread_id: str, inbox_head: int) -> None:
        """Deliver pending items to the active run of a thread, unless it has seen this inbox head."""
        act = self.active.get(thread_id)
        if act is None or act.inbox_head >= inbox_head:
            return
        stored = await self.env.store.load(thread_id)
        if stored is not None and self.active.get(thread_id) is act:
            act.deliver(stored.inbox, stored.thread.inbox_head)

    def result(self, act: Activation) -> RunResult:
        """The result of an activation's run so far."""
        view = act.view
        tickets = tuple(view.tickets.values()) if view.tickets else ()
        return result_of(self.env.registry, view.run, view.answer, tickets)

    # -- called by activations -------------------------------------------------------------------------------

    def began(self, act: Activation) -> None:
        """Register an activation that starts in the caller's asyncio task."""
        thread_id = act.identity.thread_id
        if thread_id in self.active:
            self.bus.release(thread_id)
            raise Conflict(f"thread {thread_id!r} was taken by another run of this process")
        stopping = self.closed and self.env.store.durable
        if stopping and act.draft.fence is None and not act.attached:
            self.bus.release(thread_id)
            raise RuntimeClosed  # Nobody might be left to release the thread that it would claim.
        self.active[thread_id] = act
        if stopping:
            act.hand_over()  # It was being opened when the runtime stopped.
        self.starting.discard(thread_id)
        if self.parked.by_thread:
            self.parked.remove(act)
        self.worker.run_started()
        self._metrics.began()
        if self.postponed:
            self.postponed.pop(thread_id, None)
        enclosing_threads.set((*enclosing_threads.get(), thread_id))

    def lost(self, act: Activation, error: BaseException) -> None:
        """Release the thread of a failed activation, unless another process owns it."""
        if isinstance(error, Exception) and not isinstance(error, Conflict | StaleFence):
            self.release(act, explain(error))
            if act.draft.fence is None and isinstance(error, StoreUnavailable):
                self.worker.suspect_strays()  # Its first commit may be written.

    def ended(self, act: Activation) -> None:
        """Remove an activation that is over."""
        thread_id, run = act.identity.thread_id, act.view.run
        if (enclosing := enclosing_threads.get()) and enclosing[-1] == thread_id:
            enclosing_threads.set(enclosing[:-1])
        self.worker.run_ended()
        self._metrics.ended(run)
        del self.active[thread_id]
        if self._next_ends and (next_end := self._next_ends.pop(thread_id, None)) is not None:
            next_end.set_result(act)
        if self.parked.by_thread or run.status != "done":
            self.parked.add_ended(act)
        self.bus.release(thread_id)
        if (waiting := run.waiting) is not None and waiting.until is not None:
            self.worker.look()

    # -- ends of activations ---------------------------------------------------------------------------------

    def next_end(self, thread_id: str) -> asyncio.Future[Activation]:
        """A future for the next activation that ends on a thread. Call `forget_end` if nobody awaits it."""
        if thread_id not in self._next_ends:
            self._next_ends[thread_id] = asyncio.get_running_loop().create_future()
        return self._next_ends[thread_id]

    def forget_end(self, thread_id: str, next_end: asyncio.Future[Activation]) -> None:
        """Drop a future of `next_end`."""
        if self._next_ends.get(thread_id) is next_end:
            del self._next_ends[thread_id]

    def release(self, act: Activation, error: str | None = None) -> None:
        """Release the thread of an activation in the background; the next owner continues from its last commit."""
        if act.draft.fence is not None:
            self.spawn(self._release(act, act.draft.fence, error))

    async def _release(self, act: Activation, fence: Fence, error: str | None) -> None:
        commit = Commit(act.identity.thread_id, act.identity, fence, release=True, failed=error)
        for backoff in RELEASE_BACKOFF:
            await asyncio.sleep(backoff)
            if self.closed:
                return
            try:
                await self.env.store.commit(commit)
            except (Conflict, StaleFence):
                pass  # Another process owns the thread.
            except StoreError:
                continue
            return
        self.worker.suspect_strays()

    # -- asyncio tasks ---------------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine in a background task; its failure is logged."""
        self.track(asyncio.get_running_loop().create_task(work))

    def track(self, task: asyncio.Task[Any], *, is_awaited: bool = False) -> None:
        """Keep a background task until it ends, and log its failure unless it is awaited."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard if is_awaited else self._untrack)

    def _untrack(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, RuntimeClosed | InputRetracted):
            report(_log, error, "a run in the background failed")
