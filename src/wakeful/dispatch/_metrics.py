"""What a process did so far, counted: for Prometheus as text, and for OpenTelemetry where that is wanted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ..stores import Claimed
from ..types.runs import RunRecord

__all__ = ["Metrics"]

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

_HELP = {
    "wakeful_runs_started_total": "Activations that began here.",
    "wakeful_runs_finished_total": "Activations that ended here, by what the run is then.",
    "wakeful_claims_total": "Dispatches that were claimed.",
    "wakeful_takeovers_total": "Claims whose owner before had died.",
    "wakeful_active": "Claimed activations that run now.",
    "wakeful_dispatch_latency_seconds": "How long a dispatch was due before it was claimed.",
}


class Metrics:
    """Counters of one runtime. `listener` is told of every change: the counter's name, by how much, its labels."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.active = 0
        self._latencies = [0] * (len(_BOUNDS) + 1)
        self._waited = 0.0
        self.listener: Callable[[str, float, dict[str, Any]], None] | None = None

    def claimed(self, claimed: Claimed) -> None:
        """A dispatch was claimed."""
        self.active += 1
        self._count("wakeful_claims_total")
        if claimed.taken_over:
            self._count("wakeful_takeovers_total")
        seconds = claimed.waited / 1000
        place = next((n for n, bound in enumerate(_BOUNDS) if seconds <= bound), len(_BOUNDS))
        self._latencies[place] += 1
        self._waited += seconds
        if self.listener is not None:
            self.listener("wakeful_dispatch_latency_seconds", seconds, {})

    def began(self) -> None:
        """An activation began."""
        self._count("wakeful_runs_started_total")

    def ended(self, run: RunRecord) -> None:
        """An activation ended; what the run is now, or how it ended if it is done."""
        outcome = run.outcome
        status = run.status if outcome is None else type(outcome.termination).__name__.lower()
        self._count("wakeful_runs_finished_total", status)

    def _count(self, name: str, status: str = "") -> None:
        self.counts[name, status] += 1
        if self.listener is not None:
            self.listener(name, 1, {"status": status} if status else {})

    def text(self) -> str:
        """All of it, as Prometheus reads it."""
        lines: list[str] = []
        for name, meaning in _HELP.items():
            kind = "gauge" if name == "wakeful_active" else "counter"
            kind = "histogram" if name.endswith("_seconds") else kind
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
            if kind == "gauge":
                lines.append(f"{name} {self.active}")
            elif kind == "histogram":
                lines += self._histogram(name)
            else:
                found = sorted((status, n) for (counted, status), n in self.counts.items() if counted == name)
                lines += [f'{name}{{status="{s}"}} {n}' if s else f"{name} {n}" for s, n in found or [("", 0)]]
        return "\n".join(lines) + "\n"

    def _histogram(self, name: str) -> list[str]:
        lines, total = list[str](), 0
        for bound, count in zip((*_BOUNDS, "+Inf"), self._latencies, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        return [*lines, f"{name}_sum {self._waited:.6f}", f"{name}_count {total}"]
