"""Agents as models."""

from __future__ import annotations

from typing import Any

from ...errors import UnknownAgent
from ..operations import Call
from .table import openai_op

__all__ = ["agent_of"]

OWNER = "wakeful"


@openai_op("models.list", "GET", "/openai/v1/models", scope="agents:read", reply=dict[str, Any])
async def list_(call: Call) -> Any:
    """List the agents that the caller may use."""
    return {"object": "list", "data": [_model(agent) for agent in _usable(call)]}


@openai_op("models.get", "GET", "/openai/v1/models/{model}", scope="agents:read", reply=dict[str, Any])
async def get(call: Call, model: str) -> Any:
    """An agent as a model."""
    agent = agent_of(model)
    if agent not in _usable(call):
        raise UnknownAgent(f"no model {model!r:.80} is served here; GET /openai/v1/models lists those that are")
    return _model(agent)


def agent_of(model: str) -> str:
    """The id of the agent that a model's name stands for, with or without `wakeful/` before it."""
    return model.removeprefix(f"{OWNER}/")


def _model(agent: str) -> dict[str, Any]:
    return {"id": agent, "object": "model", "created": 0, "owned_by": OWNER}


def _usable(call: Call) -> list[str]:
    may_use = call.caller.agents
    return [agent.id for agent in call.serving.agents if may_use is None or agent.id in may_use]
