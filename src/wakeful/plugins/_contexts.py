"""What a plugin's hooks are given: one context for each phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from ..errors import UsageError
from ..state import AnyKey, Command, Snapshot
from ..tools import Terms, terms_of
from ..types.content import ToolReply, given_text
from ..types.events import StopReason
from ..types.messages import Message
from ..types.runs import Call, CallOutcome, Identity, Principal, Termination, Usage, Waiting
from ..types.tickets import Decision, Escalation, OnDeadline, ResumeMode, Seconds
from ._catalog import Catalog
from ._plan import ContextBook, ContextMessage, PlanEdits, checked_context

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


class HookContext:
    """What every hook sees: the run, its state when the phase began, and the way to change things.

    Changes are buffered; they apply when the phase's hooks have all run, and are durable with the next commit.
    `config` is the agent's section for this plugin. A context is its hook's: what would change something after the
    hooks of the phase have run raises `UsageError`.
    """

    __slots__ = ("_catalog", "_over", "command", "config", "principal", "run", "state", "step")

    def __init__(
        self,
        run: Identity,
        step: int,
        state: Snapshot,
        principal: Principal | None,
        catalog: Catalog,
        config: Any,
    ) -> None:
        self.run = run
        self.step = step
        self.state = state
        self.principal = principal
        self.config = config
        self.command = Command()
        self._catalog = catalog
        self._over = False

    def update(self, key: AnyKey, update: Any) -> None:
        """Change state through the key's reducer."""
        self._catalog.check_key(key)
        self._open().updates.append((key, update))

    def notify(self, name: str, payload: Any = None) -> None:
        """Send a notice to its handler after the commit that carries it."""
        self._catalog.notify(self._open(), name, payload)

    def schedule(self, name: str, payload: Any = None, *, phase: str) -> None:
        """Schedule an action for the next time the run reaches that phase (this one included)."""
        self._catalog.schedule(self._open(), name, payload, phase)

    def add_context(self, message: ContextMessage) -> None:
        """Add a context message to the next model call; in `before_inference`, to this one."""
        self._open().updates.append((ContextBook, checked_context(message)))

    def remove_context(self, key: str) -> None:
        """Remove a context message."""
        self._open().updates.append((ContextBook, key))

    def end_run(self, reason: str = "") -> None:
        """End the run at the next boundary; calls that didn't start are not run."""
        self._open().ending = given_text(reason, "the reason to end a run")

    def handoff(self, agent_id: str) -> None:
        """Let another agent take over the run from its next step."""
        self._catalog.check_agent(agent_id)
        self._open().handoff = agent_id

    def end(self) -> None:
        """What the hook wanted is applied; used by the loop."""
        self._over = True

    def _open(self) -> Command:
        if self._over:
            raise UsageError(
                "the hook that this context was given to has ended, and nothing can be changed by it any more; "
                "await in the hook what you begin there"
            )
        return self.command


class Step(HookContext):
    """The context of `run_start`, `step_start`, `step_end`, `activate` and `deactivate`."""

    __slots__ = ()


class BeforeInference(HookContext):
    """The context of `before_inference`: `plan` shapes the model call, `tools` are those on offer. `messages`
    is the conversation as the model would be shown it, with summaries in place of what they cover."""

    __slots__ = ("messages", "plan", "tools")

    messages: Sequence[Message]
    plan: PlanEdits
    tools: tuple[str, ...]


class AfterInference(HookContext):
    """The context of `after_inference`: the answer, or the error if the model failed."""

    __slots__ = ("answer", "error", "offered", "stop", "usage")

    answer: Message | None
    error: Exception | None
    stop: StopReason
    usage: Usage
    offered: tuple[str, ...]


class BeforeTool(HookContext):
    """The context of `before_tool`, right before a call starts."""

    __slots__ = ("arguments", "call")

    call: Call
    arguments: dict[str, Any]


class Block(Struct, frozen=True):
    """A gate's no: the model gets an error result, or the run ends if the rule says so."""

    reason: str
    ends_run: bool = False

    def __post_init__(self) -> None:
        force_setattr(self, "reason", given_text(self.reason, "the reason of a block"))


class Suspend(Struct, frozen=True):
    """A gate's question. Once a person approved, this gate's suspend for the same call is passed over, unless
    it asks `again`. `schema` is a JSON schema or a Python type; the deadline is in seconds or a timedelta."""

    message: str = ""
    schema: Any = None
    accepts: tuple[ResumeMode, ...] = ("replay", "arguments", "result")
    again: bool = False
    assignee: str | None = None
    deadline: Seconds | None = None
    on_deadline: OnDeadline = "deny"
    escalate: Sequence[Escalation] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "message", given_text(self.message, "a question"))

    @property
    def terms(self) -> Terms:
        """The terms in full; raises `ConfigurationError` if they can't be kept."""
        return terms_of(
            tuple(self.accepts),
            self.schema,
            assignee=self.assignee,
            deadline=self.deadline,
            on_deadline=self.on_deadline,
            escalate=self.escalate,
        )


class Supply(Struct, frozen=True):
    """A gate's own result for the call; the tool doesn't run."""

    value: Any


GateAnswer = Block | Suspend | Supply | None


class GateTool(BeforeTool):
    """The context of `gate_tool`. The gate must be repeatable: it is asked again after earlier calls of the
    step finished, and after a ticket was answered. `decision` is the latest answer for this call."""

    __slots__ = ()

    @property
    def decision(self) -> Decision | None:
        """The latest answer to a ticket of this call."""
        return self.call.decisions[-1] if self.call.decisions else None

    def block(self, reason: str, *, ends_run: bool = False) -> Block:
        """Refuse the call."""
        return Block(reason, ends_run)

    def suspend(
        self,
        message: str = "",
        *,
        schema: Any = None,
        accepts: tuple[ResumeMode, ...] = ("replay", "arguments", "result"),
        again: bool = False,
        assignee: str | None = None,
        deadline: Seconds | None = None,
        on_deadline: OnDeadline = "deny",
        escalate: Sequence[Escalation] = (),
    ) -> Suspend:
        """Ask a person first. At the `deadline` the question goes to the first in `escalate`, and with nobody left
        `on_deadline` decides: `approve`, `deny` or `Answer(value)`."""
        return Suspend(message, schema, accepts, again, assignee, deadline, on_deadline, escalate)

    def supply(self, value: Any) -> Supply:
        """Answer in the tool's place."""
        return Supply(value)


class AfterTool(HookContext):
    """The context of `after_tool`: the call is finished and its result is committed."""

    __slots__ = ("call", "outcome", "reply")

    call: Call
    outcome: CallOutcome
    reply: ToolReply


class RunEnd(HookContext):
    """The context of `run_end`: the activation ends, waiting or done."""

    __slots__ = ("status", "termination", "waiting")

    status: Literal["waiting", "done"]
    termination: Termination | None
    waiting: Waiting | None
