"""Conversion of decoded JSON to values of lowered types, and the problems of values that don't fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import ValidationError

from .pydantic_models import is_model, model_problems
from .wording import Problem

__all__ = ["REFUSALS", "Carrier", "MismatchError", "convert", "problems_of", "revive"]

REFUSALS = (ValidationError, UnicodeError, RecursionError, TypeError)


class Carrier(type):
    """A custom type for msgspec, whose values `revive` makes."""

    key: str
    parts: tuple[Any, ...]
    revive: Callable[[Any], Any]

    def __instancecheck__(cls, instance: Any) -> bool:
        return True


class MismatchError(ValueError):
    """A value that doesn't fit, with all its problems."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__()
        self.problems = problems


def convert(value: Any, target: Any) -> Any:
    """Convert decoded JSON to a lowered type; raises one of REFUSALS."""
    return msgspec.convert(value, target, str_keys=True, dec_hook=revive)


def revive(custom: Any, value: Any) -> Any:
    """Make a value of a type that msgspec doesn't know."""
    carried = isinstance(custom, Carrier)
    if not carried and not is_model(custom):
        raise TypeError("a type without a JSON form")
    try:
        return custom.revive(value) if carried else custom.model_validate(value)
    except MismatchError:
        raise
    except ValueError as error:
        raise MismatchError(model_problems(error, value)) from None


def problems_of(error: Exception, value: Any, target: Any) -> list[Problem]:
    """The problems that `convert` had with a value, as paths and reasons."""
    if isinstance(error, ValidationError):
        return _problems_in(error)
    if isinstance(error, RecursionError):
        return [("$", "nested too deeply")]
    if isinstance(error, TypeError):
        return [("$", "the items of a set must be plain values" if "unhashable" in str(error) else str(error))]
    # Lone surrogates would hide the other problems of the value.
    try:
        convert(_without_surrogates(value), target)
    except REFUSALS as plainer:
        if not isinstance(plainer, UnicodeError):
            return problems_of(plainer, value, target)
    return [("$", "text that is not valid Unicode")]


def _problems_in(error: ValidationError) -> list[Problem]:
    text, path = str(error), "$"
    reason, _, tail = text.rpartition(" - at `")
    if tail.startswith("$") and tail.endswith("`"):
        path = tail[:-1]
    elif tail.startswith("key` in `$") and tail.endswith("`"):
        reason, path = f"{reason} in a key", tail[9:-1]
    else:
        reason = text
    if isinstance(error.__cause__, MismatchError):
        return [(path + inner[1:], why) for inner, why in error.__cause__.problems]
    return [(path, reason)]


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_without_surrogates(item) for item in cast(list[Any], value)]
    if isinstance(value, dict):
        pairs = cast(dict[Any, Any], value).items()
        return {_without_surrogates(key): _without_surrogates(item) for key, item in pairs}
    return value
