"""What keeps a process's claims alive, hears what others tell its runs, and takes over what is due."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..bus import Wake
from ..clock import Clock
from ..errors import StoreError, UsageError, explain
from ..stores import Due, Lease, Retention, Store
from ._signals import Signals

if TYPE_CHECKING:
    from ._local import Dispatcher

__all__ = ["Keeper"]

_log = logging.getLogger("wakeful")

# How often to look, in seconds; less often while a bus says when to.
PULSE, PULSE_WITH_BUS = 0.25, 1.0
IDLE, IDLE_WITH_BUS = 1.0, 5.0
PRUNE_EVERY = 3600.0
PUT_OFF = 30.0


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
    ) -> None:
        self._store = store
        self._signals = signals
        self._owner = owner
        self._clock = clock
        self._dispatcher = dispatcher
        self._lease: Lease | None = None
        self._pulse: asyncio.Task[None] | None = None
        self._service: asyncio.Task[None] | None = None
        self._active = 0
        self._put_off: dict[tuple[str, str], float] = {}
        self._looks = asyncio.Event()

    # -- while runs are active -------------------------------------------------------------------------------

    def hold(self) -> None:
        """A run begins here."""
        self._active += 1
        if self._lease is None:
            self._lease = self._store.keep(self._owner)
        if self._active == 1 and self._store.durable:
            self._pulse = asyncio.get_running_loop().create_task(self._beat())

    def rest(self) -> None:
        """A run ended here."""
        self._active -= 1
        if self._active == 0 and self._pulse is not None:
            self._pulse.cancel()
            self._pulse = None

    async def _beat(self) -> None:
        """Show that the event loop is alive, and bring runs what others put into their inboxes."""
        while True:
            if self._lease is not None:
                self._lease.beat()
            # A claim's own commit says what was in its inbox: there is nothing to hear of at first.
            await asyncio.sleep(PULSE_WITH_BUS if self._signals.healthy else PULSE)
            try:
                for tenant, thread_id, head in await self._store.claims(self._owner):
                    await self._dispatcher(tenant).hear(thread_id, head)
            except StoreError as error:
                _log.warning("the store didn't answer: %s", explain(error))

    # -- under `async with runtime` ---------------------------------------------------------------------------

    def serve(self, retention: Retention | None) -> None:
        """Begin to look for what is due."""
        if self._service is None:
            self._looks = asyncio.Event()
            self._service = asyncio.get_running_loop().create_task(self._serve(retention))
            self._signals.serve()

    async def _serve(self, retention: Retention | None) -> None:
        loop = asyncio.get_running_loop()
        next_prune = loop.time()
        while True:
            wait = None
            try:
                if retention is not None and loop.time() >= next_prune:
                    next_prune = loop.time() + PRUNE_EVERY
                    for tenant in await self._store.tenants():
                        await self._store.tenant(tenant).prune(retention)
                wait = await self._take_due(loop.time())
            except StoreError as error:
                _log.warning("the store didn't answer: %s", explain(error))
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

    async def _take_due(self, now: float) -> float | None:
        """Start what is due; returns the seconds until something else is, if that is known."""
        for due in await self._store.due():
            wait = (due.at - self._clock.now()) / 1000
            if wait > 0:
                return wait
            if self._put_off.get((due.tenant, due.thread_id), 0) <= now:
                await self._start(due, now)
        return None

    def woken(self, wake: Wake) -> bool:
        """Another process says that a thread is due; False if it isn't one for this process."""
        dispatcher = self._dispatcher(wake.tenant)
        if self._service is None or (wake.agent_id and wake.agent_id not in dispatcher.env.registry.agents):
            return False
        due = Due(wake.tenant, wake.thread_id, wake.agent_id, 0)
        dispatcher.track(asyncio.get_running_loop().create_task(self._start_woken(due)))
        return True

    async def _start_woken(self, due: Due) -> None:
        try:
            await self._start(due, asyncio.get_running_loop().time())
        except StoreError as error:
            _log.warning("thread %r could not be looked at, and will be later: %s", due.thread_id, explain(error))

    async def _start(self, due: Due, now: float) -> None:
        dispatcher = self._dispatcher(due.tenant)
        if due.agent_id and due.agent_id not in dispatcher.env.registry.agents:
            return  # Another process may know it; the dispatch stays, and can be seen.
        try:
            await dispatcher.pump(due.thread_id)
        except UsageError as error:
            self._put_off[due.tenant, due.thread_id] = now + PUT_OFF
            _log.warning("thread %r is due and can't go on: %s", due.thread_id, explain(error))

    async def close(self) -> None:
        """Stop looking, and give the lease up."""
        for task in (self._service, self._pulse):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        self._service = self._pulse = None
        if self._lease is not None:
            lease, self._lease = self._lease, None
            await lease.close()
