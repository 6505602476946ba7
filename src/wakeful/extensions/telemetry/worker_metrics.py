"""The metrics of a worker for OpenTelemetry: our own names, beside those of the conventions."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from ...dispatch import INSTRUMENTS, Metrics

__all__ = ["report"]


def report(metrics: Metrics, provider: Any = None) -> bool:
    """Report to the meter of a provider, by default the global one; False if OpenTelemetry isn't installed.

    Metrics that have a listener are reported already.
    """
    if metrics.listener is not None:
        return True
    try:
        api: Any = import_module("opentelemetry.metrics")
    except ImportError:
        return False
    meter: Any = (provider or api).get_meter("wakeful")
    recorders: dict[str, Any] = {}
    for name, instrument in INSTRUMENTS.items():
        about = {"unit": "s" if "_seconds" in name else "1", "description": instrument.help}
        if instrument.seen:
            make = (
                meter.create_observable_counter if instrument.kind == "counter" else meter.create_observable_gauge
            )
            make(_name(name), callbacks=[_look(api, metrics, name, instrument.label)], **about)
        elif instrument.kind == "histogram":
            recorders[name] = meter.create_histogram(_name(name), **about).record
        else:
            recorders[name] = meter.create_counter(_name(name), **about).add

    def listen(name: str, amount: float, labels: dict[str, Any]) -> None:
        recorders[name](amount, labels)

    metrics.listener = listen
    return True


def _name(name: str) -> str:
    return f"wakeful.{name.removeprefix('wakeful_').removesuffix('_seconds').removesuffix('_total')}"


def _look(api: Any, metrics: Metrics, name: str, label: str) -> Any:
    """The meter's callback."""

    def look(_: Any) -> Iterable[Any]:
        found = [sample for sample in metrics.samples() if sample.name == name]
        return [api.Observation(sample.value, {label: sample.label} if sample.label else {}) for sample in found]

    return look
