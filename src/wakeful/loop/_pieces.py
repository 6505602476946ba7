"""The pieces of an answer: calls whose arguments come bit by bit, and texts that may be cut anywhere."""

from __future__ import annotations

from typing import Any, cast, get_args

import msgspec
from msgspec import Struct, field

from ..errors import ModelError
from ..types.content import Part, Text, clean_text, part_problem
from ..types.ids import new_id
from ..types.runs import Usage

__all__ = ["OpenCall", "cleaned", "kept_part", "kept_usage", "object_of", "paired", "unfit"]

object_of = msgspec.json.Decoder(dict[str, Any]).decode
_PARTS = get_args(Part)


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


def kept_part(part: Part) -> Part:
    """A part as it can be kept; one that couldn't be read again is refused, or nobody could read the thread."""
    if type(part) is Text:
        return Text(clean_text(part.text))
    problem = part_problem(part) if isinstance(part, _PARTS) else repr(part)[:200]
    if problem:
        raise ModelError(f"the model streamed a part that isn't one: {problem}")
    return part


def kept_usage(usage: Usage) -> Usage:
    """What an answer cost, refused like a part: with a fraction in it nobody could read the run."""
    try:
        tokens = usage.input_tokens + usage.output_tokens + usage.cached_tokens + usage.cache_write_tokens
        whole = type(tokens + usage.reasoning_tokens + usage.cost) is int
    except (AttributeError, TypeError):
        whole = False
    if not whole:
        raise ModelError(
            "usage is a Usage of whole numbers, and its cost in micro-units of the currency: half a dollar is "
            f"500_000; the model said {usage!r:.200}"
        )
    return usage


def unfit(arguments: Any) -> str | None:
    """What is wrong with the arguments of a whole call: they must be an object that a store can keep."""
    if not isinstance(arguments, dict):
        return f"arguments must be an object, not {arguments!r:.200}"
    try:
        msgspec.json.encode(arguments)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return f"arguments are not valid JSON ({error})"
    return None
