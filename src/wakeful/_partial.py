"""An answer that another process is streaming, as its stream checkpoints show it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .stores import Chunk
from .types.events import AnyEvent, ReasoningDelta, StreamReset, TextDelta, ToolCallDelta
from .types.runs import Identity

__all__ = ["PartialAnswer"]


class PartialAnswer:
    """What one reader was shown of it so far."""

    def __init__(self) -> None:
        self.run: Identity | None = None
        self._answer: tuple[str, int] | None = None
        self._shown: dict[tuple[str, str | None], int] = {}

    def grown(self, chunks: Sequence[Chunk], seq: int, now: int) -> Iterator[AnyEvent]:
        """The deltas that came since, and a reset if the answer was begun anew."""
        run = self.run
        if run is None or not chunks:
            return
        answer = (chunks[-1].message_id, chunks[-1].attempt)
        if self._answer is not None and self._answer != answer:
            yield StreamReset(run, seq, now, *self._answer, "the answer was begun anew")
            self._shown = {}
        self._answer = answer
        for chunk in chunks:
            place = (chunk.kind, chunk.call_id)
            if (chunk.message_id, chunk.attempt) != answer or chunk.offset < self._shown.get(place, 0):
                continue
            self._shown[place] = chunk.offset + len(chunk.delta)
            at = (run, seq, now, chunk.message_id, chunk.attempt, chunk.offset)
            if chunk.kind == "text":
                yield TextDelta(*at, chunk.delta)
            elif chunk.kind == "reasoning":
                yield ReasoningDelta(*at, chunk.delta)
            else:
                yield ToolCallDelta(*at, chunk.call_id or "", chunk.delta)
