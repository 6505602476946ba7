"""The contract of a bus between processes: it carries hints, and losing one only costs time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from ..types.events import Event

__all__ = ["INTEREST_SECONDS", "Bus", "Grown", "Link", "Listener", "Moved", "News", "Shown", "Wake"]

# How long somebody's interest in a thread counts unless it is renewed. Links renew it several times meanwhile.
INTEREST_SECONDS = 15.0


class Wake(Struct, frozen=True, gc=False, omit_defaults=True):
    """A thread is due; `agent_id` is the agent that is to run there, if the sender knows it."""

    tenant: str
    thread_id: str
    agent_id: str = ""


class Moved(Struct, frozen=True, gc=False, tag="moved"):
    """A thread's log went on, from behind `after` up to `head`: the store has it."""

    thread_id: str
    after: int
    head: int


class Grown(Struct, frozen=True, gc=False, tag="grown"):
    """An answer is being streamed on a thread: its stream checkpoints have it."""

    thread_id: str


class Shown(Struct, frozen=True, gc=False, tag="shown"):
    """An event that isn't in the log."""

    event: Event


News = Moved | Grown | Shown


class Listener(Protocol):
    """What a process does with the hints it gets. None of this may block, or raise."""

    def woken(self, wake: Wake) -> bool:
        """A thread is due. False if this process won't run it, so that another one may."""
        ...

    async def told(self, tenant: str, thread_id: str) -> bool:
        """A thread's inbox has something new. True once the run has heard, False if it doesn't run here."""
        ...

    async def asked(self, sealed: bytes) -> bytes:
        """Somebody elsewhere has a run to begin. The proof of it once it has begun, nothing if it hasn't and
        won't."""
        ...

    def watched(self, tenant: str, thread_id: str, seconds: float) -> None:
        """Somebody elsewhere watches a thread, and will for so long unless this is said again."""
        ...

    def heard(self, tenant: str, thread_id: str, news: Sequence[News]) -> None:
        """What happens on a thread that this process watches, or below it, in the order it happened."""
        ...


class Link(Protocol):
    """One process's end of a bus. Nothing here raises; `tell`, `begin` and `close` wait for the network."""

    deltas: bool
    """Whether live events get through. Where they don't, readers follow the stream checkpoints."""

    @property
    def healthy(self) -> bool:
        """Whether hints get through at present, as far as is known."""
        ...

    def serve(self) -> None:
        """Get wake-ups from now on."""
        ...

    def wake(self, wake: Wake) -> None:
        """Say that a thread is due, to one of those that serve. Saying it twice before it is sent says it once."""
        ...

    async def tell(self, owner: str, tenant: str, thread_id: str) -> bool:
        """Ask a thread's owner to look into its inbox; whether it has. False if that isn't known in a second."""
        ...

    async def begin(self, sealed: bytes) -> bytes:
        """Ask one of those that serve to begin a run; its proof that it has. Nothing if nobody is known to serve,
        or it isn't known in time whether somebody has."""
        ...

    def watch(self, tenant: str, thread_id: str) -> None:
        """Get what happens on a thread from now on; interest is renewed until `leave`, once for each `watch`."""
        ...

    def leave(self, tenant: str, thread_id: str) -> None:
        """Stop watching."""
        ...

    def show(self, tenant: str, thread_id: str, news: Sequence[News]) -> None:
        """Tell everybody who watches a thread what happens there."""
        ...

    async def close(self) -> None:
        """Leave the bus."""
        ...


class Bus(Protocol):
    """Hints between the processes that share a store: wake-ups, live commands, live events."""

    def join(self, member_id: str, listener: Listener) -> Link:
        """Take part, on the running event loop. The id is the one that claims are made with."""
        ...
