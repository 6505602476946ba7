"""Resolved agents: tools by name, hooks by phase, compiled policies."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import msgspec

from ..errors import AgentNotFound, ExecutionFailed, UnknownAgent
from ..plugins import PHASES, Plugin
from ..tools import Offer, Shape, Tool, ToolSource
from ..types.base import Data
from ..types.ids import digest_of
from ..types.limits import ConsecutiveErrors, ContentMatch, LoopDetection
from ..types.requests import OutputSpec, ToolSpec
from .agent import Agent
from .backend import Backend
from .input import input_shape
from .instructions import describe_parts, instruction_parts, join_instructions

__all__ = ["Hook", "ResolvedAgent", "digest_value", "hooks_of", "resolve_bare", "resolve_child"]

MAX_OFFERS = 64


def digest_value(value: Any) -> str:
    """Compute a short digest of JSON data, stable across processes."""
    return digest_of(msgspec.json.encode(value, order="deterministic"))


class Hook(Data):
    """One plugin's method for one phase, with the plugin's section of the agent's config."""

    plugin: str
    function: Callable[[Any], Awaitable[Any]]
    config: Any
    is_concurrent: bool = False


def hooks_of(plugins: Sequence[Plugin], configs: Mapping[str, Any]) -> dict[str, tuple[Hook, ...]]:
    """The hooks of plugins by phase, each with its section of the config."""
    return {
        phase: tuple(
            Hook(plugin.label, getattr(plugin, phase), configs[plugin.label], plugin.concurrent)
            for plugin in plugins
            if getattr(type(plugin), phase) is not getattr(Plugin, phase)
        )
        for phase in (*PHASES, "activate", "deactivate")
    }


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
        sources: Sequence[ToolSource] = (),
    ) -> None:
        self.agent = agent
        self.backend = backend
        # Asked for further tools when a run is activated.
        self.sources = sources
        self._with_offers: dict[tuple[int, ...], tuple[Sequence[Offer], ResolvedAgent]] = {}
        self.configs = configs
        self.keys = keys
        self.id = agent.id
        self.parts = instruction_parts(agent.instructions)
        texts = [part for part in self.parts if isinstance(part, str)]
        # The instructions; None if functions make them for each request.
        self.instructions = join_instructions(texts) if len(texts) == len(self.parts) else None
        self.tools = {tool.spec.name: tool for tool in tools}
        self.offered = tuple(name for name, tool in self.tools.items() if not tool.on_demand)
        self.specs: tuple[ToolSpec, ...] = tuple(self.tools[name].spec for name in sorted(self.offered))
        self.hooks = hooks
        self.has_hooks = any(hooks.values())
        self.guards_input = any(guardrail.input for guardrail in agent.guardrails)
        # Whether answers are withheld from readers until the guardrails have judged them.
        self.withholds = any(guardrail.output for guardrail in agent.guardrails)
        # Tools with a gate.
        self.gated = frozenset(name for name, tool in self.tools.items() if hooks["gate_tool"] or tool.gated)
        self.shape = None if agent.output in (None, str) else Shape(agent.output)
        self.input = input_shape(agent)
        self.output = None if self.shape is None else OutputSpec("output", self.shape.schema)
        self.patterns = {p.pattern: re.compile(p.pattern) for p in agent.stop if isinstance(p, ContentMatch)}
        self.window = max((p.window for p in agent.stop if isinstance(p, LoopDetection)), default=0)
        # The strictest limit of model failures in a row, if a policy sets one.
        self.errors = min((p.errors for p in agent.stop if isinstance(p, ConsecutiveErrors)), default=None)

    @cached_property
    def digests(self) -> dict[str, str]:
        """Digests of the instructions, model and tools, to detect changes while a run waited."""
        model = self.agent.model
        name = model if isinstance(model, str) else model.name
        text = self.instructions
        return {
            "instructions": digest_value(describe_parts(self.parts) if text is None else text),
            "model": digest_value(name),
            "tools": digest_value(self.specs),
        }

    def with_tools(self, tools: Sequence[Tool]) -> ResolvedAgent:
        """Add the tools of one run. The agent's own tools take precedence."""
        if not tools:
            return self
        extra = [tool for tool in tools if tool.name not in self.offered]
        every = [*self.tools.values(), *extra]
        return ResolvedAgent(self.agent, every, self.hooks, self.configs, self.keys, self.backend, self.sources)

    def with_offers(self, offers: Sequence[Offer]) -> ResolvedAgent:
        """Add the tools of sources. Offers of later runs are often the same objects, so the result is cached."""
        key = tuple([id(offer) for offer in offers])
        found = self._with_offers.get(key)
        if found is None:
            made = self.with_tools([tool for offer in offers for tool in offer.tools])
            if len(self._with_offers) >= MAX_OFFERS:
                self._with_offers.clear()
            found = self._with_offers[key] = (offers, made)  # It keeps the offers, and so their ids.
        return found[1]

    def brings(self, tool: str) -> bool:
        """Whether a tool of this name is one of the agent's own, or may come of one of its sources."""
        return tool in self.tools or any(tool.startswith(source.prefix) for source in self.sources)


class Resolver(Protocol):
    """Resolves agents by id."""

    def resolve(self, agent_id: str) -> ResolvedAgent:
        """Resolve an agent; raises `UnknownAgent`."""
        ...


def resolve_child(registry: Resolver, agent_id: str) -> ResolvedAgent:
    """Resolve the agent of a child run; raises the errors of backends."""
    try:
        return registry.resolve(agent_id)
    except UnknownAgent as error:
        raise AgentNotFound(agent_id) from error
    except Exception as error:
        raise ExecutionFailed(f"failed to resolve agent '{agent_id}': {error}") from error


def resolve_bare(agent: Agent) -> ResolvedAgent:
    """Resolve an agent without tools and plugins."""
    none: dict[str, tuple[Hook, ...]] = dict.fromkeys((*PHASES, "activate", "deactivate"), ())
    return ResolvedAgent(agent, (), none, {}, backend=agent.backend)
