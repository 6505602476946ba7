"""The W3C trace context: its headers, and the contexts that they stand for."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ...types.runs import TraceContext

__all__ = ["context_of", "present_headers", "sender_of", "span_context"]

_w3c = TraceContextTextMapPropagator()


def present_headers() -> dict[str, str]:
    """The headers of the present span; empty if there is none."""
    carrier: dict[str, str] = {}
    _w3c.inject(carrier)
    return carrier


def context_of(known: TraceContext) -> Context:
    """The context in which an activation starts: below its trace's parent, else in a new trace."""
    alone = trace.set_span_in_context(trace.INVALID_SPAN)
    if not known.parent:
        return alone
    return _w3c.extract({"traceparent": known.parent, "tracestate": known.state}, alone)


def sender_of(headers: Mapping[str, str]) -> Context:
    """The present context with the sender of a request as its span, if the headers name one."""
    return _w3c.extract({name: headers[name] for name in ("traceparent", "tracestate") if name in headers})


def span_context(traceparent: str) -> SpanContext | None:
    """The span that a `traceparent` names; None if it isn't valid."""
    found = trace.get_current_span(_w3c.extract({"traceparent": traceparent}, Context())).get_span_context()
    return found if found.is_valid else None
