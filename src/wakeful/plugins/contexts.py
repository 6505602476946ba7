"""The contexts of hooks, one for each phase."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Literal, TypeVar

from msgspec.structs import force_setattr, replace

from ..errors import UsageError
from ..state import AnyKey, Command, Snapshot
from ..tools import Memories, Terms, Tool, require_deps, terms_of
from ..types.base import Data
from ..types.calls import Call, CallOutcome, Ruling
from ..types.content import ToolReply, require_text
from ..types.copies import copy_mutable
from ..types.events import StopReason
from ..types.generics import Deps
from ..types.messages import Message
from ..types.records import Grant
from ..types.requests import ToolSpec
from ..types.runs import Identity, Principal, Termination, Usage, Waiting
from ..types.tickets import (
    ANYBODY,
    Approval,
    Decision,
    Escalation,
    GrantOffer,
    OnDeadline,
    ResumeMode,
    Seconds,
)
from .catalog import Catalog
from .plan import ContextMessage, PendingContextKey, PlanEdits, check_context

__all__ = [
    "AfterInference",
    "AfterTool",
    "BeforeInference",
    "BeforeTool",
    "Block",
    "GateAnswer",
    "GateTool",
    "HookContext",
    "RunEnd",
    "Step",
    "Supply",
    "Suspend",
]


T = TypeVar("T")


class _Copied(Generic[T]):
    """An attribute that a hook reads as its own copy, made on first access: most hooks read few attributes."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._slot = f"_{name}"

    def __set__(self, context: Any, value: T) -> None:
        setattr(context, self._slot, (value, False))

    def __get__(self, context: Any, owner: type | None = None) -> T:
        value, is_copied = getattr(context, self._slot)
        if not is_copied:
            value = copy_mutable(value)
            setattr(context, self._slot, (value, True))
        return value


class HookContext(Generic[Deps]):
    """Base of all contexts: the run, its state at the start of the phase, and methods to change it.

    Changes are buffered. They are applied after all hooks of the phase have run, and are durable with the next
    commit. A change after that raises `UsageError`. `config` is the plugin's section of the agent's config. A type
    parameter, as in `Step[T]`, says that `deps` are a `T`.
    """

    __slots__ = ("_catalog", "_deps", "_is_closed", "command", "config", "principal", "run", "state", "step")

    def __init__(
        self,
        run: Identity,
        step: int,
        state: Snapshot,
        principal: Principal | None,
        catalog: Catalog,
        config: Any,
        deps: Any = None,
    ) -> None:
        self.run = run
        self.step = step
        self.state = state
        self.principal = principal
        self.config = config
        # The changes so far; None before the first one.
        self.command: Command | None = None
        self._catalog = catalog
        self._deps = deps
        self._is_closed = False

    @property
    def deps(self) -> Deps:
        """The dependencies of this process's runtime; raises `UsageError` if it has none."""
        return require_deps(self._deps)

    def update(self, key: AnyKey, update: Any) -> None:
        """Update a state key through its reducer."""
        self._catalog.check_key(key)
        self._open().updates.append((key, update))

    def notify(self, name: str, payload: Any = None) -> None:
        """Send a notice to its handler after the next commit."""
        self._catalog.notify(self._open(), name, payload)

    def schedule(self, name: str, payload: Any = None, *, phase: str) -> None:
        """Schedule an action for the next `phase` of the run, the current one included."""
        self._catalog.schedule(self._open(), name, payload, phase)

    def add_context(self, message: ContextMessage) -> None:
        """Add a context message to the next model call, in `before_inference` to the current one."""
        self._open().updates.append((PendingContextKey, check_context(message)))

    def remove_context(self, key: str) -> None:
        """Remove a context message."""
        self._open().updates.append((PendingContextKey, key))

    def end_run(self, reason: str = "") -> None:
        """End the run at the next boundary. Calls that haven't started don't run."""
        self._open().ending = require_text(reason, "the reason to end a run")

    def handoff(self, agent_id: str) -> None:
        """Hand the run over to another agent, from its next step on."""
        self._catalog.check_agent(agent_id)
        self._open().handoff = agent_id

    def close(self) -> None:
        """Refuse further changes. The loop calls it once the hook's changes are applied."""
        self._is_closed = True

    def _open(self) -> Command:
        if self._is_closed:
            raise UsageError(
                "the hook of this context has ended, so it can't change anything any more; await in the hook the "
                "work that it starts"
            )
        if self.command is None:
            self.command = Command()
        return self.command


class Step(HookContext[Deps]):
    """The context of `run_start`, `step_start`, `step_end`, `activate` and `deactivate`."""

    __slots__ = ()


class BeforeInference(HookContext[Deps]):
    """The context of `before_inference`: `plan` edits the request, `tools` are the names of the offered tools.

    `messages` are those of the request: the conversation, with summaries in place of the messages they cover, or
    what `plan.purpose` says. `specs` are the tools as the model sees them; `memories` are those of the tenant, for
    extensions.
    """

    __slots__ = ("memories", "messages", "plan", "specs", "tools")

    memories: Memories
    messages: Sequence[Message]
    plan: PlanEdits
    specs: Sequence[ToolSpec]
    tools: tuple[str, ...]


class AfterInference(HookContext[Deps]):
    """The context of `after_inference`: the answer, or the error if the model failed."""

    __slots__ = ("answer", "error", "offered", "stop", "usage")

    answer: Message | None
    error: Exception | None
    stop: StopReason
    usage: Usage
    offered: tuple[str, ...]


class BeforeTool(HookContext[Deps]):
    """The context of `before_tool`, right before a call starts."""

    __slots__ = ("_arguments", "_call")

    call = _Copied[Call]()
    arguments = _Copied[dict[str, Any]]()


class Block(Data):
    """Refuses a call: the model gets an error result, or the run ends if `ends_run`.

    As the verdict of a guardrail it always ends the run.
    """

    reason: str
    ends_run: bool = False

    def __post_init__(self) -> None:
        force_setattr(self, "reason", require_text(self.reason, "the reason of a block"))


class Suspend(Data):
    """Suspends a call until a person decides.

    Once a person approved, the same gate's suspend of that call is ignored unless `again` is set. `schema` is a
    JSON schema or a Python type. `offer` says which grants an approval may give.
    """

    message: str = ""
    schema: Any = None
    accepts: tuple[ResumeMode, ...] = ("proceed", "arguments", "result")
    again: bool = False
    approval: Approval = ANYBODY
    deadline: Seconds | None = None
    on_deadline: OnDeadline = "deny"
    escalate: Sequence[Escalation] = ()
    offer: GrantOffer | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "message", require_text(self.message, "a question"))

    @property
    def terms(self) -> Terms:
        """The validated terms of the ticket; raises `ConfigurationError`."""
        found = terms_of(
            tuple(self.accepts),
            self.schema,
            who=self.approval,
            deadline=self.deadline,
            on_deadline=self.on_deadline,
            escalate=self.escalate,
        )
        return found if self.offer is None else replace(found, offer=self.offer)


class Supply(Data):
    """Sets the result of a call without running the tool."""

    value: Any


GateAnswer = Block | Suspend | Supply | None


class GateTool(BeforeTool[Deps]):
    """The context of `gate_tool`.

    A gate must be repeatable: it runs again after earlier calls of the step finished and after a ticket was
    answered. `tool` is the tool of the call. A gate may set `ruling`, which the call's row keeps.
    """

    __slots__ = ("_load_grants", "ruling", "tool")

    tool: Tool
    ruling: Ruling | None
    _load_grants: Callable[[], Awaitable[Sequence[Grant]]]

    def bind_grants(self, load: Callable[[], Awaitable[Sequence[Grant]]]) -> None:
        """Set how the grants are read. The loop calls it before the hook."""
        self._load_grants = load

    async def grants(self) -> Sequence[Grant]:
        """The grants that count for the run now, read from the store."""
        return await self._load_grants()

    @property
    def decision(self) -> Decision | None:
        """The latest decision on a ticket of this call."""
        return self.call.decisions[-1] if self.call.decisions else None

    def block(self, reason: str, *, ends_run: bool = False) -> Block:
        """Refuse the call."""
        return Block(reason, ends_run)

    def suspend(
        self,
        message: str = "",
        *,
        schema: Any = None,
        accepts: tuple[ResumeMode, ...] = ("proceed", "arguments", "result"),
        again: bool = False,
        approval: Approval = ANYBODY,
        deadline: Seconds | None = None,
        on_deadline: OnDeadline = "deny",
        escalate: Sequence[Escalation] = (),
        offer: GrantOffer | None = None,
    ) -> Suspend:
        """Suspend the call until a person decides; `approval` says who may.

        At the `deadline` the ticket goes to the first entry of `escalate`. If none is left, `on_deadline` decides:
        `approve`, `deny` or `Answer(value)`. `offer` says which grants an approval may give.
        """
        return Suspend(message, schema, accepts, again, approval, deadline, on_deadline, escalate, offer)

    def supply(self, value: Any) -> Supply:
        """Set the call's result without running the tool."""
        return Supply(value)


class AfterTool(HookContext[Deps]):
    """The context of `after_tool`: the call is finished and its result is committed.

    `tool` is the tool of the call; None if the agent no longer has it.
    """

    __slots__ = ("_call", "_reply", "outcome", "tool")

    tool: Tool | None

    call = _Copied[Call]()
    outcome: CallOutcome
    reply = _Copied[ToolReply]()


class RunEnd(HookContext[Deps]):
    """The context of `run_end`: the activation ends, waiting or done."""

    __slots__ = ("status", "termination", "waiting")

    status: Literal["waiting", "done"]
    termination: Termination | None
    waiting: Waiting | None
