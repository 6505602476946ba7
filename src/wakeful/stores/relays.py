"""Relays: outgoing deliveries to addresses outside the store, and their progress."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from ..types.base import Data

__all__ = ["Relay", "RelayStatus", "wanted"]

RelayStatus = Literal["live", "done", "dead"]


class Relay(Data, omit_defaults=True, kw_only=True):
    """One outgoing delivery to an address outside the store.

    The thread's log is the outbox: `cursor` is the last entry that was handled; -1 if the payload itself is
    delivered. Only the code for its `kind` reads the `payload`, which may hold secrets. After a failure the relay
    is due again at `due_at`; after too many it is `dead` until it is replayed. `owner` delivers until its lease
    ends at `until`. Every commit of a relay has the next `revision`; any other is refused.
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


def wanted(
    relays: Iterable[Relay],
    *,
    thread_id: str | None,
    run_id: str | None,
    kind: str | None,
    status: RelayStatus | None,
) -> Sequence[Relay]:
    """The relays that match, in order of their ids."""
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
