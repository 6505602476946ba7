"""An answer that another process streams, from the bus and from its stream checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from msgspec.structs import replace

from ..stores import Chunk
from ..types.events import (
    AnyEvent,
    Delta,
    MessageAdded,
    ReasoningDelta,
    RunStart,
    StepStart,
    StreamReset,
    TextDelta,
    ToolCallDelta,
)
from ..types.runs import Identity

__all__ = ["PartialAnswer"]

MAX_EARLY = 4096

_Piece = TextDelta | ReasoningDelta | ToolCallDelta


class PartialAnswer:
    """One reader's position in a streamed answer: yields every piece once, in order, without gaps.

    A piece that arrives early, because the one before it was lost or sent before the reader came, is kept until a
    checkpoint fills the gap.
    """

    def __init__(self, left_at: tuple[int, int] | None = None) -> None:
        # The attempt and the text offset of the reader, until the answer continues there. Offset 0: the reader may
        # have pieces that can't be continued, so a reset comes before the next one.
        self.left_at = left_at
        self.run: Identity | None = None
        self._answer: tuple[str, int] | None = None
        self._seq = 0
        self._shown: dict[tuple[str, str | None], int] = {}
        self._early: list[_Piece] = []
        self._withdrawn = False
        # The last text that this process yielded, until it is recorded.
        self._newest: TextDelta | None = None

    @property
    def waits(self) -> bool:
        """Whether early pieces wait for a gap to be filled."""
        return bool(self._early)

    def committed(self, event: AnyEvent) -> None:
        """Record a log entry: an answer in the log is no longer streamed, and an activation streams its own."""
        self._catch_up()
        self.run = event.run
        match event:
            case StepStart():
                self.left_at = None
            case MessageAdded(message=message) if message.role == "assistant":
                self.left_at = None
                if self._answer is not None and message.id == self._answer[0]:
                    self._answer = None
            case RunStart() if self.left_at is not None:
                self.left_at = (self.left_at[0], 0)
            case RunStart() if self._answer is not None and self._has_pieces():
                self.left_at = (self._answer[1], 0)
            case _:
                pass

    def grown(self, chunks: Sequence[Chunk], seq: int, now: int) -> Iterator[AnyEvent]:
        """The pieces in checkpoints that the reader lacks, after a reset if the answer restarted."""
        self._catch_up()
        run = self.run
        if run is None or not chunks:
            return
        answer = (chunks[-1].message_id, chunks[-1].attempt)
        if self.left_at is not None:
            yield from self._return(answer, chunks, run, seq, now)
        if self.left_at is not None:
            return
        yield from self._turn_to(answer, self._answer is None or answer > self._answer, run, seq, now)
        for chunk in chunks:
            if (chunk.message_id, chunk.attempt) == self._answer and chunk.kind != "part":
                yield from self._show(_piece(chunk, run, seq, now))
        yield from self._again()

    def take(self, piece: Delta) -> Iterator[AnyEvent]:
        """The pieces that can be yielded after this one arrived."""
        self._catch_up()
        answer = (piece.message_id, piece.attempt)
        if self.left_at is not None:
            if piece.offset:
                self._keep(cast(_Piece, piece))
                return
            yield self._reset(answer, piece.run, piece.seq, piece.at)
        newer = self._answer is None or (piece.seq, *answer) > (self._seq, *self._answer)
        yield from self._turn_to(answer, newer, piece.run, piece.seq, piece.at)
        self._seq = max(self._seq, piece.seq)
        if answer == self._answer:
            yield from self._show(cast(_Piece, piece))

    def withdraw(self, reset: StreamReset) -> Iterator[AnyEvent]:
        """Withdraw the pieces of an attempt."""
        answer = (reset.message_id, reset.attempt)
        self._catch_up()
        if self.left_at is not None or self._answer is None or (answer >= self._answer and not self._withdrawn):
            self.withdrawn(reset)
            yield reset

    def withdrawn(self, reset: StreamReset) -> None:
        """Record a yielded reset."""
        self._catch_up()
        self._begin((reset.message_id, reset.attempt))
        self.left_at, self._withdrawn = None, True

    def lacks_before(self, piece: Delta) -> bool:
        """Whether the reader lacks pieces of this process before this one."""
        newest = self._newest
        if newest is not None and _continues(newest, piece):
            return piece.offset > newest.offset + len(newest.delta)
        self._catch_up()
        is_new = self.left_at is not None or self._answer != (piece.message_id, piece.attempt)
        return piece.offset > (0 if is_new else self._shown.get(_piece_key(cast(_Piece, piece)), 0))

    def seen(self, piece: Delta) -> StreamReset | None:
        """Record a yielded piece of this process; text lazily, as it comes in many pieces.

        Returns a reset to yield first, if one is needed.
        """
        newest = self._newest
        if newest is not None and _continues(newest, piece):
            self._newest = cast(TextDelta, piece)
            return None
        self._catch_up()
        reset, answer = None, (piece.message_id, piece.attempt)
        if self.left_at is not None or (self._answer not in (None, answer) and self._has_pieces()):
            reset = self._reset(answer, piece.run, piece.seq, piece.at)
        if type(piece) is TextDelta:
            self._newest = piece
        else:
            self._note(cast(_Piece, piece))
        return reset

    def _catch_up(self) -> None:
        piece, self._newest = self._newest, None
        if piece is not None:
            self._note(piece)

    def _note(self, piece: _Piece) -> None:
        if (piece.message_id, piece.attempt) != self._answer:
            self._begin((piece.message_id, piece.attempt))
        self._seq = piece.seq
        self._shown[_piece_key(piece)] = piece.offset + len(piece.delta)

    def _turn_to(
        self, answer: tuple[str, int], newer: bool, run: Identity, seq: int, at: int
    ) -> Iterator[AnyEvent]:
        if not newer or answer == self._answer:
            return
        if self._answer is not None and self._has_pieces():
            yield StreamReset(run, seq, at, *self._answer, "the answer was begun anew")
        self._begin(answer)

    def _return(
        self, answer: tuple[str, int], chunks: Sequence[Chunk], run: Identity, seq: int, now: int
    ) -> Iterator[AnyEvent]:
        """Continue at the reader's position, once the checkpoints reach it. An answer of more than text, or a
        restarted one, is yielded from its beginning: the cursor doesn't say which pieces of it the reader has."""
        attempt, offset = self.left_at or (0, 0)
        is_same = attempt == answer[1] and offset > 0 and all(chunk.kind == "text" for chunk in chunks)
        if is_same and chunks[-1].offset + len(chunks[-1].delta) < offset:
            return
        early = [piece for piece in self._early if (piece.message_id, piece.attempt) == answer]
        if is_same:
            self._begin(answer)
            self._shown[TextDelta.__name__, None] = offset
            self.left_at = None
        else:
            yield self._reset(answer, run, seq, now)
        self._early = early

    def _has_pieces(self) -> bool:
        """Whether the reader has pieces of an answer that weren't withdrawn."""
        return bool(self._shown) and not self._withdrawn

    def _reset(self, answer: tuple[str, int], run: Identity, seq: int, at: int) -> StreamReset:
        """Begin an answer with a reset of the pieces that the reader has."""
        attempt = 0 if self.left_at is None else self.left_at[0]
        withdrawn = self._answer or (answer[0], attempt)
        self._begin(answer)
        self.left_at = None
        return StreamReset(run, seq, at, *withdrawn, "the answer is shown from its beginning")

    def _begin(self, answer: tuple[str, int]) -> None:
        self._answer, self._shown, self._early, self._withdrawn = answer, {}, [], False

    def _show(self, piece: _Piece) -> Iterator[AnyEvent]:
        place = _piece_key(piece)
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


def _continues(newest: TextDelta, piece: Delta) -> bool:
    is_same = newest.message_id == piece.message_id and newest.attempt == piece.attempt
    return is_same and type(piece) is TextDelta


def _piece_key(piece: _Piece) -> tuple[str, str | None]:
    return type(piece).__name__, piece.call_id if isinstance(piece, ToolCallDelta) else None


def _piece(chunk: Chunk, run: Identity, seq: int, now: int) -> _Piece:
    at = (run, seq, now, chunk.message_id, chunk.attempt, chunk.offset)
    if chunk.kind == "text":
        return TextDelta(*at, chunk.delta)
    if chunk.kind == "reasoning":
        return ReasoningDelta(*at, chunk.delta)
    return ToolCallDelta(*at, chunk.delta, chunk.call_id or "")
