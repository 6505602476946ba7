"""Who else takes part, as far as they said so: who serves, and who may be asked to begin a run."""

from __future__ import annotations

from msgspec import Struct

from ._protocol import INTEREST_SECONDS

__all__ = ["Peer", "Peers"]

# How long one that won't begin a run isn't asked again, and how many one is asked to begin at once: there is more
# to gain from writing many together.
SHY_SECONDS, ASKED_AT_ONCE = 0.05, 4


class Peer(Struct, eq=False):
    """One who takes part: until when that counts, how many runs it is asked to begin, and until when no more."""

    id: str
    until: float
    serves: bool
    asked: int = 0
    shy_until: float = 0.0


class Peers:
    """Those who are known, each of whom says from time to time that it is there."""

    def __init__(self) -> None:
        self._known: dict[str, Peer] = {}
        self._turn = 0

    def meet(self, peer_id: str, now: float, *, serves: bool) -> None:
        """Somebody is there."""
        peer = self._known.setdefault(peer_id, Peer(peer_id, 0.0, serves))
        peer.until, peer.serves = now + INTEREST_SECONDS, serves

    def forget(self, peer_id: str) -> None:
        """Somebody isn't there any more, until it says that it is."""
        self._known.pop(peer_id, None)

    def next_server(self, now: float) -> str | None:
        """One of those who serve, each in turn; None if none is known."""
        peer = self._next(self._serving(now))
        return None if peer is None else peer.id

    def next_to_begin(self, now: float) -> Peer | None:
        """One of those who serve that may be asked to begin a run."""
        return self._next([p for p in self._serving(now) if p.asked < ASKED_AT_ONCE and p.shy_until <= now])

    def refused(self, peer: Peer, now: float) -> None:
        """One that was asked to begin a run won't."""
        peer.shy_until = now + SHY_SECONDS

    def _serving(self, now: float) -> list[Peer]:
        self._known = {peer_id: peer for peer_id, peer in self._known.items() if peer.until >= now}
        return [peer for peer in self._known.values() if peer.serves]

    def _next(self, peers: list[Peer]) -> Peer | None:
        self._turn += 1
        return peers[self._turn % len(peers)] if peers else None
