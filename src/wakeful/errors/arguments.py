"""Checks of keyword arguments, with an error that suggests the intended name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import wraps
from inspect import Parameter, iscoroutinefunction, isfunction, signature, unwrap
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from msgspec import StructMeta

from .usage import WrongArguments

__all__ = [
    "Checked",
    "checked",
    "checked_methods",
    "keywords_of",
    "refuse_unknown_options",
    "unknown_arguments",
]

P = ParamSpec("P")
R = TypeVar("R")

K = TypeVar("K", bound=type)

KEYWORD_ONLY = Parameter.KEYWORD_ONLY

# Names that other frameworks use, and ours; of several, the first that the callee has.
_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "callbacks": ("plugins",),
    "checkpointer": ("store",),
    "config": ("thread",),
    "conversation": ("thread",),
    "conversation_id": ("thread",),
    "cursor": ("after",),
    "database": ("store",),
    "db": ("store",),
    "hooks": ("plugins",),
    "input_guardrails": ("guardrails",),
    "last_event_id": ("after",),
    "max_steps": ("steps",),
    "max_turns": ("steps",),
    "message": ("input",),
    "max_tokens": ("settings",),
    "message_history": ("thread",),
    "messages": ("input",),
    "middleware": ("plugins",),
    "name": ("id",),
    "output_guardrails": ("guardrails",),
    "prompt": ("instructions", "input"),
    "query": ("input",),
    "response_format": ("output",),
    "result_type": ("output",),
    "session": ("thread",),
    "session_id": ("thread",),
    "system_prompt": ("instructions",),
    "temperature": ("settings",),
    "user": ("principal",),
    "user_id": ("principal",),
}

# Where arguments belong that other frameworks take in this place.
_ELSEWHERE = {
    "context": "Runtime(deps=...)",
    "deps": "Runtime(deps=...)",
    "deps_type": "Runtime(deps=...)",
    "hooks": "Agent(plugins=...)",
    "instructions": "Agent(instructions=...)",
    "max_steps": "Agent(limits=Limits(steps=...))",
    "max_turns": "Agent(limits=Limits(steps=...))",
    "model": "Agent(model=...)",
    "output_type": "Agent(output=...)",
    "response_format": "Agent(output=...)",
    "result_type": "Agent(output=...)",
    "stream": "Runtime.stream(...)",
    "system_prompt": "Agent(instructions=...)",
    "timeout": "Agent(stop=[WallTime(...)])",
    "tools": "Agent(tools=...)",
    "usage_limits": "Agent(limits=Limits(...))",
}


class Checked(StructMeta):
    """Metaclass of structs that users construct: invalid arguments raise `WrongArguments`.

    It adds a microsecond to each construction, so structs that runs create by the thousand don't use it.
    """

    if not TYPE_CHECKING:  # It would hide the fields from type checkers.

        def __call__(self, *args: Any, **given: Any) -> Any:
            try:
                return super().__call__(*args, **given)
            except TypeError as error:
                if isinstance(error, WrongArguments):
                    raise
                problems = unknown_arguments(self.__name__, given, self.__struct_fields__)
                raise WrongArguments(problems or f"{self.__name__}(...): {error}") from None


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function or `__init__` so that an unknown keyword raises `WrongArguments`.

    The keywords of an `__init__` include the keyword-only parameters of its base classes.
    """

    @wraps(function)
    def wrapper(*args: P.args, **given: P.kwargs) -> R:
        try:
            return function(*args, **given)
        except TypeError as error:
            if _is_raised_inside(error):
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


def checked_methods(name: str) -> Callable[[K], K]:
    """Decorate a class so that its public methods are `checked`. Errors call it by `name`."""

    def decorate(kind: K) -> K:
        for method, function in list(vars(kind).items()):
            if isfunction(function) and not method.startswith("_"):
                function.__qualname__ = f"{name}.{method}"
                wrap = _checked_coroutine if iscoroutinefunction(function) else checked
                setattr(kind, method, wrap(function))
        return kind

    return decorate


def _checked_coroutine(function: Callable[..., Any]) -> Callable[..., Any]:
    """`checked` for a coroutine function, which stays one."""

    @wraps(function)
    async def wrapper(*args: Any, **given: Any) -> Any:
        try:
            made = function(*args, **given)
        except TypeError as error:
            problems = unknown_arguments(function.__qualname__, given, keywords_of(function))
            raise WrongArguments(problems or str(error)) from None
        return await made

    return wrapper


def _is_raised_inside(error: TypeError) -> bool:
    """Whether a function raised an error. One of a call that failed to bind has the caller's frame alone."""
    return error.__traceback__ is None or error.__traceback__.tb_next is not None


def unknown_arguments(name: str, given: Mapping[str, Any], known: Collection[str]) -> list[str]:
    """List the unknown keywords among `given`, each with a suggestion."""
    from difflib import get_close_matches  # Slow to import, and needed for errors only.

    problems: list[str] = []
    for keyword in given:
        if keyword not in known:
            close = [one for one in _SYNONYMS.get(keyword, ()) if one in known]
            elsewhere = None if close else _ELSEWHERE.get(keyword)
            if close := close or ([] if elsewhere else get_close_matches(keyword, known, n=1)):
                hint = f"did you mean {close[0]!r}?"
            else:
                hint = f"did you mean {elsewhere}?" if elsewhere else f"it has {', '.join(known)}"
            problems.append(f"{name}(...) has no argument {keyword!r}; {hint}")
    return problems


def refuse_unknown_options(function: Callable[..., Any], name: str, given: Mapping[str, Any]) -> None:
    """Raise `WrongArguments` for options that `function` doesn't take as keyword-only parameters."""
    known: dict[str, Any] = getattr(unwrap(function), "__kwdefaults__", {})
    if not given.keys() <= known.keys():
        raise WrongArguments(unknown_arguments(name, given, known))


def keywords_of(function: Callable[..., Any], *kinds: Any) -> list[str]:
    """The names of a function's keyword parameters, or of its parameters of the given kinds."""
    kinds = kinds or (KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    found = [p.name for p in signature(function).parameters.values() if p.kind in kinds]
    return found[1:] if found[:1] in (["cls"], ["self"]) else found
