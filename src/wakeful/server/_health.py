"""Whether a server is alive and can work, and what its runtime did: for probes, and for Prometheus."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Route

from ._serving import Serving

__all__ = ["PROBES", "routes"]

# Probes have no credentials. Metrics name tenants: they are for callers who may come in.
PROBES = frozenset(["/healthz", "/readyz"])


def routes(serving: Serving) -> list[BaseRoute]:
    """`/healthz`, `/readyz` and `/metrics`."""

    async def alive(_: Request) -> PlainTextResponse:
        return PlainTextResponse("alive\n")

    async def ready(_: Request) -> PlainTextResponse:
        problem = await serving.runtime.readiness()
        return PlainTextResponse("ready\n" if problem is None else f"{problem}\n", 200 if problem is None else 503)

    async def metrics(_: Request) -> PlainTextResponse:
        text = await serving.runtime.metrics_text()
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    return [Route("/healthz", alive), Route("/readyz", ready), Route("/metrics", metrics)]
