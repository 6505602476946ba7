"""Pieces of a streamed answer: calls with partial arguments, texts with split surrogates, and checks of parts."""

from __future__ import annotations

from typing import Any, cast, get_args

import msgspec
from msgspec import Struct, field

from ...errors import ModelError
from ...types.codec import clean_value
from ...types.content import Citation, Logprobs, Part, ServerTool, Text, clean_text, part_problem
from ...types.ids import new_id
from ...types.runs import Usage

__all__ = [
    "OpenCall",
    "arguments_fault",
    "check_part",
    "check_usage",
    "clean_optional",
    "decode_object",
    "join_surrogates",
]

decode_object = msgspec.json.Decoder(dict[str, Any]).decode
StreamedPart = Part | ServerTool | Citation | Logprobs
_PARTS = (*get_args(Part), ServerTool, Citation, Logprobs)


class OpenCall(Struct, eq=False):
    """A call whose arguments are still being streamed."""

    name: str
    vendor_id: str | None
    id: str = field(default_factory=new_id)
    pieces: list[str] = []
    size: int = 0
    half: str = ""
    signature: str | None = None
    # Characters of the arguments that are in the checkpoints.
    saved: int = 0

    @property
    def text(self) -> str:
        """The arguments so far."""
        return "".join([*self.pieces, clean_text(self.half)])

    def arguments(self) -> dict[str, Any] | None:
        """The arguments if they are complete: a closed object can't grow."""
        try:
            found = msgspec.json.decode(self.text)
        except (msgspec.DecodeError, RecursionError, TypeError):
            return None
        return cast(dict[str, Any], found) if isinstance(found, dict) else None


def join_surrogates(half: str, text: str) -> tuple[str, str]:
    """Join a text to the high surrogate before it; returns the complete text and a high surrogate at its end.

    Servers that count in UTF-16 may split a character between two chunks.
    """
    text = half + text
    cut = len(text) - 1 if "\ud800" <= text[-1:] <= "\udbff" else len(text)
    return clean_text(text[:cut]), text[cut:]


def clean_optional(text: str | None) -> str | None:
    return None if text is None else clean_text(text)


def check_part(part: StreamedPart) -> StreamedPart:
    """Clean a part; refuses one that couldn't be read back, which would make the thread unreadable."""
    if type(part) is Text:
        return Text(clean_text(part.text))
    problem = repr(part)[:200]
    if isinstance(part, _PARTS):
        part = clean_value(part)
        problem = part_problem(part)
    if problem:
        raise ModelError(f"the model streamed a part that isn't one: {problem}")
    return part


def check_usage(usage: Usage) -> Usage:
    """Refuse a usage that couldn't be read back, such as one with fractions."""
    try:
        tokens = usage.input_tokens + usage.output_tokens + usage.cached_tokens + usage.cache_write_tokens
        whole = type(tokens + usage.reasoning_tokens + usage.cost + usage.searches) is int
    except (AttributeError, TypeError):
        whole = False
    if not whole:
        raise ModelError(
            "usage is a Usage of whole numbers, and its cost in micro-units of the currency: half a dollar is "
            f"500_000; the model said {usage!r:.200}"
        )
    return usage


def arguments_fault(arguments: Any) -> str | None:
    """Why the arguments of a complete call can't be stored as a JSON object; None if they can."""
    if not isinstance(arguments, dict):
        return f"arguments must be an object, not {arguments!r:.200}"
    try:
        msgspec.json.encode(arguments)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return f"arguments are not valid JSON ({error})"
    return None
