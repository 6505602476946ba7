"""Timing of runs: verified rounds and their median."""

import asyncio
import gc
import statistics
import time
from typing import Any

from benchmarks.measures import Measure, Run, Tally


def pace() -> float:
    """Seconds for a fixed loop, by which rows from a busy machine are recognized."""
    start = time.perf_counter()
    total = 0
    for number in range(20_000):
        total += number
    return time.perf_counter() - start


def summary(seconds: list[float]) -> dict[str, Any]:
    """The median and spread of timings, in µs."""
    deciles = statistics.quantiles(seconds, n=10, method="inclusive") if len(seconds) > 1 else seconds
    return {
        "median_us": round(statistics.median(seconds) * 1e6, 3),
        "p10_us": round(deciles[0] * 1e6, 3),
        "p90_us": round(deciles[-1] * 1e6, 3),
        "n": len(seconds),
    }


def _check(measure: Measure, answers: list[str | list[str]], tally: Tally) -> None:
    plan, runs = measure.plan, len(answers)
    expected = plan.parts if measure.entry == "stream" else plan.text
    wrong = [answer for answer in answers if answer != expected]
    if wrong:
        raise AssertionError(f"{len(wrong)} of {runs} runs had another answer, e.g. {wrong[0]!r:.200}")
    calls = runs * plan.turns * plan.calls
    children, tools = (calls, 0) if plan.argument else (0, calls)
    seen, due = (tally.models, tally.tools), (runs * (plan.turns + 1) + children, tools)
    if seen != due:
        raise AssertionError(f"(model calls, tool calls) were {seen}, not {due}")


async def time_round(run: Run, measure: Measure, tally: Tally, repeat: int) -> float:
    """Time one round; returns seconds for a unit of the measure."""
    return (await clock_round(run, measure, tally, repeat))[0]


async def clock_round(run: Run, measure: Measure, tally: Tally, repeat: int) -> tuple[float, float]:
    """Time one round; returns elapsed and CPU seconds for a unit, the latter less sensitive to other load."""
    tally.models = tally.tools = 0
    gc.collect()
    answers: list[str | list[str]] = []
    start, start_cpu = time.perf_counter(), time.process_time()
    if measure.at_once > 1:
        answers += await asyncio.gather(*(run() for _ in range(repeat)))
        runs = 1
    else:
        for _ in range(repeat):
            answers.append(await run())
        runs = repeat
    # Deferred work of a run, such as closing generators, counts.
    for _ in range(5):
        await asyncio.sleep(0)
    spent, spent_cpu = time.perf_counter() - start, time.process_time() - start_cpu
    _check(measure, answers, tally)
    return spent / runs / measure.per, spent_cpu / runs / measure.per


async def time_run(run: Run, measure: Measure, tally: Tally) -> dict[str, Any]:
    """Warm up a run, then time rounds until there are enough or the budget is spent."""
    repeat = measure.at_once
    if repeat > 1:
        await time_round(run, measure, tally, 50)
    else:
        begin, warm, last = time.perf_counter(), 0, 0.0
        while warm < 3 or time.perf_counter() - begin < 0.3:
            last = await time_round(run, measure, tally, 3) * measure.per
            warm += 1
        # Long enough that neither clock resolution nor one garbage collection dominates.
        repeat = max(1, int(0.04 / last))
    timings: list[float] = []
    paces: list[float] = []
    begin = time.perf_counter()
    while len(timings) < measure.rounds:
        paces.append(pace())
        timings.append(await time_round(run, measure, tally, repeat))
        spent = time.perf_counter() - begin
        if spent > measure.budget_s * 3 or (spent > measure.budget_s and len(timings) >= 3):
            break
    return {**summary(timings), "repeat": repeat, "pace_us": round(statistics.median(paces) * 1e6, 1)}
