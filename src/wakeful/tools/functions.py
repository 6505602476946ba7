"""Functions and methods as tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from typing import Any, cast, overload

from ..errors import WrongArguments
from ..errors.arguments import unknown_arguments
from ..types.calls import Effect, UnknownPolicy
from ..types.tickets import Approval, Escalation, OnDeadline, Seconds
from .definition import ApprovalRule, Check, Tool
from .results import MAX_RESULT_BYTES

__all__ = ["FunctionTool", "tool"]


class FunctionTool(Tool):
    """A function or method as a tool. Calling it calls the function."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any], owner: Any = None) -> None:
        self._function = function
        self._options = options
        self._is_method = False
        for option, value in options.items():
            setattr(self, option, value)
        self.name = options.get("name") or _name_of(function)
        self.run = function if owner is None else function.__get__(owner)
        update_wrapper(self, function)

    def __set_name__(self, owner: type, name: str) -> None:
        self._is_method = True

    def __get__(self, instance: Any, owner: type | None = None) -> FunctionTool:
        return self if instance is None else FunctionTool(self._function, self._options, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def problems(self) -> list[str]:
        """List the problems of the tool's definition."""
        if self._is_method:
            return [
                f"tool {self.name!r}: it is a method; take it from an instance, such as thing.{self.name}, "
                "not from its class"
            ]
        return super().problems()


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str = "",
    effect: Effect = "once",
    check: Check | None = None,
    approval: ApprovalRule = False,
    timeout: float | None = None,
    resumable: bool = False,
    sequential: bool = False,
    max_result_bytes: int = MAX_RESULT_BYTES,
    unknown: UnknownPolicy | Approval = "tell",
    deadline: Seconds | None = None,
    on_deadline: OnDeadline = "deny",
    escalate: Sequence[Escalation] = (),
    untrusted: bool = False,
    hints: Sequence[str] = (),
    grant_by: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function or a method, sync or async.

    The schema comes from its signature, the description from its docstring. A parameter of type
    `ToolContext` is given the call's context.
    """

    if problems := unknown_arguments("tool", options, _OPTIONS):
        raise WrongArguments(problems)
    if function is not None and not callable(cast(Any, function)):
        hint = f"; its name is an option: @tool(name={function!r:.80})" if isinstance(function, str) else ""
        raise WrongArguments(f"tool(...) takes a function, not {function!r:.80}{hint}")

    def decorate(function: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(function, options)

    return decorate if function is None else decorate(function)


_OPTIONS = (
    "name",
    "description",
    "effect",
    "check",
    "approval",
    "timeout",
    "resumable",
    "sequential",
    "max_result_bytes",
    "unknown",
    "deadline",
    "on_deadline",
    "escalate",
    "untrusted",
    "hints",
    "grant_by",
)


def _name_of(function: Any) -> str:
    while isinstance(function, partial):
        function = cast(Any, function).func
    return getattr(function, "__name__", None) or type(function).__name__
