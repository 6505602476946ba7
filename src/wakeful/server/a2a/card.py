"""Agent cards."""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import formatdate, parsedate_to_datetime
from hashlib import sha256
from urllib.parse import urlsplit

from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import a2a_pb2 as pb
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response

from ... import __version__
from ...agents import Agent
from ...backends.a2a.objects import DEDUPE_EXTENSION
from ...errors import NotAllowed
from ...identity import Authenticator, Tokens
from ..grpc import Grpc
from ..serving import Serving

__all__ = ["card_of", "card_response", "output_modes"]

# Seconds that a client may keep a card without asking for it again.
MAX_AGE = 300

INPUT_MODES = ("text/plain", "application/json", "image/*", "audio/*", "video/*", "application/pdf")


def output_modes(agent: Agent) -> list[str]:
    """The media types of an agent's answers."""
    return ["text/plain"] if agent.output is str else ["text/plain", "application/json"]


def card_of(serving: Serving, agent: Agent, url: str | None, *, extended: bool = False) -> pb.AgentCard:
    """Make an agent's card. The extended card, for authenticated callers, also lists the agent's tools.

    `url` is the agent's address over HTTP; without one the card has the address over gRPC alone.
    """
    outputs = output_modes(agent)
    card = pb.AgentCard(
        name=agent.id,
        description=agent.description or f"The agent {agent.id}.",
        version=__version__,
        supported_interfaces=_interfaces(serving, agent, url),
        capabilities=pb.AgentCapabilities(
            streaming=True,
            push_notifications=True,
            extended_agent_card=bool(serving.auth),
            extensions=[pb.AgentExtension(uri=DEDUPE_EXTENSION, description="A message id is processed once.")],
        ),
        default_input_modes=INPUT_MODES,
        default_output_modes=outputs,
        skills=[_skill(agent.id, agent.id, agent.description or f"Talk to {agent.id}.", "agent")],
    )
    for authenticator in serving.auth:
        _secure(card, authenticator)
    if extended:
        for tool in serving.runtime.agents.tools(agent.id):
            card.skills.append(_skill(f"{agent.id}.{tool.name}", tool.name, tool.description or tool.name, "tool"))
    return card


def _interfaces(serving: Serving, agent: Agent, url: str | None) -> Iterator[pb.AgentInterface]:
    if url is not None:
        own = f"/a2a/{agent.id}"
        # At the root, the paths of version 0.3 are those of the HTTP API.
        old_rest = url if url.endswith(own) else f"{url}{own}"
        for version, binding, at in (
            ("1.0", "JSONRPC", url),
            ("1.0", "HTTP+JSON", url),
            ("0.3", "JSONRPC", url),
            ("0.3", "HTTP+JSON", old_rest),
        ):
            yield pb.AgentInterface(url=at, protocol_binding=binding, protocol_version=version)
    if (options := serving.grpc) is not None and (port := serving.grpc_port) is not None:
        # One port serves all agents; clients send the tenant of the card's interface with each call.
        tenant = agent.id if len(serving.agents) > 1 else ""
        at = _grpc_address(serving, options, port, url)
        yield pb.AgentInterface(url=at, protocol_binding="GRPC", protocol_version="1.0", tenant=tenant)


def _grpc_address(serving: Serving, options: Grpc, port: int, url: str | None) -> str:
    """The `host:port` of the gRPC listener, by the name that the server has in `url`."""
    if options.url is not None:
        return options.url
    if serving.public_url is None and not options.is_any:
        return options.address(port)
    if url is None:
        raise NotAllowed("a card has the server's address, which isn't known: give --public-url or --grpc-url", "")
    return options.address(port, urlsplit(url).hostname)


def card_response(card: pb.AgentCard, request: Headers, made_at: int) -> Response:
    """The response with a card that was made at a time in seconds; 304 if the client's copy is this one."""
    response = JSONResponse(agent_card_to_dict(card))
    caching = {
        "ETag": f'"{sha256(response.body).hexdigest()[:32]}"',
        "Cache-Control": f"public, max-age={MAX_AGE}",
        "Last-Modified": formatdate(made_at, usegmt=True),
    }
    if _has_copy(request, caching["ETag"], made_at):
        return Response(status_code=304, headers=caching)
    response.headers.update(caching)
    return response


def _has_copy(request: Headers, etag: str, made_at: int) -> bool:
    """Whether a conditional request says that the client has the current card; the ETag goes before the time."""
    if (tags := request.get("if-none-match")) is not None:
        known = [tag.strip().removeprefix("W/") for tag in tags.split(",")]
        return etag in known or "*" in known
    try:
        return parsedate_to_datetime(request["if-modified-since"]).timestamp() >= made_at
    except (KeyError, ValueError):
        return False


def _skill(skill_id: str, name: str, description: str, tag: str) -> pb.AgentSkill:
    return pb.AgentSkill(id=skill_id, name=name, description=description, tags=[tag])


def _secure(card: pb.AgentCard, authenticator: Authenticator) -> None:
    tokens = authenticator if isinstance(authenticator, Tokens) else None
    if (tokens is None or tokens.tokens) and "bearer" not in card.security_schemes:
        scheme = pb.HTTPAuthSecurityScheme(scheme="Bearer", description="A key or token of the server.")
        card.security_schemes["bearer"].http_auth_security_scheme.CopyFrom(scheme)
        card.security_requirements.append(pb.SecurityRequirement(schemes={"bearer": pb.StringList()}))
    if tokens is not None and tokens.api_keys:
        key = pb.APIKeySecurityScheme(
            location="header", name=tokens.api_key_header, description="A key of the server."
        )
        card.security_schemes["apiKey"].api_key_security_scheme.CopyFrom(key)
        card.security_requirements.append(pb.SecurityRequirement(schemes={"apiKey": pb.StringList()}))
