"""Runs in this process: starting, resuming, superseding, and taking turns on a thread."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from ..bus import LocalBus
from ..errors import (
    CannotResume,
    Conflict,
    Overloaded,
    Repeated,
    RuntimeClosed,
    StaleFence,
    StoreError,
    UnknownRun,
    UsageError,
)
from ..loop import Activation, Environment
from ..stores import Commit, InboxItem, ThreadView
from ..types.runs import RunRecord
from ._claimed import is_due, next_input
from ._hosting import Hosting, inside_of
from ._intake import open_for
from ._keeper import Keeper
from ._opening import Opener
from ._parked import check_resumable
from ._results import NewRun, RunResult, new_run_of, result_of
from ._schedules import fire, is_time
from ._signals import Signals
from ._trees import follow, settle, tickets_below
from ._turns import Turns, retracted

__all__ = ["Dispatcher"]

_log = logging.getLogger("wakeful")

# How long a run that the present code can't go on with is left alone, in seconds.
PUT_OFF = 30.0


class Dispatcher(Hosting):
    """The runs that this process executes for one tenant. At most one at a time on a thread; others wait in its
    inbox. What another process executes is told so through the inbox, and followed in the store."""

    def __init__(
        self,
        env: Environment,
        bus: LocalBus,
        keeper: Keeper,
        signals: Signals,
        owner: str,
        *,
        tenant: str,
        execute: bool,
    ) -> None:
        super().__init__(env, bus, keeper)
        self.signals = signals
        self.tenant = tenant
        self.execute = execute
        self.turns = Turns(self)
        self._stuck: dict[str, float] = {}
        # Threads that are about to be looked at, because something was put into their inbox.
        self.nudged: set[str] = set()
        self.opener = Opener(env, bus, owner)

    # -- new input -------------------------------------------------------------------------------------------

    async def run(
        self,
        new: NewRun,
        *,
        fresh: bool,
        opened: Callable[[str], None] | None = None,
        begun: asyncio.Future[None] | None = None,
    ) -> RunResult:
        """Run a new intent on its thread: now if the thread is free, else when its turn comes.

        `opened` is told the id of the run that takes the input; `begun` is done once that is committed. A request
        that was made before is not made again: what became of it is the result.
        """
        if self.closed:
            self.check_open()
        first = None if new.request_id is None else await self.env.store.item(new.request_id)
        thread_id = new.thread_id if first is None else first.thread_id
        if thread_id in self.active and thread_id in inside_of.get():
            raise UsageError(
                f"thread {thread_id!r} is running this very call, which would wait for itself; use another "
                "thread, ctx.run_agent(...), or send(...) to leave the thread a message"
            )
        if begun is not None and (inside := inside_of.get()):
            inside_of.set((*inside, ""))  # In a task of its own.
        if first is not None:
            return await self._again(new, first, opened, begun)
        stored = await self.env.store.load(thread_id) if self.execute and not fresh else None
        run_id = new.run_id
        while True:
            try:
                act, place = None, None
                try:
                    if self.execute and thread_id not in self.active and new.agent_id not in self.keeper.left:
                        place = await self._place(stored) if self.keeper.claims_only else None
                        if place is False:
                            pass  # It has its turn among all that is due.
                        elif stored is None:
                            act = self.opener.new(new, None, [])
                        else:
                            act = await open_for(self, new, stored)
                    if opened is not None:
                        opened(new.run_id if act is None else act.identity.root_run_id)
                    if act is not None:
                        run_id = act.identity.run_id
                        if begun is not None:
                            act.draft.begun = begun
                        await act.drive(self)
                finally:
                    if place:
                        self.keeper.leave()
                if act is None:
                    return await self.turns.wait(new, begun)
                result = self.result(act)
                return result if result.status == "done" else await self.whole(result, act)
            except Conflict:
                stored = await self.env.store.load(thread_id)
            except Repeated:  # Somebody made the request in this very moment.
                return await self.run(new, fresh=fresh, opened=opened, begun=begun)
            except StaleFence:
                return await self.wait(run_id)  # Another process took the thread over, and goes on with the run.

    async def _place(self, stored: ThreadView | None) -> bool | None:
        """Whether there is a place for what new input begins. None if it needs none: it goes on with a run that is
        open, or takes its place; or a run of this process waits for it, which has one."""
        if (stored is not None and stored.run is not None) or self.within():
            return None
        return await self.keeper.enter()

    async def _again(
        self,
        new: NewRun,
        first: InboxItem,
        opened: Callable[[str], None] | None,
        begun: asyncio.Future[None] | None,
    ) -> RunResult:
        """What became of a request when it was made first: of the run that took it in, or will, wherever it is."""
        if first.status == "retracted":
            raise retracted(first)
        if opened is not None:
            opened(first.taken_by or first.run_id or new.run_id)
        if begun is not None and not begun.done():
            begun.set_result(None)
        if first.taken_by is not None:
            return await self.wait(first.taken_by)
        return await self.turns.wait(replace(new, thread_id=first.thread_id), None)

    async def deliver(self, item: InboxItem) -> None:
        """Put an item into its thread's inbox, and tell the run if it runs here; else whoever has the thread or
        may run it hears of it."""
        committed = await self.env.store.commit(Commit(thread_id=item.thread_id, inbox=[item]))
        # Not the item itself: one of that id may have been taken in long ago, and then there is nothing to hear.
        if item.thread_id in self.active:
            await self.hear(item.thread_id, committed.inbox_head)
            return
        if self.keeper.claims_only:
            self.keeper.look()
        if self.signals.joined:
            self._spawn(self.signals.tell(self, item.thread_id, item.agent_id))

    async def offer(self, item: InboxItem, *, ask: bool = False) -> bool:
        """Put input into the inbox of a thread that nobody runs; whoever may run it hears of it. With `ask`, one
        that serves is asked before to begin with it: then the run has it. False, and nothing was done, if somebody
        has the thread or it was given the input before."""
        if item.thread_id in self.active:
            return False
        if ask and not self.execute and item.at is None and await self.signals.begin(self, item):
            return True
        try:
            await self.env.store.commit(Commit(thread_id=item.thread_id, inbox=[item], idle=True))
        except Conflict:
            return False  # Perhaps because one who was asked began with it, and couldn't say so.
        self.left(item)
        return True

    def left(self, item: InboxItem) -> None:
        """Input was put into the inbox of a thread that nobody runs: whoever may claim it hears of it, unless that
        is begun here."""
        if self.keeper.claims_only:
            self.keeper.look()
        if self.leaves(item.agent_id or ""):
            self.signals.wake(self.tenant, item.thread_id, item.agent_id or "")

    def runs(self, agent_id: str) -> bool:
        """Whether an agent's runs are run here, and not left to other processes."""
        return self.execute and agent_id not in self.keeper.left

    def leaves(self, agent_id: str) -> bool:
        """Whether what is due for an agent is left to other processes, now or always."""
        return not self.execute or not self.keeper.takes(agent_id)

    async def check_room(self) -> None:
        """Refuse input where as much waits for a worker as may."""
        limit = self.keeper.capacity.queued
        if limit is not None and await self.env.store.queued(limit) >= limit:
            raise Overloaded(
                f"{limit:,} dispatches of this tenant wait for a worker, which is the limit; nothing was written: "
                "try again later, or start more workers"
            )

    async def hear(self, thread_id: str, head: int) -> None:
        """Bring a run that runs here what others put into its inbox."""
        act = self.active.get(thread_id)
        if act is None or act.inbox_head >= head:
            return
        stored = await self.env.store.load(thread_id)
        if stored is not None and self.active.get(thread_id) is act:
            act.deliver(stored.inbox, stored.thread.inbox_head)

    def wake(self, thread_id: str, agent_id: str | None = None) -> None:
        """Something was put into a thread's inbox, for an agent's run if it names one: whoever runs it here hears
        of it, or it is gone on with."""
        if self.closed:
            return
        if self.keeper.claims_only and thread_id not in self.active:
            self.keeper.look()  # It has its turn among all that is due.
            if self.signals.joined:
                self._spawn(self.signals.tell(self, thread_id, agent_id))
        else:
            self.nudged.add(thread_id)
            self._spawn(self._nudge(thread_id, agent_id))

    async def _nudge(self, thread_id: str, agent_id: str | None) -> None:
        try:
            if thread_id in self.active:
                await self.hear(thread_id, sys.maxsize)
            else:
                await self.pump(thread_id)
                if thread_id not in self.active and thread_id not in self.waking:
                    await self.signals.tell(self, thread_id, agent_id)
        except StoreError as error:
            _log.warning("thread %r could not be looked at, and will be later: %s", thread_id, error)
        finally:
            self.nudged.discard(thread_id)

    def goes_on(self, thread_id: str) -> bool:
        """Whether something goes on on a thread in this process, or is about to."""
        return thread_id in self.active or thread_id in self.waking or thread_id in self.nudged

    async def pump(self, thread_id: str, *, at_once: bool = False) -> bool:
        """Go on with a thread that nobody runs: what waits in its inbox, a run whose owner died, a timer. True if
        something goes on there, or will: what has to be claimed first goes on where there is room. What is to
        go on `at_once` hasn't: a run of this process waits for it."""
        if thread_id in self.active or thread_id in self.waking:
            return True
        stored = await self.env.store.load(thread_id)
        if stored is None or self.closed:
            return False
        if stored.thread.claimed or thread_id in self.active or thread_id in self.waking:
            return True
        run, now, agent_id = stored.run, self.env.clock.now(), "" if stored.run is None else stored.run.agent_id
        if stored.thread.dead:
            work = None
        elif run is None:
            item = next_input(stored, now)
            work = None if item is None or not self._knows(item) else self._turn(item, stored)
            agent_id = agent_id if item is None else item.agent_id or ""
        elif run.waiting is None:
            if not self.env.registry.knows(run.agent_id):
                return True  # It is left to those who know its agent.
            work = self._wake(stored, run, "recover")
        elif is_due(stored, run, now) and not self.is_stuck(stored, run):
            work = fire(self, stored, run) if is_time(run, now) else self._wake(stored, run, "wake")
        else:
            work = None
        if work is None:
            return False
        left = self.keeper.claims_only or agent_id in self.keeper.left
        if not self.execute or (left and not at_once):
            work.close()
            return True
        self.waking.add(thread_id)
        self._spawn(self._go_on(thread_id, work))
        return True

    def _knows(self, item: InboxItem) -> bool:
        """Whether the agent that input is for is one of this process; if not, it waits for another."""
        return item.agent_id is None or self.env.registry.knows(item.agent_id)

    async def _go_on(self, thread_id: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self.waking.discard(thread_id)

    def is_stuck(self, stored: ThreadView, run: RunRecord) -> bool:
        """Whether the present code can't go on with a run that waits; that is said once in a while."""
        now = asyncio.get_running_loop().time()
        if self._stuck.get(run.id, 0) > now:
            return True
        self._stuck.pop(run.id, None)
        try:
            check_resumable(self.env.registry, stored, run, [i.decision for i in stored.inbox if i.decision])
        except CannotResume as error:
            self._stuck[run.id] = now + PUT_OFF
            _log.warning("thread %r is due: %s", run.thread_id, error)
            return True
        return False

    async def _turn(self, item: InboxItem, stored: ThreadView) -> None:
        """Run one input that waited its turn."""

        async def work() -> RunResult | None:
            act = await open_for(self, new_run_of(item), stored)
            if act is None:
                return None
            await act.drive(self)
            return self.result(act)

        heard = item.id in self.turns
        try:
            await self.turns.take(item, work)
        except (Conflict, StaleFence):
            self.wake(item.thread_id)  # Somebody else took the thread, or changed the item: look again.
        except Exception:
            if not heard:
                raise

    async def _wake(self, stored: ThreadView, run: RunRecord, trigger: str) -> None:
        with suppress(Conflict, StaleFence, RuntimeClosed):
            act = await self.opener.reopen(stored, run, trigger)
            await act.drive(self)

    # -- what runs come to -----------------------------------------------------------------------------------

    async def whole(self, result: RunResult, act: Activation | None = None) -> RunResult:
        """What a run came to once nothing that it waits for works any more; at once, if nothing does. What else
        works in the background isn't waited for, but what that asks is shown too."""
        if result.status != "waiting":
            return result
        if result.tasks == ():
            store, thread_id, run_id = self.env.store, result.thread_id, result.run_id
            if not (await store.tasks(thread_id, status="running") if act is None else act.view.tasks):
                return result
            return replace(result, tickets=(*result.tickets, *await tickets_below(store, thread_id, run_id)))
        followed = None if act is None else await follow(self, act)
        return followed or await settle(self, result.run_id)

    async def recall(self, run_id: str) -> RunResult:
        """What a run came to so far, from the store alone."""
        store = self.env.store
        run = await store.run(run_id)
        if run is None:
            raise UnknownRun(f"no run {run_id!r} in this store")
        tickets = tuple(await store.tickets(run_id, status="open"))
        if run.status == "waiting":
            tickets += tuple(await tickets_below(store, run.thread_id, run_id))
        return result_of(self.env.registry, run, await store.answer(run_id), tickets)

    async def wait(self, run_id: str) -> RunResult:
        """Wait until a run is done, or waits and nothing works for it any more without a person; whoever runs it.
        What nobody runs any more goes on here."""
        return await settle(self, run_id)

    # -- lifetime --------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Begin nothing more, and tell those who wait their turn."""
        self.closed = True
        self.turns.stop()

    async def close(self) -> None:
        """Stop what still runs and wait until all is quiet. Only where nobody else could go on is it cancelled."""
        self.stop()
        while self.active or self.tasks:
            ends = [act.ended() for act in self.active.values()]
            for act in list(self.active.values()):
                if self.env.store.durable:
                    act.cut_off()
                else:
                    act.cancel("the runtime was closed")
            await asyncio.wait({*self.tasks, *ends})
