"""Delivery of relays of one kind: by one process at a time, with backoff, until a relay is dead."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from ..errors import Conflict, StoreError, WakefulError, explain, report
from ..runtime import TenantRuntime
from ..stores import Commit, Relay
from ..types.events import Event
from .webhooks import Webhooks

__all__ = ["Deliverer"]

_log = logging.getLogger("wakeful.server")

POLL_SECONDS = 0.25
CONCURRENCY = 16
BATCH = 100

# With a full batch, a relay that has nothing to send yet is postponed by this many milliseconds.
POSTPONE_MS = 2000

# Sends the notification for an event, or with None one without an event; returns the updated relay, with the
# status `done` after its last notification.
Send = Callable[[Relay, Event | None], Awaitable[Relay]]


class Deliverer:
    """Polls for due relays of a kind and sends the events after their cursors, at least once and in order.

    `is_sent` selects the events to send. `has_change` says whether there is a notification without an event: True,
    False for not yet, None for never. `send` sends one notification, after which the relay is committed.
    """

    def __init__(
        self,
        runtime: TenantRuntime,
        kind: str,
        is_sent: Callable[[Relay, Event], bool],
        has_change: Callable[[Relay], Awaitable[bool | None]],
        send: Send,
        settings: Webhooks,
    ) -> None:
        self._runtime = runtime
        self._kind = kind
        self._is_sent = is_sent
        self._has_change = has_change
        self._send = send
        self._settings = settings
        self._read: dict[str, int] = {}
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Poll now: there is a new relay."""
        self._woken.set()

    async def serve(self) -> None:
        """Deliver until cancelled. Relays under way are then given back."""
        while True:
            try:
                due = await self._runtime.store.due_relays(
                    self._kind, self._runtime.schedules.clock.now(), limit=BATCH
                )
                is_full = len(due) == BATCH
                for start in range(0, len(due), CONCURRENCY):
                    await self._deliver_all(due[start : start + CONCURRENCY], is_full)
            except StoreError as error:
                _log.warning("the store didn't answer: %s", explain(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._woken.wait()
            self._woken.clear()

    async def _deliver_all(self, relays: Sequence[Relay], is_batch_full: bool) -> None:
        # With `return_exceptions` a cancellation is raised once every relay was given back.
        ends = await asyncio.gather(
            *[self._deliver(relay, is_batch_full) for relay in relays], return_exceptions=True
        )
        for error in ends:
            if error is not None:
                raise error

    async def _deliver(self, relay: Relay, is_batch_full: bool) -> None:
        found, last = await self._read_events(relay)
        has_change = None if found else await self._has_change(relay)
        events: list[Event | None] = [None] if has_change else [*found]
        if not events:
            # The position is kept in memory. A full batch commits it, so that the relays behind get their turn.
            self._read[relay.id] = last
            if is_batch_full:
                now = self._runtime.schedules.clock.now()
                read = replace(relay, cursor=last, due_at=now)
                with suppress(Conflict):
                    await self._put(read if has_change is None else replace(relay, due_at=now + POSTPONE_MS))
            return
        lease = self._runtime.schedules.clock.now() + round(self._settings.timeout * 2000)
        with suppress(Conflict):  # Another process owns it, or its caller changed it.
            relay = await self._put(replace(relay, owner=self._runtime.workers.hold_lease(), until=lease))
            for event in events:
                try:
                    sent = await self._send(relay, event)
                except asyncio.CancelledError:
                    # The process ends: another one sends at once.
                    with suppress(StoreError):
                        await self._put(replace(relay, owner=None, until=0))
                    raise
                except Exception as error:
                    await self._record_failure(relay, _reason_of(relay, error))
                    return
                done = sent.status == "done"
                lease = self._runtime.schedules.clock.now() + round(self._settings.timeout * 2000)
                relay = replace(sent, attempts=0, last_error="", until=lease)
                if done or event is events[-1]:
                    relay = replace(relay, owner=None, until=0)
                relay = await self._put(relay)
                if done:
                    self._read.pop(relay.id, None)
                    return

    async def _read_events(self, relay: Relay) -> tuple[list[Event], int]:
        """The events that a relay has to send, and the number of the last event read."""
        found, after = list[Event](), max(relay.cursor, self._read.get(relay.id, 0))
        while page := await self._runtime.store.events(relay.thread_id, after=after):
            found += [event for event in page if self._is_sent(relay, event)]
            after = page[-1].seq
        return found, after

    async def _record_failure(self, relay: Relay, reason: str) -> None:
        attempts = relay.attempts + 1
        dead = attempts >= self._settings.attempts
        pause = min(self._settings.backoff * 2 ** (attempts - 1), self._settings.max_backoff)
        due = self._runtime.schedules.clock.now() + round(pause * 1000)
        if dead:
            _log.warning("relay %s is dead after %d attempts: %s", relay.id, attempts, reason)
        await self._put(
            replace(
                relay,
                attempts=attempts,
                due_at=due,
                last_error=reason,
                status="dead" if dead else "live",
                owner=None,
                until=0,
            )
        )

    async def _put(self, relay: Relay) -> Relay:
        relay = replace(relay, revision=relay.revision + 1)
        await self._runtime.store.commit(Commit(relay.thread_id, relays=[relay]))
        return relay


def _reason_of(relay: Relay, error: Exception) -> str:
    if isinstance(error, WakefulError):
        return str(error)
    report(_log, error, "relay %s failed", relay.id)
    return f"the server failed ({type(error).__name__})"
