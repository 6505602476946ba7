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
from ..loop import Activation, Environment, Fingerprint, History, deliver_items
from ..stores import Commit, Fence
from ..types.runs import Failed
from .parked_activations import ParkedActivations
from .results import RunResult, result_of
from .worker_state import WorkerState

__all__ = ["Host", "enclosing_threads", "is_inside_run", "log_failure"]

_log = logging.getLogger("wakeful")

# The threads whose runs the present code is part of: a tool, a hook, or a task that one started. An empty string
# marks a task that its run doesn't wait for.
enclosing_threads: ContextVar[tuple[str, ...]] = ContextVar("wakeful_threads", default=())

# The most exceptions of failed runs that a process keeps, to chain them to the errors of callers.
FAILURES_KEPT = 16

# Backoff before each attempt to release a thread, in seconds.
RELEASE_BACKOFF = (0, 0.1, 0.5, 2, 5, 10)


def is_inside_run() -> bool:
    """Whether a run of this process waits for the present code."""
    enclosing = enclosing_threads.get()
    return bool(enclosing) and bool(enclosing[-1])


def log_failure(run_id: str, agent_id: str, termination: Failed) -> None:
    """Log a failed run without a caller."""
    _log.warning("run %s of %s failed: %s", run_id, agent_id, termination.text)


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
        # How many callers of this process wait for a run, by its id.
        self._awaited: dict[str, int] = {}
        self._failures: dict[str, BaseException] = {}

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
            deliver_items(act, stored.inbox, stored.thread.inbox_head)

    def result(self, act: Activation) -> RunResult:
        """The result of an activation's run so far."""
        view = act.view
        tickets = tuple(view.tickets.values()) if view.tickets else ()
        return result_of(self.env.registry, view.run, view.answer, tickets)

    # -- callers and failures --------------------------------------------------------------------------------

    def add_caller(self, run_id: str) -> None:
        """Register a caller that waits for a run. Call `remove_caller` when it stops waiting."""
        self._awaited[run_id] = self._awaited.get(run_id, 0) + 1

    def remove_caller(self, run_id: str) -> None:
        """Forget a caller that waited for a run."""
        if (left := self._awaited[run_id] - 1) > 0:
            self._awaited[run_id] = left
        else:
            del self._awaited[run_id]

    def failure(self, run_id: str) -> BaseException | None:
        """The exception that a run failed with, if that was in this process and not long ago."""
        return self._failures.get(run_id)

    def _note_failure(self, act: Activation) -> None:
        """Keep the exception of a failed run, and log the failure if neither a caller nor a run gets it."""
        run = act.view.run
        if run.outcome is None or not isinstance(run.outcome.termination, Failed):
            return
        if act.failure is not None:
            self._failures[run.id] = act.failure
            if len(self._failures) > FAILURES_KEPT:
                del self._failures[next(iter(self._failures))]
        if run.task is None and run.id not in self._awaited:
            log_failure(run.id, run.agent_id, run.outcome.termination)

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
        _keep_history(act, self.tenant)
        if self._next_ends and (next_end := self._next_ends.pop(thread_id, None)) is not None:
            next_end.set_result(act)
        if self.parked.by_thread or run.status != "done":
            self.parked.add_ended(act)
        self.bus.release(thread_id)
        if run.status == "done":
            self._note_failure(act)
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


def _keep_history(act: Activation, tenant: str) -> None:
    """Keep the history for the thread's next run, if this one is over and nothing of it is uncommitted."""
    history = act.loaded
    if not act.left or act.view.run.status != "done" or act.draft:
        return
    if act.agent.agent.limits.history is not None or act.agent.backend is not None:
        return
    if history.messages is not act.history:
        history = History(act.history)
    history.cut, history.tally = act.cut, None if act.window is None else act.window.tally
    history.digests = act.digests
    at = Fingerprint(act.identity.run_id, act.version, act.head)
    act.env.histories.put((tenant, act.identity.thread_id), at, history)
