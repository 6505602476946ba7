"""Messages on their way outside the store, as relays: what they hold, and those that were given up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Conflict
from ..stores import Commit, InboxItem, Relay, Store
from ..types.codec import decode, encode
from ..types.mail import DeadLetter, OutboundMessage
from ._letters import said

__all__ = [
    "KIND",
    "Parcel",
    "Transport",
    "dead_letters",
    "drop",
    "parcel_of",
    "relay_of",
    "replay",
    "transport_of",
]

KIND = "message"


@runtime_checkable
class Transport(Protocol):
    """Brings messages to recipients outside the store."""

    async def deliver(self, message: OutboundMessage) -> None:
        """Return once the recipient has the message; raise, and it is tried again later."""
        ...


class Parcel(Struct, omit_defaults=True):
    """What a relay of a message holds: one for outside, or an item for an inbox of this store that was full."""

    message: OutboundMessage | None = None
    item: InboxItem | None = None


def transport_of(transports: Mapping[str, Any], address: str) -> str | None:
    """The name of the transport that serves an address: what stands before its colon."""
    name = address.partition(":")[0]
    return name if name in transports and ":" in address else None


def relay_of(parcel: Parcel, transport: str, thread_id: str, run_id: str, now: int) -> Relay:
    """A message on its way. Each transport has a kind of its own, so that a process without it leaves them."""
    carried = parcel.message or parcel.item
    return Relay(
        id="" if carried is None else carried.id,
        thread_id=thread_id,
        run_id=run_id,
        kind=f"{KIND}:{transport}" if transport else KIND,
        payload=encode(parcel),
        cursor=-1,
        due_at=now,
        created_at=now,
    )


def parcel_of(relay: Relay) -> Parcel:
    """What a relay holds."""
    return decode(relay.payload, Parcel)


def _is_mail(relay: Relay | None) -> bool:
    return relay is not None and relay.kind.partition(":")[0] == KIND


async def dead_letters(
    store: Store, *, thread_id: str | None = None, after: str | None = None, limit: int | None = None
) -> list[DeadLetter]:
    """Messages that were given up, oldest first."""
    found = await store.relays(thread_id=thread_id, status="dead", after=after)
    return [_shown(relay) for relay in found if _is_mail(relay)][:limit]


def _shown(relay: Relay) -> DeadLetter:
    parcel = parcel_of(relay)
    message, item = parcel.message, parcel.item
    to = message.to if message is not None else item.thread_id if item is not None else ""
    text = message.text if message is not None else said(item.message) if item and item.message else ""
    return DeadLetter(
        id=relay.id,
        thread_id=relay.thread_id,
        run_id=relay.run_id,
        to=to,
        text=text,
        attempts=relay.attempts,
        error=relay.last_error,
        sent_at=relay.created_at,
    )


async def replay(store: Store, message_id: str, now: int, *, thread_id: str | None = None) -> bool:
    """Try a dead letter again, under its id; False if there is none of that id."""
    return await _change(store, message_id, thread_id, {"status": "live", "attempts": 0, "due_at": now})


async def drop(store: Store, message_id: str, *, thread_id: str | None = None) -> bool:
    """Give a dead letter up for good; False if there is none of that id."""
    return await _change(store, message_id, thread_id, {"status": "done", "payload": b""})


async def _change(store: Store, message_id: str, thread_id: str | None, changes: Mapping[str, Any]) -> bool:
    while True:
        relay = await store.relay(message_id)
        if relay is None or relay.status != "dead" or not _is_mail(relay):
            return False
        if thread_id not in (None, relay.thread_id):
            return False
        again: Sequence[Relay] = [replace(relay, revision=relay.revision + 1, **changes)]
        try:
            await store.commit(Commit(relay.thread_id, relays=again))
        except Conflict:
            continue
        return True
