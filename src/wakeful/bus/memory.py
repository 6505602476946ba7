"""A bus inside one process, for several runtimes in it and for tests."""

from __future__ import annotations

from collections.abc import Sequence

from .envelopes import AllMembers, Envelope, Member, Watchers, WorkQueue
from .link import WireLink
from .protocol import Listener
from .wire import Key

__all__ = ["MemoryBus"]


class MemoryBus:
    """Connects the runtimes that share this object, on one event loop or on several."""

    def __init__(self) -> None:
        self.links: dict[str, _MemoryLink] = {}

    def join(self, member_id: str, listener: Listener) -> _MemoryLink:
        """Join on the running event loop."""
        return _MemoryLink(self, member_id, listener)


class _MemoryLink(WireLink):
    def __init__(self, bus: MemoryBus, member_id: str, listener: Listener) -> None:
        self._bus = bus
        self._threads: set[Key] = set()
        super().__init__("local", member_id, listener)

    async def connect(self) -> None:
        """Register with the bus."""
        self._bus.links[self.member_id] = self

    async def disconnect(self) -> None:
        """Unregister from the bus."""
        self._bus.links.pop(self.member_id, None)
        self._threads.clear()

    async def send(self, envelopes: Sequence[Envelope]) -> None:
        """Pass each envelope to its recipients."""
        for envelope in envelopes:
            for link in self._recipients(envelope):
                link.deliver(envelope.body)

    def _recipients(self, envelope: Envelope) -> list[_MemoryLink]:
        links = list(self._bus.links.values())
        match envelope.to:
            case AllMembers():
                return links
            case Member(id=member_id):
                return [link for link in links if link.member_id == member_id]
            case Watchers(tenant=tenant, thread_id=thread_id):
                return [link for link in links if (tenant, thread_id) in link._threads]
            case WorkQueue():
                chosen = self.next_server()
                return links if chosen is None else [link for link in links if link.member_id == chosen]

    def deliver(self, body: bytes) -> None:
        """Schedule `receive` on this link's event loop."""
        try:
            self._loop.call_soon_threadsafe(self.receive, body)
        except RuntimeError:
            pass  # The loop was closed before the link.

    async def subscribe(self, tenant: str, thread_id: str) -> None:
        """Subscribe to the updates of a thread."""
        self._threads.add((tenant, thread_id))

    async def unsubscribe(self, tenant: str, thread_id: str) -> None:
        """Unsubscribe from the updates of a thread."""
        self._threads.discard((tenant, thread_id))
