"""Tools: functions, methods and objects that a model can call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cached_property, partial, update_wrapper
from typing import Any, Protocol, cast, overload

import msgspec
from msgspec import Struct

from ..errors import ConfigurationError, WrongArguments
from ..errors._arguments import Checked, checked, unknown_arguments
from ..types.requests import ToolSpec
from ..types.runs import Effect, UnknownPolicy
from ..types.tickets import Escalation, OnDeadline, Seconds
from ._context import ToolContext
from ._results import MAX_RESULT_BYTES
from ._schema import Parameters, description_of, parameters_of
from ._services import ChildRequest, ChildResult
from ._terms import Terms, terms_of, terms_problems

__all__ = [
    "Approval",
    "ClientTool",
    "Done",
    "FunctionTool",
    "NotDone",
    "Tool",
    "UnknownOutcome",
    "tool",
    "valid_name",
]

Approval = bool | Callable[[dict[str, Any]], bool]


class FencedCheck(Protocol):
    """A `check` that brings the resource the fence, below which it takes nothing from then on."""

    def __call__(self, key: str, /, *, fence: int) -> Any: ...


Check = Callable[[str], Any] | FencedCheck


class Done(Struct, metaclass=Checked, frozen=True):
    """A `check` found that the call took effect, with this result."""

    result: Any = None


class NotDone(Struct, frozen=True):
    """A `check` found that the call took no effect."""


class UnknownOutcome(Struct, metaclass=Checked, frozen=True):
    """A `check` could not tell."""


class Tool:
    """A tool as an object: subclass it, set what differs from the defaults and define `run`.

    `effect` says what the tool does to the world, and so what happens to a call that was started and has no
    result: `pure` and `idempotent` may run again, `reconcile` asks `check(key)`, `once` never runs again. Where
    that leaves the outcome unknown, the model is told so, or with `unknown="ask"` a person is asked.

    `assignee`, `deadline`, `on_deadline` and `escalate` are about the questions that `approval` and `unknown` ask.
    """

    name: str = ""
    description: str = ""
    effect: Effect = "once"
    approval: Approval = False
    timeout: float | None = None
    resumable: bool = False
    one_child = False
    # Whether it is offered only in requests that have a use for it.
    on_demand = False
    sequential: bool = False
    max_result_bytes: int = MAX_RESULT_BYTES
    unknown: UnknownPolicy = "tell"
    assignee: str | None = None
    deadline: Seconds | None = None
    on_deadline: OnDeadline = "deny"
    escalate: Sequence[Escalation] = ()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """What the tool does, sync or async; its signature is the tool's schema."""
        raise NotImplementedError(f"{type(self).__name__} has no run method")

    @cached_property
    def parameters(self) -> Parameters:
        """The arguments, as a schema and a check."""
        return parameters_of(self.run, context_type=ToolContext)

    @cached_property
    def spec(self) -> ToolSpec:
        """What the model is told about the tool."""
        name = self.name or type(self).__name__
        return ToolSpec(name, self.description or description_of(self.run), self.parameters.schema)

    @cached_property
    def is_async(self) -> bool:
        """Whether `run` is a coroutine function; others run in a thread."""
        run = self.run
        return inspect.iscoroutinefunction(run) or inspect.iscoroutinefunction(type(run).__call__)

    def needs_approval(self, arguments: dict[str, Any]) -> bool:
        """Whether a person must approve a call with these arguments; a rule sees defaults filled in."""
        if isinstance(self.approval, bool):
            return self.approval
        return self.approval({**self._defaults, **arguments})

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        known = inspect.signature(self.run).parameters.items()
        return {name: parameter.default for name, parameter in known if parameter.default is not parameter.empty}

    @property
    def gated(self) -> bool:
        """Whether a call may have to wait for an approval or for a client before it runs."""
        return bool(self.approval)

    @property
    def approval_terms(self) -> Terms:
        """Who has to approve a call, by when, and what happens then."""
        return terms_of(
            ("replay", "arguments", "result"),
            assignee=self.assignee,
            deadline=self.deadline,
            on_deadline=self.on_deadline,
            escalate=self.escalate,
        )

    @property
    def unknown_terms(self) -> Terms:
        """Who has to say what became of a call. Nobody's silence makes it run again."""
        return terms_of(
            ("result", "replay"), assignee=self.assignee, deadline=self.deadline, escalate=self.escalate
        )

    @property
    def suspendable(self) -> bool:
        """Whether the tool may ask while it runs, which makes it run again from the top."""
        return self.resumable or self.effect != "once"

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments, checked and converted; raises `InvalidArguments`."""
        return self.parameters.bind(arguments)

    def request(self, arguments: dict[str, Any], now: int) -> ChildRequest | None:
        """The agent to run, where a call is no more than that: it is begun by the commit that starts the call."""
        return None

    def shown(self, child: ChildResult) -> Any:
        """The result of such a call."""
        raise NotImplementedError

    def call(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Run the tool with arguments that were bound before; the coroutine of an async one."""
        if (parameter := self.parameters.context) is not None:
            arguments = {**arguments, parameter: context}
        return self.run(**arguments)

    async def reconcile(self, key: str, fence: int = 0) -> Done | NotDone | UnknownOutcome:
        """Ask the tool's own `check` what became of a call. One with a parameter `fence` is given it."""
        check: Any = getattr(self, "check", None)
        if check is None:
            return UnknownOutcome()
        found = check(key, fence=fence) if "fence" in inspect.signature(check).parameters else check(key)
        return await found if inspect.isawaitable(found) else found

    def problems(self) -> list[str]:
        """What is wrong with the tool's definition."""
        found: list[str] = []
        label = f"tool {self.name or type(self).__name__!r}"
        if getattr(self.run, "__func__", None) is Tool.run:
            return [f"{label}: it has no `run` method; define one, sync or async"]
        try:
            label = f"tool {self.spec.name!r}"
        except ConfigurationError as error:
            return [f"{label}: {error}"]
        if inspect.isgeneratorfunction(self.run) or inspect.isasyncgenfunction(self.run):
            found.append(f"{label}: it yields; return the result, and show pieces of it with ctx.stream(...)")
        if self.effect not in ("pure", "idempotent", "reconcile", "once"):
            found.append(f"{label}: effect is 'pure', 'idempotent', 'reconcile' or 'once', not {self.effect!r}")
        if self.effect == "reconcile" and not callable(getattr(self, "check", None)):
            found.append(f"{label}: effect 'reconcile' needs check=..., a function of the idempotency key")
        elif self.effect != "reconcile" and getattr(self, "check", None) is not None:
            found.append(
                f"{label}: check is for effect 'reconcile', and would never be asked with {self.effect!r}: set "
                "effect='reconcile', or leave check out"
            )
        if self.timeout is not None and not _positive(self.timeout):
            found.append(f"{label}: timeout is in seconds and positive, not {self.timeout!r}")
        if not _positive(self.max_result_bytes):
            found.append(f"{label}: max_result_bytes is positive, not {self.max_result_bytes!r}")
        if not callable(self.approval) and not isinstance(cast(Any, self.approval), bool):
            found.append(f"{label}: approval is True, False or a function of the arguments, not {self.approval!r}")
        elif inspect.iscoroutinefunction(self.approval):
            found.append(f"{label}: an approval rule can't be async; decide in a plugin's gate_tool instead")
        if not valid_name(self.spec.name):
            found.append(f"{label}: a name has 1 to 64 letters, digits, '_' or '-'")
        if not _sendable(self.spec):
            found.append(f"{label}: {_HALF}")
        return found + [f"{label}: {problem}" for problem in self._question_problems()]

    def _question_problems(self) -> list[str]:
        """What is wrong with what a person is asked about this tool."""
        if self.unknown not in ("tell", "ask"):
            return [f"unknown is 'tell' or 'ask', not {self.unknown!r}"]
        if problems := terms_problems(self.assignee, self.deadline, self.on_deadline, self.escalate):
            return problems
        if self.unknown == "ask" and self.effect in ("pure", "idempotent"):
            return [f"unknown='ask' is for effects whose outcome can be unknown, not {self.effect!r}"]
        asks = bool(self.approval) or self.unknown == "ask"
        if not asks and (self.assignee is not None or self.deadline is not None):
            return ["assignee and deadline are about a person's answer: set approval=... or unknown='ask' as well"]
        try:
            _ = self.approval_terms
        except ConfigurationError as error:
            return [str(error)]
        return []


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
        """What is wrong with the tool's definition."""
        if self._is_method:
            return [
                f"tool {self.name!r}: it is a method; take it from an instance, such as thing.{self.name}, "
                "not from its class"
            ]
        return super().problems()


class ClientTool(Tool):
    """A tool that the application's client runs: the call is suspended, and the answer is its result."""

    @checked
    def __init__(self, name: str, description: str = "", parameters: dict[str, Any] | None = None) -> None:
        self.name = name
        self.description = description
        self._spec = ToolSpec(name, description, parameters or {"type": "object", "properties": {}})

    @property
    def spec(self) -> ToolSpec:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the model is told about the tool."""
        return self._spec

    @property
    def gated(self) -> bool:
        """Always: the client runs it."""
        return True

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as they are: the client checks them."""
        return arguments

    def problems(self) -> list[str]:
        """What is wrong with the tool's definition."""
        if not isinstance(cast(Any, self.name), str) or not valid_name(self.name):
            return [f"tool {self.name!r:.80}: a name has 1 to 64 letters, digits, '_' or '-'"]
        if not _sendable(self.spec):
            return [f"tool {self.name!r}: {_HALF}"]
        try:
            msgspec.json.decode(msgspec.json.encode(self.spec), type=ToolSpec)
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
            return [f"tool {self.name!r}: its description is a text, its parameters a JSON schema: {error}"]
        return []


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str = "",
    effect: Effect = "once",
    check: Check | None = None,
    approval: Approval = False,
    timeout: float | None = None,
    resumable: bool = False,
    sequential: bool = False,
    max_result_bytes: int = MAX_RESULT_BYTES,
    unknown: UnknownPolicy = "tell",
    assignee: str | None = None,
    deadline: Seconds | None = None,
    on_deadline: OnDeadline = "deny",
    escalate: Sequence[Escalation] = (),
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
    "assignee",
    "deadline",
    "on_deadline",
    "escalate",
)


def _name_of(function: Any) -> str:
    while isinstance(function, partial):
        function = cast(Any, function).func
    return getattr(function, "__name__", None) or type(function).__name__


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and value > 0


_HALF = "its description or schema has half a character in it (a lone surrogate); mend it"


def _sendable(spec: ToolSpec) -> bool:
    try:
        msgspec.json.encode(spec, enc_hook=repr)
    except UnicodeEncodeError:
        return False
    return True


def valid_name(name: str) -> bool:
    """Whether a tool can have this name."""
    return 0 < len(name) <= 64 and name.replace("_", "").replace("-", "").isalnum() and name.isascii()
