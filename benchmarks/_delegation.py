"""How the measures with agents that call other agents are taken, inside a contender's process."""

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

from benchmarks._measures import Measure, Plan, Run, Tally
from benchmarks._timing import clock_round, pace, summary, time_round

Row = dict[str, Any]

CHILDREN = 50


class Delegations(NamedTuple):
    """Runs on a database: a plain one, and those that call another agent, by how they do it."""

    direct: Run
    delegated: dict[str, Run]
    # How many transactions there were so far.
    transactions: Callable[[], int]


class Tree(NamedTuple):
    """A tree of runs: made until all its leaves are blocked in a tool, and cancelled at its root."""

    plant: Callable[[], Awaitable[str]]
    cancel: Callable[[str], Awaitable[Any]]
    # How many runs are not done, and how many threads of tools were let go of.
    running: Callable[[], Awaitable[int]]
    abandoned: Callable[[], int]


async def delegation(module: ModuleType, measure: Measure) -> Row:
    """Runs that call another agent against plain ones; of several named variants the fastest is the result."""
    tally = Tally()
    direct, built = module.run(Plan(), tally), module.delegation(measure.plan, tally)
    direct, built = [await one if inspect.isawaitable(one) else one for one in (direct, built)]
    if not isinstance(built, dict):
        return await _beside(direct, built, measure, tally)
    rows = {name: await _beside(direct, run, measure, tally) for name, run in built.items()}
    name = min(rows, key=lambda name: rows[name]["median_us"])
    return {**rows[name], "variant": name, "variants_us": {n: row["median_us"] for n, row in rows.items()}}


async def _beside(direct: Run, delegated: Run, measure: Measure, tally: Tally) -> Row:
    """Rounds of both in turn: what a round of the second takes longer than the one of the first before it."""
    plain = replace(measure, plan=Plan())
    await _warmed(direct, plain, tally)
    repeat = max(1, int(0.02 / await _warmed(delegated, measure, tally)))
    rounds: dict[str, list[float]] = {"direct_us": [], "delegated_us": [], "cpu_us": []}
    longer: list[float] = []
    paces: list[float] = []
    begin = time.perf_counter()
    while len(longer) < measure.rounds and (len(longer) < 3 or time.perf_counter() - begin < measure.budget_s):
        paces.append(pace())
        alone, alone_cpu = await clock_round(direct, plain, tally, repeat)
        both, both_cpu = await clock_round(delegated, measure, tally, repeat)
        longer.append(both - alone)
        for key, spent in zip(rounds, (alone, both, both_cpu - alone_cpu), strict=True):
            rounds[key].append(spent)
    row = summary(longer)
    row |= {key: summary(times)["median_us"] for key, times in rounds.items()}
    return {**row, "repeat": repeat, "pace_us": round(statistics.median(paces) * 1e6, 1)}


async def _warmed(run: Run, measure: Measure, tally: Tally) -> float:
    """The fewest seconds that a run took, made some times."""
    begin, least = time.perf_counter(), 1.0
    for _ in range(1000):
        least = min(least, await time_round(run, measure, tally, 3))
        if time.perf_counter() - begin > 0.3:
            break
    return least


async def durable_delegation(module: ModuleType, measure: Measure, database: Any) -> Row:
    """The same on a database, where the agent that is called may be durable itself."""
    tally = Tally()
    async with module.delegation_durable(measure.plan, tally, database.address) as runs:
        rows = {n: await _beside(runs.direct, run, measure, tally) for n, run in runs.delegated.items()}

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
    """Trees of runs, each cancelled once all its leaves are blocked in tools."""
    times: list[float] = []
    paces: list[float] = []
    left = {"tasks": 0, "threads": 0, "sockets": 0, "runs": 0}
    address = None if database is None else database.address
    async with module.cancel_tree(address, CHILDREN) as tree:
        for _ in range(5):  # the first ones open what is opened lazily, such as a pool's connections
            await tree.cancel(await tree.plant())
        await _clear(None)
        before = _present()
        begin = time.perf_counter()
        while len(times) < measure.rounds and (len(times) < 3 or time.perf_counter() - begin < measure.budget_s):
            paces.append(pace())
            root = await tree.plant()
            start = time.perf_counter()
            await tree.cancel(root)
            times.append(time.perf_counter() - start)
            left["runs"] += await tree.running()
            for kind, number in (await _clear(before)).items():
                left[kind] += number
        row = summary(times)
        row["p99_us"] = round(statistics.quantiles(times, n=100, method="inclusive")[-1] * 1e6, 3)
        row["abandoned"] = tree.abandoned()
    row |= {f"left_{kind}": number for kind, number in left.items()}
    row["left"] = sum(left.values())
    return {**row, "pace_us": round(statistics.median(paces) * 1e6, 1)}


def _present() -> dict[str, int]:
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
        return False  # It was the listing's own.


async def _clear(before: dict[str, int] | None) -> dict[str, int]:
    """What is there that wasn't before, once callbacks that were due have run."""
    for _ in range(5):
        await asyncio.sleep(0)
    now = _present()
    return {kind: max(0, number - (before or now)[kind]) for kind, number in now.items()}


Taken = Callable[[ModuleType, Measure], Awaitable[Row]]

IN_MEMORY: dict[str, Taken] = {"delegation": delegation, "cancel_tree": cancel_tree}
