"""The measures of delegation, inside a contender's process."""

import asyncio
import inspect
import os
import statistics
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks.measures import Measure, Plan, Run, Tally
from benchmarks.timing import clock_round, pace, summary, time_round

Row = dict[str, Any]

CHILDREN = 50


class Delegations(NamedTuple):
    """Runs on a database: a plain one, and runs with a delegated call, by variant."""

    direct: Run
    delegated: dict[str, Run]
    # The number of transactions so far.
    transactions: Callable[[], int]


class Tree(NamedTuple):
    """A tree of runs, started until all its leaves block in a tool, and cancelled at its root."""

    start: Callable[[], Awaitable[str]]
    cancel: Callable[[str], Awaitable[Any]]
    # The numbers of runs that aren't done and of abandoned tool calls.
    running: Callable[[], Awaitable[int]]
    abandoned: Callable[[], int]


async def delegation(module: ModuleType, measure: Measure) -> Row:
    """Measure delegated calls against plain runs; of several variants the fastest is the result."""
    tally = Tally()
    direct, built = module.run(Plan(), tally), module.delegation(measure.plan, tally)
    direct, built = [await one if inspect.isawaitable(one) else one for one in (direct, built)]
    if not isinstance(built, dict):
        return await _compare(direct, built, measure, tally)
    rows = {name: await _compare(direct, run, measure, tally) for name, run in built.items()}
    name = min(rows, key=lambda name: rows[name]["median_us"])
    return {**rows[name], "variant": name, "variants_us": {n: row["median_us"] for n, row in rows.items()}}


async def _compare(direct: Run, delegated: Run, measure: Measure, tally: Tally) -> Row:
    """Alternate rounds of both; the result is a delegated round less the plain one before it."""
    plain = replace(measure, plan=Plan())
    await _warm_up(direct, plain, tally)
    repeat = max(1, int(0.02 / await _warm_up(delegated, measure, tally)))
    rounds: dict[str, list[float]] = {"direct_us": [], "delegated_us": [], "cpu_us": []}
    extra: list[float] = []
    paces: list[float] = []
    begin = time.perf_counter()
    while len(extra) < measure.rounds and (len(extra) < 3 or time.perf_counter() - begin < measure.budget_s):
        paces.append(pace())
        alone, alone_cpu = await clock_round(direct, plain, tally, repeat)
        both, both_cpu = await clock_round(delegated, measure, tally, repeat)
        extra.append(both - alone)
        for key, spent in zip(rounds, (alone, both, both_cpu - alone_cpu), strict=True):
            rounds[key].append(spent)
    row = summary(extra)
    row |= {key: summary(times)["median_us"] for key, times in rounds.items()}
    return {**row, "repeat": repeat, "pace_us": round(statistics.median(paces) * 1e6, 1)}


async def _warm_up(run: Run, measure: Measure, tally: Tally) -> float:
    """Warm up a run; returns its minimum in seconds."""
    begin, least = time.perf_counter(), 1.0
    for _ in range(1000):
        least = min(least, await time_round(run, measure, tally, 3))
        if time.perf_counter() - begin > 0.3:
            break
    return least


async def durable_delegation(module: ModuleType, measure: Measure, database: Any) -> Row:
    """Measure delegated calls on a database, to ephemeral and durable agents."""
    tally = Tally()
    async with module.delegation_durable(measure.plan, tally, database.address) as runs:
        rows = {n: await _compare(runs.direct, run, measure, tally) for n, run in runs.delegated.items()}

        async def transactions(run: Run) -> float:
            before = runs.transactions()
            for _ in range(10):
                await run()
            return (runs.transactions() - before) / 10

        row = rows["durable"]
        alone, both = await transactions(runs.direct), await transactions(runs.delegated["durable"])
    row["ratio"] = round(row["median_us"] / row["direct_us"], 2)
    row["ephemeral_us"] = rows["ephemeral"]["median_us"]
    row["transactions_direct"], row["transactions_child"] = round(alone, 2), round(both - alone, 2)
    return row


async def cancel_tree(module: ModuleType, measure: Measure, database: Any = None) -> Row:
    """Measure the cancellation of trees whose leaves block in tools."""
    times: list[float] = []
    paces: list[float] = []
    left = {"tasks": 0, "threads": 0, "sockets": 0, "runs": 0}
    address = None if database is None else database.address
    async with module.cancel_tree(address, CHILDREN) as tree:
        for _ in range(5):  # Warm up lazily opened resources, such as a pool's connections.
            await tree.cancel(await tree.start())
        await _count_new(None)
        before = _count_resources()
        begin = time.perf_counter()
        while len(times) < measure.rounds and (len(times) < 3 or time.perf_counter() - begin < measure.budget_s):
            paces.append(pace())
            root = await tree.start()
            start = time.perf_counter()
            await tree.cancel(root)
            times.append(time.perf_counter() - start)
            left["runs"] += await tree.running()
            for kind, number in (await _count_new(before)).items():
                left[kind] += number
        row = summary(times)
        row["p99_us"] = round(statistics.quantiles(times, n=100, method="inclusive")[-1] * 1e6, 3)
        row["abandoned"] = tree.abandoned()
    row |= {f"left_{kind}": number for kind, number in left.items()}
    row["left"] = sum(left.values())
    return {**row, "pace_us": round(statistics.median(paces) * 1e6, 1)}


def _count_resources() -> dict[str, int]:
    """The tasks, threads and sockets of this process."""
    return {
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "sockets": sum(_is_socket(entry) for entry in os.listdir("/proc/self/fd")),
    }


def _is_socket(descriptor: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:")
    except OSError:
        return False


async def _count_new(before: dict[str, int] | None) -> dict[str, int]:
    """Count new tasks, threads and sockets, after due callbacks have run."""
    for _ in range(5):
        await asyncio.sleep(0)
    now = _count_resources()
    return {kind: max(0, number - (before or now)[kind]) for kind, number in now.items()}


MeasureFunction = Callable[[ModuleType, Measure], Awaitable[Row]]

IN_MEMORY: dict[str, MeasureFunction] = {"delegation": delegation, "cancel_tree": cancel_tree}
