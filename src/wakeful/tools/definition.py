"""Tools as objects: their options and terms, and what is wrong with a definition."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol, cast

import msgspec

from ..errors import ConfigurationError, ShapeError
from ..errors.arguments import checked
from ..types.calls import Effect, UnknownPolicy
from ..types.requests import ToolSpec
from ..types.tickets import Approval, Escalation, OnDeadline, Seconds
from .context import ToolContext
from .results import MAX_RESULT_BYTES, Done, NotDone, UnknownOutcome
from .schema import Parameters, description_of, parameters_of
from .services import ChildRequest, ChildResult
from .terms import Terms, terms_of, terms_problems

__all__ = ["ApprovalRule", "Check", "ClientTool", "Tool", "valid_name"]

ApprovalRule = bool | Approval | Callable[[dict[str, Any]], bool | Approval]


class FencedCheck(Protocol):
    """A `check` that passes the fence to the resource, which refuses older fences from then on."""

    def __call__(self, key: str, /, *, fence: int) -> Any: ...


Check = Callable[[str], Any] | FencedCheck


class Tool:
    """A tool as an object: subclass it, set the attributes that differ from the defaults and define `run`.

    `effect` decides what happens to a call that was started and has no result: `pure` and `idempotent` tools run
    again, `reconcile` asks `check(key)`, `once` never runs again. If the outcome stays unknown, the model is told
    so, or a person is asked with `unknown="ask"`, or `unknown=Approval(...)` to name who.

    `approval` is True, an `Approval(...)` that says who approves, or a function of the arguments that returns
    either. `deadline`, `on_deadline` and `escalate` apply to the tickets of `approval` and `unknown`.

    Permission rules refer to the rest: the results of an `untrusted` tool are text that strangers may have
    written, such as mail or web pages; `hints` are words about the tool, such as `destructive`; `grant_by` names
    the arguments that a remembered grant keeps.
    """

    name: str = ""
    description: str = ""
    effect: Effect = "once"
    approval: ApprovalRule = False
    timeout: float | None = None
    resumable: bool = False
    # A call runs one child agent and does nothing else: see `child_request` and `child_result`.
    is_delegation = False
    # Offered only in requests that need the tool.
    on_demand = False
    sequential: bool = False
    max_result_bytes: int = MAX_RESULT_BYTES
    unknown: UnknownPolicy | Approval = "tell"
    deadline: Seconds | None = None
    on_deadline: OnDeadline = "deny"
    escalate: Sequence[Escalation] = ()
    untrusted: bool = False
    hints: Sequence[str] = ()
    grant_by: Sequence[str] = ()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Carry out a call, sync or async; the signature is the tool's schema."""
        raise NotImplementedError(f"{type(self).__name__} has no run method")

    @cached_property
    def parameters(self) -> Parameters:
        """The arguments, as a schema and a check."""
        return parameters_of(self.run, context_type=ToolContext)

    @property
    def deps_type(self) -> Any:
        """The type of dependencies that the context of `run` names, as in `ToolContext[Deps]`, or None."""
        try:
            return self.parameters.deps
        except ShapeError:
            return None  # The tool has a schema of its own.

    @cached_property
    def spec(self) -> ToolSpec:
        """The tool's name, description and schema, as the model sees them."""
        name = self.name or type(self).__name__
        return ToolSpec(name, self.description or description_of(self.run), self.parameters.schema)

    @cached_property
    def is_async(self) -> bool:
        """Whether `run` is a coroutine function; others run in a thread."""
        run = self.run
        return inspect.iscoroutinefunction(run) or inspect.iscoroutinefunction(type(run).__call__)

    def approval_for(self, arguments: dict[str, Any]) -> Approval | None:
        """The approval that a call with these arguments needs, or None. A rule gets them with the defaults."""
        found = self.approval
        if not isinstance(found, bool | Approval):
            found = found({**self._defaults, **arguments})
        if isinstance(found, Approval):
            return found
        return Approval() if found else None

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        known = inspect.signature(self.run).parameters.items()
        return {name: parameter.default for name, parameter in known if parameter.default is not parameter.empty}

    def arguments_seen(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Bound arguments as JSON data, with the defaults of those that are left out."""
        return msgspec.to_builtins({**self._defaults, **arguments}, enc_hook=str)

    @property
    def gated(self) -> bool:
        """Whether a call may have to wait for an approval or for a client before it runs."""
        return bool(self.approval)

    def approval_terms(self, who: Approval) -> Terms:
        """The terms of a ticket that asks for approval."""
        return terms_of(
            ("proceed", "arguments", "result"),
            who=who,
            deadline=self.deadline,
            on_deadline=self.on_deadline,
            escalate=self.escalate,
        )

    @property
    def unknown_terms(self) -> Terms:
        """The terms of a ticket that asks for an unknown outcome. No deadline makes the call run again."""
        who = self.unknown if isinstance(self.unknown, Approval) else Approval()
        return terms_of(("result", "proceed"), who=who, deadline=self.deadline, escalate=self.escalate)

    @property
    def unknown_policy(self) -> UnknownPolicy:
        """Whether the model is told of an unknown outcome, or a person is asked."""
        return "ask" if isinstance(self.unknown, Approval) else self.unknown

    @property
    def can_suspend(self) -> bool:
        """Whether the tool may ask while it runs, after which it runs again from the top."""
        return self.resumable or self.effect != "once"

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Check and convert the arguments; raises `InvalidArguments`."""
        return self.parameters.bind(arguments)

    def child_request(self, arguments: dict[str, Any], now: int) -> ChildRequest | None:
        """The child agent of a delegation, which starts with the commit that starts the call."""
        return None

    def child_result(self, child: ChildResult) -> Any:
        """The result of a delegation."""
        raise NotImplementedError

    def call(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Run the tool with bound arguments; returns the coroutine of an async tool."""
        if (parameter := self.parameters.context) is not None:
            arguments = {**arguments, parameter: context}
        return self.run(**arguments)

    async def reconcile(self, key: str, fence: int = 0, deps: Any = None) -> Done | NotDone | UnknownOutcome:
        """Ask the tool's `check` for the outcome of a call. Its parameters `fence` and `deps` are optional."""
        check: Any = getattr(self, "check", None)
        if check is None:
            return UnknownOutcome()
        takes = inspect.signature(check).parameters
        offered = {"fence": fence, "deps": deps}
        found = check(key, **{name: value for name, value in offered.items() if name in takes})
        return await found if inspect.isawaitable(found) else found

    def problems(self) -> list[str]:
        """List the problems of the tool's definition."""
        found: list[str] = []
        label = f"tool {self.name or type(self).__name__!r}"
        if getattr(self.run, "__func__", None) is Tool.run:
            return [f"{label}: it has no `run` method; define one, sync or async"]
        try:
            label = f"tool {self.spec.name!r}"
        except ConfigurationError as error:
            return [f"{label}: {error}"]
        found += [f"{label}: {problem}" for problem in (*self._effect_problems(), *self._option_problems())]
        if not valid_name(self.spec.name):
            found.append(f"{label}: a name has 1 to 64 letters, digits, '_' or '-'")
        if not _is_encodable(self.spec):
            found.append(f"{label}: {_SURROGATE}")
        return found + [f"{label}: {problem}" for problem in self._question_problems()]

    def _effect_problems(self) -> list[str]:
        check = getattr(self, "check", None)
        if self.effect not in ("pure", "idempotent", "reconcile", "once"):
            return [f"effect is 'pure', 'idempotent', 'reconcile' or 'once', not {self.effect!r}"]
        if self.effect == "reconcile" and not callable(check):
            return ["effect 'reconcile' needs check=..., a function of the idempotency key"]
        if self.effect != "reconcile" and check is not None:
            return [
                f"check is for effect 'reconcile', and would never be asked with {self.effect!r}: set "
                "effect='reconcile', or leave check out"
            ]
        return []

    def _option_problems(self) -> list[str]:
        found: list[str] = []
        if not isinstance(cast(Any, self.untrusted), bool):
            found.append(f"untrusted is True or False, not {self.untrusted!r:.80}")
        words = {"hints": self.hints, "grant_by": self.grant_by}
        found += [f"{name} is a list of texts, not {v!r:.80}" for name, v in words.items() if not _is_words(v)]
        if inspect.isgeneratorfunction(self.run) or inspect.isasyncgenfunction(self.run):
            found.append("it yields; return the result, and show pieces of it with ctx.stream(...)")
        if self.timeout is not None and not _is_positive(self.timeout):
            found.append(f"timeout is in seconds and positive, not {self.timeout!r}")
        if not _is_positive(self.max_result_bytes):
            found.append(f"max_result_bytes is positive, not {self.max_result_bytes!r}")
        if not callable(self.approval) and not isinstance(cast(Any, self.approval), bool | Approval):
            found.append(
                f"approval is True, False, an Approval(...) or a function of the arguments, not {self.approval!r}"
            )
        elif inspect.iscoroutinefunction(self.approval):
            found.append("an approval rule can't be async; decide in a plugin's gate_tool instead")
        return found

    def _question_problems(self) -> list[str]:
        """List the problems of the tickets about this tool."""
        if self.unknown_policy not in ("tell", "ask"):
            return [f"unknown is 'tell', 'ask' or an Approval(...), not {self.unknown!r}"]
        if problems := terms_problems(self.deadline, self.on_deadline, self.escalate):
            return problems
        if isinstance(self.unknown, Approval) and self.unknown.quorum > 1:
            return ["unknown=Approval(...): one person says what became of a call, so it has no quorum"]
        if self.unknown_policy == "ask" and self.effect in ("pure", "idempotent"):
            return [f"unknown='ask' is for effects whose outcome can be unknown, not {self.effect!r}"]
        if not self.approval and self.unknown == "tell" and self.deadline is not None:
            return ["deadline is about a person's answer: set approval=... or unknown='ask' as well"]
        try:
            _ = self.approval_terms(self.approval if isinstance(self.approval, Approval) else Approval())
        except ConfigurationError as error:
            return [str(error)]
        return []


class ClientTool(Tool):
    """A tool that the application's client runs: the call is suspended, and the answer is its result."""

    @checked
    def __init__(self, name: str, description: str = "", parameters: dict[str, Any] | None = None) -> None:
        self.name = name
        self.description = description
        self._spec = ToolSpec(name, description, parameters or {"type": "object", "properties": {}})

    @property
    def spec(self) -> ToolSpec:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The tool's name, description and schema, as the model sees them."""
        return self._spec

    @property
    def gated(self) -> bool:
        """Always true: a call waits for the client."""
        return True

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments unchanged: the client checks them."""
        return arguments

    def problems(self) -> list[str]:
        """List the problems of the tool's definition."""
        if not isinstance(cast(Any, self.name), str) or not valid_name(self.name):
            return [f"tool {self.name!r:.80}: a name has 1 to 64 letters, digits, '_' or '-'"]
        if not _is_encodable(self.spec):
            return [f"tool {self.name!r}: {_SURROGATE}"]
        try:
            msgspec.json.decode(msgspec.json.encode(self.spec), type=ToolSpec)
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
            return [f"tool {self.name!r}: its description is a text, its parameters a JSON schema: {error}"]
        return []


def _is_words(value: Any) -> bool:
    if isinstance(value, str) or not isinstance(value, Sequence | frozenset | set):
        return False
    return all(isinstance(word, str) for word in cast(Sequence[Any], value))


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and value > 0


_SURROGATE = "its description or schema contains a lone surrogate; remove it"


def _is_encodable(spec: ToolSpec) -> bool:
    try:
        msgspec.json.encode(spec, enc_hook=repr)
    except UnicodeEncodeError:
        return False
    return True


def valid_name(name: str) -> bool:
    """Whether a text is a valid tool name."""
    return 0 < len(name) <= 64 and name.replace("_", "").replace("-", "").isalnum() and name.isascii()
