"""Times one measure of one contender inside that contender's environment and prints a JSON line."""

import asyncio
import gc
import importlib
import importlib.metadata
import inspect
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from types import ModuleType
from typing import Any

from benchmarks._measures import MEASURES, Measure, Run, Tally

# Reads its own peak in the child: the parent's would hide it, as an exec'd process inherits ru_maxrss.
_CHILD = """
import time
start = time.perf_counter()
{statement}
spent = time.perf_counter() - start
try:
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
except OSError:
    import resource
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(spent, peak)
"""


class UnsupportedError(Exception):
    """The contender has no way to do what the measure asks."""


def peak_rss_mb() -> float:
    """The peak resident memory of this process."""
    try:
        with open("/proc/self/status") as status:
            kib = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    except OSError:
        kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(kib / 1024, 1)


def pace() -> float:
    """Seconds for a fixed piece of work: tells rows taken while the machine was busy from the others."""
    start = time.perf_counter()
    total = 0
    for number in range(20_000):
        total += number
    return time.perf_counter() - start


def summary(seconds: list[float]) -> dict[str, Any]:
    """The median and spread of some timings, in µs."""
    deciles = statistics.quantiles(seconds, n=10, method="inclusive") if len(seconds) > 1 else seconds
    return {
        "median_us": round(statistics.median(seconds) * 1e6, 3),
        "p10_us": round(deciles[0] * 1e6, 3),
        "p90_us": round(deciles[-1] * 1e6, 3),
        "n": len(seconds),
    }


def measure_import(statement: str, rounds: int) -> dict[str, Any]:
    """Times fresh processes that do nothing but the import an application would write."""
    code = _CHILD.format(statement=statement)
    walls, imports, peaks, paces = [], [], [], []
    for index in range(rounds + 1):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        wall = time.perf_counter() - start
        if index:  # the first one fills the disk cache
            spent, peak = done.stdout.split()[-2:]
            walls.append(wall)
            imports.append(float(spent))
            peaks.append(int(peak) / 1024)
            paces.append(pace())
    row = summary(walls)
    row["import_us"] = round(statistics.median(imports) * 1e6, 3)
    row["rss_mb"] = round(statistics.median(peaks), 1)
    row["pace_us"] = round(statistics.median(paces) * 1e6, 1)
    return row


def _check(measure: Measure, answers: list[str | list[str]], tally: Tally) -> None:
    plan, runs = measure.plan, len(answers)
    expected = plan.parts if measure.entry == "stream" else plan.text
    wrong = [answer for answer in answers if answer != expected]
    if wrong:
        raise AssertionError(f"{len(wrong)} of {runs} runs answered otherwise, e.g. {wrong[0]!r:.200}")
    seen, due = (tally.models, tally.tools), (runs * (plan.turns + 1), runs * plan.turns * plan.calls)
    if seen != due:
        raise AssertionError(f"(model calls, tool calls) were {seen}, not {due}")


async def _round(run: Run, measure: Measure, tally: Tally, repeat: int) -> float:
    """One timed round: seconds for a unit of the measure."""
    tally.models = tally.tools = 0
    gc.collect()
    answers: list[str | list[str]] = []
    start = time.perf_counter()
    if measure.at_once > 1:
        answers += await asyncio.gather(*(run() for _ in range(repeat)))
        runs = 1
    else:
        for _ in range(repeat):
            answers.append(await run())
        runs = repeat
    # What a run leaves for the event loop to do, such as closing generators, belongs to its cost.
    for _ in range(5):
        await asyncio.sleep(0)
    spent = time.perf_counter() - start
    _check(measure, answers, tally)
    return spent / runs / measure.per


async def time_run(run: Run, measure: Measure, tally: Tally) -> dict[str, Any]:
    """Warms a run up, then times rounds of it until there are enough or the budget is spent."""
    repeat = measure.at_once
    if repeat > 1:
        await _round(run, measure, tally, 50)
    else:
        begin, warm, last = time.perf_counter(), 0, 0.0
        while warm < 3 or time.perf_counter() - begin < 0.3:
            last = await _round(run, measure, tally, 3) * measure.per
            warm += 1
        # A round long enough that neither the clock nor one garbage collection decides it.
        repeat = max(1, int(0.04 / last))
    timings: list[float] = []
    paces: list[float] = []
    begin = time.perf_counter()
    while len(timings) < measure.rounds:
        paces.append(pace())
        timings.append(await _round(run, measure, tally, repeat))
        spent = time.perf_counter() - begin
        if spent > measure.budget_s * 3 or (spent > measure.budget_s and len(timings) >= 3):
            break
    return {**summary(timings), "repeat": repeat, "pace_us": round(statistics.median(paces) * 1e6, 1)}


async def measure_runs(module: ModuleType, measure: Measure) -> dict[str, Any]:
    """Times what the contender's entry builds; of several named variants the fastest is the result."""
    build = getattr(module, measure.entry, None)
    if build is None:
        raise UnsupportedError(f"{module.__name__} has no {measure.entry}()")
    tally = Tally()
    built = build(measure.plan, tally)
    if inspect.isawaitable(built):
        built = await built
    if not isinstance(built, dict):
        row = await time_run(built, measure, tally)
    else:
        rows = {name: await time_run(run, measure, tally) for name, run in built.items()}
        name = min(rows, key=lambda name: rows[name]["median_us"])
        row = {**rows[name], "variant": name}
        row["variants_us"] = {other: timed["median_us"] for other, timed in rows.items()}
    return {**row, "rss_mb": peak_rss_mb()}


def run_measure(contender: str, name: str) -> dict[str, Any]:
    """The finished row of one contender and measure, without its names."""
    measure = next(measure for measure in MEASURES if measure.name == name)
    module = importlib.import_module(f"benchmarks.contenders.{contender.replace('-', '_')}")
    versions = {package: importlib.metadata.version(package) for package in module.PACKAGES}
    versions["python"] = platform.python_version()
    if measure.entry == "IMPORT":
        row = measure_import(module.IMPORT, measure.rounds)
    else:
        row = asyncio.run(measure_runs(module, measure))
    return {**row, "versions": versions}


def main() -> None:
    contender, name = sys.argv[1:]
    try:
        row = run_measure(contender, name)
    except Exception as error:
        row = {"error": f"{type(error).__name__}: {error}"[:500]}
    print("\n" + json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
