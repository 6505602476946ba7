"""Metrics of a process: as text for Prometheus, and as events for OpenTelemetry."""

from __future__ import annotations

import re
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal, cast

from msgspec import Struct

from ..errors import Conflict, DuplicateRequest, InboxFull, InboxMoved, StaleFence, StoreError
from ..stores import Backlog, Renewals, Store
from ..types.runs import RunRecord

__all__ = ["INSTRUMENTS", "Instrument", "Metrics", "Sample", "read_backlog"]

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

# The most tenants with a label of their own, since every label costs its collector.
TENANTS = 50
_LABEL = 100
# How old the backlog may be when it is sampled, in seconds.
FRESH = 5.0


class Instrument(Struct, frozen=True):
    """A metric: its kind, help text and the name of its label.

    A `seen` metric is sampled on request; changes of the others are passed to the listener.
    """

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    label: str = ""
    seen: bool = False


INSTRUMENTS: dict[str, Instrument] = {
    "wakeful_runs_started_total": Instrument("counter", "Activations started in this process."),
    "wakeful_runs_finished_total": Instrument(
        "counter", "Activations ended in this process, by the status of the run.", "status"
    ),
    "wakeful_claims_total": Instrument("counter", "Dispatches claimed."),
    "wakeful_takeovers_total": Instrument("counter", "Claims taken over from a dead owner."),
    "wakeful_commits_total": Instrument(
        "counter", "Commits of runs, by result: ok, fenced, refused or failed.", "status"
    ),
    "wakeful_lease_renewals_total": Instrument(
        "counter",
        "Renewals of the lease: ok, failed, or stalled with the event loop.",
        "status",
        True,
    ),
    "wakeful_active": Instrument("gauge", "Active runs that hold a slot.", seen=True),
    "wakeful_abandoned": Instrument("gauge", "Abandoned calls that still run.", seen=True),
    "wakeful_bus_up": Instrument("gauge", "1 while the bus is healthy, 0 while it isn't.", seen=True),
    "wakeful_queue_depth": Instrument(
        "gauge", "Due dispatches of the whole store that nobody has claimed.", "tenant", True
    ),
    "wakeful_queue_depth_others": Instrument("gauge", "Due dispatches of the tenants without a label.", seen=True),
    "wakeful_queue_oldest_seconds": Instrument(
        "gauge", "How long the oldest due dispatch has been due.", seen=True
    ),
    "wakeful_dead_letters": Instrument("gauge", "Dead dispatches of the whole store.", seen=True),
    "wakeful_dispatch_latency_seconds": Instrument("histogram", "Time from due to claim."),
    "wakeful_first_step_latency_seconds": Instrument(
        "histogram", "Time from due to the first commit, when the first step starts."
    ),
    "wakeful_commit_seconds": Instrument("histogram", "Duration of a run's commit."),
}


_STARTED = ("wakeful_runs_started_total", "")
_COMMITTED = ("wakeful_commits_total", "ok")

# The counter of each run status and termination.
_FINISHED: dict[str | type, tuple[str, str]] = {}


def _finished(ended: str | type) -> tuple[str, str]:
    status = ended if isinstance(ended, str) else re.sub(r"(?<=[a-z])(?=[A-Z])", "_", ended.__name__).lower()
    counted = _FINISHED[ended] = ("wakeful_runs_finished_total", status)
    return counted


class Sample(Struct, frozen=True):
    """A sampled value; its label is empty if the metric has none."""

    name: str
    value: float
    label: str = ""


class _Histogram:
    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS) + 1)
        self.sum = 0.0

    def take(self, value: float) -> None:
        self.counts[bisect_left(_BOUNDS, value)] += 1
        self.sum += value

    def lines(self, name: str) -> list[str]:
        lines, total = list[str](), 0
        for bound, count in zip((*_BOUNDS, "+Inf"), self.counts, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        return [*lines, f"{name}_sum {self.sum:.6f}", f"{name}_count {total}"]


class Metrics:
    """The metrics of one runtime.

    `listener` gets every change: name, amount, labels. `renewals`, `bus` and `abandoned` are sampled on request;
    `backlog` is the last one read from the store.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.active = 0
        self.backlog: Backlog | None = None
        self.read_at = float("-inf")
        self.renewals: Callable[[], Renewals | None] = lambda: None
        self.bus: Callable[[], bool | None] = lambda: None
        self.abandoned: Callable[[], int] = lambda: 0
        self.listener: Callable[[str, float, dict[str, Any]], None] | None = None
        self._histograms = {name: _Histogram() for name, one in INSTRUMENTS.items() if one.kind == "histogram"}
        self._commit_seconds = self._histograms["wakeful_commit_seconds"]
        self._labelled: dict[str, None] = {}

    # -- events ----------------------------------------------------------------------------------------------

    def claimed(self, waited: float, *, taken_over: bool = False) -> None:
        """Count a claim of a dispatch that was due for so many seconds."""
        self._count("wakeful_claims_total")
        if taken_over:
            self._count("wakeful_takeovers_total")
        self._took("wakeful_dispatch_latency_seconds", waited)

    def first_step(self, seconds: float) -> None:
        """Measure the time from due to first commit."""
        self._took("wakeful_first_step_latency_seconds", seconds)

    def began(self) -> None:
        """Count the start of an activation."""
        self.counts[_STARTED] += 1
        if self.listener is not None:
            self.listener(_STARTED[0], 1, {})

    def ended(self, run: RunRecord) -> None:
        """Count the end of an activation by the run's status, or its termination if it is done."""
        ended = run.status if run.outcome is None else type(run.outcome.termination)
        counted = _FINISHED.get(ended) or _finished(ended)
        self.counts[counted] += 1
        if self.listener is not None:
            self.listener(counted[0], 1, {"status": counted[1]})

    def committed(self, seconds: float, error: BaseException | None) -> None:
        """Measure a commit, or count its refusal."""
        if error is None and self.listener is None:  # The common case.
            self._commit_seconds.take(seconds)
            self.counts[_COMMITTED] += 1
            return
        if error is None:
            self._took("wakeful_commit_seconds", seconds)
        match error:
            case None:
                status = "ok"
            case StaleFence():
                status = "fenced"
            case Conflict() | InboxMoved() | InboxFull() | DuplicateRequest():
                status = "refused"
            case _:
                status = "failed"
        self._count("wakeful_commits_total", status)

    def _count(self, name: str, status: str = "") -> None:
        self.counts[name, status] += 1
        if self.listener is not None:
            self.listener(name, 1, {"status": status} if status else {})

    def _took(self, name: str, seconds: float) -> None:
        self._histograms[name].take(seconds)
        if self.listener is not None:
            self.listener(name, seconds, {})

    # -- samples ---------------------------------------------------------------------------------------------

    def samples(self) -> list[Sample]:
        """The sampled metrics; unknown values are left out."""
        found = [Sample("wakeful_active", self.active), Sample("wakeful_abandoned", self.abandoned())]
        if (renewals := self.renewals()) is not None:
            each = [(status, getattr(renewals, status)) for status in Renewals.__struct_fields__]
            found += [Sample("wakeful_lease_renewals_total", count, status) for status, count in each]
        if (up := self.bus()) is not None:
            found.append(Sample("wakeful_bus_up", int(up)))
        return found if self.backlog is None else found + self._depths(self.backlog)

    def _depths(self, backlog: Backlog) -> list[Sample]:
        depths: Counter[str] = Counter()
        for queue in backlog.queues:
            depths[queue.tenant] += queue.waiting
        for tenant, depth in depths.most_common():
            if depth and len(self._labelled) < TENANTS:
                self._labelled.setdefault(tenant)
        others = sum([depth for tenant, depth in depths.items() if tenant not in self._labelled])
        since = [queue.oldest_at for queue in backlog.queues if queue.oldest_at is not None]
        oldest = (backlog.at - min(since)) / 1000 if since else 0.0
        return [
            *[Sample("wakeful_queue_depth", depths[tenant], tenant) for tenant in self._labelled],
            Sample("wakeful_queue_depth_others", others),
            Sample("wakeful_queue_oldest_seconds", max(oldest, 0.0)),
            Sample("wakeful_dead_letters", backlog.dead.count),
        ]

    def text(self) -> str:
        """All metrics in Prometheus's text format."""
        samples = self.samples()
        lines: list[str] = []
        for name, instrument in INSTRUMENTS.items():
            found = self._values(name, instrument, samples)
            if found:
                lines += [f"# HELP {name} {instrument.help}", f"# TYPE {name} {instrument.kind}", *found]
        return "\n".join(lines) + "\n"

    def _values(self, name: str, instrument: Instrument, samples: list[Sample]) -> list[str]:
        if instrument.kind == "histogram":
            return self._histograms[name].lines(name)
        if instrument.seen:
            found = [(one.label, one.value) for one in samples if one.name == name]
        else:
            found = sorted((status, n) for (counted, status), n in self.counts.items() if counted == name)
            found = found or [("", 0)]
        return [f"{name}{_labels(instrument.label, label)} {value:g}" for label, value in found]


def _labels(name: str, value: str) -> str:
    if not value:
        return ""
    escaped = value[:_LABEL].replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'{{{name}="{escaped}"}}'


async def read_backlog(metrics: Metrics, store: Store) -> None:
    """Read the backlog of the store, unless it was read recently. A store without one is skipped."""
    if not hasattr(store, "backlog") or time.monotonic() - metrics.read_at < FRESH:
        return
    metrics.read_at = time.monotonic()
    try:
        metrics.backlog = await cast(Any, store).backlog()
    except StoreError:
        metrics.backlog = None  # The previous backlog is too old.
