"""Commits of a thread's owner on SQLite: few statements, by the event loop itself where that is the faster way."""

from __future__ import annotations

import asyncio
import math
import os
import sqlite3
from collections.abc import Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlite_suite import raw, run_of, told

from wakeful.errors import StaleFence
from wakeful.stores import Chunk, Commit, Committed, Fence
from wakeful.stores.sqlite import SqliteStore
from wakeful.stores.sqlite.file import CHECKPOINT_PAGES, PAGE_BYTES
from wakeful.stores.sqlite.writer import LOOP_TRANSACTIONS, MAX_BATCH, TURN_TRANSACTIONS
from wakeful.types.content import Text
from wakeful.types.events import StepStart
from wakeful.types.messages import Message


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def owned(store: SqliteStore, thread_id: str = "t1", version: int = 0) -> Fence:
    run = run_of(thread_id)
    done = await store.commit(
        Commit(thread_id=thread_id, identity=run.identity, runs=[run], version=version, claim="me")
    )
    return Fence(done.epoch, "me")


def goes_on(store: SqliteStore, fence: Fence, text: str, thread_id: str = "t1") -> Coroutine[Any, Any, Committed]:
    run = run_of(thread_id)
    log = [Message(text[:20], "user", (Text(text),), 7), StepStart(run.identity, 0, 7, 1)]
    commit = Commit(thread_id=thread_id, identity=run.identity, runs=[run], fence=fence, log=log)
    return store.commit(commit)


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every disk is fast."""
    monkeypatch.setattr("wakeful.stores.sqlite.writer.FAST_SYNC_SECONDS", math.inf)


def traced(store: SqliteStore) -> list[str]:
    """The statements that the store makes from now on."""
    statements: list[str] = []
    store._database._writing.set_trace_callback(statements.append)
    return statements


def at_once(work: Coroutine[Any, Any, Committed]) -> Committed | None:
    """The result of a commit that waits for nothing; None if it waits."""
    try:
        while work.send(None) is None:
            pass
    except StopIteration as done:
        return done.value
    work.close()
    return None


async def test_concurrent_owners_share_one_fsync(path: Path, fast: None) -> None:
    store = SqliteStore(path)
    fences = {name: await owned(store, name) for name in ("a", "b")}
    for name, fence in [*fences.items()] * 2:
        assert at_once(goes_on(store, fence, "hello", name)) is None
    await store.close()


async def test_commits_of_one_thread_keep_order(path: Path) -> None:
    store = SqliteStore(path)
    names = [f"t{n}" for n in range(MAX_BATCH + 6)]
    fences = {name: await owned(store, name) for name in names}
    statements = traced(store)
    # The last one's rows are made while the first one, of the same thread, waits: they aren't right any more then.
    texts = [("first", "t0"), *[(name, name) for name in names[1:]], ("last", "t0")]
    done = await asyncio.gather(*[goes_on(store, fences[name], text, name) for text, name in texts])
    assert (done[0].head, done[-1].head) == (2, 4)
    assert await told(store, "t0") == ["first", "last"]
    assert [await told(store, name) for name in names[1:]] == [[name] for name in names[1:]]
    assert "ROLLBACK" not in " ".join(statements)
    await store.close()


async def test_loop_does_not_wait_for_slow_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeful.stores.sqlite.writer.FAST_SYNC_SECONDS", 0)  # Every disk is slow.
    store = SqliteStore(path)
    fence = await owned(store)
    await goes_on(store, fence, "hello")
    assert at_once(goes_on(store, fence, "again")) is None
    await store.close()


async def test_slow_disk_is_forgotten(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeful.stores.sqlite.writer.FAST_SYNC_SECONDS", 10)
    store = SqliteStore(path)
    fence = await owned(store)
    store._database.writer._transactions.sync_seconds = 100
    for n in range(11):
        await goes_on(store, fence, str(n))
    assert store._database.writer._transactions.sync_seconds < 10
    await store.close()


async def test_owner_file_stays_beside_the_store_after_chdir(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = path.with_name("elsewhere")
    os.mkdir(elsewhere)
    monkeypatch.chdir(path.parent)
    store = SqliteStore(path.name)
    monkeypatch.chdir(elsewhere)
    await goes_on(store, await owned(store), "hello")
    lease = store.keep("me")
    assert os.listdir(elsewhere) == []
    assert "store.db-owner-me" in os.listdir(path.parent)
    await lease.close()
    await store.close()
    assert sorted(os.listdir(path.parent)) == ["elsewhere", "store.db"]


async def test_loop_does_not_wait_for_other_writer(path: Path) -> None:
    store = SqliteStore(path, synchronous="NORMAL")
    fence = await owned(store)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    work = asyncio.ensure_future(goes_on(store, fence, "hello"))
    await asyncio.sleep(0)  # It has begun, and this goes on all the same.
    assert not work.done()
    other.execute("COMMIT")
    other.close()
    assert (await work).head == 2
    assert await told(store) == ["hello"]
    await store.close()


async def test_wal_is_checkpointed_while_loop_writes(path: Path) -> None:
    store = SqliteStore(path, synchronous="NORMAL")
    fence, log = await owned(store), path.with_name("store.db-wal")
    for n in range(8 * LOOP_TRANSACTIONS):
        await goes_on(store, fence, f"{n:<20}" + "x" * 20_000)
    assert log.stat().st_size < 2 * CHECKPOINT_PAGES * PAGE_BYTES
    assert len(await told(store)) == 8 * LOOP_TRANSACTIONS
    await store.close()


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
async def test_replaced_owner_is_fenced(path: Path, synchronous: Any) -> None:
    store = SqliteStore(path, synchronous=synchronous)
    fence = await owned(store)
    await goes_on(store, fence, "mine")
    with raw(path) as db:
        db.execute("UPDATE threads SET claim = 'another', epoch = epoch + 1")
    with pytest.raises(StaleFence):
        await goes_on(store, fence, "late")
    assert await told(store) == ["mine"]
    await store.close()


async def test_chunks_are_dropped_with_their_answer(path: Path) -> None:
    store = SqliteStore(path, synchronous="NORMAL")
    fence, run = await owned(store), run_of("t1")
    for number in range(2):
        said = Message(f"m{number}", "assistant", (Text("said"),), 7)
        if number:
            chunk = Chunk(said.id, 0, 0, "text", "sa")
            await store.commit(Commit("t1", run.identity, fence, chunks=[chunk]))
            assert await store.chunks("t1") != ()
        await store.commit(Commit("t1", run.identity, fence, log=[said], runs=[run]))
        assert list(await store.chunks("t1")) == []
    await store.close()


async def test_recreated_thread_is_another_thread(path: Path) -> None:
    store = SqliteStore(path, synchronous="NORMAL")
    fence = await owned(store)
    await goes_on(store, fence, "old")
    await store.keep("me").close()
    await store.delete("t1")
    fence = await owned(store)
    assert (await goes_on(store, fence, "new")).head == 2
    assert await told(store) == ["new"]
    await store.close()


async def test_lone_writer_yields_to_others(path: Path, fast: None) -> None:
    store = SqliteStore(path)
    fence = await owned(store)
    turns: list[int] = []

    async def talk() -> None:
        for n in range(3 * TURN_TRANSACTIONS):
            await goes_on(store, fence, str(n))

    async def look() -> None:
        while not talking.done():
            await asyncio.sleep(0)
            turns.append(store.batches[1])

    await goes_on(store, fence, "hello")
    talking = asyncio.ensure_future(talk())
    await look()
    steps = [later - sooner for sooner, later in pairwise(turns)]
    assert 1 < max(steps) <= TURN_TRANSACTIONS
    await store.close()


async def test_cancellation_comes_after_write(path: Path, fast: None) -> None:
    store = SqliteStore(path)
    fence = await owned(store)
    done: list[int] = []

    async def talk() -> None:
        while not talking.cancelling():
            done.append((await goes_on(store, fence, "x")).head)
        await asyncio.sleep(0)

    await goes_on(store, fence, "hello")
    talking = asyncio.ensure_future(talk())
    while len(done) < TURN_TRANSACTIONS:
        await asyncio.sleep(0)
    talking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await talking
    assert len(await told(store)) == len(done) + 1
    await store.close()
