"""Parameters and description of a function, from its signature and docstring."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable
from functools import partial
from typing import Any, cast, get_origin

from ...errors import ShapeError
from ..deps import deps_type
from .docstring import split_docstring
from .hints import description_in, hint_error, unwrap
from .lowering import Lowering
from .shape import Parameter, Parameters

__all__ = ["description_of", "parameters_of"]


def parameters_of(function: Callable[..., Any], *, context_type: type, is_method: bool = False) -> Parameters:
    """The parameters of a function; raises ShapeError if no JSON object can fill one of them."""
    label = f"{getattr(_underlying(function), '__qualname__', repr(function))}()"
    declared = _declared(function, label)[1 if is_method else 0 :]
    hints = _hints(function, [parameter.name for parameter in declared], context_type, label)
    documented = split_docstring(_documentation(function))[1]
    lowering = Lowering()
    context: str | None = None
    deps: Any = None
    parameters: list[Parameter] = []
    for parameter in declared:
        name, default = parameter.name, parameter.default
        if name == "ctx" and name not in hints:
            # Otherwise the model would be asked for it.
            raise ShapeError(f"{label}: parameter 'ctx' has no type; write 'ctx: {context_type.__name__}'")
        hint = hints.get(name, Any)
        if (found := _context_in(hint, context_type)) is not None:
            if context is not None:
                raise ShapeError(f"{label}: parameters {context!r} and {name!r} both take the context")
            context, deps = name, deps_type(found)
            continue
        if any(kind.__name__ == "FieldInfo" for kind in type(default).__mro__):
            # The function would get it whenever the model leaves the argument out.
            raise ShapeError(
                f"{label}: parameter {name!r}: a pydantic Field isn't read as a default; put it into the type, "
                f"'{name}: Annotated[int, Field(...)]', and the default itself behind that, as in '= 3'"
            )
        try:
            target = lowering.lower_root(hint, optional=default is None)
        except (TypeError, NameError, re.error) as error:
            raise ShapeError(f"{label}: parameter {name!r}: {hint_error(error)}") from error
        description = description_in(hint) or documented.get(name)
        parameters.append(Parameter(name, target, default is parameter.empty, default, description))
    return Parameters(parameters, lowering, context, deps)


def description_of(function: Callable[..., Any]) -> str:
    """A function's docstring without its sections on parameters, results and errors."""
    return split_docstring(_documentation(function))[0]


def _underlying(function: Any) -> Any:
    while isinstance(function, partial):
        function = cast(Any, function).func
    if inspect.isroutine(function) or isinstance(function, type):
        return function
    return type(cast(object, function)).__call__


def _documentation(function: Any) -> str | None:
    own: str | None = _underlying(function).__doc__
    return own or (None if isinstance(function, partial) else function.__doc__)


def _declared(function: Any, label: str) -> list[inspect.Parameter]:
    try:
        declared = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError, NameError) as error:
        raise ShapeError(f"{label}: its signature cannot be read: {error}") from error
    for parameter in declared:
        name = parameter.name
        if parameter.kind is parameter.VAR_POSITIONAL:
            fault = f"'*{name}' cannot be given by name; declare a list instead, such as '{name}: list[str]'"
        elif parameter.kind is parameter.VAR_KEYWORD:
            fault = (
                f"'**{name}' has no schema; name each parameter, or declare a dict instead, "
                f"such as '{name}: dict[str, str]'"
            )
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            fault = f"{name!r} is positional-only and cannot be given by name; remove the '/' that follows it"
        else:
            continue
        raise ShapeError(f"{label}: parameter {fault}")
    return declared


def _hints(function: Any, names: list[str], context_type: type, label: str) -> dict[str, Any]:
    function = _underlying(function)
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # noqa: S110 - one at a time, so that the wrong one can be named and the others read
        pass
    function = inspect.unwrap(getattr(function, "__func__", function))
    scope: dict[str, Any] = getattr(function, "__globals__", {})
    # The context's type is often imported under TYPE_CHECKING only.
    local = {context_type.__name__: context_type, **scope, **_enclosing(function)}
    annotations: dict[str, Any] = getattr(function, "__annotations__", {})
    hints: dict[str, Any] = {}
    for name, annotation in ((name, annotations[name]) for name in names if name in annotations):
        lone = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            hints.update(typing.get_type_hints(lone, scope, local, include_extras=True))
        except Exception as error:
            what = f"its annotation {annotation!r} cannot be resolved"
            raise ShapeError(f"{label}: parameter {name!r}: {what}: {hint_error(error)}") from error
    return hints


def _enclosing(function: Any) -> dict[str, Any]:
    """The names that a nested function sees, from its closure and from running callers."""
    names: dict[str, Any] = {}
    qualname: str = getattr(function, "__qualname__", "")
    frame = inspect.currentframe()
    while frame is not None:
        holds = qualname.startswith(f"{frame.f_code.co_qualname}.")
        if holds and frame.f_globals is getattr(function, "__globals__", None):
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    free: tuple[str, ...] = getattr(getattr(function, "__code__", None), "co_freevars", ())
    for name, cell in zip(free, getattr(function, "__closure__", None) or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            continue  # The cell is not assigned yet.
    return names


def _context_in(hint: Any, context_type: type) -> Any:
    """The context's type in an annotation, without `Annotated` and `Optional`; None if it isn't the context."""
    for layer in unwrap(hint):
        base = get_origin(layer) or layer
        if isinstance(base, type) and issubclass(base, context_type):
            return layer
    return None
