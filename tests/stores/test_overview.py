"""An operator's overview of a database, at the same cost for a large one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from postgres_suite import connected, schema_of

from conformance.store_suite import Writer, die, item, record, ticket, waiting
from postgres_server import fresh_store
from wakeful.stores import COUNTED, MAX_ATTEMPTS, Commit, Fence, QueueSeen, Tally
from wakeful.stores.postgres.text import postgres_text
from wakeful.stores.sql import overview
from wakeful.stores.sql.store import SqlStore
from wakeful.stores.sqlite import SqliteStore
from wakeful.stores.sqlite import store as sqlite
from wakeful.types.runs import TaskRecord

ROWS = 20_000


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[SqlStore]:
    if kind == "postgres":
        async with fresh_store() as store:
            yield store
        return
    made = SqliteStore(folder / "a.db", synchronous="NORMAL")
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


# -- what is seen --------------------------------------------------------------------------------------------


async def test_overview_of_empty_store_is_empty(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        seen = await store.overview()
        assert (seen.workers, seen.queues, seen.runs, seen.tasks, seen.tickets, seen.dead) == (
            (),
            (),
            (),
            (),
            (),
            (),
        )
        assert (seen.tenant, seen.running) == ("default", Tally())
        assert seen.at > 1_600_000_000_000


async def test_workers_have_a_lease_or_open_claims(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        busy, gone = Writer(store, "busy"), Writer(store, "gone")
        await busy.claim("w1", runs=[record("r1", "busy")])
        await gone.claim("w2", runs=[record("r2", "gone")])
        await Writer(store, "free").claim("w3", release=True)
        await die(store, "w2")
        seen = {one.id: (one.state, one.claims) for one in (await store.overview()).workers}
        assert seen == {"w1": ("alive", 1), "w2": ("lost", 1), "w3": ("alive", 0)}
        assert {run.id: run.worker_id for run in (await store.overview()).runs} == {"r1": "w1", "r2": None}


async def test_dead_worker_is_lost_at_once_on_sqlite(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from wakeful import SqliteStore
from wakeful.stores import Commit
async def main():
    store = SqliteStore(sys.argv[1])
    store.keep("w1")
    await store.commit(Commit("t1", version=0, claim="w1"))
    print("claimed", flush=True)
    sys.stdin.read()
asyncio.run(main())
"""
    path = tmp_path / "a.db"
    store = SqliteStore(path)
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(  # noqa: ASYNC220  # It takes no time.
        [sys.executable, "-c", code, str(path)], **pipes, env=dict(os.environ)
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"claimed\n"
        assert [one.state for one in await store.workers()] == ["alive"]
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=120)
        assert [(one.state, one.claims) for one in await store.workers()] == [("lost", 1)]
    finally:
        process.kill()
        process.communicate()
        await store.close()


async def test_queues_are_counted_by_tenant_and_agent(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        acme = store.tenant("acme")
        for n in range(3):
            await store.commit(Commit(f"t{n}", inbox=[item(f"i{n}", f"t{n}", agent_id="clerk", priority=n)]))
        await store.commit(Commit("l", inbox=[item("l", "l", agent_id="clerk", at=10**15)]))
        await store.commit(Commit("o", inbox=[item("o", "o", agent_id="other", at=10**15)]))
        await acme.commit(Commit("a", inbox=[item("a", "a", agent_id="clerk")]))
        await store.commit(Commit("taken", inbox=[item("taken", "taken", agent_id="zeal")]))
        await store.claim("w1", agents=["zeal"], limit=1)
        first, *others = await acme.queues()  # Whoever asks, all tenants are seen.
        assert first.oldest_at is not None
        assert [(q.tenant, q.agent_id, q.waiting, q.later, q.more) for q in (first, *others)] == [
            ("acme", "clerk", 1, 0, False),
            ("default", "clerk", 3, 1, False),
            ("default", "other", 0, 1, False),
        ]
        assert others[1] == QueueSeen(tenant="default", agent_id="other", waiting=0, later=1)


async def test_overview_lists_open_records_of_tenant(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        writer = Writer(store)
        await writer.begin()
        asked = ticket("k1", tool="refund", message="May it?", arguments={"password": "hunter2"}, assignee="ann")
        task = TaskRecord("task1", "t1", "r1", name="survey", agent_id="helper", target="r7", background=True)
        done = TaskRecord("task0", "t1", "r1", name="old", status="completed")
        parked = record(status="waiting", waiting=waiting("decision", until=9), steps=2)
        await writer.release(runs=[parked], tickets=[asked], tasks=[task, done])
        await Writer(store, "t2").claim("w1", runs=[record("r2", "t2", status="done", finished_at=1)])
        await Writer(store.tenant("acme"), "t3").begin("r3")
        seen = await store.overview()
        (run,), (live,), (open_ticket,) = seen.runs, seen.tasks, seen.tickets
        assert (run.id, run.status, run.reason, run.until, run.steps) == ("r1", "waiting", "external_event", 9, 2)
        assert (live.id, live.name, live.target, live.run_id) == ("task1", "survey", "r7", "r1")
        assert (open_ticket.id, open_ticket.message, open_ticket.assignee) == ("k1", "May it?", "ann")
        assert (seen.running, seen.waiting, seen.tickets_open) == (Tally(), Tally(1), Tally(1))
        assert "hunter2" not in repr(seen)
        assert [run.id for run in (await store.tenant("acme").overview()).runs] == ["r3"]


async def test_dead_letters_have_a_reason(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        await store.commit(Commit("bad", inbox=[item("bad", "bad", agent_id="clerk")]))
        for _ in range(MAX_ATTEMPTS):
            (one,) = (await store.claim("w1", agents=["clerk"], limit=9, now=10**15)).claimed
            await store.commit(Commit("bad", fence=Fence(one.epoch, "w1"), release=True, failed="no luck"))
        seen = await store.overview()
        (dead,) = seen.dead
        assert (dead.thread_id, dead.agent_id, dead.attempts, dead.error) == (
            "bad",
            "clerk",
            MAX_ATTEMPTS,
            "no luck",
        )
        assert (seen.dead_letters, seen.queues) == (Tally(1), ())
        assert (await store.tenant("acme").overview()).dead == ()


# -- what it costs -------------------------------------------------------------------------------------------

_FILL = (
    "INSERT INTO threads (no, tenant, id, created_at, updated_at) SELECT n, {tenant}, 't' || n, 1, 1 FROM numbers",
    """INSERT INTO runs (no, tenant, id, thread, agent, status, step, acting, payload)
       SELECT n, {tenant}, 'r' || n, n, 'a', {status}, 0, 0, {payload} FROM numbers""",
    """INSERT INTO dispatches (thread, tenant, agent, due_at, priority, dead_at)
       SELECT n, {tenant}, 'a' || n % 3, 1, 128, CASE WHEN n % 2 = 0 THEN n END FROM numbers""",
    """INSERT INTO tickets (tenant, id, thread, run, status, payload)
       SELECT {tenant}, 'k' || n, n, n, {ticket}, {payload} FROM numbers""",
    "INSERT INTO tasks (tenant, id, thread, run, status, payload) "
    "SELECT {tenant}, 'k' || n, n, 'r' || n, 'running', {payload} FROM numbers",
)


def statements(*, numbers: str, payload: str) -> list[str]:
    words = {
        "tenant": "CASE WHEN n % 10 = 0 THEN 'acme' ELSE 'default' END",
        "status": "CASE WHEN n % 50 = 0 THEN 'running' WHEN n % 2 = 0 THEN 'waiting' ELSE 'done' END",
        "ticket": "CASE WHEN n % 2 = 0 THEN 'open' ELSE 'answered' END",
        "payload": payload,
    }
    return [re.sub(r"\bnumbers\b", numbers, one.format(**words)) for one in _FILL]


QUERIES = {
    "workers": (overview.WORKERS, [50]),
    "queues": (overview.QUEUES, []),
    "counts": (overview.COUNTS, ["default"] * 4),
    "runs": (f"{overview.RUNS} LIMIT ?", ["default", "waiting", 50]),
    "tasks": (f"{overview.TASKS} LIMIT ?", ["default", 10, "default", 10, 10]),
    "dead": (overview.DEAD, ["default", 50]),
    "all dead": (overview.ALL_DEAD, []),
}


@pytest.mark.parametrize("name", QUERIES)
async def test_overview_uses_indexes_on_sqlite(name: str, tmp_path: Path) -> None:
    sql, args = QUERIES[name]
    async with opened("sqlite", tmp_path) as store:
        plan = await store._query(f"EXPLAIN QUERY PLAN {sqlite._sql(sql)}", *args)
    scanned = [row[3] for row in plan if row[3].startswith("SCAN")]
    # Its own small tables, one lane after the other in the index of what is ready, and the few who have a lease.
    small = r"SCAN (w|l|f|c|r|a|b|workers|lanes|\(subquery-\d+\)|CONSTANT ROW)( |$)"
    allowed = [s for s in scanned if re.match(small, s) or re.search("INDEX dispatches_(ready|dead)$", s)]
    assert scanned == allowed, plan


async def test_overview_cost_is_constant_on_sqlite(tmp_path: Path) -> None:
    async def steps(rows: int) -> int:
        async with opened("sqlite", tmp_path / str(rows)) as store:
            numbers = f"""(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {rows})
                          SELECT n FROM c)"""
            for one in statements(numbers=numbers, payload="x'7b7d'"):
                await store._database.writer.write(lambda db, one=one: db.execute(one))  # type: ignore[attr-defined]
            count = 0

            def work(db: Any) -> int:
                def tick() -> int:
                    nonlocal count
                    count += 1
                    return 0

                db.set_progress_handler(tick, 1)
                for sql, args in QUERIES.values():
                    db.execute(sqlite._sql(sql), args).fetchall()
                db.set_progress_handler(None, 1)
                return count

            return await store._database.read(work)  # type: ignore[attr-defined]

    for rows in (10, 20):
        (tmp_path / str(rows * COUNTED)).mkdir()
    # Each lane and each count stops at its bound, which the smaller one has reached.
    assert await steps(20 * COUNTED) < 1.01 * await steps(10 * COUNTED)


async def test_overview_uses_indexes_on_postgres() -> None:
    async with fresh_store() as store:
        await store.tenants()
        async with connected(schema_of(store)) as db:
            for one in statements(numbers=f"generate_series(1, {ROWS}) AS s(n)", payload=r"'\x7b7d'::bytea"):
                await db.execute(one)
            # As a server does by itself: rows that others left behind in these tables would make the indexes dear.
            await db.execute("VACUUM (ANALYZE) threads, runs, dispatches, tickets, tasks")
            for sql, args in QUERIES.values():
                text = f"EXPLAIN (ANALYZE, FORMAT JSON) {postgres_text(sql)}"
                plan = json.loads(await db.fetchval(text, *args))[0]["Plan"]
                for node in nodes(plan):
                    # The one table that is gone through is that of those who have a lease: it is small.
                    whole = node["Node Type"] == "Seq Scan" and node["Relation Name"] != "workers"
                    assert not whole, (sql, node)
                    assert node["Actual Rows"] <= COUNTED + 1, (sql, node)


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *[node for below in plan.get("Plans", []) for node in nodes(below)]]
