"""The facts about tools, runs and principals that rules refer to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...tools import ClientTool, Tool
from ...types.runs import Identity, Principal
from .matches import ToolFacts

__all__ = ["asks_itself", "facts_of", "principal_values", "run_values", "trusted_agents"]


def facts_of(tool: Tool) -> ToolFacts:
    """The facts about a tool."""
    return ToolFacts(tool.spec.name, tool.effect, frozenset(tool.hints))


def run_values(run: Identity, principal: Principal | None) -> dict[str, Any]:
    """The facts about a run, as the data that conditions refer to."""
    return {
        "agent": run.agent_id,
        "depth": run.depth,
        "origin": run.origin,
        "principal": None if principal is None else principal_values(principal),
    }


def principal_values(principal: Principal) -> dict[str, Any]:
    """The facts about a principal."""
    return {
        "id": principal.id,
        "kind": principal.kind,
        "claims": principal.claims,
        "groups": list(principal.groups),
        "roles": list(principal.roles),
    }


def asks_itself(tool: Tool, arguments: dict[str, Any]) -> bool:
    """Whether a call waits for a person or a client without any rule."""
    if isinstance(tool, ClientTool):
        return True
    if not tool.approval:
        return False
    try:
        return tool.approval_for(arguments) is not None
    except Exception:
        return False  # The loop asks the tool's rule again, and reports its error.


def trusted_agents(agents: Mapping[str, Mapping[str, Tool]]) -> frozenset[str]:
    """The agents that read no untrusted text, neither by their own tools nor by their delegates."""
    trusted = {name for name, tools in agents.items() if not any(tool.untrusted for tool in tools.values())}
    while True:
        kept = {
            name
            for name in trusted
            if all(getattr(t, "agent_id", "") in trusted for t in agents[name].values() if t.is_delegation)
        }
        if kept == trusted:
            return frozenset(kept)
        trusted = kept
