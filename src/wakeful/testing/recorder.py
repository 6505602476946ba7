"""A recorder of events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

from ..types.events import AnyEvent, Event, TextDelta

__all__ = ["Recorder"]

E = TypeVar("E", bound=Event)


class Recorder:
    """Collects the events of a stream: `await Recorder().record(runtime.stream(...))`."""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []

    async def record(self, events: AsyncIterator[AnyEvent]) -> Recorder:
        """Read a stream to its end; returns this recorder."""
        async for event in events:
            self.events.append(event)
        return self

    @property
    def types(self) -> list[str]:
        """The types of the events, in order."""
        return [event.type for event in self.events]

    def of(self, kind: type[E]) -> list[E]:
        """The events of one class."""
        return [event for event in self.events if isinstance(event, kind)]

    def one(self, kind: type[E]) -> E:
        """The only event of a class; AssertionError if there are none or several."""
        found = self.of(kind)
        if len(found) != 1:
            raise AssertionError(f"expected one {kind.__name__} event, found {len(found)} among {self.types}")
        return found[0]

    @property
    def text(self) -> str:
        """The streamed text."""
        return "".join(event.delta for event in self.of(TextDelta))
