"""An answer that another process is streaming, as the bus and its stream checkpoints show it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from msgspec.structs import replace

from .stores import Chunk
from .types.events import (
    AnyEvent,
    Delta,
    MessageAdded,
    ReasoningDelta,
    StepStart,
    StreamReset,
    TextDelta,
    ToolCallDelta,
)
from .types.runs import Identity

__all__ = ["PartialAnswer"]

MAX_EARLY = 4096

_Piece = TextDelta | ReasoningDelta | ToolCallDelta


class PartialAnswer:
    """What one reader was shown of it so far: every piece once, in order, and none that would leave a gap.

    What comes too early, because something before it was lost or came before the reader, is kept until a
    checkpoint has what is missing.
    """

    def __init__(self, left_at: tuple[int, int] | None = None) -> None:
        # The attempt and how much of it was shown, if the reader left in the middle of an answer.
        self.left_at = left_at
        self.run: Identity | None = None
        self._answer: tuple[str, int] | None = None
        self._seq = 0
        self._shown: dict[tuple[str, str | None], int] = {}
        self._early: list[_Piece] = []
        self._withdrawn = False
        # The last text that the reader was shown by its own process, if it isn't taken note of yet.
        self._newest: TextDelta | None = None

    @property
    def waits(self) -> bool:
        """Whether something came that can't be shown before what is missing."""
        return bool(self._early)

    def committed(self, event: AnyEvent) -> None:
        """Take note of what the log shows: an answer that is in there is no longer streamed."""
        self._catch_up()
        self.run = event.run
        if isinstance(event, MessageAdded | StepStart):
            self.left_at = None
        if isinstance(event, MessageAdded) and self._answer is not None and event.message.id == self._answer[0]:
            self._answer = None

    def grown(self, chunks: Sequence[Chunk], seq: int, now: int) -> Iterator[AnyEvent]:
        """What the checkpoints have that wasn't shown, and a reset if the answer was begun anew."""
        self._catch_up()
        run = self.run
        if run is None or not chunks:
            return
        answer = (chunks[-1].message_id, chunks[-1].attempt)
        if self.left_at is not None:
            yield from self._return(answer, chunks, run, seq, now)
        yield from self._turn_to(answer, self._answer is None or answer > self._answer, run, seq, now)
        for chunk in chunks:
            if (chunk.message_id, chunk.attempt) == self._answer and chunk.kind != "part":
                yield from self._show(_piece(chunk, run, seq, now))
        yield from self._again()

    def take(self, piece: Delta) -> Iterator[AnyEvent]:
        """What can be shown of the answer now that this piece came."""
        self._catch_up()
        if self.left_at is not None:
            if piece.offset:
                self._keep(cast(_Piece, piece))
                return
            yield self._reset(piece.run, piece.seq, piece.at, piece.message_id)
        answer = (piece.message_id, piece.attempt)
        newer = self._answer is None or (piece.seq, *answer) > (self._seq, *self._answer)
        yield from self._turn_to(answer, newer, piece.run, piece.seq, piece.at)
        self._seq = max(self._seq, piece.seq)
        if answer == self._answer:
            yield from self._show(cast(_Piece, piece))

    def withdraw(self, reset: StreamReset) -> Iterator[AnyEvent]:
        """Hear that what was shown of an attempt counts no more."""
        self._catch_up()
        self.left_at = None
        answer = (reset.message_id, reset.attempt)
        if self._answer is None or (answer >= self._answer and not self._withdrawn):
            self._begin(answer)
            self._withdrawn = True
            yield reset

    def seen(self, piece: Delta) -> StreamReset | None:
        """Take note of what the reader was shown by its own process; of text, which comes in many pieces, once
        somebody asks or something else comes. Gives what it has to be shown before that."""
        reset = None
        if self.left_at is not None:
            reset = self._reset(piece.run, piece.seq, piece.at, piece.message_id)
        if type(piece) is not TextDelta:
            self._catch_up()
            self._note(cast(_Piece, piece))
            return reset
        newest, self._newest = self._newest, piece
        if newest is not None and (newest.message_id, newest.attempt) != (piece.message_id, piece.attempt):
            self._note(newest)
        return reset

    def _catch_up(self) -> None:
        piece, self._newest = self._newest, None
        if piece is not None:
            self._note(piece)

    def _note(self, piece: _Piece) -> None:
        if (piece.message_id, piece.attempt) != self._answer:
            self._begin((piece.message_id, piece.attempt))
        self._seq = piece.seq
        self._shown[_place(piece)] = piece.offset + len(piece.delta)

    def _turn_to(
        self, answer: tuple[str, int], newer: bool, run: Identity, seq: int, at: int
    ) -> Iterator[AnyEvent]:
        if not newer or answer == self._answer:
            return
        if self._answer is not None and not self._withdrawn and self._shown:
            yield StreamReset(run, seq, at, *self._answer, "the answer was begun anew")
        self._begin(answer)

    def _return(
        self, answer: tuple[str, int], chunks: Sequence[Chunk], run: Identity, seq: int, now: int
    ) -> Iterator[AnyEvent]:
        """Go on where the reader left. Of an answer that is more than text, or was begun anew, it can't be said
        what it saw: all of it is shown again."""
        attempt, offset = self.left_at or (0, 0)
        early = self._early
        self._begin(answer)
        self._early = early
        if attempt == answer[1] and all(chunk.kind == "text" for chunk in chunks):
            self._shown[TextDelta.__name__, None] = offset
            self.left_at = None
        else:
            yield self._reset(run, seq, now, answer[0])

    def _reset(self, run: Identity, seq: int, at: int, message_id: str) -> StreamReset:
        """Say that what the reader saw before it left doesn't count."""
        (attempt, _), self.left_at = self.left_at or (0, 0), None
        return StreamReset(run, seq, at, message_id, attempt, "the answer is shown from its beginning")

    def _begin(self, answer: tuple[str, int]) -> None:
        self._answer, self._shown, self._early, self._withdrawn = answer, {}, [], False

    def _show(self, piece: _Piece) -> Iterator[AnyEvent]:
        place = _place(piece)
        shown = self._shown.get(place, 0)
        if piece.offset > shown:
            self._keep(piece)
        elif piece.offset + len(piece.delta) > shown:
            self._shown[place] = piece.offset + len(piece.delta)
            left = piece.delta[shown - piece.offset :]
            yield piece if piece.offset == shown else replace(piece, offset=shown, delta=left)

    def _keep(self, piece: _Piece) -> None:
        if len(self._early) < MAX_EARLY:
            self._early.append(piece)

    def _again(self) -> Iterator[AnyEvent]:
        early, self._early = self._early, []
        for piece in early:
            yield from self._show(piece)


def _place(piece: _Piece) -> tuple[str, str | None]:
    return type(piece).__name__, piece.call_id if isinstance(piece, ToolCallDelta) else None


def _piece(chunk: Chunk, run: Identity, seq: int, now: int) -> _Piece:
    at = (run, seq, now, chunk.message_id, chunk.attempt, chunk.offset)
    if chunk.kind == "text":
        return TextDelta(*at, chunk.delta)
    if chunk.kind == "reasoning":
        return ReasoningDelta(*at, chunk.delta)
    return ToolCallDelta(*at, chunk.delta, chunk.call_id or "")
