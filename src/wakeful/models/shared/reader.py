"""The base of the readers that convert a vendor's events to chunks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...errors import ContentFiltered, StreamBroken
from ..protocol import Chunk
from .faults import stream_broken

__all__ = ["Reader"]


class Reader:
    """Reads one answer.

    `has_started` is set with the first response, `is_complete` once the vendor said why it stopped. After that a
    broken stream doesn't affect the answer.
    """

    __slots__ = ("has_started", "is_complete", "model", "request_id")

    def __init__(self, model: str) -> None:
        self.model = model
        self.has_started = False
        self.is_complete = False
        self.request_id: str | None = None

    def is_answer(self, body: Mapping[str, Any]) -> bool:
        """Whether a JSON body is a whole answer, from a server that doesn't stream; `read` converts it."""
        return False

    def read(self, event: Any) -> Iterable[Chunk]:
        """Convert an event to chunks."""
        raise NotImplementedError

    def end(self) -> Iterable[Chunk]:
        """Finish the answer at the end of the stream; raises `StreamBroken` if it is incomplete."""
        if not self.is_complete:
            raise self.broken("it ended before the vendor said why it stopped")
        return ()

    def broken(self, why: str) -> StreamBroken:
        """Build the error for an incomplete or malformed answer."""
        return stream_broken(self.model, why, request_id=self.request_id)

    def empty(self, reason: str) -> StreamBroken:
        """Build the error for an answer without content that didn't end as an empty answer may."""
        return self.broken(f"it has no content, and the vendor stopped it for the reason {reason!r:.80}")

    def filtered(self, why: str) -> ContentFiltered:
        """Build the error for an answer that the vendor's filter stopped."""
        message = f"{self.model}: the vendor's filter {why}"
        return ContentFiltered(message, status=200, request_id=self.request_id)
