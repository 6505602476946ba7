"""The measure of long threads: turns at the end of a short and of a long one that show the same window."""

import asyncio
import statistics
import time
from contextlib import AbstractAsyncContextManager, suppress
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks.measures import Measure, Tally, Turn
from benchmarks.timing import pace, summary

SIZES = (2000, 50_000)
# Of these messages the model is shown the newest, and the texts that are longer than the others'.
SHOWN = 600
TEXT = "These are a good many words, so that a conversation of such turns is a long one. " * 5


class LongThread(NamedTuple):
    """A thread of many messages, and the function that gives the characters that the model was shown last."""

    turn: Turn
    shown: Any


async def _watch(stalls: list[float]) -> None:
    """Note by how much the event loop is late."""
    while True:
        due = time.perf_counter() + 0.001
        await asyncio.sleep(0.001)
        stalls.append(time.perf_counter() - due)


async def long_thread(module: ModuleType, measure: Measure, database: Any = None) -> dict[str, Any]:
    """Time the first turn at the end of threads of each size, and the turns after it."""
    tally, stalls, turns = Tally(), [0.0], measure.rounds
    cold: dict[int, float] = {}
    warm: dict[int, list[float]] = {}
    paces: list[float] = []
    shown: list[int] = []
    address = None if database is None else database.address
    for size in SIZES:
        build: AbstractAsyncContextManager[LongThread] = module.long_thread(measure.plan, tally, address, size)
        async with build as thread:
            watch = asyncio.create_task(_watch(stalls))
            times: list[float] = []
            for _ in range(turns + 1):
                start = time.perf_counter()
                if await thread.turn(TEXT) != measure.plan.text:
                    raise AssertionError("a turn was answered otherwise")
                times.append(time.perf_counter() - start)
                await asyncio.sleep(0.002)
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
            shown.append(thread.shown())
        cold[size], warm[size] = times[0], times[1:]
        paces.append(pace())
    if tally.models != len(SIZES) * (turns + 1):
        raise AssertionError(f"{tally.models} model calls in {len(SIZES) * (turns + 1)} turns")
    if not all(abs(count - SHOWN * len(TEXT)) < 0.3 * SHOWN * len(TEXT) for count in shown):
        raise AssertionError(f"the model was shown {shown} characters, not about {SHOWN * len(TEXT)}")
    short, long = SIZES
    row = summary(warm[long])
    row["short_us"] = summary(warm[short])["median_us"]
    row["ratio"] = round(row["median_us"] / row["short_us"], 2)
    row["cold_us"] = round(cold[long] * 1e6, 1)
    row["cold_ratio"] = round(cold[long] / cold[short], 2)
    row["stall_ms"] = round(max(stalls) * 1e3, 2)
    return {**row, "pace_us": round(statistics.median(paces) * 1e6, 1)}
