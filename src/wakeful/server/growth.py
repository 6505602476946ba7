"""Texts that grow in front of a reader: what of an answer a protocol has sent, and what is missing."""

from __future__ import annotations

__all__ = ["Grown", "Rewritten"]


class Rewritten(Exception):
    """A text began again with another beginning than the reader was sent."""


class Grown:
    """A text as one reader has been sent it.

    Deltas of a second attempt at an answer, and deltas that the reader has already, add nothing as long as they
    agree with what was sent.
    """

    __slots__ = ("_pieces", "size")

    def __init__(self, text: str = "") -> None:
        self._pieces = [text] if text else []
        self.size = len(text)

    @property
    def text(self) -> str:
        """All that was sent."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def add(self, offset: int, delta: str) -> str:
        """The part of a delta that is new. After a gap it is empty: the complete text has what is missing.

        Raises `Rewritten` if the delta disagrees with what was sent; the text then ends where it does.
        """
        if offset == self.size:
            self._pieces.append(delta)
            self.size += len(delta)
            return delta
        if offset > self.size:
            return ""
        sent = self.text[offset : offset + len(delta)]
        if not delta.startswith(sent):
            self._cut(offset + _agreed(sent, delta))
            raise Rewritten
        return self._append(delta[len(sent) :])

    def complete(self, text: str) -> str:
        """The part of the complete text that is new; raises `Rewritten` as `add` does."""
        sent = self.text
        if not text.startswith(sent):
            self._cut(_agreed(sent, text))
            raise Rewritten
        return self._append(text[len(sent) :])

    def _append(self, new: str) -> str:
        if new:
            self._pieces.append(new)
            self.size += len(new)
        return new

    def _cut(self, size: int) -> None:
        self._pieces = [self.text[:size]]
        self.size = size


def _agreed(sent: str, text: str) -> int:
    """How many characters two texts begin with in common."""
    differing = (place for place, (one, other) in enumerate(zip(sent, text, strict=False)) if one != other)
    return next(differing, min(len(sent), len(text)))
