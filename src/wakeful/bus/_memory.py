"""A bus inside one process: for several runtimes in it, and for tests."""

from __future__ import annotations

from collections.abc import Sequence

from ._link import Everybody, Member, Parcel, Queue, Thread, WireLink
from ._protocol import Listener
from ._wire import Key

__all__ = ["MemoryBus"]


class MemoryBus:
    """Carries hints between the runtimes that are given this object, on one event loop or on several."""

    def __init__(self) -> None:
        self.links: dict[str, _MemoryLink] = {}

    def join(self, member_id: str, listener: Listener) -> _MemoryLink:
        """Take part, on the running event loop."""
        return _MemoryLink(self, member_id, listener)


class _MemoryLink(WireLink):
    def __init__(self, bus: MemoryBus, member_id: str, listener: Listener) -> None:
        self._bus = bus
        self._heeds: set[Key] = set()
        super().__init__("local", member_id, listener)

    async def connect(self) -> None:
        """Take part."""
        self._bus.links[self.member_id] = self

    async def disconnect(self) -> None:
        """Take part no more."""
        self._bus.links.pop(self.member_id, None)
        self._heeds.clear()

    async def send(self, parcels: Sequence[Parcel]) -> None:
        """Give each to those it goes to."""
        for parcel in parcels:
            for link in self._readers(parcel):
                link.arrive(parcel.body)

    def _readers(self, parcel: Parcel) -> list[_MemoryLink]:
        links = list(self._bus.links.values())
        match parcel.to:
            case Everybody():
                return links
            case Member(id=member_id):
                return [link for link in links if link.member_id == member_id]
            case Thread(tenant=tenant, thread_id=thread_id):
                return [link for link in links if (tenant, thread_id) in link._heeds]
            case Queue():
                chosen = self.next_server()
                return links if chosen is None else [link for link in links if link.member_id == chosen]

    def arrive(self, body: bytes) -> None:
        """Take a letter in on this link's own loop."""
        try:
            self._loop.call_soon_threadsafe(self.receive, body)
        except RuntimeError:
            pass  # Its loop was closed without it.

    async def listen(self, tenant: str, thread_id: str) -> None:
        """Get what goes to those who watch a thread."""
        self._heeds.add((tenant, thread_id))

    async def unlisten(self, tenant: str, thread_id: str) -> None:
        """Get it no more."""
        self._heeds.discard((tenant, thread_id))
