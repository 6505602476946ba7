"""The code that a parked run needs: its agent and tools, and their changes since it parked."""

from __future__ import annotations

from collections.abc import Iterable

from ..agents import Registry, ResolvedAgent, digest_value
from ..tools import ClientTool
from ..types.calls import Call
from ..types.runs import Needs, RunRecord

__all__ = ["agent_of", "changes_since", "needs_of"]


def agent_of(registry: Registry, run: RunRecord) -> ResolvedAgent:
    """The agent of a run, with the tools of its client, and those of background tasks if it is one."""
    agent = registry.resolve(run.agent_id)
    if run.task is not None and run.task.background:
        agent = agent.with_tools(registry.inside_tasks)
    if run.options is None or not run.options.client_tools:
        return agent
    return agent.with_tools([ClientTool(s.name, s.description, s.parameters) for s in run.options.client_tools])


def needs_of(agent: ResolvedAgent, calls: Iterable[Call], keys: Iterable[str]) -> Needs:
    """The parts of the code that a run with these calls and state keys needs."""
    names = {call.name for call in calls if call.state != "finished" and call.name in agent.tools}
    tools = {name: digest_value(agent.tools[name].spec.parameters) for name in sorted(names)}
    # Keys of other agents' plugins are not needed.
    return Needs(agent.digests, tools, tuple([name for name in sorted(keys) if name in agent.keys]))


def changes_since(needs: Needs | None, agent: ResolvedAgent) -> tuple[str, ...]:
    """The changes in the code that a run needs: parts of its agent, and arguments of tools."""
    if needs is None:
        return ()
    parts = [part for part, was in needs.agent.items() if agent.digests.get(part) != was]
    for name, was in needs.tools.items():
        tool = agent.tools.get(name)
        if tool is None or digest_value(tool.spec.parameters) != was:
            parts.append(f"arguments of {name}")
    return tuple(parts)
