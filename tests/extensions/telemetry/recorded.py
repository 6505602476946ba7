"""Spans and metrics in memory, and how to look at them."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from wakeful import Agent, Runtime
from wakeful.extensions.telemetry import Telemetry


class Recorded:
    """A provider whose ended spans are kept in memory."""

    def __init__(self, *, content: bool | None = None, sampler: Sampler | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        meters = MeterProvider([self.reader])
        self.telemetry = Telemetry(content=content, tracer_provider=self.provider, meter_provider=meters)
        self.tracer = self.provider.get_tracer("application")

    def runtime(self, *agents: Agent[Any], **options: Any) -> Runtime:
        return Runtime(agents, telemetry=self.telemetry, **options)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        """The spans of that name, in the order in which they started."""
        return sorted([span for span in self.spans if span.name == name], key=lambda span: span.start_time or 0)

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found

    def metric(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        """The labels and the data of a metric's points."""
        data = self.reader.get_metrics_data()
        assert data is not None
        metrics = [one for each in data.resource_metrics for scope in each.scope_metrics for one in scope.metrics]
        return [
            (dict(point.attributes or {}), point)
            for one in metrics
            if one.name == name
            for point in one.data.data_points
        ]


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def trace_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


def parent_id(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def linked_ids(span: ReadableSpan) -> set[int]:
    return {link.context.span_id for link in span.links}


def attribute(span: ReadableSpan, name: str) -> Any:
    return (span.attributes or {}).get(name)
