"""A worker's counters as OpenTelemetry metrics, where its API is installed (the extra `telemetry`)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..dispatch import Metrics

__all__ = ["report"]


def report(metrics: Metrics) -> bool:
    """Report every change to OpenTelemetry's meter from now on; False if that isn't installed."""
    try:
        meter: Any = import_module("opentelemetry.metrics").get_meter("wakeful")
    except ImportError:
        return False
    instruments: dict[str, Any] = {}

    def listen(name: str, amount: float, labels: dict[str, Any]) -> None:
        is_time = name.endswith("_seconds")
        found = instruments.get(name)
        if found is None:
            word = name.removeprefix("wakeful_").removesuffix("_seconds").removesuffix("_total")
            make = meter.create_histogram if is_time else meter.create_counter
            found = instruments[name] = make(f"wakeful.{word}", unit="s" if is_time else "1")
        (found.record if is_time else found.add)(amount, labels)

    metrics.listener = listen
    return True
