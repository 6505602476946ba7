"""Bringing messages where they go: each by one process at a time, again after a failure, until it is given up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..clock import Clock, Timer
from ..errors import ConfigurationError, Conflict, InboxFull, StoreError, WakefulError, explain
from ..errors._arguments import Checked
from ..stores import Commit, InboxItem, Relay, Store
from ._outbox import KIND, Transport, parcel_of, transport_of

__all__ = ["Courier", "Retry", "attempt", "put_relay"]

_log = logging.getLogger("wakeful")

# How often relays that other processes wrote are looked for, in seconds; seldom, where nothing leaves the store.
POLL = 1.0
IDLE = 30.0
AT_ONCE = 16
_LONGEST = 1_000_000_000.0  # Some thirty years: more is no time that a clock can be set to.


class Retry(Struct, metaclass=Checked, frozen=True, kw_only=True):
    """How often a delivery is tried: `pause` seconds after the first failure, twice as long after each other one,
    up to `longest_pause`; after so many `attempts` it is given up. One attempt has `seconds`."""

    attempts: int = 8
    pause: float = 1.0
    longest_pause: float = 300.0
    seconds: float = 30.0

    def __post_init__(self) -> None:
        given: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__}
        attempts = given.pop("attempts")
        wrong = [
            f"Retry.{name} is a number of seconds and {'positive' if name == 'seconds' else 'not negative'}, "
            f"not {value!r:.80}"
            for name, value in given.items()
            if type(value) not in (int, float) or not 0 <= value <= _LONGEST or (name == "seconds" and not value)
        ]
        if type(attempts) is not int or attempts < 1:
            wrong.append(f"Retry.attempts is a whole number of at least 1, not {attempts!r:.80}")
        if wrong:
            raise ConfigurationError(wrong)

    def after(self, relay: Relay, why: str, now: int, *, final: bool = True) -> Relay:
        """The relay after one more attempt that failed; unless such attempts are `final`, it isn't given up."""
        attempts = relay.attempts + 1
        pause = min(self.pause * 2 ** min(attempts - 1, 60), self.longest_pause)
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
        """Until when a delivery that begins now belongs to whoever began it."""
        return now + round(self.seconds * 2000)


async def put_relay(store: Store, relay: Relay) -> Relay:
    """Write a relay that was changed; raises `Conflict` if somebody else did so first."""
    relay = replace(relay, revision=relay.revision + 1)
    await store.commit(Commit(relay.thread_id, relays=[relay]))
    return relay


async def attempt(
    store: Store, relay: Relay, owner: str, clock: Clock, retry: Retry, send: Callable[[Relay], Awaitable[None]]
) -> Relay | None:
    """Try to deliver a relay's payload once; the relay as it is then, or None if it is somebody else's."""
    try:
        relay = await put_relay(store, replace(relay, owner=owner, until=retry.lease(clock.now())))
        try:
            async with asyncio.timeout(retry.seconds):
                await send(relay)
        except Exception as error:
            why = "it took too long" if isinstance(error, TimeoutError) else _why(error)
            # An inbox that is full is no recipient that can't be reached: there will be room.
            after = retry.after(relay, why, clock.now(), final=not isinstance(error, InboxFull))
            if after.status == "dead":
                _log.warning("message %s is given up after %d attempts: %s", relay.id, after.attempts, why)
            return await put_relay(store, after)
        done = replace(relay, status="done", payload=b"", last_error="", owner=None, until=0)
        return await put_relay(store, done)
    except Conflict:
        return None


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, WakefulError) else explain(error)


class Courier:
    """One for each runtime that serves, for all tenants. A message is delivered at least once, under one id."""

    def __init__(
        self,
        store: Store,
        owner: str,
        clock: Clock,
        transports: Mapping[str, Transport],
        retry: Retry,
        wake: Callable[[str, InboxItem], None],
    ) -> None:
        self._store = store
        self._owner = owner
        self._clock = clock
        self._transports = transports
        self._retry = retry
        self._wake = wake
        self._looks: asyncio.Event | None = None
        self._service: asyncio.Task[None] | None = None
        self._timers: set[Timer] = set()

    def look(self) -> None:
        """There is a relay to look at, or there will be at the time that was waited for."""
        if self._looks is not None:
            self._looks.set()

    def serve(self) -> None:
        """Begin to deliver."""
        if self._service is None:
            self._looks = asyncio.Event()
            self._service = asyncio.get_running_loop().create_task(self._serve(self._looks))

    async def close(self) -> None:
        """Stop; what was being delivered is tried again by another, once the lease is over."""
        if self._service is not None:
            self._service.cancel()
            await asyncio.wait({self._service})
            self._service = self._looks = None
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    async def _serve(self, looks: asyncio.Event) -> None:
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
                    await looks.wait()
            looks.clear()

    async def _look_at(self, tenant: str, kind: str) -> bool:
        store = self._store.tenant(tenant)
        due = await store.due_relays(kind, self._clock.now(), limit=AT_ONCE)
        await asyncio.gather(*[self._deliver(tenant, store, relay) for relay in due])
        return len(due) == AT_ONCE

    async def _deliver(self, tenant: str, store: Store, relay: Relay) -> None:
        async def send(leased: Relay) -> None:
            await self._send(tenant, store, leased)

        after = await attempt(store, relay, self._owner, self._clock, self._retry, send)
        if after is not None and after.status == "live":
            self._look_at_time(after.due_at)

    def _look_at_time(self, due: int) -> None:
        def ring() -> None:
            self._timers.discard(timer)
            self.look()

        timer = self._clock.call_later(max(0, due - self._clock.now()) / 1000, ring)
        self._timers.add(timer)

    async def _send(self, tenant: str, store: Store, relay: Relay) -> None:
        parcel = parcel_of(relay)
        if parcel.item is not None:
            await store.commit(Commit(parcel.item.thread_id, inbox=[parcel.item]))
            self._wake(tenant, parcel.item)
        elif parcel.message is not None:
            name = transport_of(self._transports, parcel.message.to)
            await self._transports[name or ""].deliver(parcel.message)
