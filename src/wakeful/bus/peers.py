"""The known members of a bus: which of them serve, and which may be asked to start a run."""

from __future__ import annotations

from msgspec import Struct

from .protocol import INTEREST_SECONDS

__all__ = ["Peer", "Peers"]

# How long a peer that refused to start a run isn't asked again.
REFUSAL_SECONDS = 0.05
# Pending start requests for each peer. Beyond that, batched writes to the store are faster.
MAX_PENDING_STARTS = 4


class Peer(Struct, eq=False):
    """A member of the bus. `expires_at` and `refuses_until` are times of the event loop."""

    id: str
    expires_at: float
    serves: bool
    pending_starts: int = 0
    refuses_until: float = 0.0


class Peers:
    """The members that announced themselves recently."""

    def __init__(self) -> None:
        self._known: dict[str, Peer] = {}
        self._turn = 0

    def renew(self, peer_id: str, now: float, *, serves: bool) -> None:
        """Add a member, or extend its expiry."""
        peer = self._known.setdefault(peer_id, Peer(peer_id, 0.0, serves))
        peer.expires_at, peer.serves = now + INTEREST_SECONDS, serves

    def remove(self, peer_id: str) -> None:
        """Remove a member until it announces itself again."""
        self._known.pop(peer_id, None)

    def next_server(self, now: float) -> str | None:
        """Choose a serving member, round-robin; None if none is known."""
        peer = self._next(self._serving(now))
        return None if peer is None else peer.id

    def next_starter(self, now: float) -> Peer | None:
        """Choose a serving member that may be asked to start a run; None if there is none."""
        serving = self._serving(now)
        return self._next([p for p in serving if p.pending_starts < MAX_PENDING_STARTS and p.refuses_until <= now])

    def _serving(self, now: float) -> list[Peer]:
        self._known = {peer_id: peer for peer_id, peer in self._known.items() if peer.expires_at >= now}
        return [peer for peer in self._known.values() if peer.serves]

    def _next(self, peers: list[Peer]) -> Peer | None:
        self._turn += 1
        return peers[self._turn % len(peers)] if peers else None
