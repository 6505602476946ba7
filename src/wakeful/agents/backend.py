"""Agents with a backend: the part of its contract that agents need, validation, and stored handles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from ..plugins import Plugin
from ..state import StateKey
from ..types.requests import ModelSettings
from .agent import Agent

__all__ = [
    "LOCAL_PHASES",
    "QUESTIONS",
    "Backend",
    "BackendHandles",
    "BackendOutputs",
    "backend_problems",
    "handoff_refusal",
]

# Names of the ledger's calls that stand for a backend's questions.
QUESTIONS = frozenset({"input_required", "auth_required", "suspended"})

# Phases of local model and tool calls. A backend's runs have neither.
LOCAL_PHASES = frozenset({"before_inference", "after_inference", "gate_tool", "before_tool", "after_tool"})


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


class BackendOutputs(StateKey[Any, Any]):
    """The last output of a backend on the thread."""

    name: ClassVar[str] = "__runtime_backend_output"
    scope = "thread"


def backend_problems(agent: Agent, plugins: Mapping[str, Plugin]) -> list[str]:
    """List the fields and plugins that an agent with a backend can't use."""
    found: list[str] = []
    if not isinstance(agent.model, str):
        found.append("it has a backend and a model object; the backend executes it, so omit the model")
    unused = [field for field in ("instructions", "tools", "delegates", "handoffs") if getattr(agent, field)]
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
        "it. Go on yourself"
    )
