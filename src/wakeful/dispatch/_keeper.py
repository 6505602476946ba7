"""What keeps a process's claims alive, hears what others tell its runs, and takes over what is due."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..bus import Wake
from ..clock import Clock, SystemClock
from ..errors import Conflict, StaleFence, StoreError, explain
from ..stores import Claims, Commit, Fence, Lease, Retention, Store
from ..types.ids import now_ms
from ..types.limits import Capacity
from ._claimed import begin, go_on
from ._metrics import Metrics, read_backlog
from ._sealing import Begins
from ._signals import Signals

if TYPE_CHECKING:
    from ._local import Dispatcher

__all__ = ["Keeper"]

_log = logging.getLogger("wakeful")

# How often to look, in seconds; less often while a bus says when to.
PULSE, PULSE_WITH_BUS = 0.25, 1.0
IDLE, IDLE_WITH_BUS = 1.0, 5.0
PRUNE_EVERY = 3600.0
# How often the queues are read for those who collect metrics without asking.
READ_EVERY = 15.0
MAX_CLAIM = 64


class Keeper:
    """One for each runtime, for all tenants. While runs are active their claims are kept alive. Under
    `async with runtime` it also looks for what is due: runs whose owner died, input that nobody took, timers."""

    def __init__(
        self,
        store: Store,
        owner: str,
        clock: Clock,
        signals: Signals,
        dispatcher: Callable[[str], Dispatcher],
        agents: Collection[str],
        capacity: Capacity,
        left: Collection[str] = (),
    ) -> None:
        self.store = store
        self._signals = signals
        self._owner = owner
        self._clock = clock
        self._dispatcher = dispatcher
        self.agents = agents
        # The agents that this process knows and leaves to others.
        self.left = frozenset(left)
        self.capacity = capacity
        # What is limited for all workers together is counted in the store, when it is claimed.
        self._counted = capacity.per_tenant is not None or bool(capacity.per_agent)
        self._limited = self._counted or capacity.running is not None
        self.metrics = Metrics()
        self.metrics.renewals = lambda: None if self._lease is None else self._lease.renewals
        self.metrics.bus = lambda: signals.healthy if signals.joined else None
        self._unsure = False
        self._lease: Lease | None = None
        self._pulse: asyncio.Task[None] | None = None
        self._service: asyncio.Task[None] | None = None
        self._active = 0
        # Whether the last look found no more than there was room for, and none is under way.
        self._empty = False
        self._looks = asyncio.Event()
        self._looked = asyncio.Event()

    @property
    def claims_only(self) -> bool:
        """Whether there is a limit, by which what is due is claimed before it is begun here."""
        return self._limited and self._service is not None

    @property
    def _full(self) -> bool:
        return self.capacity.running is not None and self.metrics.active >= self.capacity.running

    def takes(self, agent_id: str) -> bool:
        """Whether an agent's runs are begun here, and there is room for one as far as is known here."""
        return agent_id not in self.left and not self._full

    async def enter(self) -> bool:
        """Take the place of one that is claimed, for a run that begins here with new input; False if there is none
        that nothing else waits for."""
        if self._counted or not await self._has_room():
            return False
        self.metrics.active += 1
        return True

    def leave(self) -> None:
        """Give the place to whoever is next."""
        self.metrics.active -= 1
        self._looks.set()

    async def _has_room(self) -> bool:
        while self._service is not None:
            await self._looked.wait()  # It won't be long, and then it is known what waits.
            if self._empty or self._full or self._unsure:
                break
            if self._looked.is_set():  # There was no room when it was looked last, and somebody left since.
                self._looked.clear()
                self._looks.set()
        return self._service is not None and self._empty and not self._unsure and not self._full

    # -- while runs are active -------------------------------------------------------------------------------

    def hold(self) -> None:
        """A run begins here."""
        self._active += 1
        if self._lease is None:
            self._lease = self.store.keep(self._owner)
        if self._active == 1 and self.store.durable:
            self._pulse = asyncio.get_running_loop().create_task(self._beat())

    def rest(self) -> None:
        """A run ended here."""
        self._active -= 1
        if self._active == 0 and self._pulse is not None:
            self._pulse.cancel()
            self._pulse = None
        if self._counted:
            self._looks.set()  # Perhaps it was in the way of another.

    async def _beat(self) -> None:
        """Show that the event loop is alive, and bring runs what others put into their inboxes."""
        while True:
            if self._lease is not None:
                self._lease.beat()
            # A claim's own commit says what was in its inbox: there is nothing to hear of at first.
            await asyncio.sleep(PULSE_WITH_BUS if self._signals.healthy else PULSE)
            try:
                if self._unsure and self._service is None:
                    await self._give_back_strays()
                for tenant, thread_id, head in await self.store.claims(self._owner):
                    await self._dispatcher(tenant).hear(thread_id, head)
            except StoreError as error:
                _log.warning("the store didn't answer: %s", explain(error))

    # -- under `async with runtime` ---------------------------------------------------------------------------

    def serve(self, retention: Retention | None) -> None:
        """Begin to look for what is due."""
        if self._service is None:
            self._looks, self._looked = asyncio.Event(), asyncio.Event()
            if self._lease is None:  # Before anything is claimed, so that others see who serves.
                self._lease = self.store.keep(self._owner)
            self._service = asyncio.get_running_loop().create_task(self._serve(retention))
            self._signals.serve()

    async def _serve(self, retention: Retention | None) -> None:
        loop = asyncio.get_running_loop()
        next_prune = next_read = loop.time()
        while True:
            wait = None
            if self._lease is not None:
                self._lease.beat()
            try:
                if retention is not None and loop.time() >= next_prune:
                    next_prune = loop.time() + PRUNE_EVERY
                    for tenant in await self.store.tenants():
                        await self.store.tenant(tenant).prune(retention)
                if self._unsure:
                    await self._give_back_strays()
                self._looked.clear()
                wait = await self._take_due()
                if self.metrics.listener is not None and loop.time() >= next_read:
                    next_read = loop.time() + READ_EVERY
                    await read_backlog(self.metrics, self.store)
            except StoreError as error:
                _log.warning("the store didn't answer: %s", explain(error))
            self._looked.set()
            await self._pause(wait)

    def look(self) -> None:
        """Something will be due: look when."""
        self._looks.set()

    async def _pause(self, wait: float | None) -> None:
        """Wait until there is a reason to look again: what is due next, by the runtime's clock; what other
        processes do, which is looked for now and then; or what this one says."""
        timer = None if wait is None else self._clock.call_later(wait, self._looks.set)
        try:
            idle = IDLE_WITH_BUS if self._signals.healthy else IDLE
            async with asyncio.timeout(idle):  # Not `wait_for`, which may swallow the cancellation that ends this.
                await self._looks.wait()
        except TimeoutError:
            pass
        finally:
            self._looks.clear()
            if timer is not None:
                timer.cancel()

    async def _take_due(self) -> float | None:
        """Claim what is due, as far as there is room, and begin with it; returns the seconds until something else
        is, if that is known."""
        self._empty = False
        while True:
            room = MAX_CLAIM if self.capacity.running is None else self.capacity.running - self.metrics.active
            if room <= 0:
                return None  # Whoever ends looks again.
            claims = await self._claim(room)
            for one in claims.claimed:
                dispatch = self._dispatcher(one.tenant)
                self.metrics.claimed(one.waited / 1000, taken_over=one.taken_over)
                self._begin(dispatch, one.thread_id, go_on(dispatch, one, Fence(one.epoch, self._owner)))
            if claims.unsure:
                await self._give_back_strays()
            if len(claims.claimed) < room:
                self._empty = True
                return None if claims.wait is None else claims.wait / 1000

    def woken(self, wake: Wake) -> bool:
        """Another process says that a thread is due; False if it isn't one for this process."""
        if self._service is None or self._full or (wake.agent_id and wake.agent_id not in self.agents):
            return False
        self._looks.set()
        return True

    async def asked(self, begins: Begins) -> bool:
        """Begin a run that another process has input for, if there is room that nothing else waits for; True once
        it is committed."""
        if self._counted or not await self._has_room() or not begins.fresh(now_ms()):
            return False
        item, dispatch = begins.item, self._dispatcher(begins.tenant)
        known = item.agent_id in self.agents and item.kind == "input" and item.message is not None
        if not known or dispatch.closed or dispatch.goes_on(item.thread_id):
            return False
        begun: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._begin(dispatch, item.thread_id, begin(dispatch, item, begun))
        return await begun

    async def _claim(self, room: int) -> Claims:
        # A clock of its own says what is due; the system's may be wrong, and the store's is right.
        now = None if isinstance(self._clock, SystemClock) else self._clock.now()
        try:
            return await self.store.claim(
                self._owner,
                agents=self.agents,
                limit=room,
                now=now,
                per_tenant=self.capacity.per_tenant,
                per_agent=self.capacity.per_agent,
            )
        except StoreError:
            self._unsure = True
            raise

    def _begin(self, dispatch: Dispatcher, thread_id: str, work: Coroutine[Any, Any, None]) -> None:
        self.metrics.active += 1
        self.hold()
        dispatch.waking.add(thread_id)
        task = asyncio.get_running_loop().create_task(work)
        dispatch.track(task)
        task.add_done_callback(lambda _: self._end(dispatch, thread_id))

    def _end(self, dispatch: Dispatcher, thread_id: str) -> None:
        dispatch.waking.discard(thread_id)
        self.rest()
        self.leave()

    def suspect(self) -> None:
        """Something may have been claimed of which this process doesn't know."""
        self._unsure = True
        self._looks.set()

    async def _give_back_strays(self) -> None:
        """Give back what this process claimed and doesn't know of, because a connection broke, or couldn't give
        back before. Its lease goes on with the process: nobody else could ever take it."""
        self._unsure = False
        try:
            for tenant, thread_id, _ in await self.store.claims(self._owner):
                await self._give_back(self._dispatcher(tenant), thread_id)
        except StoreError as error:
            self._unsure = True
            _log.warning("the store didn't answer: %s", explain(error))

    async def _give_back(self, dispatch: Dispatcher, thread_id: str) -> None:
        thread = await dispatch.env.store.thread(thread_id)
        if thread is None:
            return
        fence, act = Fence(thread.epoch, self._owner), dispatch.active.get(thread_id)
        if thread_id in dispatch.waking or (act is not None and act.draft.fence is None):
            self._unsure = True  # Whether the claim is theirs is known once they began, or were refused for it.
        elif act is None or act.draft.fence != fence:
            with suppress(Conflict, StaleFence):
                await dispatch.env.store.commit(Commit(thread_id, fence=fence, release=True))

    async def stop(self) -> None:
        """Claim nothing more."""
        service, self._service = self._service, None
        if service is not None:
            service.cancel()
            await asyncio.wait({service})
        self._looked.set()  # Who asks is told that nothing more is begun.

    async def close(self) -> None:
        """Stop looking, and give the lease up."""
        await self.stop()
        pulse, self._pulse = self._pulse, None
        if pulse is not None:
            pulse.cancel()
            await asyncio.wait({pulse})
        if self._lease is not None:
            lease, self._lease = self._lease, None
            await lease.close()
