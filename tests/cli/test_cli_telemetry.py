"""A worker's counters reach OpenTelemetry where it is installed."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from wakeful.cli._telemetry import report
from wakeful.dispatch import Metrics
from wakeful.stores import Claimed


class Meter:
    """What OpenTelemetry's API gives: instruments that take amounts."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, float, dict[str, Any]]] = []

    def create_counter(self, name: str, unit: str) -> Any:
        return self._instrument(name)

    create_histogram = create_counter

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
    metrics.claimed(Claimed("default", "t", "agent", 1, 0, 40, 0, True))
    metrics.began()
    names = ["wakeful.claims", "wakeful.takeovers", "wakeful.dispatch_latency", "wakeful.runs_started"]
    assert [name for name, _, _ in meter.seen] == names
    assert meter.seen[2][1] == 0.04
    assert 'wakeful_dispatch_latency_seconds_bucket{le="0.05"} 1' in metrics.text()


def test_without_it_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    assert not report(Metrics())
