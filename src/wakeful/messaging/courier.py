"""The courier: delivers relays, each by one process at a time, with retries and backoff."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..clock import Clock, Timer
from ..errors import ConfigurationError, Conflict, InboxFull, StoreError, explain
from ..errors.arguments import Checked
from ..stores import Commit, Relay, Store
from ..types.inbox import InboxItem
from .outbox import KIND, Transport, payload_of, transport_of

__all__ = ["Courier", "DeliveryPolicy", "attempt", "put_relay"]

_log = logging.getLogger("wakeful")

# How often to look for relays of other processes, in seconds; rarely without transports.
POLL = 1.0
IDLE = 30.0
AT_ONCE = 16
_LONGEST = 1_000_000_000.0  # About thirty years, which every clock can represent.


class DeliveryPolicy(Struct, metaclass=Checked, frozen=True, kw_only=True):
    """Retries of a delivery: `backoff` seconds after the first failure, doubled after each further one up to
    `max_backoff`. After `attempts` failures the message is a dead letter. One attempt has `timeout` seconds."""

    attempts: int = 8
    backoff: float = 1.0
    max_backoff: float = 300.0
    timeout: float = 30.0

    def __post_init__(self) -> None:
        given: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__}
        attempts = given.pop("attempts")
        wrong = [
            f"DeliveryPolicy.{name} is a number of seconds, {'positive' if name == 'timeout' else 'not negative'}"
            f", not {value!r:.80}"
            for name, value in given.items()
            if type(value) not in (int, float) or not 0 <= value <= _LONGEST or (name == "timeout" and not value)
        ]
        if type(attempts) is not int or attempts < 1:
            wrong.append(f"DeliveryPolicy.attempts is a whole number of at least 1, not {attempts!r:.80}")
        if wrong:
            raise ConfigurationError(wrong)

    def after(self, relay: Relay, why: str, now: int, *, final: bool = True) -> Relay:
        """The relay after a failed attempt. It becomes a dead letter only if such failures are `final`."""
        attempts = relay.attempts + 1
        pause = min(self.backoff * 2 ** min(attempts - 1, 60), self.max_backoff)
        return replace(
            relay,
            attempts=attempts,
            due_at=now + round(pause * 1000),
            last_error=why[:2000],
            status="dead" if final and attempts >= self.attempts else "live",
            owner=None,
            until=0,
        )

    def lease(self, now: int) -> int:
        """The end of the lease of a delivery that starts now."""
        return now + round(self.timeout * 2000)


async def put_relay(store: Store, relay: Relay) -> Relay:
    """Write a changed relay; raises `Conflict` if another process changed it first."""
    relay = replace(relay, revision=relay.revision + 1)
    await store.commit(Commit(relay.thread_id, relays=[relay]))
    return relay


async def attempt(
    store: Store,
    relay: Relay,
    owner: str,
    clock: Clock,
    delivery: DeliveryPolicy,
    send: Callable[[Relay], Awaitable[None]],
) -> Relay | None:
    """Attempt one delivery; returns the relay after it, or None if another process has the relay.

    A cancellation gives the relay back before it is raised.
    """
    try:
        relay = await put_relay(store, replace(relay, owner=owner, until=delivery.lease(clock.now())))
        try:
            async with asyncio.timeout(delivery.timeout):
                await send(relay)
        except asyncio.CancelledError:
            # The process ends: another one delivers at once.
            with suppress(StoreError):
                await put_relay(store, replace(relay, owner=None, until=0))
            raise
        except Exception as error:
            why = "it took too long" if isinstance(error, TimeoutError) else explain(error)
            # A full inbox will have room again, so the relay isn't given up for it.
            after = delivery.after(relay, why, clock.now(), final=not isinstance(error, InboxFull))
            if after.status == "dead":
                _log.warning("message %s is a dead letter after %d attempts: %s", relay.id, after.attempts, why)
            return await put_relay(store, after)
        done = replace(relay, status="done", payload=b"", last_error="", owner=None, until=0)
        return await put_relay(store, done)
    except Conflict:
        return None


class Courier:
    """One for each serving runtime, for all tenants. A message is delivered at least once, under one id."""

    def __init__(
        self,
        store: Store,
        owner: str,
        clock: Clock,
        transports: Mapping[str, Transport],
        delivery: DeliveryPolicy,
        wake: Callable[[str, InboxItem], None],
    ) -> None:
        self._store = store
        self._owner = owner
        self._clock = clock
        self._transports = transports
        self._delivery = delivery
        self._wake = wake
        self._look_requested: asyncio.Event | None = None
        self._service: asyncio.Task[None] | None = None
        self._timers: set[Timer] = set()

    def look(self) -> None:
        """Look for due relays now."""
        if self._look_requested is not None:
            self._look_requested.set()

    def serve(self) -> None:
        """Start to deliver."""
        if self._service is None:
            self._look_requested = asyncio.Event()
            self._service = asyncio.get_running_loop().create_task(self._serve(self._look_requested))

    async def close(self) -> None:
        """Stop. Deliveries under way are given back, so that another process retries them at once."""
        if self._service is not None:
            self._service.cancel()
            await asyncio.wait({self._service})
            self._service = self._look_requested = None
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    async def _serve(self, look_requested: asyncio.Event) -> None:
        kinds = [KIND, *[f"{KIND}:{name}" for name in self._transports]]
        while True:
            more = False
            try:
                for tenant in await self._store.tenants():
                    for kind in kinds:
                        more |= await self._look_at(tenant, kind)
            except StoreError as error:
                _log.warning("the store didn't answer: %s", explain(error))
            if more:
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL if self._transports else IDLE):
                    await look_requested.wait()
            look_requested.clear()

    async def _look_at(self, tenant: str, kind: str) -> bool:
        store = self._store.tenant(tenant)
        due = await store.due_relays(kind, self._clock.now(), limit=AT_ONCE)
        # With `return_exceptions` a cancellation is raised once every relay was given back.
        ends = await asyncio.gather(
            *[self._deliver(tenant, store, relay) for relay in due], return_exceptions=True
        )
        for error in ends:
            if error is not None:
                raise error
        return len(due) == AT_ONCE

    async def _deliver(self, tenant: str, store: Store, relay: Relay) -> None:
        async def send(leased: Relay) -> None:
            await self._send(tenant, store, leased)

        after = await attempt(store, relay, self._owner, self._clock, self._delivery, send)
        if after is not None and after.status == "live":
            self._look_later(after.due_at)

    def _look_later(self, due: int) -> None:
        def ring() -> None:
            self._timers.discard(timer)
            self.look()

        timer = self._clock.call_later(max(0, due - self._clock.now()) / 1000, ring)
        self._timers.add(timer)

    async def _send(self, tenant: str, store: Store, relay: Relay) -> None:
        payload = payload_of(relay)
        if payload.item is not None:
            await store.commit(Commit(payload.item.thread_id, inbox=[payload.item]))
            self._wake(tenant, payload.item)
        elif payload.message is not None:
            name = transport_of(self._transports, payload.message.to)
            await self._transports[name or ""].deliver(payload.message)
