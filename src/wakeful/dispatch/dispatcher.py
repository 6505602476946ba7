"""The dispatcher: starts due work on a thread, and delivers inbox items to the process that runs it."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from ..bus import LocalBus
from ..errors import (
    CannotResume,
    Conflict,
    Overloaded,
    RuntimeClosed,
    StaleFence,
    StoreError,
    explain,
)
from ..loop import Activation, Environment, drive
from ..stores import Commit, Fence, ThreadView
from ..types.inbox import InboxItem, InputItem, decisions_in
from ..types.runs import RunRecord
from .activations import ActivationFactory
from .due import is_due, next_input
from .host import Host
from .parked import check_resumable
from .results import NewRun, RunResult, item_of, new_run_of
from .schedules import fire_schedule, is_schedule_due
from .signals import Signals
from .tree import dead_letter, open_below, tickets_below, waits_for_tasks
from .turns import Turns
from .worker_state import WorkerState

__all__ = ["Dispatcher"]

_log = logging.getLogger("wakeful")

# How long a run that the present code can't resume is left alone, in seconds.
UNRESUMABLE_PAUSE = 30.0

Start = Callable[[], Coroutine[Any, Any, None]]


class Dispatcher(Host):
    """The runs of one tenant, as this process starts them.

    At most one run at a time is active on a thread; other input waits in the thread's inbox. Runs of other
    processes are reached through their inbox and followed in the store.
    """

    def __init__(
        self,
        env: Environment,
        bus: LocalBus,
        worker: WorkerState,
        signals: Signals,
        *,
        tenant: str,
        execute: bool,
    ) -> None:
        super().__init__(env, bus, worker, tenant=tenant, execute=execute)
        self.signals = signals
        self.turns = Turns()
        self.activations = ActivationFactory(env, bus, worker.owner)
        # Threads whose inbox is about to be read.
        self._checking: set[str] = set()
        # By run: until when, at which inbox head, and why it can't be resumed.
        self._unresumable: dict[str, tuple[float, int, str]] = {}
        signals.add(tenant, bus, self._refresh_active)

    async def _refresh_active(self, thread_id: str) -> bool:
        if thread_id not in self.active:
            return False
        await self.refresh_inbox(thread_id, sys.maxsize)
        return True

    def ended(self, act: Activation) -> None:
        """Remove an activation that is over, and look at the items that it left in the inbox."""
        super().ended(act)
        if act.view.inbox:
            self.wake(act.identity.thread_id)

    def is_busy(self, thread_id: str) -> bool:
        """Whether a thread has work in this process, or is about to."""
        return thread_id in self.active or thread_id in self.starting or thread_id in self._checking

    # -- inbox items -----------------------------------------------------------------------------------------

    async def deliver(self, item: InboxItem) -> None:
        """Put an item into its thread's inbox, and notify its run or a worker that may run it."""
        committed = await self.env.store.commit(Commit(thread_id=item.thread_id, inbox=[item]))
        # Read the inbox again, since an item of this id may have been taken long ago.
        if item.thread_id in self.active:
            await self.refresh_inbox(item.thread_id, committed.inbox_head)
            return
        if self.worker.must_claim:
            self.worker.look()
        if self.signals.joined:
            self.spawn(self.notify_others(item.thread_id, item.agent_id))

    async def deliver_if_idle(self, item: InputItem, *, ask: bool = False) -> bool:
        """Put input into the inbox of an idle thread; False, without a change, if it is busy or has the item.

        With `ask`, a process that doesn't execute first asks a serving worker to start the run at once.
        """
        if item.thread_id in self.active:
            return False
        ask = ask and not self.execute and item.at is None
        if ask and await self.signals.request_start(self.tenant, item):
            return True
        try:
            await self.env.store.commit(Commit(thread_id=item.thread_id, inbox=[item], idle=True))
        except Conflict:
            return False  # Perhaps the worker that was asked has started, and its reply was lost.
        self.announce(item)
        return True

    def announce(self, item: InboxItem) -> None:
        """Tell the workers that may claim an idle thread about its new input."""
        if self.worker.must_claim:
            self.worker.look()
        if self.leaves_to_others(item.agent_id or ""):
            self.signals.wake(self.tenant, item.thread_id, item.agent_id or "")

    async def notify_others(self, thread_id: str, agent_id: str | None) -> None:
        """Tell the owner of a thread in another process, or a worker that may run it, about its new items."""
        if not self.signals.joined or self.closed:
            return
        try:
            thread = await self.env.store.thread(thread_id)
        except StoreError as error:
            _log.warning("no worker was notified of thread %r; they poll it later: %s", thread_id, explain(error))
            return
        if thread is None or thread.owner == self.worker.owner:
            return
        if thread.owner is not None:
            await self.signals.notify_owner(thread.owner, self.tenant, thread_id)
        elif self.leaves_to_others(agent_id := agent_id or thread.last_agent_id or ""):
            self.signals.wake(self.tenant, thread_id, agent_id)

    def retracted(self, thread_id: str, item_id: str) -> None:
        """Tell the caller that waits for retracted input, and the active run of its thread."""
        self.turns.retract(thread_id, item_id)
        if thread_id in self.active:
            self.wake(thread_id)

    async def check_room(self) -> None:
        """Raise `Overloaded` if as many dispatches wait for a worker as may."""
        limit = self.worker.capacity.queued
        if limit is not None and await self.env.store.queued(limit) >= limit:
            raise Overloaded(
                f"{limit:,} dispatches of this tenant wait for a worker, which is the limit; nothing was written: "
                "try again later, or start more workers"
            )

    def wake(self, thread_id: str, agent_id: str | None = None) -> None:
        """React to new items in a thread's inbox: refresh its active run, or start it."""
        if self.closed:
            return
        if self.worker.must_claim and thread_id not in self.active:
            self.worker.look()
            if self.signals.joined:
                self.spawn(self.notify_others(thread_id, agent_id))
        else:
            self._checking.add(thread_id)
            self.spawn(self._check(thread_id, agent_id))

    async def _check(self, thread_id: str, agent_id: str | None) -> None:
        try:
            if thread_id in self.active:
                await self.refresh_inbox(thread_id, sys.maxsize)
            else:
                await self.start_if_due(thread_id)
                if thread_id not in self.active and thread_id not in self.starting:
                    await self.notify_others(thread_id, agent_id)
        except StoreError as error:
            _log.warning("thread %r could not be read and is read again later: %s", thread_id, error)
        finally:
            self._checking.discard(thread_id)

    # -- starting --------------------------------------------------------------------------------------------

    async def start_if_due(self, thread_id: str, *, at_once: bool = False) -> bool:
        """Start the due work of an idle thread: pending input, a run whose owner died, a timer.

        Returns whether the thread has work, here or elsewhere. Where due work has to be claimed first, the worker
        starts it, unless a run of this process waits for it and wants it `at_once`.
        """
        if thread_id in self.active or thread_id in self.starting:
            return True
        stored = await self.env.store.load(thread_id)
        if stored is None or self.closed:
            return False
        if stored.thread.claimed or thread_id in self.active or thread_id in self.starting:
            return True
        due = self._find_due(stored)
        if due is None:
            return False
        agent_id, start = due
        claims_first = self.worker.must_claim or agent_id in self.worker.excluded
        if start is not None and self.execute and (at_once or not claims_first):
            self.starting.add(thread_id)
            self.spawn(self._start(thread_id, start))
        return True

    async def _start(self, thread_id: str, start: Start) -> None:
        try:
            await start()
        finally:
            self.starting.discard(thread_id)

    def _find_due(self, stored: ThreadView) -> tuple[str, Start | None] | None:
        """The agent that a thread is due for and how to start it; no start if only others know the agent."""
        run, now = stored.run, self.env.clock.now()
        if stored.thread.dead:
            return None
        if run is None:
            item = next_input(stored, now)
            if item is None or not (item.agent_id is None or self.env.registry.knows(item.agent_id)):
                return None
            return item.agent_id or "", partial(self._run_input, item, stored)
        if run.waiting is None:
            known = self.env.registry.knows(run.agent_id)
            return run.agent_id, partial(self._continue, stored, run, "recover") if known else None
        if not is_due(stored, run, now) or self.find_problem(stored, run) is not None:
            return None
        if is_schedule_due(run, now):
            return run.agent_id, partial(self.fire_schedule, stored, run)
        return run.agent_id, partial(self._continue, stored, run, "wake")

    def find_problem(self, stored: ThreadView, run: RunRecord) -> str | None:
        """Why the present code can't resume a waiting run; None if it can. It is logged every half minute."""
        now, inbox_head = asyncio.get_running_loop().time(), stored.thread.inbox_head
        until, seen, problem = self._unresumable.pop(run.id, (0.0, 0, ""))
        if until > now and seen == inbox_head:
            self._unresumable[run.id] = until, seen, problem
            return problem
        try:
            check_resumable(self.env.registry, stored, run, decisions_in(stored.inbox))
        except CannotResume as error:
            problem = "; ".join(error.reasons)
            self._unresumable[run.id] = now + UNRESUMABLE_PAUSE, inbox_head, problem
            _log.warning("thread %r is due: %s", run.thread_id, error)
            return problem
        return None

    async def fire_schedule(self, stored: ThreadView, run: RunRecord, fence: Fence | None = None) -> None:
        """Fire a due schedule and wake the threads that got its input."""
        items = await fire_schedule(self.env.store, self.env.clock.now(), stored, run, fence)
        for item in items:
            self.wake(item.thread_id, item.agent_id)
        self.worker.look()

    async def _continue(self, stored: ThreadView, run: RunRecord, trigger: str) -> None:
        with suppress(Conflict, StaleFence, RuntimeClosed):
            act = await self.activations.reopen(stored, run, trigger)
            await drive(act, self)

    async def _run_input(self, item: InboxItem, stored: ThreadView) -> None:
        async def work() -> RunResult | None:
            act = await self.open_run(new_run_of(item), stored)
            if act is None:
                return None
            await drive(act, self)
            return self.result(act)

        has_caller = item.id in self.turns
        try:
            await self.turns.run(item, work)
        except (Conflict, StaleFence):
            self.wake(item.thread_id)  # Another process took the thread, or changed the item.
        except Exception:
            if not has_caller:
                raise

    # -- new runs --------------------------------------------------------------------------------------------

    async def open_run(self, new: NewRun, stored: ThreadView) -> Activation | None:
        """An activation for new input: of a new run, or of the open run that takes it.

        None if the thread is busy and the input must wait its turn.
        """
        if new.thread_id in self.active or stored.thread.claimed:
            return None
        open_run = stored.run
        if open_run is None:
            return await self._open_new(new, stored)
        if stored.thread.dead and open_run.waiting is None:
            raise dead_letter(open_run)
        if self.has_decision(stored, open_run):
            return None
        if open_run.waiting is None:
            if not self.env.registry.knows(open_run.agent_id):
                return None
            # Its owner died: it continues, and takes the input when its step is closed.
            await self.deliver(item_of(new, "steer"))
            stored = await self.env.store.load(new.thread_id) or stored
            return await self.activations.reopen(stored, open_run, "recover")
        if "input" in open_run.waiting.wakes:
            return await self._open_waiting(new, stored, open_run)
        if open_run.waiting.reason in ("timer", "manual_pause") or await self._has_work_below(open_run):
            return None
        return await self._open_new(new, stored)

    async def _open_new(self, new: NewRun, stored: ThreadView) -> Activation:
        history = await self.activations.history(stored, new.agent_id)
        act = self.activations.new(new, stored, history)
        if new.lineage is not None and new.lineage.parent_run_id is not None:
            await self.activations.join_tree(act)
        return act

    async def _open_waiting(self, new: NewRun, stored: ThreadView, run: RunRecord) -> Activation:
        """Resume a run that waits for input with a new message."""
        check_resumable(self.env.registry, stored, run)
        act = await self.activations.reopen(stored, run, "wake")
        act.draft.request = new.request
        if new.message is not None:
            act.log(new.message)
        act.set_run(ending=None)
        return act

    async def _has_work_below(self, run: RunRecord) -> bool:
        """Whether a waiting run has children at work. One that only waits for a person gives way to new input."""
        if not waits_for_tasks(run) or await tickets_below(self.env.store, run.thread_id, run.id):
            return False
        below = await open_below(self.env.store, run.thread_id, run.id)
        return any([await self.start_if_due(task.target_thread) for task in below])

    def has_decision(self, stored: ThreadView, run: RunRecord) -> bool:
        """Whether a waiting run can resume with a decision in its inbox. New input doesn't supersede it then."""
        decisions = decisions_in(stored.inbox)
        if run.waiting is None or not decisions:
            return False
        try:
            check_resumable(self.env.registry, stored, run, decisions)
        except CannotResume:
            return False
        return True

    # -- lifetime --------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Start nothing more, and tell callers that wait their turn."""
        self.closed = True
        self.turns.close()

    async def close(self) -> None:
        """Stop active runs and wait for their end. Runs on a store that isn't durable are cancelled."""
        self.stop()
        while self.active or self.tasks:
            ends = [act.ended() for act in self.active.values()]
            for act in list(self.active.values()):
                if self.env.store.durable:
                    act.cut_off()
                else:
                    act.cancel("the runtime was closed")
            await asyncio.wait({*self.tasks, *ends})
