"""The contract of a bus between processes. A bus carries hints: losing one only costs time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..types.base import Data
from ..types.events import Event

__all__ = [
    "INTEREST_SECONDS",
    "Bus",
    "Link",
    "Listener",
    "LiveUpdate",
    "LogAdvanced",
    "StreamAdvanced",
    "Update",
    "Wake",
]

# How long a member's interest in a thread counts. Links renew it several times within that period.
INTEREST_SECONDS = 15.0


class Wake(Data, omit_defaults=True):
    """A thread is due. `agent_id` is the agent of the run, if the sender knows it."""

    tenant: str
    thread_id: str
    agent_id: str = ""


class LogAdvanced(Data, tag="log"):
    """The log of a thread has new entries in the store: those after `after`, up to `head`."""

    thread_id: str
    after: int
    head: int


class StreamAdvanced(Data, tag="stream"):
    """The stream checkpoints of a thread have a longer part of the current answer."""

    thread_id: str


class LiveUpdate(Data, tag="live"):
    """A live event, which isn't in the log."""

    event: Event


Update = LogAdvanced | StreamAdvanced | LiveUpdate


class Listener(Protocol):
    """The callbacks of a member. They neither block nor raise."""

    def on_wake(self, wake: Wake) -> bool:
        """Handle a due thread. Returns False if this process doesn't run it, so that another one may."""
        ...

    async def on_inbox(self, tenant: str, thread_id: str) -> bool:
        """Handle new inbox items. Returns True once the run has read them, False if it doesn't run here."""
        ...

    async def on_start(self, sealed: bytes) -> bytes:
        """Start a run for another process. Returns the proof that it started; empty if it didn't and won't."""
        ...

    def on_watch(self, tenant: str, thread_id: str, seconds: float) -> None:
        """Note that another process watches a thread for the next `seconds`."""
        ...

    def on_updates(self, tenant: str, thread_id: str, updates: Sequence[Update]) -> None:
        """Handle updates of a watched thread and the threads below it, in order."""
        ...


class Link(Protocol):
    """A member's connection to a bus. No method raises.

    `notify_owner`, `request_start` and `close` wait for the network.
    """

    carries_deltas: bool
    """Whether the bus carries live events. Otherwise readers follow the stream checkpoints."""

    @property
    def is_healthy(self) -> bool:
        """Whether the connection works, as far as is known."""
        ...

    def serve(self) -> None:
        """Start to receive wake-ups."""
        ...

    def wake(self, wake: Wake) -> None:
        """Tell one serving member that a thread is due. Merges wake-ups of a thread that aren't sent yet."""
        ...

    async def notify_owner(self, owner: str, tenant: str, thread_id: str) -> bool:
        """Ask a thread's owner to read its inbox. Returns whether it confirmed that within a second."""
        ...

    async def request_start(self, sealed: bytes) -> bytes:
        """Ask a serving member to start a run. Returns its proof.

        The proof is empty if no member serves, if the member refused, or if it didn't reply in time.
        """
        ...

    def watch(self, tenant: str, thread_id: str) -> None:
        """Receive a thread's updates until `unwatch`; each call needs an `unwatch` of its own."""
        ...

    def unwatch(self, tenant: str, thread_id: str) -> None:
        """Undo one `watch`."""
        ...

    def publish(self, tenant: str, thread_id: str, updates: Sequence[Update]) -> None:
        """Send updates to the members that watch a thread."""
        ...

    async def close(self) -> None:
        """Leave the bus."""
        ...


class Bus(Protocol):
    """Hints between the processes on a store: wake-ups, live commands, live events."""

    def join(self, member_id: str, listener: Listener) -> Link:
        """Join on the running event loop. `member_id` is the id that the process claims threads with."""
        ...
