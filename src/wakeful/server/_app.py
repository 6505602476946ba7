"""One ASGI application for the protocols of a runtime's agents."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware

from ..agents import Agent
from ..errors import ConfigurationError
from ..runtime import Runtime
from . import _health, a2a
from ._auth import Auth, AuthMiddleware
from ._limits import BodyLimit, ServerLimits
from ._serving import Serving
from ._webhooks import Webhooks

__all__ = ["app", "lifespan"]


def app(
    runtime: Runtime,
    *,
    agents: Sequence[str] | None = None,
    auth: Auth | None = None,
    limits: ServerLimits | None = None,
    public_url: str | None = None,
    webhooks: Webhooks | None = None,
) -> Starlette:
    """An ASGI application that serves these agents of the runtime, all of them by default, over A2A.

    Without `auth` everybody who reaches it may call. `public_url` is where callers reach it, for the agents'
    cards; by default that is what a request says. `webhooks` says where push notifications may go. The application
    holds the runtime open while it lives; where it is mounted into another one, that one's lifespan has to enter
    `lifespan(app)`.
    """
    chosen, url = _chosen(runtime, agents), _checked(public_url)
    serving = Serving(runtime, chosen, auth, limits or ServerLimits(), url, webhooks or Webhooks())

    @asynccontextmanager
    async def alive(_: Starlette) -> AsyncGenerator[None]:
        async with serving.open():
            yield

    guards = [Middleware(BodyLimit, body_bytes=serving.limits.body_bytes)]
    if auth is not None:
        guards.append(Middleware(AuthMiddleware, auth=auth, public=a2a.public(serving) | _health.PROBES))
    return Starlette(routes=[*_health.routes(serving), *a2a.routes(serving)], middleware=guards, lifespan=alive)


@asynccontextmanager
async def lifespan(served: Starlette) -> AsyncGenerator[None]:
    """What an application that mounts this one has to be inside of while it serves."""
    async with served.router.lifespan_context(served):
        yield


def _chosen(runtime: Runtime, agents: Sequence[str] | None) -> tuple[Agent, ...]:
    known = runtime.agents
    names = list(known) if agents is None else list(dict.fromkeys(agents))
    if unknown := [name for name in names if name not in known]:
        raise ConfigurationError(
            f"no agent {', '.join(map(repr, unknown))} to serve; this runtime has {', '.join(known) or 'none'}"
        )
    if not names:
        raise ConfigurationError("there is no agent to serve; name at least one")
    return tuple([known[name] for name in names])


def _checked(url: str | None) -> str | None:
    if url is not None and not url.startswith(("http://", "https://")):
        raise ConfigurationError(f"public_url begins with http:// or https://, not {url!r:.80}")
    return None if url is None else url.rstrip("/")
