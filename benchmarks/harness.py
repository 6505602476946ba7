"""Time one measure of one contender inside its environment, and print the row as a JSON line."""

import asyncio
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

from benchmarks import envs
from benchmarks.delegation import IN_MEMORY
from benchmarks.measures import MEASURES, Measure, Tally
from benchmarks.timing import pace, summary, time_run

# The child reads its own peak memory: an exec'd process inherits the parent's ru_maxrss.
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
    """The contender doesn't support the measure."""


def peak_rss_mb() -> float:
    """The peak resident memory of this process in MB."""
    try:
        with open("/proc/self/status") as status:
            kib = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    except OSError:
        kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(kib / 1024, 1)


def _time_import(statement: str) -> tuple[float, list[float]]:
    """Run a process that imports; returns its elapsed seconds, and the statement's seconds and peak memory."""
    command = [sys.executable, "-c", _CHILD.format(statement=statement)]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return time.perf_counter() - start, [float(word) for word in done.stdout.split()[-2:]]


def measure_import(statement: str, rounds: int) -> dict[str, Any]:
    """Time fresh processes that import the names which an application uses, and others the package alone.

    A package may load its names lazily; an application that defines and runs an agent pays for them anyway.
    """
    package = "import " + statement.split()[1].rstrip(",")
    walls, packages, imports, peaks, paces = [], [], [], [], []
    for index in range(rounds + 1):
        alone, _ = _time_import(package)
        wall, (spent, peak) = _time_import(statement)
        if index:  # The first round fills the disk cache.
            walls.append(wall)
            packages.append(alone)
            imports.append(spent)
            peaks.append(peak / 1024)
            paces.append(pace())
    row = summary(walls)
    row["package_us"] = summary(packages)["median_us"]
    row["import_us"] = round(statistics.median(imports) * 1e6, 3)
    row["rss_mb"] = round(statistics.median(peaks), 1)
    row["pace_us"] = round(statistics.median(paces) * 1e6, 1)
    return row


async def measure_runs(module: ModuleType, measure: Measure) -> dict[str, Any]:
    """Time the run that the contender's entry builds; of several variants the fastest is the result."""
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
    """The row of one contender and measure, without their names."""
    measure = next(measure for measure in MEASURES if measure.name == name)
    module = importlib.import_module(f"benchmarks.contenders.{contender.replace('-', '_')}")
    versions = {package: importlib.metadata.version(package) for package in module.PACKAGES}
    versions["python"] = platform.python_version()
    if measure.entry == "IMPORT":
        row = measure_import(module.IMPORT, measure.rounds)
    elif kind := envs.database(contender):
        from benchmarks.databases import database  # Not imported by other measures, for their memory.
        from benchmarks.durable import BY_ENTRY

        with database(kind) as store:
            row = asyncio.run(BY_ENTRY[measure.entry](module, measure, store))
        row["rss_mb"] = peak_rss_mb()
        versions[kind] = store.version
    elif measure.group == "models":
        from benchmarks.models import MODELS

        row = {**asyncio.run(MODELS[measure.entry](module, measure)), "rss_mb": peak_rss_mb()}
    elif measure.group == "encode":
        from benchmarks.encoders import encoders

        row = {**encoders(module, measure), "rss_mb": peak_rss_mb()}
    elif measure.entry == "long_thread":
        from benchmarks.long_threads import long_thread

        row = {**asyncio.run(long_thread(module, measure)), "rss_mb": peak_rss_mb()}
    elif measure.entry in IN_MEMORY:
        row = {**asyncio.run(IN_MEMORY[measure.entry](module, measure)), "rss_mb": peak_rss_mb()}
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
