"""The contract between the runtime and an execution backend: capabilities, requests and results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Literal

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import force_setattr

from ..errors import ExecutionFailed
from ..state import AnyKey
from ..types.content import Artifact
from ..types.messages import Message
from ..types.requests import ModelSettings, ToolSpec
from ..types.runs import Identity, Termination
from ..types.tickets import Decision, ResumeMode
from .emitter import Emitter
from .status import BackendStatus, Completed, natural_termination

__all__ = [
    "AbortRequest",
    "BackendFactory",
    "BackendOutput",
    "BackendResult",
    "Cancellation",
    "Capabilities",
    "Control",
    "DelegatePolicy",
    "DelegateRequest",
    "ExecutionBackend",
    "Parent",
    "Persistence",
    "PollRequest",
    "Question",
    "RootRequest",
    "can_abort",
    "check_delegate",
    "check_root",
    "is_cooperative",
]

Cancellation = Literal["none", "cooperative", "abort", "cooperative_and_abort"]
Persistence = Literal["ephemeral", "durable"]


def is_cooperative(cancellation: Cancellation) -> bool:
    """Whether a backend watches `control.cancelled`."""
    return cancellation in ("cooperative", "cooperative_and_abort")


def can_abort(cancellation: Cancellation) -> bool:
    """Whether a backend's `abort` stops its remote work."""
    return cancellation in ("abort", "cooperative_and_abort")


class Capabilities(Struct, frozen=True):
    """The features of a backend; by default all that the local loop has.

    A request that needs more is refused before the backend is called. `transcript` is the input: the whole
    conversation, the messages since the backend's last attempt, or one prompt. `waits` are the questions with
    which a request may end, `persistence` the ways in which its child runs may be kept. With `decisions` and
    `steering` the backend asks questions and gets input while it runs.
    """

    cancellation: Cancellation = "cooperative"
    decisions: bool = True
    overrides: bool = True
    frontend_tools: bool = True
    continuation: Literal["none", "in_process", "remote"] = "in_process"
    waits: Literal["none", "input", "auth", "input_and_auth"] = "input_and_auth"
    transcript: Literal["full", "incremental", "single_prompt"] = "full"
    output: Literal["text", "text_and_artifacts"] = "text_and_artifacts"
    persistence: tuple[Persistence, ...] = ("ephemeral", "durable")
    steering: bool = True

    @classmethod
    def full(cls) -> Capabilities:
        """All features."""
        return cls()

    @classmethod
    def remote_stateless_text(cls) -> Capabilities:
        """One prompt in, one text out: the default of a backend."""
        return cls("none", False, False, False, "none", "none", "single_prompt", "text", ("ephemeral",), False)

    def unsupported_root(self, request: RootRequest) -> list[str]:
        """The features that a root request needs and the backend lacks, in a fixed order."""
        live = request.control.ask is not None
        wanted = {
            "decisions": bool(request.decisions or live) and not self.decisions,
            "overrides": request.overrides is not None and not self.overrides,
            "frontend_tools": bool(request.frontend_tools) and not self.frontend_tools,
            "continuation": request.is_continuation and self.continuation == "none",
        }
        return [name for name, missing in wanted.items() if missing]

    def unsupported_delegate(self, request: DelegateRequest) -> list[str]:
        """The features that a delegate request needs and the backend lacks, in a fixed order."""
        policy = request.policy
        wanted = {
            "delegate_persistence": policy.persistence not in self.persistence,
            "continuation": policy.continuation and self.continuation == "none",
        }
        return [name for name, missing in wanted.items() if missing]


class Parent(Struct, frozen=True):
    """The run, thread and call that a child run belongs to."""

    run_id: str | None = None
    thread_id: str | None = None
    call_id: str | None = None


class Control(Struct, frozen=True):
    """The signals to a running backend; each is None unless the capabilities include it.

    `cancelled` is set when the run is cancelled. `await ask(question)` opens a ticket and returns its answer, as a
    tool message; if the call is cancelled, the ticket is closed. `await receive()` returns the next input that was
    sent to the run to steer it. After a crash, the repeated request gets the same input and answers again.
    """

    cancelled: asyncio.Event | None = None
    ask: Callable[[Question], Awaitable[Message]] | None = None
    receive: Callable[[], Awaitable[Message]] | None = None


async def _ignore_state(state: dict[str, Any]) -> None:
    """Discard saved state."""


async def _ignore_update(key: AnyKey, update: Any) -> None:
    """Discard an update."""


class RootRequest(Struct, frozen=True, kw_only=True):
    """A request to execute a root run.

    `messages` is the conversation, as far as the `transcript` capability goes; `new_messages` are those since the
    agent's last attempt. `is_continuation` is true if they answer a question that the backend asked in this run.

    `decisions` are those behind the answers, for a backend with that capability; hooks shaped their values and
    reasons with the messages.

    `state` is the state that the backend saved last on this thread. `await save(state)` replaces it, and
    `await update(key, value)` changes a state key of the application; both are durable when they return. `emit`
    shows what the agent does. `deps` are the dependencies of this process's runtime, or None.
    """

    agent_id: str
    messages: tuple[Message, ...]
    identity: Identity
    new_messages: tuple[Message, ...] = ()
    control: Control = Control()
    decisions: tuple[Decision, ...] = ()
    overrides: ModelSettings | None = None
    frontend_tools: tuple[ToolSpec, ...] = ()
    is_continuation: bool = False
    state: dict[str, Any] | None = None
    deps: Any = None
    emit: Emitter = field(default_factory=Emitter)
    save: Callable[[dict[str, Any]], Awaitable[None]] = _ignore_state
    update: Callable[[AnyKey, Any], Awaitable[None]] = _ignore_update
    # The activation, for the runtime's internal backends.
    local: Any = None


class DelegatePolicy(Struct, frozen=True):
    """Whether a child run is durable, and whether it continues after a question that the backend asked in it."""

    persistence: Persistence = "ephemeral"
    continuation: bool = False


class DelegateRequest(Struct, frozen=True, kw_only=True):
    """A request to execute a child run; the other fields are those of `RootRequest`."""

    agent_id: str
    messages: tuple[Message, ...]
    identity: Identity
    parent: Parent = Parent()
    policy: DelegatePolicy = DelegatePolicy()
    new_messages: tuple[Message, ...] = ()
    control: Control = Control()
    state: dict[str, Any] | None = None
    deps: Any = None
    emit: Emitter = field(default_factory=Emitter)
    save: Callable[[dict[str, Any]], Awaitable[None]] = _ignore_state
    update: Callable[[AnyKey, Any], Awaitable[None]] = _ignore_update
    local: Any = None

    @property
    def is_continuation(self) -> bool:
        """Whether the new messages answer a question that the backend asked in this run."""
        return self.policy.continuation


class AbortRequest(Struct, frozen=True, kw_only=True):
    """A request to stop the remote work of a run, as recorded in its saved `state`."""

    agent_id: str
    identity: Identity
    parent: Parent | None = None
    state: dict[str, Any] | None = None
    deps: Any = None
    is_continuation: bool = False


class PollRequest(Struct, frozen=True, kw_only=True):
    """A request to look at the remote work of a waiting run, as recorded in its saved `state`."""

    agent_id: str
    identity: Identity
    state: dict[str, Any] | None = None
    deps: Any = None


class BackendOutput(Struct, frozen=True, omit_defaults=True):
    """The output of a backend: text, artifacts, and the raw answer."""

    text: str | None = None
    artifacts: tuple[Artifact, ...] = ()
    raw: Any = None

    def text_or(self, fallback: str | None) -> str | None:
        """The text, or `fallback` if there is none."""
        return fallback if self.text is None else self.text


class Question(Struct, frozen=True, omit_defaults=True):
    """A question of a backend, which becomes a ticket.

    `id` is the backend's id of the question: a question that is asked again under the same id keeps its ticket.
    `accepts`, `schema` and `deadline` go to the ticket. The answer arrives as a tool message whose
    `reply.metadata` has `question`, `verdict`, `mode` and `reason`. At the deadline, in epoch milliseconds,
    the remote decides itself, and the backend is polled.
    """

    id: str
    message: str = ""
    data: Any = None
    accepts: tuple[ResumeMode, ...] = ("result",)
    schema: dict[str, Any] | None = None
    deadline: int | None = None


class BackendResult(Struct, frozen=True):
    """The result of a request.

    `termination` and `status_reason` default to those of the status. `state`, if given, is saved with the result.
    `questions` are those of a waiting status; without any, the status is itself the only question. `refused` says
    why the remote did not take the answers of the request: they are recorded as not taken.
    """

    agent_id: str
    status: BackendStatus = Completed()
    termination: Termination | UnsetType | None = UNSET
    status_reason: str | None = None
    response: str | None = None
    output: BackendOutput = BackendOutput()
    state: dict[str, Any] | None = None
    questions: tuple[Question, ...] = ()
    refused: str = ""

    def __post_init__(self) -> None:
        if self.termination is UNSET:
            force_setattr(self, "termination", natural_termination(self.status))

    @property
    def text(self) -> str:
        """The answer: the output's text, else the response."""
        return self.output.text_or(self.response) or ""


class ExecutionBackend:
    """The base class of execution backends: subclass it to run agents outside the local loop.

    Set `capabilities` and override `execute_root`, `execute_delegate` or both. A request that takes longer than
    `timeout` seconds ends with the status `timeout`; None means no limit.
    """

    capabilities: Capabilities = Capabilities.remote_stateless_text()
    timeout: float | None = None

    async def execute_root(self, request: RootRequest) -> BackendResult:
        """Execute a root run."""
        raise ExecutionFailed("backend does not support root execution")

    async def execute_delegate(self, request: DelegateRequest) -> BackendResult:
        """Execute a child run."""
        raise ExecutionFailed("backend does not support delegated execution")

    async def abort(self, request: AbortRequest) -> None:
        """Stop the remote work of a run; a run that is unknown or over is no error."""

    async def poll(self, request: PollRequest) -> dict[str, Any] | None:
        """Look whether the remote continued without an answer to the questions that a run waits for.

        Returns None if it still asks them. Else returns the state with which the run is executed again, without an
        answer. An error counts as None. It is called at the deadlines of the questions, and now and then.
        """
        return None


class BackendFactory:
    """Builds backends from data, for agents with `backend=BackendConfig(name, {...})`.

    A runtime builds the backends of its agents when it is made, and reports every invalid endpoint.
    """

    name: ClassVar[str] = ""

    def build(self, endpoint: Mapping[str, Any]) -> ExecutionBackend:
        """Build the backend of an endpoint, without I/O; raises `InvalidConfig` if the endpoint is invalid."""
        raise NotImplementedError


def check_root(capabilities: Capabilities, request: RootRequest) -> None:
    """Raise `ExecutionFailed` if a root request needs features that the backend lacks."""
    _refuse(request.agent_id, capabilities.unsupported_root(request))


def check_delegate(capabilities: Capabilities, request: DelegateRequest) -> None:
    """Raise `ExecutionFailed` if a delegate request needs features that the backend lacks."""
    _refuse(request.agent_id, capabilities.unsupported_delegate(request))


def _refuse(agent_id: str, unsupported: list[str]) -> None:
    if unsupported:
        raise ExecutionFailed(f"agent '{agent_id}' backend does not support: {', '.join(unsupported)}")
