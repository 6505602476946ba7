"""Agents: the configured agents and the tools that each offers its model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..agents import Agent, Registry, ResolvedAgent
from ..plugins import Plugin
from ..types.requests import ToolSpec

__all__ = ["Agents"]


class Agents(Mapping[str, Agent]):
    """`runtime.agents`: the agents by id."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def __getitem__(self, agent: str) -> Agent:
        return self._registry.agents[agent]

    def __iter__(self) -> Iterator[str]:
        return iter(self._registry.agents)

    def __len__(self) -> int:
        return len(self._registry.agents)

    def check_credentials(self, agent: str) -> None:
        """Raise `BadCredentials` if an agent's model needs a key and has none. Nothing is sent."""
        if (model := self[agent].model) == "":
            return  # A backend has its own.
        check = getattr(self._registry.models.resolve(model), "check_credentials", None)
        if check is not None:
            check()

    def tools(self, agent: str) -> Sequence[ToolSpec]:
        """The specs of the tools that an agent's model is offered, without those of tool sources."""
        return self._registry.resolve(agent).specs

    def resolved(self, agent: str) -> ResolvedAgent:
        """An agent as it is executed: with all its tools, and the configuration of its plugins."""
        return self._registry.resolve(agent)

    def plugins(self, agent: str) -> Sequence[Plugin]:
        """The plugins that act on an agent's runs: the runtime's, and its own."""
        return self._registry.plugins_of(agent)
