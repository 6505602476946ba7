"""The pieces of an answer: calls whose arguments come bit by bit, and texts that may be cut anywhere."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import Struct, field

from ..types.content import clean_text
from ..types.ids import new_id

__all__ = ["OpenCall", "cleaned", "object_of", "paired", "unfit"]

object_of = msgspec.json.Decoder(dict[str, Any]).decode


class OpenCall(Struct, eq=False, gc=False):
    """A call in the making."""

    name: str
    vendor_id: str | None
    id: str = field(default_factory=new_id)
    pieces: list[str] = []
    size: int = 0
    half: str = ""
    # How much of the arguments is in the checkpoints.
    saved: int = 0

    @property
    def text(self) -> str:
        """All that came of the arguments."""
        return "".join([*self.pieces, clean_text(self.half)])

    def arguments(self) -> dict[str, Any] | None:
        """The arguments, if they are whole: an object that is closed can't grow any more."""
        try:
            found = msgspec.json.decode(self.text)
        except (msgspec.DecodeError, RecursionError, TypeError):
            return None
        return cast(dict[str, Any], found) if isinstance(found, dict) else None


def paired(half: str, text: str) -> tuple[str, str]:
    """What can be shown of a text that goes on from `half`, and the half of a surrogate pair that its end may be:
    whoever counts in UTF-16 may cut a character in two."""
    text = half + text
    cut = len(text) - 1 if "\ud800" <= text[-1:] <= "\udbff" else len(text)
    return clean_text(text[:cut]), text[cut:]


def cleaned(text: str | None) -> str | None:
    return None if text is None else clean_text(text)


def unfit(arguments: Any) -> str | None:
    """What is wrong with the arguments of a whole call: they must be an object that a store can keep."""
    if not isinstance(arguments, dict):
        return f"arguments must be an object, not {arguments!r:.200}"
    try:
        msgspec.json.encode(arguments)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return f"arguments are not valid JSON ({error})"
    return None
