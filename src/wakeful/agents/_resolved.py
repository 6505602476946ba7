"""An agent as it runs: its tools by name, its hooks by phase, its policies compiled."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import msgspec

from ..errors import AgentNotFound, ExecutionFailed, UnknownAgent
from ..tools import Shape, Tool
from ..types.limits import ConsecutiveErrors, ContentMatch, LoopDetection
from ..types.requests import OutputSpec, ToolSpec
from ._agent import Agent
from ._backend import Backend
from ._input import input_shape

__all__ = ["Hook", "ResolvedAgent", "child_agent", "digest"]


def digest(value: Any) -> str:
    """A short name for data: the same for the same data, in any process."""
    from hashlib import blake2b

    return blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=8).hexdigest()


class Hook(msgspec.Struct, frozen=True):
    """One plugin's method for one phase, with the plugin's section of the agent's config."""

    plugin: str
    function: Callable[[Any], Awaitable[Any]]
    config: Any


class ResolvedAgent:
    """An agent ready to run: tools by name, hooks by phase, policies compiled."""

    def __init__(
        self,
        agent: Agent,
        tools: Sequence[Tool],
        hooks: Mapping[str, tuple[Hook, ...]],
        configs: Mapping[str, Any],
        keys: frozenset[str] = frozenset(),
        backend: Backend | None = None,
    ) -> None:
        self.agent = agent
        self.backend = backend
        self.configs = configs
        self.keys = keys
        self.id = agent.id
        self.tools = {tool.spec.name: tool for tool in tools}
        self.offered = tuple(name for name, tool in self.tools.items() if not tool.on_demand)
        self.specs: tuple[ToolSpec, ...] = tuple(self.tools[name].spec for name in sorted(self.offered))
        self.hooks = hooks
        self.hooked = any(hooks.values())
        # The tools whose calls are asked about before they run.
        self.gated = frozenset(name for name, tool in self.tools.items() if hooks["gate_tool"] or tool.gated)
        self.shape = None if agent.output in (None, str) else Shape(agent.output)
        self.input = input_shape(agent)
        self.output = None if self.shape is None else OutputSpec("output", self.shape.schema)
        self.patterns = {p.pattern: re.compile(p.pattern) for p in agent.stop if isinstance(p, ContentMatch)}
        self.window = max((p.window for p in agent.stop if isinstance(p, LoopDetection)), default=0)
        # After how many failures of the model in a row the run stops, where a policy says so.
        self.errors = min((p.errors for p in agent.stop if isinstance(p, ConsecutiveErrors)), default=None)

    @cached_property
    def digests(self) -> dict[str, str]:
        """What the agent is, by parts: a run that waited is told by these whether it changed."""
        model = self.agent.model
        name = model if isinstance(model, str) else model.name
        return {
            "instructions": digest(self.agent.instructions),
            "model": digest(name),
            "tools": digest(self.specs),
        }

    def with_tools(self, tools: Sequence[Tool]) -> ResolvedAgent:
        """The same agent with tools that one run brings; its own tools win over those."""
        if not tools:
            return self
        extra = [tool for tool in tools if tool.name not in self.offered]
        every = [*self.tools.values(), *extra]
        return ResolvedAgent(self.agent, every, self.hooks, self.configs, self.keys, self.backend)


class Resolver(Protocol):
    """Knows agents by their ids."""

    def resolve(self, agent_id: str) -> ResolvedAgent:
        """The agent of that id, ready to run."""
        ...


def child_agent(registry: Resolver, agent_id: str) -> ResolvedAgent:
    """The agent to run as a child; what is wrong with it is said in the words of every backend."""
    try:
        return registry.resolve(agent_id)
    except UnknownAgent as error:
        raise AgentNotFound(agent_id) from error
    except Exception as error:
        raise ExecutionFailed(f"failed to resolve agent '{agent_id}': {error}") from error
