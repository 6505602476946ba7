"""The cost of views, deliveries and commits on SQLite doesn't depend on the length of the thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlite_suite import append, raw, run_of

from wakeful.stores import Commit
from wakeful.stores.sql import log as sql_log
from wakeful.stores.sql import store as sql
from wakeful.stores.sqlite import SqliteStore, claims
from wakeful.stores.sqlite import store as sqlite
from wakeful.types.calls import Call
from wakeful.types.content import Text
from wakeful.types.events import StepStart
from wakeful.types.inbox import InputItem
from wakeful.types.messages import Message, user_message


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def test_view_uses_indexes(path: Path) -> None:
    store = SqliteStore(path)
    plan = await store._query(f"EXPLAIN QUERY PLAN {sqlite._sql(sql._VIEW)}", "default", "t1")
    steps = [row[3] for row in plan]
    # `t` and `r` are the query's own one-row tables.
    assert [step for step in steps if step.startswith("SCAN") and step not in ("SCAN t", "SCAN r")] == []
    assert any(step.startswith("MATERIALIZE t") for step in steps)
    assert any(step.startswith("MATERIALIZE r") for step in steps)
    searches = " ".join(step for step in steps if step.startswith("SEARCH"))
    for lookup in ("(thread=? AND seq=?)", "(run=? AND step=?)", "(run=? AND status=?)", "(thread=? AND run=?)"):
        assert lookup in searches
    assert searches.count("(thread=? AND status=?)") == 2
    assert "(thread=?)" not in searches
    await store.close()


async def test_window_is_read_from_its_end(path: Path) -> None:
    store = SqliteStore(path)
    newest = f"EXPLAIN QUERY PLAN {sql_log._OWN} DESC LIMIT ?"
    steps = [row[3] for row in await store._query(newest, "default", "t1", 0, 999, 20)]
    assert [step for step in steps if "(thread=? AND seq>? AND seq<?)" in step]
    assert not [step for step in steps if step.startswith(("SCAN", "USE TEMP B-TREE"))]
    await store.close()


async def long_thread(store: SqliteStore, thread_id: str, length: int) -> None:
    """A thread with so many entries, calls of older steps and items that were taken, and a run that is open."""
    run = run_of(thread_id, stage="acting", steps=length, answer_id=f"last-{thread_id}")
    answer = Message(f"last-{thread_id}", "assistant", (Text("done"),), 7)
    items = [
        InputItem(id=f"{thread_id}-{n}", thread_id=thread_id, message=user_message("x")) for n in range(length)
    ]
    for first in range(0, length, 500):
        await store.commit(Commit(thread_id=thread_id, inbox=items[first : first + 500]))
        view = await store.load(thread_id)
        assert view is not None
        steps = range(first, min(first + 500, length))
        await append(
            store,
            thread_id,
            version=view.thread.version,
            log=[*[StepStart(run.identity, 0, 7, n) for n in steps], answer],
            runs=[run],
            calls=[Call(f"c{n}", run.id, n, 0, "look", {}) for n in [*steps, length]],
            taken=[i.id for i in items[first : first + 500]],
        )


async def opcodes(store: SqliteStore, thread_id: str) -> int:
    """How many instructions the database takes to read a view."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    store._database._reading.set_progress_handler(tick, 1)
    view = await store.load(thread_id)
    store._database._reading.set_progress_handler(None, 1)
    assert view is not None
    assert view.answer is not None
    assert len(view.calls) == 1
    return count


async def test_view_cost_is_independent_of_thread_length(path: Path) -> None:
    store = SqliteStore(path, synchronous="NORMAL")
    await long_thread(store, "short", 50)
    await long_thread(store, "long", 5_000)
    short, long = await opcodes(store, "short"), await opcodes(store, "long")
    assert long < 1.5 * short
    await store.close()


async def test_delivery_cost_is_independent_of_thread_length(path: Path) -> None:
    store = SqliteStore(path, synchronous="NORMAL")
    await long_thread(store, "short", 50)
    await long_thread(store, "long", 2_000)
    store._database._writing.execute("ANALYZE")

    async def cost(thread_id: str) -> int:
        count = 0

        def tick() -> int:
            nonlocal count
            count += 1
            return 0

        store._database._writing.set_progress_handler(tick, 1)
        item = InputItem(id=f"new-{thread_id}", thread_id=thread_id, message=user_message("x"))
        await store.commit(Commit(thread_id=thread_id, inbox=[item]))
        store._database._writing.set_progress_handler(None, 1)
        return count

    assert await cost("long") < 1.5 * await cost("short")
    await store.close()


async def test_file_grows_by_added_bytes(path: Path) -> None:
    store = SqliteStore(path, synchronous="NORMAL")
    version, sizes = 0, list[int]()
    for _ in range(3):
        for _ in range(50):
            version = (await append(store, "t1", "x" * 2000, version=version)).version
        sizes.append((await store.size())["bytes"])
    await store.close()
    with raw(path) as db:
        assert db.execute("SELECT count(*) FROM log").fetchone() == (150,)
    assert sizes[2] - sizes[1] < 3 * 50 * 2000
    assert abs((sizes[2] - sizes[1]) - (sizes[1] - sizes[0])) < 100_000


async def test_flood_of_one_tenant_does_not_slow_claims(path: Path) -> None:
    async def steps(store: SqliteStore) -> int:
        count = 0

        def tick() -> int:
            nonlocal count
            count += 1
            return 0

        def lanes(db: Any) -> int:
            db.set_progress_handler(tick, 1)
            found = claims._lanes(db)
            db.set_progress_handler(None, 1)
            return len(found)

        assert await store._database.read(lanes) == 3
        return count

    async def arrive(store: SqliteStore, *names: str, agent: str, priority: int = 128) -> None:
        for name in names:
            arrived = InputItem(
                id=name, thread_id=name, agent_id=agent, priority=priority, message=user_message("x")
            )
            await store.commit(Commit(name, inbox=[arrived]))

    store = SqliteStore(path, synchronous="NORMAL")
    await arrive(store, "a", agent="clerk")
    await arrive(store, "b", agent="clerk", priority=200)
    await arrive(store.tenant("zeta"), "c", agent="clerk")
    before = await steps(store)
    await arrive(store, *[f"t{n}" for n in range(300)], agent="clerk")
    assert await steps(store) <= before + 10
    await store.close()
