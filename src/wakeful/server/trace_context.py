"""The trace context of requests: runs that a request starts are below the span of its sender."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from ..runtime import TenantRuntime
from ..traces import Tracer

__all__ = ["tracing_middleware"]


class _TraceContext:
    """Sets the sender of each request as the present span."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with self._tracer.remote(Headers(scope=scope)):
            await self._app(scope, receive, send)


def tracing_middleware(runtime: TenantRuntime) -> list[Middleware]:
    """The middleware of a runtime with telemetry; none for one without."""
    tracer = runtime.tracer
    return [] if tracer is None else [Middleware(_TraceContext, tracer=tracer)]
