"""The ASGI application."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware

from ..agents import Agent
from ..errors import ConfigurationError
from ..runtime import TenantRuntime
from . import a2a, health
from .auth import Auth, AuthMiddleware
from .limits import BodyLimit, ServerLimits
from .serving import Serving
from .webhooks import Webhooks

__all__ = ["app", "lifespan"]


def app(
    runtime: TenantRuntime,
    *,
    agents: Sequence[str] | None = None,
    auth: Auth | None = None,
    limits: ServerLimits | None = None,
    public_url: str | None = None,
    webhooks: Webhooks | None = None,
) -> Starlette:
    """Make an ASGI application that serves agents of the runtime over A2A, by default all of them.

    Without `auth`, every caller is allowed. `public_url` is the server's address in agent cards; by default it is
    taken from the request. `webhooks` configures push notifications.

    The application opens the runtime at startup and closes it at shutdown. If you mount it into another
    application, enter `lifespan(app)` in that one's lifespan.
    """
    served, url = _select(runtime, agents), _check_url(public_url)
    serving = Serving(runtime, served, auth, limits or ServerLimits(), url, webhooks or Webhooks())

    @asynccontextmanager
    async def open_runtime(_: Starlette) -> AsyncGenerator[None]:
        async with serving.open():
            yield

    middleware = [Middleware(BodyLimit, body_bytes=serving.limits.body_bytes)]
    if auth is not None:
        public = a2a.public_paths(serving) | health.PROBES
        middleware.append(Middleware(AuthMiddleware, auth=auth, public=public))
    routes = [*health.routes(serving), *a2a.routes(serving)]
    return Starlette(routes=routes, middleware=middleware, lifespan=open_runtime)


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


def _check_url(url: str | None) -> str | None:
    if url is not None and not url.startswith(("http://", "https://")):
        raise ConfigurationError(f"public_url must begin with http:// or https://, not {url!r:.80}")
    return None if url is None else url.rstrip("/")
