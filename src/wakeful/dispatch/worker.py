"""The worker: claims due threads, runs them, and keeps the claims of this process alive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any

from ..bus import Wake
from ..clock import Clock, SystemClock
from ..errors import Conflict, StaleFence, StoreError, explain
from ..stores import Claims, Commit, Fence, Retention, Store
from ..types.ids import now_ms
from ..types.limits import Capacity
from .claims import run_claimed, start_requested
from .dispatcher import Dispatcher
from .metrics import Metrics, read_backlog
from .seal import RunOffer
from .signals import Signals
from .worker_state import WorkerState

__all__ = ["Worker"]

_log = logging.getLogger("wakeful")

# How often to look, in seconds; less often while the bus is healthy.
PULSE, PULSE_WITH_BUS = 0.25, 1.0
IDLE, IDLE_WITH_BUS = 1.0, 5.0
PRUNE_EVERY = 3600.0
# How often the backlog is read for metrics that are pushed.
READ_EVERY = 15.0
MAX_CLAIM = 64
SHOWN_TAKEOVERS = 10


class Worker:
    """One for each runtime, for all tenants.

    While runs are active it keeps their claims alive and delivers new inbox items to them. Under `async with
    runtime` it also claims due threads: runs whose owner died, pending input, timers.
    """

    def __init__(
        self,
        store: Store,
        owner: str,
        clock: Clock,
        signals: Signals,
        dispatcher: Callable[[str], Dispatcher],
        agents: Collection[str],
        capacity: Capacity,
        excluded: Collection[str] = (),
    ) -> None:
        self.agents = agents
        self.state = WorkerState(store, owner, capacity, excluded, self._pulse)
        self.state.metrics.bus = lambda: signals.healthy if signals.joined else None
        self._store = store
        self._owner = owner
        self._clock = clock
        self._signals = signals
        self._dispatcher = dispatcher
        self._service: asyncio.Task[None] | None = None

    @property
    def metrics(self) -> Metrics:
        """The metrics of this process."""
        return self.state.metrics

    @property
    def capacity(self) -> Capacity:
        """The limits of this worker."""
        return self.state.capacity

    async def _pulse(self) -> None:
        """Renew the lease while the event loop is alive, and deliver new items to active runs."""
        while True:
            self.state.beat()
            # The claim's own commit has seen the inbox: there is nothing to deliver at first.
            await asyncio.sleep(PULSE_WITH_BUS if self._signals.healthy else PULSE)
            try:
                if self.state.may_have_strays and self._service is None:
                    await self._release_strays()
                for tenant, thread_id, inbox_head in await self._store.claims(self._owner):
                    await self._dispatcher(tenant).refresh_inbox(thread_id, inbox_head)
            except StoreError as error:
                _log.warning("the store didn't answer: %s", explain(error))

    # -- under `async with runtime` --------------------------------------------------------------------------

    def serve(self, retention: Retention | None) -> None:
        """Start to claim due threads."""
        if self._service is None:
            state = self.state
            state.look_requested, state.looked = asyncio.Event(), asyncio.Event()
            state.open_lease()  # Before the first claim, so that other processes see this worker.
            state.serving = True
            self._service = asyncio.get_running_loop().create_task(self._serve(retention))
            self._signals.serve()

    async def _serve(self, retention: Retention | None) -> None:
        loop, state = asyncio.get_running_loop(), self.state
        next_prune = next_read = loop.time()
        while True:
            wait = None
            state.beat()
            try:
                if retention is not None and loop.time() >= next_prune:
                    next_prune = loop.time() + PRUNE_EVERY
                    for tenant in await self._store.tenants():
                        await self._store.tenant(tenant).prune(retention)
                if state.may_have_strays:
                    await self._release_strays()
                state.looked.clear()
                wait = await self._claim_due()
                if state.metrics.listener is not None and loop.time() >= next_read:
                    next_read = loop.time() + READ_EVERY
                    await read_backlog(state.metrics, self._store)
            except StoreError as error:
                _log.warning("the store didn't answer: %s", explain(error))
            state.looked.set()
            await self._pause(wait)

    async def _pause(self, wait: float | None) -> None:
        """Wait for the next reason to look: a request, the next due time, or the idle interval."""
        requested = self.state.look_requested
        timer = None if wait is None else self._clock.call_later(wait, requested.set)
        try:
            idle = IDLE_WITH_BUS if self._signals.healthy else IDLE
            async with asyncio.timeout(idle):  # `wait_for` may swallow the cancellation that ends the loop.
                await requested.wait()
        except TimeoutError:
            pass
        finally:
            requested.clear()
            if timer is not None:
                timer.cancel()

    async def _claim_due(self) -> float | None:
        """Claim due threads while slots are free, and start them.

        Returns the seconds until the next thread is due, if known.
        """
        state = self.state
        state.queue_is_empty = False
        while True:
            running = state.capacity.running
            room = MAX_CLAIM if running is None else running - state.metrics.active
            if room <= 0:
                return None  # The next run that ends requests a look.
            claims = await self._claim(room)
            for one in claims.claimed:
                dispatch = self._dispatcher(one.tenant)
                state.metrics.claimed(one.waited / 1000, taken_over=one.taken_over)
                self._start(dispatch, one.thread_id, run_claimed(dispatch, one, Fence(one.epoch, self._owner)))
            _log_takeovers(claims)
            if claims.unsure:
                await self._release_strays()
            if len(claims.claimed) < room:
                state.queue_is_empty = True
                return None if claims.wait is None else claims.wait / 1000

    async def _claim(self, room: int) -> Claims:
        # With the system's clock the store's own clock decides what is due.
        now = None if isinstance(self._clock, SystemClock) else self._clock.now()
        capacity = self.state.capacity
        try:
            return await self._store.claim(
                self._owner,
                agents=self.agents,
                limit=room,
                now=now,
                per_tenant=capacity.per_tenant,
                per_agent=capacity.per_agent,
            )
        except StoreError:
            self.state.may_have_strays = True
            raise

    def _start(self, dispatch: Dispatcher, thread_id: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a claimed thread in an asyncio task that has a slot."""

        def end(_: asyncio.Task[None]) -> None:
            dispatch.starting.discard(thread_id)
            self.state.run_ended()
            self.state.free_slot()

        self.state.metrics.active += 1
        self.state.run_started()
        dispatch.starting.add(thread_id)
        task = asyncio.get_running_loop().create_task(work)
        dispatch.track(task)
        task.add_done_callback(end)

    # -- requests of other processes -------------------------------------------------------------------------

    def accept_wake(self, wake: Wake) -> bool:
        """Read a due thread that another process named; False if this worker can't run it."""
        is_unknown = bool(wake.agent_id) and wake.agent_id not in self.agents
        if self._service is None or self.state.is_full or is_unknown:
            return False
        self.state.look()
        return True

    async def accept_start(self, request: RunOffer) -> bool:
        """Start a run with the input of another process if a slot is free; True once it is committed."""
        state = self.state
        if state.has_shared_limits or not await state.has_free_slot() or not request.is_fresh(now_ms()):
            return False
        item, dispatch = request.item, self._dispatcher(request.tenant)
        if item.agent_id not in self.agents or dispatch.closed or dispatch.is_busy(item.thread_id):
            return False
        started: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._start(dispatch, item.thread_id, start_requested(dispatch, item, started))
        return await started

    # -- stray claims ----------------------------------------------------------------------------------------

    async def _release_strays(self) -> None:
        """Release claims of this process that it doesn't know of, because a connection broke.

        Its lease is renewed with the others, so no other process could take them over.
        """
        self.state.may_have_strays = False
        try:
            for tenant, thread_id, _ in await self._store.claims(self._owner):
                await self._release_stray(self._dispatcher(tenant), thread_id)
        except StoreError as error:
            self.state.may_have_strays = True
            _log.warning("the store didn't answer: %s", explain(error))

    async def _release_stray(self, dispatch: Dispatcher, thread_id: str) -> None:
        thread = await dispatch.env.store.thread(thread_id)
        if thread is None:
            return
        fence, act = Fence(thread.epoch, self._owner), dispatch.active.get(thread_id)
        if thread_id in dispatch.starting or (act is not None and act.draft.fence is None):
            self.state.may_have_strays = True  # Their first commit shows whether the claim is theirs.
        elif act is None or act.draft.fence != fence:
            with suppress(Conflict, StaleFence):
                await dispatch.env.store.commit(Commit(thread_id, fence=fence, release=True))

    # -- lifetime --------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Claim nothing more."""
        service, self._service = self._service, None
        self.state.serving = False
        if service is not None:
            service.cancel()
            await asyncio.wait({service})
        self.state.looked.set()  # Callers that wait for a slot are refused.

    async def close(self) -> None:
        """Claim nothing more and give up the lease."""
        await self.stop()
        await self.state.close()


def _log_takeovers(claims: Claims) -> None:
    """Say which threads were recovered from workers that ended."""
    found = [one for one in claims.claimed if one.taken_over]
    if found:
        shown = ", ".join([f"{one.thread_id!r} ({one.agent_id})" for one in found[:SHOWN_TAKEOVERS]])
        more = f" and {len(found) - SHOWN_TAKEOVERS} more" if len(found) > SHOWN_TAKEOVERS else ""
        count = "1 thread" if len(found) == 1 else f"{len(found)} threads"
        _log.info("recovered %s of workers that ended: %s%s", count, shown, more)
