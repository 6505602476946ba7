"""The cost of protocols' encoders beside that of encoding the bare events with msgspec."""

import gc
import statistics
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks.measures import Measure
from benchmarks.timing import pace, summary


class Encoding(NamedTuple):
    """Encodes the events of one answer, bare and for a protocol; returns the number of bytes."""

    bare: Callable[[], int]
    ours: Callable[[], int]


def encoders(module: ModuleType, measure: Measure) -> dict[str, Any]:
    """Measure an encoder; its rounds alternate with those of the bare events."""
    encoding: Encoding = getattr(module, measure.entry)(measure.plan.parts)
    bare, ours, paces = [], [], []
    end = time.perf_counter() + measure.budget_s
    while len(ours) < 2 or (len(ours) < measure.rounds and time.perf_counter() < end):
        bare.append(_round(encoding.bare, measure))
        ours.append(_round(encoding.ours, measure))
        paces.append(pace())
    row = summary(ours)
    bare_us = statistics.median(bare) * 1e6
    return {
        **row,
        "bare_us": round(bare_us, 3),
        "share": round(bare_us / row["median_us"], 3),
        "per_s": round(1e6 / row["median_us"]),
        "repeat": 1,
        "pace_us": round(min(paces) * 1e6, 1),
    }


def _round(encode: Callable[[], int], measure: Measure) -> float:
    gc.collect()
    start = time.perf_counter()
    if not encode():
        raise AssertionError("nothing was encoded")
    return (time.perf_counter() - start) / measure.per
