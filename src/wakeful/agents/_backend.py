"""Agents that the loop doesn't run itself: what they execute with, what they can't have, and what is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from ..plugins import Plugin
from ..state import StateKey
from ..types.requests import ModelSettings
from ._agent import Agent

__all__ = [
    "LOCAL_PHASES",
    "QUESTIONS",
    "Backend",
    "BackendHandles",
    "BackendOutputs",
    "handoff_refusal",
    "remote_problems",
]

# The names of the calls that a backend's questions are in the ledger.
QUESTIONS = frozenset({"input_required", "auth_required", "suspended"})

# The phases that belong to model calls and tools of our own; a backend has neither.
LOCAL_PHASES = frozenset({"before_inference", "after_inference", "gate_tool", "before_tool", "after_tool"})


class Backend(Protocol):
    """What an agent executes with, as far as the layers below the backends need to know it."""

    capabilities: Any
    timeout: float | None

    async def execute_root(self, request: Any) -> Any:
        """Carry out a run of its own."""
        ...

    async def execute_delegate(self, request: Any) -> Any:
        """Carry out a child of another run."""
        ...

    async def abort(self, request: Any) -> None:
        """Stop what was begun for a run."""
        ...


# Under this name, which no agent has, is the thread that the handles are for.
_THREAD = ""


class BackendHandles(StateKey[Any, tuple[str, str, dict[str, Any]]]):
    """What backends saved on a thread, by agent. Whoever reads it checks it: a bad value fails the run.

    A copy of a thread has its state, and nothing that runs elsewhere for it: a handle counts only on the thread
    that it was saved on.
    """

    name: ClassVar[str] = "__runtime_remote_backend"
    scope = "thread"
    default: ClassVar[Any] = {}

    def apply(self, value: Any, update: tuple[str, str, dict[str, Any]]) -> Any:
        """Replace what one agent's backend saved on a thread."""
        thread_id, agent_id, state = update
        kept: dict[str, Any] = value if self.is_of(value, thread_id) else {}
        return {**kept, _THREAD: thread_id, agent_id: state}

    @staticmethod
    def is_of(value: dict[str, Any], thread_id: str) -> bool:
        """Whether these are handles of that thread, and not of the one that it was copied from."""
        return value.get(_THREAD, thread_id) == thread_id


class BackendOutputs(StateKey[Any, Any]):
    """What a backend on the thread made last."""

    name: ClassVar[str] = "__runtime_backend_output"
    scope = "thread"


def remote_problems(agent: Agent, plugins: Mapping[str, Plugin]) -> list[str]:
    """What an agent with a backend has that a backend can't use; `plugins` are its own, by name."""
    found: list[str] = []
    if not isinstance(agent.model, str):
        found.append("it has a backend and a model object; the backend executes it, so leave the model out")
    theirs = [field for field in ("instructions", "tools", "delegates", "handoffs") if getattr(agent, field)]
    found += [f"it has a backend and {field}; give those to what the backend talks to" for field in theirs]
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
    """Why a conversation can't be handed to an agent, if it can't."""
    if backend is None or backend.capabilities.transcript != "single_prompt":
        return None
    return (
        f"{agent_id} can't take over the conversation: its backend takes a single prompt and would see nothing of "
        "it. Go on yourself"
    )
