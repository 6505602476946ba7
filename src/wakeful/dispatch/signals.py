"""Signals between processes over the bus. They are hints: the store has the truth."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct

from ..bus import Bus, Link, LiveUpdate, LocalBus, LogAdvanced, StreamAdvanced, Update, Wake
from ..errors import StoreError, explain
from ..stores import Store
from ..types.events import Delta, Event
from ..types.ids import now_ms
from ..types.inbox import InputItem
from .seal import RunOffer, make_proof, open_sealed, seal

__all__ = ["Signals"]

_log = logging.getLogger("wakeful")

Key = tuple[str, str]

SWEEP_SECONDS = 5.0
GROWN_SECONDS = 0.25


class Reader(Protocol):
    """A reader of events that other processes publish."""

    def push(self, event: Update) -> None:
        """Take an event; never blocks."""
        ...


class Server(Protocol):
    """The worker of this process, which runs due work."""

    def accept_wake(self, wake: Wake) -> bool:
        """Look for due work; False if this worker can't run the thread."""
        ...

    async def accept_start(self, request: RunOffer) -> bool:
        """Start a run with the input of another process; True once its first commit is written."""
        ...


class _Tenant(Struct, frozen=True):
    """The runs of a tenant: their event bus, and a function that delivers pending items to an active run."""

    bus: LocalBus
    refresh: Callable[[str], Awaitable[bool]]


class _Forward:
    """Forwards the events of a thread and of its children to readers in other processes."""

    def __init__(self, link: Link, key: Key, until: float) -> None:
        self.link = link
        self.until = until
        self._key = key
        self._grown: dict[str, float] = {}

    def push(self, event: Event) -> None:
        """Forward an event; never blocks."""
        if event.durable:
            self.link.publish(*self._key, [LogAdvanced(event.run.thread_id, event.seq - 1, event.seq)])
        elif self.link.carries_deltas:
            self.link.publish(*self._key, [LiveUpdate(event)])
        elif isinstance(event, Delta):
            self._show_growth(event.run.thread_id)

    def _show_growth(self, thread_id: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._grown.get(thread_id, 0) >= GROWN_SECONDS:
            self._grown[thread_id] = now
            self.link.publish(*self._key, [StreamAdvanced(thread_id)])

    def end(self) -> None:
        """Ignore the end of the thread's events."""


class Signals:
    """One for each runtime, for all tenants. Without a healthy bus every signal is dropped."""

    def __init__(self, bus: Bus | None, owner: str, store: Store, server: Callable[[], Server]) -> None:
        self._bus = bus
        self._owner = owner
        self._store = store
        self._server = server
        self._secret: bytes | None = None
        self._link: Link | None = None
        self._tenants: dict[str, _Tenant] = {}
        self._readers: dict[Key, tuple[Reader, ...]] = {}
        self._forwards: dict[Key, _Forward] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Join the bus, on the running event loop."""
        if self._bus is not None:
            self._sweeper = None
            self._link = self._bus.join(self._owner, self)

    def add(self, tenant: str, bus: LocalBus, refresh: Callable[[str], Awaitable[bool]]) -> None:
        """Register a tenant: its event bus, and how an active run of a thread gets its pending items.

        `refresh` returns whether the thread is active here.
        """
        self._tenants[tenant] = _Tenant(bus, refresh)
        for (one, thread_id), forward in self._forwards.items():
            if one == tenant:
                bus.channel(thread_id).join(forward)

    @property
    def joined(self) -> bool:
        """Whether there is a bus."""
        return self._link is not None

    @property
    def healthy(self) -> bool:
        """Whether signals get through at present."""
        return self._link is not None and self._link.is_healthy

    def serve(self) -> None:
        """Receive wake-ups from now on."""
        if self._link is not None:
            self._link.serve()

    # -- to other processes ----------------------------------------------------------------------------------

    async def notify_owner(self, owner: str, tenant: str, thread_id: str) -> None:
        """Tell the worker that owns a thread about new items in its inbox."""
        if self._link is not None and owner != self._owner:
            await self._link.notify_owner(owner, tenant, thread_id)

    def wake(self, tenant: str, thread_id: str, agent_id: str = "") -> None:
        """Tell one of the serving workers that a thread is due."""
        if self._link is not None:
            self._link.wake(Wake(tenant, thread_id, agent_id))

    async def request_start(self, tenant: str, item: InputItem) -> bool:
        """Ask a serving worker to start a run with input. True once its first commit is written.

        False doesn't mean that no worker started: its reply may be lost.
        """
        link = self._link
        if link is None or not link.is_healthy or (key := await self._key()) is None:
            return False
        sealed = seal(key, RunOffer(tenant, now_ms(), item))
        return hmac.compare_digest(await link.request_start(sealed), make_proof(key, sealed))

    async def _key(self) -> bytes | None:
        """The store's key for sealed requests; None if it has none."""
        if self._secret is None and (secret := getattr(self._store, "secret", None)) is not None:
            try:
                self._secret = await secret()
            except StoreError as error:
                _log.debug("the store gave no key: %s", explain(error))
        return self._secret

    # -- readers in this process -----------------------------------------------------------------------------

    def watch(self, tenant: str, thread_id: str, reader: Reader) -> None:
        """Pass the events that other processes publish of a thread to a reader, until it leaves."""
        key = (tenant, thread_id)
        readers = self._readers.get(key, ())
        if self._link is not None and reader not in readers:
            self._readers[key] = (*readers, reader)
            self._link.watch(tenant, thread_id)

    def leave(self, tenant: str, thread_id: str, reader: Reader) -> None:
        """Remove a reader."""
        key = (tenant, thread_id)
        readers = self._readers.get(key, ())
        if self._link is None or reader not in readers:
            return
        self._readers[key] = tuple([one for one in readers if one is not reader])
        if not self._readers[key]:
            del self._readers[key]
        self._link.unwatch(tenant, thread_id)

    # -- from other processes (the bus's listener) -----------------------------------------------------------

    def on_wake(self, wake: Wake) -> bool:
        """Look for a due thread; False if this worker can't run it."""
        return self._server().accept_wake(wake)

    async def on_start(self, sealed: bytes) -> bytes:
        """Start a run for another process; returns a proof if it was started, else empty bytes."""
        key = await self._key()
        request = None if key is None else open_sealed(key, sealed, now_ms())
        if key is None or request is None or not await self._server().accept_start(request):
            return b""
        return make_proof(key, sealed)

    async def on_inbox(self, tenant: str, thread_id: str) -> bool:
        """Deliver new inbox items to an active run; False if the thread isn't active here."""
        found = self._tenants.get(tenant)
        try:
            return found is not None and await found.refresh(thread_id)
        except StoreError:
            return False

    def on_watch(self, tenant: str, thread_id: str, seconds: float) -> None:
        """Forward the events of a thread to readers elsewhere for the next `seconds`."""
        link, loop, key = self._link, asyncio.get_running_loop(), (tenant, thread_id)
        if link is None:
            return
        until, forward = loop.time() + seconds, self._forwards.get(key)
        if forward is not None:
            forward.until = until
            return
        forward = self._forwards[key] = _Forward(link, key, until)
        if (found := self._tenants.get(tenant)) is not None:
            found.bus.channel(thread_id).join(forward)
        if self._sweeper is None:
            self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)

    def on_updates(self, tenant: str, thread_id: str, updates: Sequence[Update]) -> None:
        """Pass updates of a thread to its readers in this process."""
        for reader in self._readers.get((tenant, thread_id), ()):
            for one in updates:
                reader.push(one)

    def _sweep(self) -> None:
        """Drop the forwards that no reader renewed."""
        loop = asyncio.get_running_loop()
        for key in [key for key, forward in self._forwards.items() if forward.until < loop.time()]:
            self._drop(key)
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep) if self._forwards else None

    def _drop(self, key: Key) -> None:
        forward, (tenant, thread_id) = self._forwards.pop(key), key
        if (found := self._tenants.get(tenant)) is not None:
            found.bus.channel(thread_id).leave(forward)

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
