"""Delivering relays of one kind: each by one process at a time, again after a failure, until it is given up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from msgspec.structs import replace

from ..errors import Conflict, StoreError, WakefulError, explain, report
from ..runtime import Runtime
from ..stores import Commit, Relay
from ..types.events import Event
from ..types.ids import new_id
from ._webhooks import Webhooks

__all__ = ["Deliverer"]

_log = logging.getLogger("wakeful.server")

POLL = 0.25
AT_ONCE = 16
# How many relays one look finds.
LOOKS = 100

# How long a relay that has nothing to send yet is put off where many wait to be looked at, in milliseconds.
PUT_OFF = 2000

# Sends what an event tells, or with None what there is to tell without one; returns the relay as it is then, done
# if there will be no more.
Send = Callable[[Relay, Event | None], Awaitable[Relay]]


class Deliverer:
    """Looks for relays of a kind that are due, and sends what is behind their cursors: `tells` says of an event
    whether it is one to send, `silent` whether there is something to tell that has no event, None if there won't
    be; `send` sends it. It is sent at least once, in order, and then committed."""

    def __init__(
        self,
        runtime: Runtime,
        kind: str,
        tells: Callable[[Relay, Event], bool],
        silent: Callable[[Relay], Awaitable[bool | None]],
        send: Send,
        settings: Webhooks,
    ) -> None:
        self._runtime = runtime
        self._kind = kind
        self._tells = tells
        self._silent = silent
        self._send = send
        self._settings = settings
        self._owner = new_id()
        self._read: dict[str, int] = {}
        self._looks = asyncio.Event()

    def look(self) -> None:
        """There is a relay to look at."""
        self._looks.set()

    async def serve(self) -> None:
        """Deliver until cancelled."""
        while True:
            try:
                due = await self._runtime.store.due_relays(self._kind, self._runtime.clock.now(), limit=LOOKS)
                for start in range(0, len(due), AT_ONCE):
                    await asyncio.gather(
                        *[self._deliver(relay, len(due) == LOOKS) for relay in due[start : start + AT_ONCE]]
                    )
            except StoreError as error:
                _log.warning("the store didn't answer: %s", explain(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL):
                    await self._looks.wait()
            self._looks.clear()

    async def _deliver(self, relay: Relay, crowded: bool) -> None:
        found, last = await self._behind(relay)
        silent = None if found else await self._silent(relay)
        events: list[Event | None] = [None] if silent else [*found]
        if not events:
            self._read[relay.id] = last  # Nothing to send up to there, and not worth a commit,
            if crowded:  # unless others wait behind it to be looked at.
                now = self._runtime.clock.now()
                later = replace(relay, cursor=last, due_at=now)
                with suppress(Conflict):
                    await self._put(later if silent is None else replace(relay, due_at=now + PUT_OFF))
            return
        lease = self._runtime.clock.now() + round(self._settings.seconds * 2000)
        with suppress(Conflict):  # Somebody else has it, or its caller changed it.
            relay = await self._put(replace(relay, owner=self._owner, until=lease))
            for event in events:
                try:
                    told = await self._send(relay, event)
                except Exception as error:
                    await self._failed(relay, _why(relay, error))
                    return
                done = told.status == "done"
                lease = self._runtime.clock.now() + round(self._settings.seconds * 2000)
                relay = replace(told, attempts=0, last_error="", until=lease)
                if done or event is events[-1]:
                    relay = replace(relay, owner=None, until=0)
                relay = await self._put(relay)
                if done:
                    self._read.pop(relay.id, None)
                    return

    async def _behind(self, relay: Relay) -> tuple[list[Event], int]:
        """What a relay has to send, and how far that was looked for."""
        found, after = list[Event](), max(relay.cursor, self._read.get(relay.id, 0))
        while page := await self._runtime.store.events(relay.thread_id, after=after):
            found += [event for event in page if self._tells(relay, event)]
            after = page[-1].seq
        return found, after

    async def _failed(self, relay: Relay, why: str) -> None:
        attempts = relay.attempts + 1
        dead = attempts >= self._settings.attempts
        pause = min(self._settings.pause * 2 ** (attempts - 1), self._settings.longest_pause)
        due = self._runtime.clock.now() + round(pause * 1000)
        if dead:
            _log.warning("relay %s is given up after %d attempts: %s", relay.id, attempts, why)
        await self._put(
            replace(
                relay,
                attempts=attempts,
                due_at=due,
                last_error=why,
                status="dead" if dead else "live",
                owner=None,
                until=0,
            )
        )

    async def _put(self, relay: Relay) -> Relay:
        relay = replace(relay, revision=relay.revision + 1)
        await self._runtime.store.commit(Commit(relay.thread_id, relays=[relay]))
        return relay


def _why(relay: Relay, error: Exception) -> str:
    if isinstance(error, WakefulError):
        return str(error)
    report(_log, error, "relay %s failed", relay.id)
    return f"the server failed ({type(error).__name__})"
