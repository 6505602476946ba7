"""Collecting events, and looking at them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

from ..types.events import AnyEvent, Event, TextDelta

__all__ = ["Recorder"]

E = TypeVar("E", bound=Event)


class Recorder:
    """Keeps the events it is given: `await Recorder().record(runtime.stream(...))`."""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []

    async def record(self, events: AsyncIterator[AnyEvent]) -> Recorder:
        """Read a stream to its end."""
        async for event in events:
            self.events.append(event)
        return self

    @property
    def types(self) -> list[str]:
        """The events' names, in order."""
        return [event.type for event in self.events]

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def one(self, kind: type[E]) -> E:
        """The only event of this kind."""
        found = self.of(kind)
        if len(found) != 1:
            raise AssertionError(f"{len(found)} {kind.__name__} events, not one, among {self.types}")
        return found[0]

    @property
    def text(self) -> str:
        """The streamed text, joined."""
        return "".join(event.delta for event in self.of(TextDelta))
