"""What this process tells others over the bus, and hears from them: hints, of which the store has the truth."""

from __future__ import annotations

import asyncio
import hmac
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from ..bus import Bus, Grown, Link, Moved, News, Shown, Wake
from ..errors import StoreError, explain
from ..stores import InboxItem, Store
from ..types.events import Delta, Event
from ..types.ids import now_ms
from ._sealing import Begins, opened, proof, sealed

if TYPE_CHECKING:
    from ._local import Dispatcher

__all__ = ["Signals"]

_log = logging.getLogger("wakeful")

Key = tuple[str, str]

SWEEP_SECONDS = 5.0
GROWN_SECONDS = 0.25


class Hears(Protocol):
    """Whoever is given what other processes show of a thread."""

    def push(self, event: News) -> None:
        """Take it in; never blocks."""
        ...


class Serves(Protocol):
    """Whoever runs in this process what is due."""

    store: Store

    def woken(self, wake: Wake) -> bool:
        """A thread is due; False if it isn't one for this process."""
        ...

    async def asked(self, begins: Begins) -> bool:
        """A run is to begin with this input; True once it has."""
        ...


class _Forward:
    """Shows those who watch a thread in other processes what happens there, and below it, in this one."""

    def __init__(self, link: Link, key: Key, until: float) -> None:
        self.link = link
        self.until = until
        self._key = key
        self._grown: dict[str, float] = {}

    def push(self, event: Event) -> None:
        """Take an event in; never blocks."""
        if event.durable:
            self.link.show(*self._key, [Moved(event.run.thread_id, event.seq - 1, event.seq)])
        elif self.link.deltas:
            self.link.show(*self._key, [Shown(event)])
        elif isinstance(event, Delta):
            self._grow(event.run.thread_id)

    def _grow(self, thread_id: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._grown.get(thread_id, 0) >= GROWN_SECONDS:
            self._grown[thread_id] = now
            self.link.show(*self._key, [Grown(thread_id)])

    def end(self) -> None:
        """Hear that nothing will come any more."""


class Signals:
    """One for each runtime, for all tenants. Without a bus, or while it is away, nothing here does anything."""

    def __init__(self, bus: Bus | None, owner: str, serves: Callable[[], Serves]) -> None:
        self._bus = bus
        self._owner = owner
        self._serves = serves
        self._secret: bytes | None = None
        self._link: Link | None = None
        self._dispatchers: dict[str, Dispatcher] = {}
        self._readers: dict[Key, tuple[Hears, ...]] = {}
        self._forwards: dict[Key, _Forward] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Join the bus, on the running event loop."""
        if self._bus is not None:
            self._sweeper = None
            self._link = self._bus.join(self._owner, self)

    def add(self, tenant: str, dispatcher: Dispatcher) -> None:
        """Have a tenant's runs take part."""
        self._dispatchers[tenant] = dispatcher
        for (one, thread_id), forward in self._forwards.items():
            if one == tenant:
                dispatcher.bus.channel(thread_id).join(forward)

    @property
    def joined(self) -> bool:
        """Whether there is a bus."""
        return self._link is not None

    @property
    def healthy(self) -> bool:
        """Whether hints get through at present, as far as is known."""
        return self._link is not None and self._link.healthy

    # -- telling ---------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Get wake-ups from now on."""
        if self._link is not None:
            self._link.serve()

    async def tell(self, dispatch: Dispatcher, thread_id: str, agent_id: str | None) -> None:
        """Something was put into a thread's inbox: its owner elsewhere hears of it, or whoever may run it."""
        link = self._link
        if link is None or dispatch.closed:
            return
        try:
            thread = await dispatch.env.store.thread(thread_id)
        except StoreError as error:
            _log.warning("nobody could be told of thread %r, and will look later: %s", thread_id, explain(error))
            return
        if thread is None or thread.owner == self._owner:
            return
        if thread.owner is not None:
            await link.tell(thread.owner, dispatch.tenant, thread_id)
        elif dispatch.leaves(agent_id := agent_id or thread.last_agent_id or ""):
            self.wake(dispatch.tenant, thread_id, agent_id)

    def wake(self, tenant: str, thread_id: str, agent_id: str = "") -> None:
        """A thread is due that isn't run here: one of those that serve hears of it."""
        if self._link is not None:
            self._link.wake(Wake(tenant, thread_id, agent_id))

    async def begin(self, dispatch: Dispatcher, item: InboxItem) -> bool:
        """Ask one of those that serve to begin a run with input. True once that is committed; False if it isn't,
        as far as is known."""
        link = self._link
        if link is None or not link.healthy or (key := await self._key(dispatch.env.store)) is None:
            return False
        seal = sealed(key, Begins(dispatch.tenant, now_ms(), item))
        return hmac.compare_digest(await link.begin(seal), proof(key, seal))

    async def _key(self, store: Store) -> bytes | None:
        """What such input is sealed with; a store that gives no key has none that is begun so."""
        if self._secret is None and (secret := getattr(store, "secret", None)) is not None:
            try:
                self._secret = await secret()
            except StoreError as error:
                _log.debug("the store gave no key: %s", explain(error))
        return self._secret

    # -- watching --------------------------------------------------------------------------------------------

    def watch(self, tenant: str, thread_id: str, reader: Hears) -> None:
        """Give a reader what other processes show of a thread, until it leaves."""
        key = (tenant, thread_id)
        readers = self._readers.get(key, ())
        if self._link is not None and reader not in readers:
            self._readers[key] = (*readers, reader)
            self._link.watch(tenant, thread_id)

    def leave(self, tenant: str, thread_id: str, reader: Hears) -> None:
        """Stop watching."""
        key = (tenant, thread_id)
        readers = self._readers.get(key, ())
        if self._link is None or reader not in readers:
            return
        self._readers[key] = tuple([one for one in readers if one is not reader])
        if not self._readers[key]:
            del self._readers[key]
        self._link.leave(tenant, thread_id)

    # -- hearing ---------------------------------------------------------------------------------------------

    def woken(self, wake: Wake) -> bool:
        """A thread is due."""
        return self._serves().woken(wake)

    async def asked(self, sealed: bytes) -> bytes:
        """Somebody elsewhere has a run to begin."""
        serves = self._serves()
        key = await self._key(serves.store)
        begins = None if key is None else opened(key, sealed, now_ms())
        if key is None or begins is None or not await serves.asked(begins):
            return b""
        return proof(key, sealed)

    async def told(self, tenant: str, thread_id: str) -> bool:
        """There is something new in the inbox of a thread that may run here."""
        dispatch = self._dispatchers.get(tenant)
        if dispatch is None or thread_id not in dispatch.active:
            return False
        with suppress(StoreError):
            await dispatch.hear(thread_id, sys.maxsize)
            return True
        return False

    def watched(self, tenant: str, thread_id: str, seconds: float) -> None:
        """Somebody elsewhere watches a thread."""
        link, loop, key = self._link, asyncio.get_running_loop(), (tenant, thread_id)
        if link is None:
            return
        until, forward = loop.time() + seconds, self._forwards.get(key)
        if forward is not None:
            forward.until = until
            return
        forward = self._forwards[key] = _Forward(link, key, until)
        if (dispatch := self._dispatchers.get(tenant)) is not None:
            dispatch.bus.channel(thread_id).join(forward)
        if self._sweeper is None:
            self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Show nobody any more what nobody said again that they watch."""
        loop = asyncio.get_running_loop()
        for key in [key for key, forward in self._forwards.items() if forward.until < loop.time()]:
            self._drop(key)
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep) if self._forwards else None

    def _drop(self, key: Key) -> None:
        forward, (tenant, thread_id) = self._forwards.pop(key), key
        if (dispatch := self._dispatchers.get(tenant)) is not None:
            dispatch.bus.channel(thread_id).leave(forward)

    def heard(self, tenant: str, thread_id: str, news: Sequence[News]) -> None:
        """What happens elsewhere on a thread that is watched here."""
        for reader in self._readers.get((tenant, thread_id), ()):
            for one in news:
                reader.push(one)

    async def close(self) -> None:
        """Leave the bus."""
        link, self._link = self._link, None
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for key in list(self._forwards):
            self._drop(key)
        self._readers.clear()
        if link is not None:
            await link.close()
