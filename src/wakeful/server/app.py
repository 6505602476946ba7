"""The ASGI application."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from ..agents import Agent
from ..errors import ConfigurationError
from ..identity import Authenticator, Authorize, owners_only
from ..runtime import TenantRuntime
from . import console, health, operations
from .access import AccessMiddleware
from .console import ConsoleLogin
from .grpc import Grpc
from .hosts import is_loopback
from .limits import BodyLimit, ServerLimits
from .problems import handle_error
from .protocols import PROTOCOLS, ErrorShapes, load_protocols
from .rates import CallerLimits
from .serving import Serving
from .trace_context import tracing_middleware
from .webhooks import Webhooks

__all__ = ["app", "lifespan"]


def app(
    runtime: TenantRuntime,
    *,
    agents: Sequence[str] | None = None,
    auth: Authenticator | Sequence[Authenticator] = (),
    authorize: Authorize = owners_only,
    limits: ServerLimits | None = None,
    public_url: str | None = None,
    webhooks: Webhooks | None = None,
    messages: Sequence[str] = (),
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    protocols: Sequence[str] | None = None,
    login: ConsoleLogin | None = None,
    export_key: bytes | None = None,
    grpc: Grpc | None = None,
) -> Starlette:
    """Make an ASGI application that serves agents of the runtime, by default all of them: the HTTP API under
    `/v1`, the web console under `/console/`, and the `protocols`, by default all of them, each under its prefix.

    `auth` are the authenticators to ask in turn. Without one every caller holds every right, and the server
    answers for loopback names only, and those in `hosts`, with `*` for any. `authorize` decides what a caller
    reaches, by default what belongs to its principal. `origins` are the foreign origins whose pages may send
    requests. `login` offers the console's users a login at an OpenID Connect issuer, whose tokens `auth` accepts.

    `public_url` is the server's address in agent cards; by default it is that of the request, if its host is a
    loopback name or one of `hosts`. `webhooks` configures push notifications. The agents in `messages` answer with
    a message instead of a task where that is enough. With an `export_key`, exported threads are signed, and only
    those that it signed are imported. With `grpc`, A2A is served over gRPC, too, on an address of its own.

    The application opens the runtime at startup and closes it at shutdown. If you mount it into another
    application, enter `lifespan(app)` in that one's lifespan.
    """
    chain = tuple(auth) if isinstance(auth, Sequence) else (auth,)
    url = _check_url(public_url)
    serving = Serving(
        runtime,
        _select(runtime, agents),
        auth=chain,
        authorize=authorize,
        limits=limits or ServerLimits(),
        public_url=url,
        webhooks=webhooks or Webhooks(),
        messages=frozenset([agent.id for agent in _select(runtime, messages)]) if messages else frozenset(),
        hosts=None if "*" in hosts else _hosts(hosts, url),
        origins=frozenset(origins),
        export_key=export_key,
        grpc=grpc,
    )
    if grpc is not None:
        _check_grpc(serving, grpc, PROTOCOLS if protocols is None else protocols)

    @asynccontextmanager
    async def open_runtime(_: Starlette) -> AsyncGenerator[None]:
        async with serving.open():
            yield

    served = load_protocols(PROTOCOLS if protocols is None else protocols)
    public = health.PROBES | operations.public_paths()
    public = public.union(*[protocol.public_paths(serving) for protocol in served])
    shapes = {protocol.PREFIX: protocol.error_body for protocol in served if hasattr(protocol, "PREFIX")}
    middleware = [
        *tracing_middleware(runtime),
        Middleware(ErrorShapes, shapes=shapes),
        Middleware(AccessMiddleware, serving=serving, public=public, checked=["/v1", *shapes]),
        Middleware(CallerLimits, quotas=serving.quotas),
        Middleware(BodyLimit, body_bytes=serving.limits.body_bytes),
    ]
    routes = [*health.routes(serving), *operations.routes(serving), *console.routes(login=login)]
    # A2A is the last: a single agent is at the root, too.
    for protocol in sorted(served, key=lambda one: not hasattr(one, "PREFIX")):
        routes += protocol.routes(serving)
    handlers: dict[Any, Any] = {HTTPException: handle_error, Exception: handle_error}
    made = Starlette(routes=routes, middleware=middleware, lifespan=open_runtime, exception_handlers=handlers)
    made.state.serving = serving
    return made


def _hosts(hosts: Sequence[str], url: str | None) -> frozenset[str]:
    named = urlsplit(url or "").hostname
    return frozenset([*hosts, *([named] if named else ())])


@asynccontextmanager
async def lifespan(served: Starlette) -> AsyncGenerator[None]:
    """Run the lifespan of a mounted application, inside that of the application that mounts it."""
    async with served.router.lifespan_context(served):
        yield


def _select(runtime: TenantRuntime, agents: Sequence[str] | None) -> tuple[Agent, ...]:
    known = runtime.agents
    names = list(known) if agents is None else list(dict.fromkeys(agents))
    if unknown := [name for name in names if name not in known]:
        raise ConfigurationError(
            f"no agent {', '.join(map(repr, unknown))} to serve; this runtime has {', '.join(known) or 'none'}"
        )
    if not names:
        raise ConfigurationError("there is no agent to serve; name at least one")
    return tuple([known[name] for name in names])


def _check_grpc(serving: Serving, grpc: Grpc, protocols: Sequence[str]) -> None:
    if "a2a" not in protocols:
        raise ConfigurationError("gRPC is a binding of A2A, which isn't among the protocols; add a2a to them")
    if not serving.auth and serving.hosts is not None and not is_loopback(grpc.host):
        raise ConfigurationError(
            f"gRPC at {grpc.host} can be reached from elsewhere, and there is no auth: give one, listen on "
            "127.0.0.1, or say that everybody may call: hosts=['*'], or --no-auth"
        )


def _check_url(url: str | None) -> str | None:
    if url is not None and not url.startswith(("http://", "https://")):
        raise ConfigurationError(f"public_url must begin with http:// or https://, not {url!r:.80}")
    return None if url is None else url.rstrip("/")
