"""A worker's counters reach OpenTelemetry where it is installed."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import opentelemetry.metrics
import pytest

from wakeful.dispatch import Metrics
from wakeful.extensions.telemetry.worker_metrics import report
from wakeful.stores import Backlog, QueueSeen, Renewals, Tally


class Meter:
    """A meter of OpenTelemetry's API."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, float, dict[str, Any]]] = []
        self.observed: dict[str, Any] = {}

    def create_counter(self, name: str, unit: str, description: str) -> Any:
        return self._instrument(name)

    create_histogram = create_counter

    def create_observable_gauge(self, name: str, callbacks: list[Any], unit: str, description: str) -> None:
        self.observed[name] = callbacks[0]

    create_observable_counter = create_observable_gauge

    def look(self, name: str) -> list[tuple[float, Any]]:
        return [(one.value, one.attributes) for one in self.observed[name](None)]

    def _instrument(self, name: str) -> Any:
        def take(amount: float, labels: dict[str, Any]) -> None:
            self.seen.append((name, amount, labels))

        return type("Instrument", (), {"add": staticmethod(take), "record": staticmethod(take)})


def test_claims_takeovers_and_latency_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    meter, api = Meter(), ModuleType("opentelemetry.metrics")
    monkeypatch.setattr(api, "get_meter", lambda name: meter, raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", ModuleType("opentelemetry"))
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", api)
    metrics = Metrics()
    assert report(metrics)
    metrics.claimed(0.04, taken_over=True)
    metrics.began()
    names = ["wakeful.claims", "wakeful.takeovers", "wakeful.dispatch_latency", "wakeful.runs_started"]
    assert [name for name, _, _ in meter.seen] == names
    assert meter.seen[2][1] == 0.04
    assert 'wakeful_dispatch_latency_seconds_bucket{le="0.05"} 1' in metrics.text()


def test_observed_metrics_are_read_on_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = Meter()
    monkeypatch.setattr(opentelemetry.metrics, "get_meter", lambda name: meter)
    metrics = Metrics()
    assert report(metrics)
    assert meter.look("wakeful.queue_depth") == meter.look("wakeful.bus_up") == []
    lane = QueueSeen(tenant="acme", agent_id="a", waiting=3, later=0, oldest_at=1000)
    metrics.backlog = Backlog(3500, (lane,), Tally(2))
    metrics.bus, metrics.renewals = lambda: False, lambda: Renewals(7, 1)
    assert meter.look("wakeful.queue_depth") == [(3, {"tenant": "acme"})]
    assert meter.look("wakeful.queue_oldest") == [(2.5, {})]
    assert meter.look("wakeful.dead_letters") == [(2, {})]
    assert meter.look("wakeful.bus_up") == [(0, {})]
    assert meter.look("wakeful.lease_renewals")[:2] == [(7, {"status": "ok"}), (1, {"status": "failed"})]


def test_telemetry_is_not_imported_when_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    assert not report(Metrics())
