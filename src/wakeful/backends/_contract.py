"""What a backend is to the runtime: what it can do, what it is asked, and what it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import force_setattr

from ..errors import ExecutionFailed
from ..types.content import Artifact
from ..types.messages import Message
from ..types.requests import ModelSettings, ToolSpec
from ..types.runs import Identity, Termination
from ..types.tickets import Decision
from ._status import BackendStatus, Completed, natural_termination

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
    """Whether a backend's `abort` stops what it began elsewhere."""
    return cancellation in ("abort", "cooperative_and_abort")


class Capabilities(Struct, frozen=True):
    """What a backend can do; by default all that the local loop can. A request that asks for more is refused
    before the backend is called.

    `transcript` says what it is sent: the whole conversation, what is new since it was sent something last, or
    one prompt. `waits` are the questions it may come back with, `persistence` how children of it may be kept.
    """

    cancellation: Cancellation = "cooperative"
    decisions: bool = True
    overrides: bool = True
    frontend_tools: bool = True
    continuation: Literal["none", "in_process", "remote"] = "in_process"
    waits: Literal["none", "input", "auth", "input_and_auth"] = "input_and_auth"
    transcript: Literal["full", "incremental", "single_prompt"] = "full"
    output: Literal["text", "text_and_artifacts"] = "text_and_artifacts"
    persistence: tuple[Persistence, ...] = ("ephemeral",)

    @classmethod
    def full(cls) -> Capabilities:
        """Everything."""
        return cls()

    @classmethod
    def remote_stateless_text(cls) -> Capabilities:
        """One prompt in, one text out: what a backend has that declares nothing."""
        return cls("none", False, False, False, "none", "none", "single_prompt", "text")

    def unsupported_root(self, request: RootRequest) -> list[str]:
        """What a root request asks for that isn't there, in a fixed order."""
        live = request.control.decisions is not None
        wanted = {
            "decisions": bool(request.decisions or live) and not self.decisions,
            "overrides": request.overrides is not None and not self.overrides,
            "frontend_tools": bool(request.frontend_tools) and not self.frontend_tools,
            "continuation": request.is_continuation and self.continuation == "none",
        }
        return [name for name, missing in wanted.items() if missing]

    def unsupported_delegate(self, request: DelegateRequest) -> list[str]:
        """What a delegate request asks for that isn't there, in a fixed order."""
        policy = request.policy
        wanted = {
            "delegate_persistence": policy.persistence not in self.persistence,
            "continuation": (policy.continuation or request.is_continuation) and self.continuation == "none",
        }
        return [name for name, missing in wanted.items() if missing]


class Parent(Struct, frozen=True):
    """Whose child a run is."""

    run_id: str | None = None
    thread_id: str | None = None
    call_id: str | None = None


class Control(Struct, frozen=True):
    """How a run is reached while it executes: an event that is set when it is cancelled, and decisions that come
    while it runs. A backend has what its capabilities say, else None."""

    cancelled: asyncio.Event | None = None
    decisions: asyncio.Queue[Decision] | None = None


def _nobody_reads(text: str) -> None:
    """Nobody reads along."""


async def _nothing_keeps(state: dict[str, Any]) -> None:
    """Nothing keeps the state."""


class RootRequest(Struct, frozen=True, kw_only=True):
    """A run of its own. `messages` is the conversation as far as `transcript` allows, `new_messages` what is new
    in it. `is_continuation` says that it holds the answer to what the backend asked in this run.

    `state` is what the backend saved last on this thread; `await save(state)` replaces it, and is durable when it
    returns. `emit(text)` shows a piece of the answer to whoever reads along.
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
    emit: Callable[[str], None] = _nobody_reads
    save: Callable[[dict[str, Any]], Awaitable[None]] = _nothing_keeps
    # The activation itself: for the local backend and the runtime's own.
    local: Any = None


class DelegatePolicy(Struct, frozen=True):
    """How a child is kept, and whether it goes on with an earlier one's conversation."""

    persistence: Persistence = "ephemeral"
    continuation: bool = False


class DelegateRequest(Struct, frozen=True, kw_only=True):
    """A child of another run; the fields are a root request's, with whose child it is."""

    agent_id: str
    messages: tuple[Message, ...]
    identity: Identity
    parent: Parent = Parent()
    policy: DelegatePolicy = DelegatePolicy()
    new_messages: tuple[Message, ...] = ()
    control: Control = Control()
    is_continuation: bool = False
    state: dict[str, Any] | None = None
    emit: Callable[[str], None] = _nobody_reads
    save: Callable[[dict[str, Any]], Awaitable[None]] = _nothing_keeps
    local: Any = None


class AbortRequest(Struct, frozen=True, kw_only=True):
    """Stop what the backend began elsewhere for a run, as far as the saved `state` says that it began anything."""

    agent_id: str
    identity: Identity
    parent: Parent | None = None
    state: dict[str, Any] | None = None
    is_continuation: bool = False


class BackendOutput(Struct, frozen=True, omit_defaults=True):
    """What a backend made: text, artifacts, and its answer as it came."""

    text: str | None = None
    artifacts: tuple[Artifact, ...] = ()
    raw: Any = None

    def text_or(self, fallback: str | None) -> str | None:
        """The text, or else this."""
        return fallback if self.text is None else self.text


class BackendResult(Struct, frozen=True):
    """What a request came to. Where no `termination` is given, it is the one that goes with the status.

    `status_reason` wins over the reason that goes with the status. `state`, where there is one, is saved with the
    result.
    """

    agent_id: str
    status: BackendStatus = Completed()
    termination: Termination | UnsetType | None = UNSET
    status_reason: str | None = None
    response: str | None = None
    output: BackendOutput = BackendOutput()
    steps: int = 0
    run_id: str | None = None
    inbox: Any = None
    state: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.termination is UNSET:
            force_setattr(self, "termination", natural_termination(self.status))

    @property
    def text(self) -> str:
        """The answer: the output's text, else the response."""
        return self.output.text_or(self.response) or ""


class ExecutionBackend:
    """How an agent executes that the local loop doesn't run. Subclass it, say what it can do, and override
    `execute_root`, `execute_delegate` or both.

    After `timeout` seconds a request is given up with the status `timeout`; None leaves that to the backend.
    """

    capabilities: Capabilities = Capabilities.remote_stateless_text()
    timeout: float | None = None

    async def execute_root(self, request: RootRequest) -> BackendResult:
        """Carry out a run of its own."""
        raise ExecutionFailed("backend does not support root execution")

    async def execute_delegate(self, request: DelegateRequest) -> BackendResult:
        """Carry out a child of another run."""
        raise ExecutionFailed("backend does not support delegated execution")

    async def abort(self, request: AbortRequest) -> None:
        """Stop what was begun for a run; what isn't known or is over already is no error."""


class BackendFactory:
    """Builds backends from data, for agents that name theirs: `Agent(..., backend=BackendConfig(name, {...}))`."""

    name: ClassVar[str] = ""

    def build(self, endpoint: Mapping[str, Any]) -> ExecutionBackend:
        """The backend for an endpoint; raises `InvalidConfig` if that can't be one. No I/O happens here."""
        raise NotImplementedError

    def validate(self, endpoint: Mapping[str, Any]) -> None:
        """Raise `InvalidConfig` if no backend can be built for the endpoint."""
        self.build(endpoint)


def check_root(capabilities: Capabilities, request: RootRequest) -> None:
    """Refuse a request that asks for what the backend can't do."""
    _refuse(request.agent_id, capabilities.unsupported_root(request))


def check_delegate(capabilities: Capabilities, request: DelegateRequest) -> None:
    """Refuse a child's request that asks for what the backend can't do."""
    _refuse(request.agent_id, capabilities.unsupported_delegate(request))


def _refuse(agent_id: str, unsupported: list[str]) -> None:
    if unsupported:
        raise ExecutionFailed(f"agent '{agent_id}' backend does not support: {', '.join(unsupported)}")
