"""Traces: the seam between the runtime and a tracer. Without a tracer each use is a check for None.

`act` is an `Activation` of the loop, which is above this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Protocol

from .types.runs import TraceContext

__all__ = ["CallSpan", "ChatSpan", "RunSpan", "Tracer", "trace_carrier", "trace_headers"]

# The function that gives the headers of the present span, below an activation that is traced.
trace_carrier: ContextVar[Callable[[], dict[str, str]] | None] = ContextVar("wakeful_trace_carrier", default=None)


def trace_headers() -> dict[str, str]:
    """The W3C trace context of the present span, `traceparent` and `tracestate`, to send with a request.

    Call it in the task or thread of the tool, gate or hook. It is empty without `Runtime(telemetry=...)`.
    """
    carrier = trace_carrier.get()
    return {} if carrier is None else carrier()


class RunSpan(Protocol):
    """The span of an activation. Spans that are started in its task are below it."""

    def link(self, trace: TraceContext) -> None:
        """Link to the sender of an item that the run took."""
        ...

    def end(self, error: BaseException | None) -> None:
        """End the span: the run waits, is done, or was lost with an error."""
        ...


class ChatSpan(Protocol):
    """The span of one request to a model."""

    def observe(self, chunks: Any) -> Any:
        """Pass the chunks of the answer on, and measure them."""
        ...

    def end(self, usage: Any, stop: str, error: BaseException | None) -> None:
        """End the span with the usage of the request."""
        ...


class CallSpan(Protocol):
    """The span of one attempt at a tool call."""

    def end(self, end: Any) -> None:
        """End the span with a `CallEnd`."""
        ...


class Tracer(Protocol):
    """Makes the spans of a runtime. No method raises an error."""

    def capture(self, *, detached: bool = False) -> TraceContext | None:
        """The context of the present span, for what it asks for: as its parent, or `detached` as a link."""
        ...

    def begin_run(self, act: Any) -> RunSpan | None:
        """Start the span of an activation in the present task, and put its context into the run's record."""
        ...

    def begin_chat(self, act: Any, model: Any, request: Any, purpose: str = "answer") -> ChatSpan | None:
        """Start the span of a request in the present task."""
        ...

    def begin_call(self, started: Any) -> CallSpan | None:
        """Start the span of a `StartedCall` in the present task, which is the call's own."""
        ...

    def mark_call(self, act: Any, call: Any, error: str = "") -> AbstractContextManager[None]:
        """A span of a call that runs nowhere in this process: its task does, or its outcome is unknown."""
        ...

    def remote(self, headers: Mapping[str, str]) -> AbstractContextManager[None]:
        """Have the sender of a request with these headers as the present span, unless there is one."""
        ...

    def report(self, metrics: Any) -> None:
        """Report the metrics of a worker from now on."""
        ...
