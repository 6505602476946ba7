"""Outgoing messages as relays: their payload, and dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Conflict
from ..stores import Commit, Relay, Store
from ..types.codec import decode, encode
from ..types.inbox import InboxItem, InputItem
from ..types.mail import DeadLetter, OutboundMessage
from .agent_messages import text_of_message

__all__ = [
    "KIND",
    "RelayPayload",
    "Transport",
    "dead_letters",
    "drop",
    "payload_of",
    "relay_of",
    "replay",
    "transport_of",
]

KIND = "message"


@runtime_checkable
class Transport(Protocol):
    """Delivers messages to recipients outside the store."""

    async def deliver(self, message: OutboundMessage) -> None:
        """Return once the recipient has the message; an exception leads to a retry."""
        ...


class RelayPayload(Struct, omit_defaults=True):
    """The payload of a relay: a message to the outside, or an item for an inbox that was full."""

    message: OutboundMessage | None = None
    item: InboxItem | None = None


def transport_of(transports: Mapping[str, Any], address: str) -> str | None:
    """The name of the transport that serves an address: the part before its colon."""
    name = address.partition(":")[0]
    return name if name in transports and ":" in address else None


def relay_of(payload: RelayPayload, transport: str, thread_id: str, run_id: str, now: int) -> Relay:
    """A relay for a payload. Each transport has its own kind, so a process without it doesn't claim the relay."""
    content = payload.message or payload.item
    return Relay(
        id="" if content is None else content.id,
        thread_id=thread_id,
        run_id=run_id,
        kind=f"{KIND}:{transport}" if transport else KIND,
        payload=encode(payload),
        cursor=-1,
        due_at=now,
        created_at=now,
    )


def payload_of(relay: Relay) -> RelayPayload:
    """The decoded payload of a relay."""
    return decode(relay.payload, RelayPayload)


def _is_mail(relay: Relay | None) -> bool:
    return relay is not None and relay.kind.partition(":")[0] == KIND


async def dead_letters(
    store: Store, *, thread_id: str | None = None, after: str | None = None, limit: int | None = None
) -> list[DeadLetter]:
    """Dead letters, oldest first."""
    found = await store.relays(thread_id=thread_id, status="dead", after=after)
    return [_dead_letter(relay) for relay in found if _is_mail(relay)][:limit]


def _dead_letter(relay: Relay) -> DeadLetter:
    payload = payload_of(relay)
    message, item = payload.message, payload.item
    to = message.to if message is not None else item.thread_id if item is not None else ""
    text = (
        message.text
        if message is not None
        else text_of_message(item.message)
        if isinstance(item, InputItem)
        else ""
    )
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
    """Retry a dead letter under its id; False if there is none of that id."""
    return await _change(store, message_id, thread_id, {"status": "live", "attempts": 0, "due_at": now})


async def drop(store: Store, message_id: str, *, thread_id: str | None = None) -> bool:
    """Drop a dead letter; False if there is none of that id."""
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
