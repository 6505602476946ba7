"""Dependencies: one object for each process, which the runtime gives to user code and never stores."""

from __future__ import annotations

from inspect import signature
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct

from ..errors import UsageError

__all__ = ["Dependencies", "declared_deps", "deps_problem", "deps_type", "require_deps"]


class Dependencies(Struct, eq=False):
    """The dependencies of a runtime; None if it has none. `Runtime.override` replaces them for a while."""

    value: Any = None


def require_deps(value: Any) -> Any:
    """Return the dependencies; raises `UsageError` if the runtime has none."""
    if value is None:
        raise UsageError(
            "ctx.deps: this process's runtime has no dependencies; give it some: Runtime(..., deps=...)"
        )
    return value


def deps_type(hint: Any) -> Any:
    """The type of dependencies in an annotation such as `ToolContext[Deps]`; None if it names none."""
    arguments = get_args(hint)
    found = arguments[0] if len(arguments) == 1 else None
    return None if found is Any or isinstance(found, TypeVar) else found


def declared_deps(function: Any) -> Any:
    """The type of dependencies that the context of a hook or an instructions function names; None if it names
    none."""
    try:
        hints = get_type_hints(function)
        context = list(signature(function).parameters)[-1]
    except Exception:
        return None  # Annotations that exist for type checkers only.
    return deps_type(hints.get(context))


def deps_problem(needed: Any, value: Any) -> str | None:
    """Say what is wrong if code needs dependencies of a type and the runtime has these; None if they fit.

    A type that can't be checked at run time, such as most protocols, accepts every value.
    """
    if needed is None:
        return None
    label = getattr(needed, "__name__", None) or str(needed)
    if value is None:
        return f"it needs deps of type {label}, and this runtime has none; give it Runtime(..., deps={label}(...))"
    if isinstance(value, type):
        return f"it needs deps of type {label}, and got the class {value.__name__}; give an instance of it"
    for kind in (needed, get_origin(needed)):
        try:
            fits = isinstance(value, kind)
        except TypeError:
            continue
        if not fits:
            return (
                f"it needs deps of type {label}, and those of this runtime are of type {type(value).__name__}; "
                "one object serves all tools, hooks and tasks of a runtime"
            )
        return None
    return None
