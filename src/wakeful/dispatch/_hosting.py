"""What this process hosts: the activations that begin and end here, and the tasks around them."""

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
from ._boarding import Resting
from ._keeper import Keeper
from ._results import RunResult, result_of

__all__ = ["Hosting", "inside_of"]

_log = logging.getLogger("wakeful")

# The threads whose runs the present code is part of: a tool, a hook, or what they started. An empty name stands
# before what was started, and isn't waited for.
inside_of: ContextVar[tuple[str, ...]] = ContextVar("wakeful_threads", default=())


# How long to wait before each try to give a thread back, in seconds.
HAND_BACK_PAUSES = (0, 0.1, 0.5, 2, 5, 10)


class Hosting:
    """The activations of one tenant that this process has, at most one on a thread."""

    def __init__(self, env: Environment, bus: LocalBus, keeper: Keeper) -> None:
        self.env = env
        self.bus = bus
        self.keeper = keeper
        self._metrics = keeper.metrics
        self.active: dict[str, Activation] = {}
        self.tasks: set[asyncio.Task[Any]] = set()
        # How often a thread was put off because it can't go on here.
        self.put_off: dict[str, int] = {}
        # Threads that something was begun for which doesn't run yet.
        self.waking: set[str] = set()
        # Runs that wait for others which run here, by their threads.
        self.resting = Resting(self.active)
        # What tells of the next end of an activation on a thread.
        self._after: dict[str, asyncio.Future[Activation]] = {}
        self.closed = False

    def wake(self, thread_id: str, agent_id: str | None = None) -> None:
        """Something was put into a thread's inbox: whoever runs it hears of it, or it is gone on with."""
        raise NotImplementedError

    def check_open(self) -> None:
        """Refuse to begin anything once the runtime is closed."""
        if self.closed:
            raise RuntimeClosed

    @staticmethod
    def within() -> bool:
        """Whether the present code is part of a run in this process, which waits for it."""
        inside = inside_of.get()
        return bool(inside) and bool(inside[-1])

    def began(self, act: Activation) -> None:
        """An activation begins here, in the caller's task."""
        thread_id = act.identity.thread_id
        if thread_id in self.active:
            self.bus.release(thread_id)
            raise Conflict(f"thread {thread_id!r} was taken by another run of this process")
        stopping = self.closed and self.env.store.durable
        if stopping and act.draft.fence is None and not act.attached:
            self.bus.release(thread_id)
            raise RuntimeClosed  # Nobody may be there any more to give back what it would claim.
        self.active[thread_id] = act
        if stopping:
            act.hand_over()  # It was being opened when the runtime was told to stop.
        if self.waking:
            self.waking.discard(thread_id)
        if self.resting.acts:
            self.resting.began(act)
        self.keeper.hold()
        self._metrics.began()
        if self.put_off:
            self.put_off.pop(thread_id, None)
        inside_of.set((*inside_of.get(), thread_id))

    def lost(self, act: Activation, error: BaseException) -> None:
        """An activation is given up; its thread is given back, unless somebody else has it."""
        if isinstance(error, Exception) and not isinstance(error, Conflict | StaleFence):
            self.hand_back(act, explain(error))
            if act.draft.fence is None and isinstance(error, StoreUnavailable):
                self.keeper.suspect()  # Its first commit may be in all the same.

    def ended(self, act: Activation) -> None:
        """An activation is over: others may have its thread."""
        thread_id, run = act.identity.thread_id, act.view.run
        if (inside := inside_of.get()) and inside[-1] == thread_id:
            inside_of.set(inside[:-1])
        self.keeper.rest()
        self._metrics.ended(run)
        del self.active[thread_id]
        if self._after and (after := self._after.pop(thread_id, None)) is not None:
            after.set_result(act)
        if self.resting.acts or run.status != "done":
            self.resting.ended(act)
        self.bus.release(thread_id)
        if act.view.inbox:
            self.wake(thread_id)
        if (waiting := run.waiting) is not None and waiting.until is not None:
            self.keeper.look()

    def after(self, thread_id: str) -> asyncio.Future[Activation]:
        """The activation that is the next to end on a thread, once it has; `forget` it if nobody waits."""
        if thread_id not in self._after:
            self._after[thread_id] = asyncio.get_running_loop().create_future()
        return self._after[thread_id]

    def forget(self, thread_id: str, after: asyncio.Future[Activation]) -> None:
        """Nobody waits any more for the next end of an activation on a thread."""
        if self._after.get(thread_id) is after:
            del self._after[thread_id]

    def hand_back(self, act: Activation, error: str | None = None) -> None:
        """Give a thread back whose run was given up here: whoever comes next goes on from the last commit."""
        if act.draft.fence is not None:
            self._spawn(self._hand_back(act, act.draft.fence, error))

    async def _hand_back(self, act: Activation, fence: Fence, error: str | None) -> None:
        thread_id = act.identity.thread_id
        for pause in HAND_BACK_PAUSES:
            await asyncio.sleep(pause)
            if self.closed:
                return
            try:
                await self.env.store.commit(Commit(thread_id, act.identity, fence, release=True, failed=error))
            except (Conflict, StaleFence):
                pass  # Somebody else has it.
            except StoreError:
                continue
            return
        self.keeper.suspect()

    def result(self, act: Activation) -> RunResult:
        """What an activation came to."""
        view = act.view
        tickets = tuple(view.tickets.values()) if view.tickets else ()
        return result_of(self.env.registry, view.run, view.answer, tickets)

    # -- tasks -----------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        self.track(asyncio.get_running_loop().create_task(work))

    def track(self, task: asyncio.Task[Any], *, heard: bool = False) -> None:
        """Keep a background task until it ends, and log its failure unless somebody hears of it."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard if heard else self._untrack)

    def _untrack(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, RuntimeClosed | InputRetracted):
            report(_log, error, "a run in the background failed")
