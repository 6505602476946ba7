"""What reads a vendor's answer, event by event: the base of each vendor's own reader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import ContentFiltered, StreamBroken
from ._faults import broken
from ._protocol import Chunk

__all__ = ["Reader"]


class Reader:
    """Reads one answer. `begun` is True once the vendor has begun to answer, `whole` once it has said why it
    stopped: then nothing that follows, or doesn't, takes anything from the answer."""

    __slots__ = ("begun", "model", "request_id", "whole")

    def __init__(self, model: str) -> None:
        self.model = model
        self.begun = False
        self.whole = False
        self.request_id: str | None = None

    def read(self, event: Any) -> Iterable[Chunk]:
        """The chunks that an event is."""
        raise NotImplementedError

    def end(self) -> Iterable[Chunk]:
        """What is left to say when the stream has ended; raises if the answer isn't whole."""
        if not self.whole:
            raise self.broken("it ended before the vendor said why it stopped")
        return ()

    def broken(self, why: str) -> StreamBroken:
        """The error for an answer whose pieces make no sense."""
        return broken(self.model, why, request_id=self.request_id)

    def filtered(self, why: str) -> ContentFiltered:
        """The error for what the vendor's filter stopped."""
        said = f"{self.model}: the vendor's filter {why}"
        return ContentFiltered(said, status=200, request_id=self.request_id)
