"""Agents with a backend: the part of its contract that agents need, validation, and stored handles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from ..plugins import Plugin
from ..state import StateKey
from ..types.requests import ModelSettings
from .agent import Agent, BackendConfig, Delegate

__all__ = [
    "LOCAL_PHASES",
    "QUESTIONS",
    "Backend",
    "BackendAttempts",
    "BackendBuilder",
    "BackendHandles",
    "BackendInput",
    "BackendOutputs",
    "backend_problems",
    "handoff_refusal",
]

# Names of the ledger's calls that stand for a backend's questions.
QUESTIONS = frozenset({"input_required", "auth_required", "suspended"})

# Phases of local answers and tool calls. A backend's runs have neither.
LOCAL_PHASES = frozenset({"after_inference", "gate_tool", "before_tool", "after_tool"})


class Backend(Protocol):
    """The part of `ExecutionBackend` that the layers below the backends use."""

    capabilities: Any
    timeout: float | None

    async def execute_root(self, request: Any) -> Any:
        """Execute a root run."""
        ...

    async def execute_delegate(self, request: Any) -> Any:
        """Execute a child run."""
        ...

    async def abort(self, request: Any) -> None:
        """Abort the execution of a run."""
        ...

    async def poll(self, request: Any) -> dict[str, Any] | None:
        """Look whether the remote of a waiting run continued by itself."""
        ...


class BackendBuilder(Protocol):
    """Builds and checks the backends of agents, as the backends provide it."""

    def is_local(self, backend: Any) -> bool:
        """Whether a backend is the loop of this process."""
        ...

    def build(self, config: BackendConfig) -> Backend:
        """Build the backend of a config; raises `InvalidConfig`."""
        ...

    def problems(self, backend: Any) -> list[str]:
        """Describe the problems of a backend."""
        ...

    def delegate_problems(self, backend: Backend, how: Delegate) -> list[str]:
        """Describe why a backend can't execute the child runs of a delegation."""
        ...


# Entry with the id of the thread that the handles belong to; no agent has an empty id.
_THREAD = ""


class BackendHandles(StateKey[Any, tuple[str, str, dict[str, Any]]]):
    """The handles that backends stored on a thread, by agent. A reader must validate them.

    A fork copies the state but not the remote execution, so a handle is valid only on the thread that stored it.
    """

    name: ClassVar[str] = "__runtime_remote_backend"
    scope = "thread"
    default: ClassVar[Any] = {}

    def apply(self, value: Any, update: tuple[str, str, dict[str, Any]]) -> Any:
        """Replace the handle of one agent."""
        thread_id, agent_id, state = update
        kept: dict[str, Any] = value if self.belongs_to(value, thread_id) else {}
        return {**kept, _THREAD: thread_id, agent_id: state}

    @staticmethod
    def belongs_to(value: dict[str, Any], thread_id: str) -> bool:
        """Whether the handles belong to this thread, and not to the one that it was forked from."""
        return value.get(_THREAD, thread_id) == thread_id


class BackendAttempts(StateKey[dict[str, tuple[str, str]], tuple[str, str, str]]):
    """The last attempt of each agent's backend that ended without an answer: the run, and the last message sent.

    The next run's request has the messages after that one. A repeated or retried run has them all again.
    """

    name: ClassVar[str] = "__runtime_backend_attempt"
    scope = "thread"
    default: ClassVar[Any] = {}

    def apply(self, value: dict[str, tuple[str, str]], update: tuple[str, str, str]) -> dict[str, tuple[str, str]]:
        """Replace the attempt of one agent."""
        agent_id, run_id, message_id = update
        return {**value, agent_id: (run_id, message_id)}


class BackendInput(StateKey[tuple[int, tuple[str, ...]], tuple[int, str]]):
    """The input that a backend received while it executed a step: the step, and the ids of the messages.

    A repeated request doesn't have these messages: the backend receives them again.
    """

    name: ClassVar[str] = "__runtime_backend_input"
    default: ClassVar[Any] = (0, ())

    def apply(self, value: tuple[int, tuple[str, ...]], update: tuple[int, str]) -> tuple[int, tuple[str, ...]]:
        """Add a message of a step; those of an earlier step are dropped."""
        step, message_id = update
        return step, (*(value[1] if value[0] == step else ()), message_id)


class BackendOutputs(StateKey[Any, Any]):
    """The last output of a backend on the thread."""

    name: ClassVar[str] = "__runtime_backend_output"
    scope = "thread"


def backend_problems(agent: Agent, plugins: Mapping[str, Plugin]) -> list[str]:
    """List the fields and plugins that an agent with a backend can't use."""
    found: list[str] = []
    if not isinstance(agent.model, str):
        found.append("it has a backend and a model object; the backend executes it, so omit the model")
    unused = [
        field
        for field in ("instructions", "tools", "delegates", "handoffs", "validators", "guardrails")
        if getattr(agent, field)
    ]
    found += [f"it has a backend and {field}; configure those on the remote side" for field in unused]
    if agent.settings != ModelSettings():
        found.append("it has a backend and settings; a run's own settings are passed on, an agent's are not")
    for label, plugin in plugins.items():
        phases = [p for p in sorted(LOCAL_PHASES) if getattr(type(plugin), p) is not getattr(Plugin, p)]
        if phases:
            found.append(f"plugin {label!r} has hooks that a backend's runs never reach: {', '.join(phases)}")
        if plugin.tools():
            found.append(f"plugin {label!r} brings tools, and an agent with a backend has none")
    return found


def handoff_refusal(agent_id: str, backend: Backend | None) -> str | None:
    """Explain why an agent can't take over a conversation; None if it can."""
    if backend is None or backend.capabilities.transcript != "single_prompt":
        return None
    return (
        f"{agent_id} can't take over the conversation: its backend takes a single prompt and would see nothing of "
        "it. Continue yourself"
    )
