"""Health probes and Prometheus metrics."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Route

from ..runtime import Runtime
from .serving import Serving

__all__ = ["PROBES", "routes"]

# Probes send no credentials. Metrics name tenants, so they need them.
PROBES = frozenset(["/healthz", "/readyz"])


def routes(serving: Serving) -> list[BaseRoute]:
    """Make the routes `/healthz`, `/readyz` and, unless it serves one tenant, `/metrics`."""

    async def alive(_: Request) -> PlainTextResponse:
        return PlainTextResponse("alive\n")

    async def ready(_: Request) -> PlainTextResponse:
        problem = await serving.runtime.workers.readiness()
        return PlainTextResponse("ready\n" if problem is None else f"{problem}\n", 200 if problem is None else 503)

    found: list[BaseRoute] = [Route("/healthz", alive), Route("/readyz", ready)]
    runtime = serving.runtime
    if isinstance(runtime, Runtime):
        workers = runtime.workers

        async def metrics(_: Request) -> PlainTextResponse:
            return PlainTextResponse(await workers.metrics_text(), media_type="text/plain; version=0.0.4")

        found.append(Route("/metrics", metrics))
    return found
