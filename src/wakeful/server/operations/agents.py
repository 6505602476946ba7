"""Operations of agents."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ...agents import Agent
from ...api.agents import AgentView, ToolView
from ...errors import UnknownAgent
from ...identity import Resource
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
    found = next((each for each in call.serving.agents if each.id == agent), None)
    if found is None or (call.caller.agents is not None and agent not in call.caller.agents):
        raise UnknownAgent(f"no agent {agent!r:.80} is served here; GET /v1/agents lists those that are")
    await call.require(Resource("agent", agent, agent=agent))
    return _view(call, found)


def _view(call: Call, agent: Agent) -> AgentView:
    tools = [
        ToolView(name=tool.name, description=tool.description, parameters=tool.parameters)
        for tool in call.runtime.agents.tools(agent.id)
    ]
    model = agent.model if isinstance(agent.model, str) else str(getattr(agent.model, "name", ""))
    view = AgentView(id=agent.id, description=agent.description, model=model, tools=tuple(tools))
    if not call.caller.may("agents:inspect", agent.id):
        return view
    return replace(
        view,
        instructions=agent.instructions if isinstance(agent.instructions, str) else "",
        delegates=tuple([each if isinstance(each, str) else each.agent for each in agent.delegates]),
        handoffs=tuple(agent.handoffs),
    )
