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
from sqlite_suite import append, raw, run_of, told

from wakeful.errors import StaleFence
from wakeful.stores import Chunk, Commit, Committed, Fence
from wakeful.stores import _schema as schema
from wakeful.stores._database import LOOP_TRANSACTIONS, MAX_GATHERED, TURN_TRANSACTIONS
from wakeful.stores._files import CHECKPOINT_PAGES, PAGE_BYTES
from wakeful.stores._sqlite import SqliteStore
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


def goes_on(
    store: SqliteStore, fence: Fence, text: str, thread_id: str = "t1", unsynced: bool = False
) -> Coroutine[Any, Any, Committed]:
    run = run_of(thread_id)
    log = [Message(text[:20], "user", (Text(text),), 7), StepStart(run.identity, 0, 7, 1)]
    commit = Commit(thread_id=thread_id, identity=run.identity, runs=[run], fence=fence, log=log)
    commit.unsynced = unsynced
    return store.commit(commit)


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every disk is fast."""
    monkeypatch.setattr("wakeful.stores._database.FAST_SYNC_SECONDS", math.inf)


def traced(store: SqliteStore) -> list[str]:
    """The statements that the store makes from now on."""
    statements: list[str] = []
    store._database._writing.set_trace_callback(statements.append)
    return statements


def at_once(work: Coroutine[Any, Any, Committed]) -> Committed | None:
    """What the work comes to, if it waits for nothing but its turn."""
    try:
        while work.send(None) is None:
            pass
    except StopIteration as done:
        return done.value
    work.close()
    return None


async def test_where_nothing_is_synced_the_loop_writes_what_an_owner_commits(path: Path) -> None:
    store = SqliteStore(path, synchronous="NORMAL")
    fence = await owned(store)
    done = at_once(goes_on(store, fence, "hello"))
    assert done is not None
    assert (done.head, await told(store)) == (2, ["hello"])
    await store.close()


async def test_the_loop_syncs_what_an_owner_commits_who_is_alone(path: Path, fast: None) -> None:
    store = SqliteStore(path)
    fence = await owned(store)
    await goes_on(store, fence, "hello")
    statements = traced(store)
    done = at_once(goes_on(store, fence, "again"))
    assert done is not None
    assert (done.head, await told(store)) == (4, ["hello", "again"])
    assert "PRAGMA synchronous = NORMAL" not in statements
    await store.close()


async def test_owners_in_company_share_a_sync_in_the_thread(path: Path, fast: None) -> None:
    store = SqliteStore(path)
    fences = {name: await owned(store, name) for name in ("a", "b")}
    for name, fence in [*fences.items()] * 2:
        assert at_once(goes_on(store, fence, "hello", name)) is None
    await store.close()


async def test_commits_of_one_thread_that_go_into_different_transactions_follow_each_other(path: Path) -> None:
    store = SqliteStore(path)
    names = [f"t{n}" for n in range(MAX_GATHERED + 6)]
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


async def test_the_loop_waits_for_no_slow_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeful.stores._database.FAST_SYNC_SECONDS", 0)  # Every disk is slow.
    store = SqliteStore(path)
    fence = await owned(store)
    await goes_on(store, fence, "hello")
    assert at_once(goes_on(store, fence, "again")) is None
    await store.close()


async def test_a_disk_that_was_slow_once_isnt_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeful.stores._database.FAST_SYNC_SECONDS", 10)
    store = SqliteStore(path)
    fence = await owned(store)
    store._database._transactions.sync_seconds = 100
    for n in range(11):
        await goes_on(store, fence, str(n))
    assert at_once(goes_on(store, fence, "again")) is not None
    await store.close()


async def test_what_need_not_be_synced_yet_is_written_by_the_loop_and_seen_by_others(path: Path) -> None:
    store = SqliteStore(path)
    fence = await owned(store)
    statements = traced(store)
    assert at_once(goes_on(store, fence, "hello", unsynced=True)) is not None
    assert "PRAGMA synchronous = NORMAL" in statements
    with raw(path) as db:
        assert db.execute("SELECT head FROM threads").fetchall() == [(2,)]
    await store.close()


async def test_the_next_commit_syncs_what_was_left_unsynced(path: Path, fast: None) -> None:
    store = SqliteStore(path)
    fence = await owned(store)
    await goes_on(store, fence, "hello")
    statements = traced(store)
    at_once(goes_on(store, fence, "unsynced", unsynced=True))
    assert store._database._unsynced._since is not None
    at_once(goes_on(store, fence, "synced"))
    levels = [s for s in statements if s.startswith("PRAGMA synchronous")]
    assert levels == ["PRAGMA synchronous = NORMAL", "PRAGMA synchronous = FULL"]
    assert store._database._unsynced._since is None
    await store.close()


async def test_what_owners_write_together_syncs_what_was_left_unsynced(path: Path) -> None:
    store = SqliteStore(path)
    fences = {name: await owned(store, name) for name in ("a", "b")}
    assert at_once(goes_on(store, fences["a"], "unsynced", "a", unsynced=True)) is not None
    assert store._database._unsynced._since is not None
    await asyncio.gather(*[goes_on(store, fence, "synced", name) for name, fence in fences.items()])
    assert store._database._unsynced._since is None
    await store.close()


async def test_what_was_left_unsynced_is_synced_soon_if_nothing_follows(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, loop = SqliteStore(path), asyncio.get_running_loop()
    fence = await owned(store)
    synced = asyncio.Event()

    def sync(file: int, real: Any = os.fsync) -> None:
        assert os.path.samestat(os.fstat(file), os.stat(f"{path}-wal"))
        real(file)
        loop.call_soon_threadsafe(synced.set)

    monkeypatch.setattr(os, "fsync", sync)
    at_once(goes_on(store, fence, "hello", unsynced=True))
    async with asyncio.timeout(30):
        await synced.wait()
    assert await told(store) == ["hello"]
    await store.close()


async def test_a_process_that_goes_to_another_folder_syncs_and_shows_that_it_lives_where_the_file_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, synced, loop = path.with_name("elsewhere"), asyncio.Event(), asyncio.get_running_loop()
    os.mkdir(elsewhere)
    monkeypatch.chdir(path.parent)
    store = SqliteStore(path.name)
    monkeypatch.chdir(elsewhere)

    fence = await owned(store)
    monkeypatch.setattr(os, "fsync", lambda _: loop.call_soon_threadsafe(synced.set))
    at_once(goes_on(store, fence, "hello", unsynced=True))
    async with asyncio.timeout(30):
        await synced.wait()
    lease = store.keep("me")
    assert os.listdir(elsewhere) == []
    assert "store.db-owner-me" in os.listdir(path.parent)
    await lease.close()
    await store.close()
    assert sorted(os.listdir(path.parent)) == ["elsewhere", "store.db"]


async def test_the_loop_does_not_wait_for_another_process_that_writes(path: Path) -> None:
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


async def test_the_log_beside_the_file_is_brought_home_while_the_loop_writes(path: Path) -> None:
    store = SqliteStore(path, synchronous="NORMAL")
    fence, log = await owned(store), path.with_name("store.db-wal")
    for n in range(8 * LOOP_TRANSACTIONS):
        await goes_on(store, fence, f"{n:<20}" + "x" * 20_000)
    assert log.stat().st_size < 2 * CHECKPOINT_PAGES * PAGE_BYTES
    assert len(await told(store)) == 8 * LOOP_TRANSACTIONS
    await store.close()


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
async def test_an_owner_that_was_replaced_writes_no_more(path: Path, synchronous: Any) -> None:
    store = SqliteStore(path, synchronous=synchronous)
    fence = await owned(store)
    await goes_on(store, fence, "mine")
    with raw(path) as db:
        db.execute("UPDATE threads SET claim = 'another', epoch = epoch + 1")
    with pytest.raises(StaleFence):
        await goes_on(store, fence, "late")
    assert await told(store) == ["mine"]
    await store.close()


async def test_chunks_go_with_their_answer_also_after_an_answer_without_any(path: Path) -> None:
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


async def test_what_writes_nothing_does_not_count_as_a_sync(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeful.stores._unsynced.UNSYNCED_SECONDS", 60)
    store = SqliteStore(path)
    fence = await owned(store)
    at_once(goes_on(store, fence, "unsynced", unsynced=True))
    await store._database.write(lambda db: None)
    with pytest.raises(StaleFence):
        await goes_on(store, Fence(7, "another"), "late")
    assert store._database._unsynced._since is not None
    await goes_on(store, fence, "synced")
    assert store._database._unsynced._since is None
    await store.close()


async def test_a_thread_that_was_deleted_and_begun_anew_is_another_one(path: Path) -> None:
    store = SqliteStore(path, synchronous="NORMAL")
    fence = await owned(store)
    await goes_on(store, fence, "old")
    await store.keep("me").close()
    await store.delete("t1")
    fence = await owned(store)
    assert (await goes_on(store, fence, "new")).head == 2
    assert await told(store) == ["new"]
    await store.close()


async def test_a_file_of_version_2_is_read_as_it_was_and_gone_on_with(path: Path) -> None:
    with raw(path) as db:
        for version in (1, 2):
            for statement in schema.statements(version, "sqlite"):
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        db.execute("PRAGMA user_version = 2")
        db.execute("INSERT INTO meta VALUES ('min_reader', '1')")
        db.execute(
            "INSERT INTO threads (tenant, id, version, head, created_at, updated_at) "
            "VALUES ('default', 't1', 1, 3, 1, 1)"
        )
        said = '{"id":"m1","role":"user","content":[{"type":"text","text":"old"}],"created_at":7}'
        for seq, kind, payload in (
            (1, "step_start", '{"step":1}'),
            (2, "message", said),
            (3, "step_start", '{"step":2}'),
        ):
            values = (seq, kind, payload.encode())
            db.execute("INSERT INTO log VALUES (1, ?, ?, 0, 'agent', 7, NULL, ?)", values)
    store = SqliteStore(path)
    await append(store, "t1", "new", version=1)
    assert (await told(store), await store.check()) == (["old", "new"], [])
    assert [event.seq for event in await store.events("t1", after=1)] == [2, 3, 4]
    assert path.with_name("store.db.v2.bak").exists()
    await store.close()


async def test_who_waits_for_nothing_else_leaves_others_their_turn(path: Path, fast: None) -> None:
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


async def test_a_cancellation_comes_after_the_turn_and_what_is_written(path: Path, fast: None) -> None:
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
