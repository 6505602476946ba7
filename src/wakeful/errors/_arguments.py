"""Constructors that say which argument they don't know, and which one was perhaps meant."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from msgspec import StructMeta

from ._usage import WrongArguments

__all__ = ["Checked", "checked", "keywords_of", "known_to", "unknown_arguments"]

P = ParamSpec("P")
R = TypeVar("R")

KEYWORD_ONLY = Parameter.KEYWORD_ONLY


class Checked(StructMeta):
    """The metaclass of structs that users make: what they can't be made of is a `WrongArguments`. It costs the
    making a microsecond, so what runs make by the thousand goes without."""

    if not TYPE_CHECKING:  # A checker knows the fields; this would hide them.

        def __call__(self, *args: Any, **given: Any) -> Any:
            try:
                return super().__call__(*args, **given)
            except TypeError as error:
                if isinstance(error, WrongArguments):
                    raise
                problems = unknown_arguments(self.__name__, given, self.__struct_fields__)
                raise WrongArguments(problems or f"{self.__name__}(...): {error}") from None


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """A function or an `__init__` that says which keyword it doesn't know. Where an `__init__` is one that others
    hand their keywords on to, theirs are known too."""

    @wraps(function)
    def wrapper(*args: P.args, **given: P.kwargs) -> R:
        try:
            return function(*args, **given)
        except TypeError as error:
            # Whatever was raised inside has a frame more than a call that couldn't be made.
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            name, known = function.__qualname__, keywords_of(function)
            if function.__name__ == "__init__":
                kind = type(args[0])
                name, known = kind.__name__, keywords_of(kind)
                for base in kind.__mro__[1:-1]:
                    known += [keyword for keyword in keywords_of(base, KEYWORD_ONLY) if keyword not in known]
            problems = unknown_arguments(name, given, known)
            raise WrongArguments(problems or f"{name}(...): {error}") from None

    return wrapper


def unknown_arguments(name: str, given: Mapping[str, Any], known: Collection[str]) -> list[str]:
    """What is wrong with the keywords that something was given."""
    from difflib import get_close_matches  # Only an error needs it, and it is slow to import.

    problems: list[str] = []
    for keyword in given:
        if keyword not in known:
            close = get_close_matches(keyword, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}"
            problems.append(f"{name}(...) has no argument {keyword!r}; {hint}")
    return problems


def known_to(function: Callable[..., Any], name: str, given: Mapping[str, Any]) -> None:
    """Refuse options that the function that they are handed on to doesn't have; all of its have defaults."""
    known: dict[str, Any] = getattr(function, "__kwdefaults__", {})
    if not given.keys() <= known.keys():
        raise WrongArguments(unknown_arguments(name, given, known))


def keywords_of(function: Callable[..., Any], *kinds: Any) -> list[str]:
    """The names of its parameters, of all kinds that a keyword may be for, or of these."""
    kinds = kinds or (KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    found = [p.name for p in signature(function).parameters.values() if p.kind in kinds]
    return found[1:] if found[:1] == ["cls"] else found
