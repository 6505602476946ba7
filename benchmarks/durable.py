"""The measures on a database, inside a contender's process."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from types import ModuleType
from typing import Any

from benchmarks import delegation, long_threads
from benchmarks.databases import PostgresServer, SqliteFile
from benchmarks.measures import Durable, Measure, Tally, Turn, words
from benchmarks.timing import pace, summary, time_round, time_run

Database = SqliteFile | PostgresServer
Row = dict[str, Any]

MESSAGE_BYTES = 1024
MARKS = (50, 400, 2000)
WINDOW = 40  # The turns whose median is the time of a turn.
MAX_STORED = 1 << 30
PARKED_MESSAGES = 2000


async def steps(module: ModuleType, measure: Measure, database: Database) -> Row:
    """Time runs one after the other, and measure their writes; of several variants the fastest is the result."""
    tally = Tally()
    build: Callable[..., AbstractAsyncContextManager[Any]] = getattr(module, measure.entry)
    async with build(measure.plan, tally, database.address) as built:
        if not isinstance(built, dict):
            return await _steps(built, measure, database, tally)
        rows = {name: await _steps(durable, measure, database, tally) for name, durable in built.items()}
    name = min(rows, key=lambda name: rows[name]["median_us"])
    return {**rows[name], "variant": name, "variants_us": {one: row["median_us"] for one, row in rows.items()}}


async def _steps(durable: Durable, measure: Measure, database: Database, tally: Tally) -> Row:
    count = 0

    async def counted() -> Any:
        nonlocal count
        count += 1
        return await durable.run()

    await durable.run()  # Opens lazily opened resources.
    before, batches = database.written(), durable.batches and durable.batches()
    row = await time_run(counted, measure, tally)
    after = database.written()
    if before is not None and after is not None:
        row["bytes_per_step"] = round((after - before) / count / measure.per)
    if durable.batches and batches:
        row["transactions_per_step"] = round((durable.batches()[0] - batches[0]) / count / measure.per, 2)
    return row


async def throughput(module: ModuleType, measure: Measure, database: Database) -> Row:
    """Alternate rounds of concurrent runs with rounds of one run at a time."""
    tally, single = Tally(), replace(measure, at_once=1, per=measure.plan.turns)
    together: list[float] = []
    alone: list[float] = []
    paces: list[float] = []
    sizes: dict[str, list[int]] = {"alone": [0, 0], "together": [0, 0]}
    async with module.throughput(measure.plan, tally, database.address) as durable:

        async def timed(kind: str, of: Measure, runs: int) -> float:
            before = durable.batches()
            spent = await time_round(durable.run, of, tally, runs)
            for place, (old, new) in enumerate(zip(before, durable.batches(), strict=True)):
                sizes[kind][place] += new - old
            return spent

        await time_round(durable.run, single, tally, 3)
        await time_round(durable.run, measure, tally, measure.at_once)
        sizes = {"alone": [0, 0], "together": [0, 0]}
        begin = time.perf_counter()
        while len(together) < measure.rounds and time.perf_counter() - begin < measure.budget_s:
            paces.append(pace())
            alone.append(await timed("alone", single, 5))
            together.append(await timed("together", measure, measure.at_once))
    row = summary(together)
    row["alone_us"] = summary(alone)["median_us"]
    row["speedup"] = round(row["alone_us"] / row["median_us"], 2)
    row["steps_per_s"] = round(1e6 / row["median_us"])
    row["batch"], row["batch_alone"] = (round(sizes[k][1] / sizes[k][0], 2) for k in ("together", "alone"))
    return {**row, "pace_us": round(statistics.median(paces) * 1e6, 1)}


async def growth(module: ModuleType, measure: Measure, database: Database) -> Row:
    """Measure a growing conversation: its size on disk, and the time of a turn."""
    tally, row = Tally(), {}
    times: list[float] = []
    paces: list[float] = []
    prompts = [words(MESSAGE_BYTES, seed) for seed in range(1, 101)]
    begin = time.perf_counter()
    async with module.growth(measure.plan, tally, database.address) as turn:
        empty = database.stored()
        for number in range(1, measure.rounds + 1):
            times.append(await _turn(turn, prompts[number % 100], measure))
            if number % 100 == 0:
                paces.append(pace())
                if time.perf_counter() - begin > measure.budget_s or database.size() > MAX_STORED:
                    break
            if number in MARKS:
                payload = number * (MESSAGE_BYTES + len(measure.plan.text))
                row[f"payload_ratio_{number}"] = round((database.stored() - empty) / payload, 2)
    if tally.models != len(times):
        raise AssertionError(f"{tally.models} model calls in {len(times)} turns")
    row = {**summary(times[-WINDOW:]), **row, "turns": len(times), "empty_bytes": empty}
    if len(times) == measure.rounds:
        early = statistics.median(times[100 - WINDOW // 2 : 100 + WINDOW // 2])
        row["turn_ratio"] = round(statistics.median(times[-WINDOW:]) / early, 2)
    return {**row, "pace_us": round(statistics.median(paces or [pace()]) * 1e6, 1)}


async def _turn(turn: Turn, prompt: str, measure: Measure) -> float:
    start = time.perf_counter()
    answer = await turn(prompt)
    spent = time.perf_counter() - start
    if answer != measure.plan.text:
        raise AssertionError(f"a turn was answered otherwise: {answer!r:.200}")
    return spent


async def resume(module: ModuleType, measure: Measure, database: Database) -> Row:
    """Time fresh processes that load the view of a waiting run, and others that answer it."""
    run_id, ticket_id = await module.park(database.address, PARKED_MESSAGES)
    views: list[Row] = []
    answers: list[Row] = []
    paces: list[float] = []
    for number in range(measure.rounds + 1):
        view = _fresh(module, "view", database.address)
        answer = _fresh(module, "answer", database.address, run_id, ticket_id)
        ticket_id = answer["ticket"]
        if number:  # The first round fills the disk cache.
            views.append(view)
            answers.append(answer)
            paces.append(pace())

    def median(rows: list[Row], *keys: str) -> float:
        return statistics.median([sum(row[key] for key in keys) for row in rows])

    row = summary([answer["spent"] for answer in answers])
    row["view_us"] = round(median(views, "spent") * 1e6, 3)
    row["ratio"] = round(row["median_us"] / row["view_us"], 2)
    row["ratio_opening"] = round(median(answers, "open", "spent") / median(views, "open", "spent"), 2)
    return {**row, "pace_us": round(statistics.median(paces) * 1e6, 1)}


def _fresh(module: ModuleType, function: str, *args: str) -> Row:
    """Call a contender's function in a fresh process."""
    code = (
        f"import asyncio, json, sys\nfrom {module.__name__} import {function}\n"
        f"print('\\n' + json.dumps(asyncio.run({function}(*sys.argv[1:]))))"
    )
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
    return json.loads(done.stdout.strip().rpartition("\n")[2])


Taken = Callable[[ModuleType, Measure, Database], Awaitable[Row]]

BY_ENTRY: dict[str, Taken] = {
    "durable": steps,
    "relaxed": steps,
    "throughput": throughput,
    "growth": growth,
    "answer": resume,
    "long_thread": long_threads.long_thread,
    "delegation_durable": delegation.durable_delegation,
    "cancel_tree": delegation.cancel_tree,
}
