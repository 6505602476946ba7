"""Relays: what is on its way from a thread to a recipient outside the store, and how far it came."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from ..errors import Conflict

__all__ = ["Relay", "RelayStatus", "check_revision", "wanted"]

RelayStatus = Literal["live", "done", "dead"]


class Relay(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A recipient outside the store, and what it was given so far. The thread's log is the outbox: `cursor` is the
    last entry that was delivered, or was nothing to deliver; -1 where the payload itself is what goes out.

    `payload` belongs to the `kind` alone, and is nobody else's to read: it may hold secrets. After a failure the
    relay is `due_at` a later time; after too many it is `dead`, until somebody makes it live again. `owner`
    delivers `until` its lease ends. Each commit of a relay has the next `revision`, and another is refused.
    """

    id: str
    thread_id: str
    run_id: str | None = None
    kind: str
    payload: bytes = b""
    cursor: int = 0
    due_at: int = 0
    attempts: int = 0
    status: RelayStatus = "live"
    last_error: str = ""
    owner: str | None = None
    until: int = 0
    created_at: int = 0
    revision: int = 1

    def __repr__(self) -> str:
        return f"Relay({self.id!r}, kind={self.kind!r}, status={self.status!r}, cursor={self.cursor})"


def check_revision(relay: Relay, stored: int | None) -> None:
    """Refuse a relay that somebody else has changed since its writer read it."""
    if relay.revision != (stored or 0) + 1:
        raise Conflict(f"relay {relay.id!r} is at revision {stored or 0}, not {relay.revision - 1}")


def wanted(
    relays: Iterable[Relay],
    *,
    thread_id: str | None,
    run_id: str | None,
    kind: str | None,
    status: RelayStatus | None,
) -> Sequence[Relay]:
    """Those that fit, by their ids."""
    return sorted(
        [
            relay
            for relay in relays
            if thread_id in (None, relay.thread_id)
            and run_id in (None, relay.run_id)
            and kind in (None, relay.kind)
            and status in (None, relay.status)
        ],
        key=lambda relay: relay.id,
    )
