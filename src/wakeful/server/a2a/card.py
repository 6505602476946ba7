"""Agent cards."""

from __future__ import annotations

from a2a.types import a2a_pb2 as pb

from ... import __version__
from ...agents import Agent
from ...backends.a2a.objects import DEDUPE_EXTENSION
from ..auth import Auth
from ..serving import Serving

__all__ = ["card_of", "output_modes"]

INPUT_MODES = ("text/plain", "application/json", "image/*", "audio/*", "video/*", "application/pdf")


def output_modes(agent: Agent) -> list[str]:
    """The media types of an agent's answers."""
    return ["text/plain"] if agent.output in (None, str) else ["text/plain", "application/json"]


def card_of(serving: Serving, agent: Agent, url: str, *, extended: bool = False) -> pb.AgentCard:
    """Make an agent's card. The extended card, for authenticated callers, also lists the agent's tools."""
    outputs = output_modes(agent)
    card = pb.AgentCard(
        name=agent.id,
        description=agent.description or f"The agent {agent.id}.",
        version=__version__,
        supported_interfaces=[
            pb.AgentInterface(url=url, protocol_binding=binding, protocol_version=version)
            for version in ("1.0", "0.3")
            for binding in ("JSONRPC", "HTTP+JSON")
        ],
        capabilities=pb.AgentCapabilities(
            streaming=True,
            push_notifications=True,
            extended_agent_card=serving.auth is not None,
            extensions=[pb.AgentExtension(uri=DEDUPE_EXTENSION, description="A message id is processed once.")],
        ),
        default_input_modes=INPUT_MODES,
        default_output_modes=outputs,
        skills=[_skill(agent.id, agent.id, agent.description or f"Talk to {agent.id}.", "agent")],
    )
    if serving.auth is not None:
        _secure(card, serving.auth)
    if extended:
        for tool in serving.runtime.agents.tools(agent.id):
            card.skills.append(_skill(f"{agent.id}.{tool.name}", tool.name, tool.description or tool.name, "tool"))
    return card


def _skill(skill_id: str, name: str, description: str, tag: str) -> pb.AgentSkill:
    return pb.AgentSkill(id=skill_id, name=name, description=description, tags=[tag])


def _secure(card: pb.AgentCard, auth: Auth) -> None:
    if auth.tokens:
        scheme = pb.HTTPAuthSecurityScheme(scheme="Bearer", description="A token of the server.")
        card.security_schemes["bearer"].http_auth_security_scheme.CopyFrom(scheme)
        card.security_requirements.append(pb.SecurityRequirement(schemes={"bearer": pb.StringList()}))
    if auth.api_keys:
        key = pb.APIKeySecurityScheme(
            location="header", name=auth.api_key_header, description="A key of the server."
        )
        card.security_schemes["apiKey"].api_key_security_scheme.CopyFrom(key)
        card.security_requirements.append(pb.SecurityRequirement(schemes={"apiKey": pb.StringList()}))
