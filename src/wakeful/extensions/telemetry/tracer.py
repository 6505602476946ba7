"""The tracer of a runtime that reports to OpenTelemetry. Only this package imports it."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, SpanKind, TracerProvider

from ...loop import Activation
from ...models import Model, ModelRequest
from ...types.calls import Call
from ...types.runs import TraceContext
from . import names
from .content import request_attributes
from .guard import guarded
from .instruments import Instruments
from .propagation import context_of, present_headers, sender_of, span_context
from .spans import CallSpan, ChatSpan, RunSpan, call_attributes, fail, run_attributes
from .worker_metrics import report

__all__ = ["OpenTelemetryTracer"]


class OpenTelemetryTracer:
    """Makes the spans of a runtime, and records the metrics of the conventions."""

    def __init__(
        self,
        content: bool | None,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
    ) -> None:
        self._tracer = trace.get_tracer("wakeful", tracer_provider=tracer_provider)
        self._meter_provider = meter_provider
        self._instruments = Instruments(meter_provider)
        self._with_content = _wants_content() if content is None else content

    @guarded
    def capture(self, *, detached: bool = False) -> TraceContext | None:
        """The context of the present span."""
        headers = present_headers()
        if not headers:
            return None
        parent = headers["traceparent"]
        return TraceContext(links=(parent,)) if detached else TraceContext(parent, headers.get("tracestate", ""))

    @guarded
    def begin_run(self, act: Activation) -> RunSpan:
        """Start the span of an activation: below its trace's parent, linked to the activation before it."""
        known = act.view.run.trace or TraceContext()
        senders = [one for sent in act.links for one in (*sent.links, sent.parent)]
        span = self._tracer.start_span(
            f"{names.INVOKE_AGENT} {act.agent.id}",
            context_of(known),
            SpanKind.INTERNAL if act.agent.backend is None else SpanKind.CLIENT,
            run_attributes(act),
            [Link(found) for one in (*known.links, *senders) if (found := span_context(one)) is not None],
        )
        if act.trigger == "recover":
            span.add_event(names.RECOVERED)
        started = RunSpan(span, act, self._instruments)
        if headers := present_headers():
            own, is_first = headers["traceparent"], act.trigger == "new" and not act.view.run.handoffs
            # The first activation is the parent of those that follow.
            parent = own if is_first or not known.parent else known.parent
            act.set_run(trace=TraceContext(parent, headers.get("tracestate", ""), (own,)))
        return started

    @guarded
    def begin_chat(
        self, act: Activation, model: Model, request: ModelRequest, purpose: str = "answer"
    ) -> ChatSpan:
        """Start the span of a request to a model."""
        content = request_attributes(request) if self._with_content else None
        return ChatSpan(self._tracer, act, model, request, purpose, self._instruments, content)

    @guarded
    def begin_call(self, started: Any) -> CallSpan:
        """Start the span of a tool call, in the call's own task."""
        context, call = started.context, started.call
        attributes = call_attributes(call, context.run, context.principal, self._with_content)
        attributes[names.TOOL_DESCRIPTION] = started.tool.spec.description
        span = self._tracer.start_span(f"{names.EXECUTE_TOOL} {call.name}", attributes=attributes)
        contexts.attach(trace.set_span_in_context(span))  # The task's context ends with the call.
        return CallSpan(span, started, self._instruments, self._with_content)

    @contextmanager
    def mark_call(self, act: Activation, call: Call, error: str = "") -> Generator[None]:
        """A span of a call that doesn't run in this process."""
        attributes = call_attributes(call, act.identity, act.view.run.principal, self._with_content)
        attributes[names.CALL_STATE] = "unknown" if error else "parked"
        span = self._tracer.start_span(f"{names.EXECUTE_TOOL} {call.name}", attributes=attributes)
        if error:
            fail(span, error)
        if isinstance(act.span, RunSpan):
            act.span.keep(span)
        with trace.use_span(span, end_on_exit=act.span is None):
            yield

    @contextmanager
    def remote(self, headers: Mapping[str, str]) -> Generator[None]:
        """Have the sender of a request as the present span, unless an instrumentation has set one."""
        if trace.get_current_span().get_span_context().is_valid:
            yield
            return
        token = contexts.attach(sender_of(headers))
        try:
            yield
        finally:
            contexts.detach(token)

    def report(self, metrics: Any) -> None:
        """Report the metrics of a worker."""
        report(metrics, self._meter_provider)


def _wants_content() -> bool:
    wanted = os.environ.get(names.CAPTURE_CONTENT, "").strip().upper()
    return wanted in ("TRUE", "SPAN_ONLY", "SPAN_AND_EVENT")
