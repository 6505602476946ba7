"""Decoded JSON as values of lowered types, or what keeps it from being one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import ValidationError

from ._pydantic import is_model, model_problems
from ._wording import Problem

__all__ = ["REFUSALS", "Carrier", "MismatchError", "convert", "problems_of", "revive"]

REFUSALS = (ValidationError, UnicodeError, RecursionError, TypeError)


class Carrier(type):
    """A type that msgspec takes for a custom one, and so hands to `revive`."""

    key: str
    parts: tuple[Any, ...]
    revive: Callable[[Any], Any]

    def __instancecheck__(cls, instance: Any) -> bool:
        return True


class MismatchError(ValueError):
    """A value that doesn't fit, in all the places where it doesn't."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__()
        self.problems = problems


def convert(value: Any, target: Any) -> Any:
    """Decoded JSON as a value of a lowered type; raises one of REFUSALS."""
    return msgspec.convert(value, target, str_keys=True, dec_hook=revive)


def revive(custom: Any, value: Any) -> Any:
    """The value of a type that msgspec doesn't know, from decoded JSON."""
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
    """What kept `convert` from making a `target` of a value, as paths and reasons."""
    if isinstance(error, ValidationError):
        return _problems_in(error)
    if isinstance(error, RecursionError):
        return [("$", "nested too deeply")]
    if isinstance(error, TypeError):
        return [("$", "the items of a set must be plain values" if "unhashable" in str(error) else str(error))]
    # Text that can't be encoded hides what may be wrong with the value besides.
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
