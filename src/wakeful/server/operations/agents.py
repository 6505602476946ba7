"""Operations of agents."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ...agents import Agent
from ...api.agents import AgentView, PermissionView, PreviewCall, ToolView
from ...errors import UnknownAgent, UsageError
from ...identity import Resource
from ...tools import Tool
from .call import Call
from .operation import op

__all__: list[str] = []


@op("agents.list", "GET", "/v1/agents", scope="agents:read", reply=list[AgentView])
async def list_(call: Call) -> Any:
    """List the agents that are served."""
    may_use = call.caller.agents
    return [_view(call, agent) for agent in call.serving.agents if may_use is None or agent.id in may_use]


@op("agents.get", "GET", "/v1/agents/{agent}", scope="agents:read", reply=AgentView)
async def get(call: Call, agent: str) -> Any:
    """An agent with its tools."""
    return _view(call, await _agent_of(call, agent))


@op(
    "agents.preview",
    "POST",
    "/v1/agents/{agent}/preview",
    scope="agents:inspect",
    reply=PermissionView,
    errors=(UnknownAgent,),
)
async def preview(call: Call, agent: str, body: PreviewCall) -> Any:
    """Decide on a call by the agent's permission rules, without grants. Nothing is executed."""
    found = await _agent_of(call, agent)
    # An extension, which an agent without rules doesn't import.
    from ...extensions.permissions import Permissions
    from ...extensions.permissions.preview import preview_call

    plugin = next((each for each in call.runtime.agents.plugins(agent) if isinstance(each, Permissions)), None)
    if plugin is None:
        raise UsageError(f"agent {agent!r:.80} has no permission rules; give its runtime a Permissions plugin")
    resolved = call.runtime.agents.resolved(found.id)
    tool = resolved.tools.get(body.tool)
    if tool is None:
        raise UsageError(f"agent {agent!r:.80} has no tool {body.tool!r:.80}; it has {', '.join(resolved.tools)}")
    section = resolved.configs[plugin.label]
    verdict, proposed = preview_call(
        plugin, section, agent, tool, body.arguments, principal=body.principal, tainted=body.tainted
    )
    shadow = "" if proposed is None else f"{proposed.decision} by {proposed.rule}"
    return PermissionView(
        decision=verdict.decision, rule=verdict.rule, layer=verdict.layer, reason=verdict.reason, shadow=shadow
    )


async def _agent_of(call: Call, agent: str) -> Agent:
    """An agent that the caller may use for the operation."""
    found = next((each for each in call.serving.agents if each.id == agent), None)
    if found is None or not await call.permits("agents:read", Resource("agent", agent, agent=agent)):
        raise UnknownAgent(f"no agent {agent!r:.80} is served here; GET /v1/agents lists those that are")
    return found


def _view(call: Call, agent: Agent) -> AgentView:
    runtime, may_inspect = call.runtime, call.caller.may("agents:inspect", agent.id)
    resolved = runtime.agents.resolved(agent.id)
    tools = [_tool_view(resolved.tools[spec.name], may_inspect=may_inspect) for spec in resolved.specs]
    view = AgentView(
        id=agent.id,
        description=agent.description,
        model=agent.model if isinstance(agent.model, str) else str(getattr(agent.model, "name", "")),
        tools=tuple(tools),
        input=None if resolved.input is None else resolved.input.schema,
        output=None if resolved.shape is None else resolved.shape.schema,
    )
    if not may_inspect:
        return view
    return replace(
        view,
        instructions=agent.instructions if isinstance(agent.instructions, str) else "",
        delegates=tuple([each if isinstance(each, str) else each.agent for each in agent.delegates]),
        handoffs=tuple(agent.handoffs),
        plugins=tuple([plugin.label for plugin in runtime.agents.plugins(agent.id)]),
    )


def _tool_view(tool: Tool, *, may_inspect: bool) -> ToolView:
    spec = tool.spec
    view = ToolView(name=spec.name, description=spec.description, parameters=spec.parameters)
    if not may_inspect:
        return view
    approval = "never" if not tool.approval else "sometimes" if callable(tool.approval) else "always"
    return replace(view, effect=tool.effect, approval=approval)
