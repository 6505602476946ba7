"""The A2A server: agent cards, JSON-RPC, HTTP+JSON and gRPC; the first two also in 0.3, by the SDK's adapters."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

from a2a.server.context import ServerCallContext
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.routes.rest_routes import create_rest_routes
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ...agents import Agent
from ...errors import ConfigurationError, NotAllowed
from ...identity import Caller
from ..access import check_right
from ..grpc import Grpc
from ..hosts import host_name
from ..problems import error_response
from ..serving import Serving
from .card import card_of, card_response
from .handler import Handler
from .push import Push
from .streams import STREAMS, with_own_streams

__all__ = ["public_paths", "routes"]

CARD = "/.well-known/agent-card.json"


def routes(serving: Serving) -> Sequence[BaseRoute]:
    """Make the routes: each agent under `/a2a/<id>`, and a single one also at the root."""
    push = Push(serving)
    serving.services.append(push.deliverer.serve)
    if serving.grpc is not None:
        serving.listeners.append(_grpc_listener(serving, serving.grpc, push))
    served = [(agent, f"/a2a/{agent.id}") for agent in serving.agents]
    if len(serving.agents) == 1:
        served.append((serving.agents[0], ""))
    return [route for agent, prefix in served for route in _agent_routes(serving, push, agent, prefix)]


def public_paths(serving: Serving) -> frozenset[str]:
    """The paths of agent cards, which are readable without credentials as they describe the authentication."""
    return frozenset([CARD, *[f"/a2a/{agent.id}{CARD}" for agent in serving.agents]])


def _grpc_listener(serving: Serving, options: Grpc, push: Push) -> Callable[[], AbstractAsyncContextManager[None]]:
    try:
        from .grpc_service import listen
    except ImportError as error:
        raise ConfigurationError(
            "serving over gRPC needs packages that aren't installed: pip install 'wakeful[grpc]'"
        ) from error
    return partial(listen, serving, options, {agent.id: Handler(serving, push, agent) for agent in serving.agents})


def _agent_routes(serving: Serving, push: Push, agent: Agent, prefix: str) -> list[BaseRoute]:
    handler, builder = Handler(serving, push, agent), _ContextBuilder(serving, prefix)

    made_at = int(time.time())

    def check(request: Request) -> None:
        caller: Caller = request.scope["caller"]
        if caller.principal is not None:
            check_right(serving, caller, "runs:create", agent.id)

    async def card(request: Request) -> Response:
        try:
            url = _url(serving, request, prefix)
        except NotAllowed as error:
            return error_response(error)
        return card_response(card_of(serving, agent, url), request.headers, made_at)

    found: list[BaseRoute] = [Route(f"{prefix}{CARD}", card)]
    sent: list[BaseRoute] = []
    for path in dict.fromkeys([prefix or "/", f"{prefix}/"]):
        sent += create_jsonrpc_routes(handler, path, context_builder=builder, enable_v0_3_compat=True)
    # The paths of version 0.3 begin with /v1, which is the HTTP API's at the root.
    sent += create_rest_routes(
        handler, context_builder=builder, enable_v0_3_compat=bool(prefix), path_prefix=prefix
    )
    # The SDK's tenant routes have a path parameter in front, which would match our own paths; they are left out.
    return [*found, *[with_own_streams(route, check) for route in sent if isinstance(route, Route)]]


class _ContextBuilder(DefaultServerCallContextBuilder):
    """Adds the agent's URL to the context of a method."""

    def __init__(self, serving: Serving, prefix: str) -> None:
        self._serving = serving
        self._prefix = prefix

    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        context.state[STREAMS] = request.scope.setdefault(STREAMS, [])
        context.state["caller"] = request.scope["caller"]
        context.state["url"] = partial(_url, self._serving, request, self._prefix)
        return context


def _url(serving: Serving, request: Request, prefix: str) -> str:
    """The URL of an agent, including the path under which the application is mounted.

    Starlette redirects the mount path itself, so a single agent of a mounted application has `/a2a/<id>`, too.
    Raises `NotAllowed` for a host that isn't known to be the server's: a card must not send callers to others.
    """
    root = request.scope.get("root_path", "").rstrip("/")
    if root and not prefix:
        prefix = f"/a2a/{serving.agents[0].id}"
    if serving.public_url is not None:
        return f"{serving.public_url}{prefix}"
    if not serving.has_name(name := host_name(request.headers.get("host", ""))):
        raise NotAllowed(
            f"a card has an address of this server, and {name!r:.80} isn't known as one: give its public_url "
            "(--public-url), or list the host: app(..., hosts=[...])",
            "",
        )
    return f"{request.url.scheme}://{request.url.netloc}{root}{prefix}"
