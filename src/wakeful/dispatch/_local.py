"""Runs in this process: starting, resuming, superseding, and taking turns on a thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from msgspec.structs import replace

from ..bus import LocalBus
from ..errors import Conflict, RunNotWaiting, RuntimeClosed, ThreadBusy, UnknownRun, UsageError
from ..loop import Activation, Environment, check_value, match_decision
from ..stores import Commit, InboxItem, InputPolicy, ThreadView
from ..types.ids import new_id
from ..types.runs import RunRecord
from ..types.tickets import Decision
from ._opening import Opener
from ._results import NewRun, RunResult, item_of, new_run_of, result_of

__all__ = ["Dispatcher"]

_log = logging.getLogger("wakeful")

# The threads whose runs the present code is part of: a tool, a hook, or what they started.
_inside: ContextVar[tuple[str, ...]] = ContextVar("wakeful_threads", default=())


class Dispatcher:
    """The runs that this process executes. At most one at a time on a thread; others wait in its inbox."""

    def __init__(self, env: Environment, bus: LocalBus) -> None:
        self.env = env
        self.bus = bus
        self.active: dict[str, Activation] = {}
        self.tasks: set[asyncio.Task[Any]] = set()
        self._turns: dict[str, asyncio.Future[RunResult]] = {}
        self.closed = False
        self.opener = Opener(env, bus)

    # -- new input -------------------------------------------------------------------------------------------

    async def run(self, new: NewRun, *, fresh: bool, opened: Callable[[str], None] | None = None) -> RunResult:
        """Run a new intent on its thread: now if the thread is free, else when its turn comes.

        `opened` is told the id of the run that takes the input.
        """
        self._check_open()
        if new.thread_id in _inside.get() and new.thread_id in self.active:
            raise UsageError(
                f"thread {new.thread_id!r} is running this very call, which would wait for itself; use another "
                "thread, ctx.run_agent(...), or send(...) to leave the thread a message"
            )
        stored = None if fresh else await self.env.store.load(new.thread_id)
        while True:
            act = await self._open(new, stored)
            if opened is not None:
                opened(new.run_id if act is None else act.identity.root_run_id)
            if act is None and new.thread_id not in self.active:
                stored = await self._not_elsewhere(new.thread_id)
                continue
            if act is None:
                return await self._in_turn(new)
            try:
                return await self.drive(act, new.thread_id)
            except Conflict:
                stored = await self.env.store.load(new.thread_id)

    async def send(self, new: NewRun, policy: InputPolicy | None) -> None:
        """Put input into the thread's inbox, or start a run in the background if the thread is free."""
        self._check_open()
        stored = await self.env.store.load(new.thread_id)
        busy = stored is not None and (stored.run is not None or stored.thread.claimed)
        if busy and policy == "reject":
            raise ThreadBusy(f"thread {new.thread_id!r} has an open run; wait for it or choose another policy")
        if policy is None:
            waiting = stored.run.waiting if stored is not None and stored.run is not None else None
            policy = "steer" if waiting is not None and "input" in waiting.wakes else "queue"
        await self._deliver(item_of(new, policy))
        if busy and policy == "interrupt":
            await self._interrupt(stored)
        await self.pump(new.thread_id)

    async def _interrupt(self, stored: ThreadView | None) -> None:
        if stored is not None and stored.run is not None:
            await self.cancel(stored.run.id, "interrupted by new input")

    async def _in_turn(self, new: NewRun) -> RunResult:
        """Wait in the thread's inbox for the run that takes this input, and for what it comes to."""
        turn: asyncio.Future[RunResult] = asyncio.get_running_loop().create_future()
        item = item_of(new, "queue")
        self._turns[item.id] = turn
        try:
            await self._deliver(item)
            await self.pump(new.thread_id)
            return await turn
        except asyncio.CancelledError:
            self._withdraw(item, new)
            raise
        finally:
            self._turns.pop(item.id, None)

    def _withdraw(self, item: InboxItem, new: NewRun) -> None:
        """The caller left: its input is taken back, or its run is cancelled if it had its turn."""
        act = self.active.get(new.thread_id)
        if act is None:
            self._spawn(self._take_back(item))
        elif act.view.run.id == new.run_id:
            act.cancel("the caller was cancelled")
        elif item.id in act.view.inbox:
            del act.view.inbox[item.id]
            act.take(item.id)

    async def _take_back(self, item: InboxItem) -> None:
        stored = await self.env.store.load(item.thread_id)
        if stored is not None and not stored.thread.claimed and any(i.id == item.id for i in stored.inbox):
            commit = Commit(item.thread_id, version=stored.thread.version, taken=[item.id])
            with suppress(Conflict):
                await self.env.store.commit(commit)

    async def _not_elsewhere(self, thread_id: str) -> ThreadView | None:
        """A claimed thread that this process doesn't run, looked at again: what was read may be older than the
        end of a run of ours. If it still is claimed, another runtime has it."""
        stored = await self.env.store.load(thread_id)
        if stored is not None and stored.thread.claimed and thread_id not in self.active:
            raise ThreadBusy(
                f"thread {thread_id!r} is being run by another runtime on this store; send() leaves it a message"
            )
        return stored

    async def _deliver(self, item: InboxItem) -> None:
        committed = await self.env.store.commit(Commit(thread_id=item.thread_id, inbox=[item]))
        act = self.active.get(item.thread_id)
        if act is not None:
            act.deliver([item], committed.inbox_head)

    async def pump(self, thread_id: str) -> None:
        """Start what waits in a thread's inbox, if nobody runs the thread and something may."""
        if self.closed or thread_id in self.active:
            return
        stored = await self.env.store.load(thread_id)
        if stored is None or stored.thread.claimed:
            return
        if stored.run is not None:
            waiting = stored.run.waiting
            if waiting is not None and any(_wakes(item, waiting.wakes) for item in stored.inbox):
                self._spawn(self._wake(stored, stored.run))
            return
        item = next((i for i in stored.inbox if i.kind == "input" and i.message is not None), None)
        if item is not None:
            self._spawn(self._turn(item))

    async def _turn(self, item: InboxItem) -> None:
        """Run one input that waited its turn."""
        turn = self._turns.get(item.id)
        try:
            stored = await self.env.store.load(item.thread_id)
            if stored is None or all(pending.id != item.id for pending in stored.inbox):
                return  # Somebody else took the item in before this turn came.
            act = await self._open(new_run_of(item), stored)
            if act is None:
                return
            result = await self.drive(act, item.thread_id)
        except Conflict:
            return  # Somebody else took the thread first; the item is still there for whoever is next.
        except Exception as error:
            if turn is None or turn.done():
                raise
            turn.set_exception(error)
        else:
            if turn is not None and not turn.done():
                turn.set_result(result)

    async def _wake(self, stored: ThreadView, run: RunRecord) -> None:
        act = await self.opener.reopen(stored, run, "wake")
        await self.drive(act, run.thread_id)

    # -- activations -----------------------------------------------------------------------------------------

    async def _open(self, new: NewRun, stored: ThreadView | None) -> Activation | None:
        """An activation for a new run, or None if the thread is busy and the input must wait."""
        if new.thread_id in self.active:
            return None
        if stored is None:
            return self.opener.new(new, None, [])
        if stored.thread.claimed:
            return None
        history = await self.env.store.messages(new.thread_id)
        open_run = stored.run
        if open_run is None or (open_run.waiting is not None and "input" not in open_run.waiting.wakes):
            return self.opener.new(new, stored, list(history))
        if open_run.waiting is None:
            # Nobody runs it: it goes on from where it stood, and takes the input when its step is closed.
            await self._deliver(item_of(new, "steer"))
            return await self.opener.reopen(
                await self.env.store.load(new.thread_id) or stored, open_run, "recover"
            )
        act = await self.opener.reopen(stored, open_run, "wake")
        act.log(new.message)
        act.set_run(ending=None)
        return act

    async def drive(self, act: Activation, thread_id: str) -> RunResult:
        """Run an activation to its end here, in the caller's task."""
        if thread_id in self.active:
            self.bus.release(thread_id)
            raise Conflict(f"thread {thread_id!r} was taken by another run of this process")
        self.active[thread_id] = act
        inside = _inside.set((*_inside.get(), thread_id))
        try:
            await act.drive()
        finally:
            _inside.reset(inside)
            del self.active[thread_id]
            self.bus.release(thread_id)
            if act.view.inbox:
                self._spawn(self.pump(thread_id))
        return self.result(act)

    def result(self, act: Activation) -> RunResult:
        """What an activation came to."""
        return result_of(self.env.registry, act.view.run, act.view.answer, tuple(act.view.tickets.values()))

    async def _recall(self, run_id: str) -> RunResult:
        """What a run came to so far, from the store alone."""
        store = self.env.store
        run = await store.run(run_id)
        if run is None:
            raise UnknownRun(f"no run {run_id!r} in this store")
        messages = await store.messages(run.thread_id)
        answer = next((m for m in reversed(messages) if m.id == run.answer_id), None)
        return result_of(
            self.env.registry, run, answer, tuple([t for t in await store.tickets(run_id) if t.status == "open"])
        )

    # -- resuming and cancelling -----------------------------------------------------------------------------

    async def resume(self, run_id: str, decisions: Sequence[Decision]) -> RunResult:
        """Answer tickets of a run and go on with it."""
        self._check_open()
        while True:
            run, stored = await self._find(run_id)
            if run.status == "done":
                raise RunNotWaiting(f"run {run_id} is done; there is nothing to answer")
            matched = await self._match(run, stored, decisions)
            items = [InboxItem(id=new_id(), thread_id=run.thread_id, kind="decision", decision=d) for d in matched]
            act = self.active.get(run.thread_id)
            if act is not None:
                for item in items:
                    await self._deliver(item)
                return await self._after(act, items)
            act = await self.opener.reopen(stored, run, "resume")
            for item in items:
                act.answer(item)
            try:
                return await self.drive(act, run.thread_id)
            except Conflict:
                continue

    async def _after(self, act: Activation, items: Sequence[InboxItem]) -> RunResult:
        """What a run came to once it took these items in, in the activation that ran or in one after it."""
        run_id, thread_id = act.identity.run_id, act.identity.thread_id
        while True:
            await act.ended()
            if act.has_taken(items):
                return self.result(act)
            stored = await self.env.store.load(thread_id)
            if running := self.active.get(thread_id):
                act = running
                continue
            open_run = None if stored is None or stored.thread.claimed else stored.run
            if stored is None or open_run is None or open_run.id != run_id:
                return await self._recall(run_id)
            if all(pending.id != item.id for item in items for pending in stored.inbox):
                return await self._recall(run_id)
            act = await self.opener.reopen(stored, open_run, "wake")
            try:
                await self.drive(act, thread_id)
            except Conflict:
                act = self.active.get(thread_id, act)

    async def _match(self, run: RunRecord, stored: ThreadView, decisions: Sequence[Decision]) -> list[Decision]:
        closed = {t.id: t for t in await self.env.store.tickets(run.id) if t.status != "open"}
        tickets = {ticket.id: ticket for ticket in stored.tickets if ticket.run_id == run.id}
        tools = self.env.registry.resolve(run.agent_id).tools
        matched: list[Decision] = []
        for decision in decisions:
            ticket, full = match_decision(decision, tickets, closed)
            check_value(tools.get(ticket.tool), ticket, full)
            matched.append(full)
            closed[ticket.id] = replace(tickets.pop(ticket.id), status="answered")
        return matched

    async def cancel(self, run_id: str, reason: str) -> bool:
        """Cancel a run and wait until it is quiet; False if it was done before."""
        while True:
            run, stored = await self._find(run_id)
            if run.status == "done":
                return False
            act = self.active.get(run.thread_id)
            if act is not None and act.view.run.id == run_id:
                act.cancel(reason)
                await act.ended()
                return True
            act = await self.opener.reopen(stored, run, "wake")
            act.set_run(cancel=reason)
            try:
                await self.drive(act, run.thread_id)
            except Conflict:
                continue
            return True

    async def _find(self, run_id: str) -> tuple[RunRecord, ThreadView]:
        run = await self.env.store.run(run_id)
        stored = None if run is None else await self.env.store.load(run.thread_id)
        if run is None or stored is None:
            raise UnknownRun(f"no run {run_id!r} in this store")
        if stored.thread.claimed and run.status != "done" and run.thread_id not in self.active:
            stored = await self._not_elsewhere(run.thread_id) or stored
            run = await self.env.store.run(run_id) or run
        return run, stored

    # -- lifetime --------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.closed:
            raise RuntimeClosed("the runtime was closed; make a new one")

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        self.track(asyncio.get_running_loop().create_task(work))

    def track(self, task: asyncio.Task[Any], *, heard: bool = False) -> None:
        """Keep a background task until it ends, and log its failure unless somebody hears of it."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard if heard else self._untrack)

    def _untrack(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a run in the background failed", exc_info=error)

    async def close(self) -> None:
        """Cancel what runs and wait until all is quiet."""
        self.closed = True
        for turn in self._turns.values():
            if not turn.done():
                turn.set_exception(RuntimeClosed("the runtime was closed; the input waits in its thread's inbox"))
        while self.active or self.tasks:
            ends = [act.ended() for act in self.active.values()]
            for act in list(self.active.values()):
                act.cancel("the runtime was closed")
            await asyncio.wait({*self.tasks, *ends})
        self.env.threads.close()


def _wakes(item: InboxItem, kinds: tuple[str, ...]) -> bool:
    return item.kind in kinds and (item.kind != "input" or item.policy == "steer")
