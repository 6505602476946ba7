"""Many writers on one SQLite file: groups, processes, torn logs, backups."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlite_suite import append, run_of, told

from wakeful.errors import Conflict, InboxFull, StaleFence, StoreError, StoreFull, StoreUnavailable, ThreadBusy
from wakeful.stores import Commit, Fence
from wakeful.stores.sql.schema import APPLICATION_ID
from wakeful.stores.sqlite import SqliteStore
from wakeful.types.content import Text
from wakeful.types.inbox import DecisionItem
from wakeful.types.messages import Message
from wakeful.types.tickets import Decision


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


# -- groups --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def held_back(store: SqliteStore) -> AsyncIterator[None]:
    """The writer is busy, until everything that is begun in here has queued up."""
    busy, free = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        busy.set()
        free.wait(120)

    store._database.writer.post(hold, lambda _: None)
    await asyncio.to_thread(busy.wait, 20)
    yield
    for _ in range(3):  # What owners have is gathered for a turn of the loop.
        await asyncio.sleep(0)
    free.set()


async def test_queued_commits_share_one_transaction(path: Path) -> None:
    store = SqliteStore(path)
    async with held_back(store):
        before = store.batches
        work = [asyncio.ensure_future(append(store, f"t{n}", "x")) for n in range(50)]
    await asyncio.gather(*work)
    transactions, commits = store.batches
    assert (transactions - before[0], commits - before[1]) == (1, 50)
    assert (await store.counts())["messages"] == 50
    await store.close()


async def test_refused_commit_of_batch_fails_alone(path: Path) -> None:
    store = SqliteStore(path)
    await append(store, "t0", "x")
    full = [DecisionItem(id=f"i{n}", thread_id="full", decision=Decision("k")) for n in range(1100)]
    await store.commit(Commit(thread_id="full", inbox=full))
    more = [DecisionItem(id="more", thread_id="full", decision=Decision("k"))]
    stale = Commit(thread_id="t0", fence=Fence(9, "nobody"), identity=run_of("t0").identity, log=[_message()])
    async with held_back(store):
        before = store.batches[0]
        work = [
            asyncio.ensure_future(one)
            for one in (
                append(store, "t1", "a"),
                store.commit(stale),
                append(store, "t2", "b"),
                append(store, "t3", "finds no room for its item after it was written", inbox=more),
                append(store, "t2", "on the wrong version"),
                append(store, "t2", "c", version=1),
            )
        ]
    done = await asyncio.gather(*work, return_exceptions=True)
    assert store.batches[0] - before == 1
    assert [type(one) for one in done if isinstance(one, Exception)] == [StaleFence, InboxFull, Conflict]
    assert [await told(store, f"t{n}") for n in range(4)] == [["x"], ["a"], ["b", "c"], []]
    await store.close()


async def test_batch_fails_whole_when_disk_is_full(path: Path) -> None:
    store = SqliteStore(path)
    await append(store, "t0", "x")
    (pages,) = store._database._writing.execute("PRAGMA page_count").fetchone()
    store._database._writing.execute(f"PRAGMA max_page_count = {pages + 4}")
    async with held_back(store):
        work = [asyncio.ensure_future(append(store, f"t{n}", "x" * 40_000)) for n in range(1, 4)]
    done = await asyncio.gather(*work, return_exceptions=True)
    assert [type(one) for one in done] == [StoreFull] * 3
    assert (await store.counts())["threads"] == 1
    assert await store.check() == []
    await store.close()


async def test_cancelled_commit_is_still_written(path: Path) -> None:
    store = SqliteStore(path)
    async with held_back(store):
        work = asyncio.ensure_future(append(store, "t1", "x"))
        await asyncio.sleep(0)
        work.cancel()
    await asyncio.wait([work])
    assert await told(store) == ["x"]
    await store.close()


def _message(text: str = "x") -> Message:
    return Message(text, "user", (Text(text),), 7)


# -- two processes -------------------------------------------------------------------------------------------

_WRITE = """
import asyncio, sys
from sqlite_suite import append
from wakeful.stores.sql.schema import APPLICATION_ID
from wakeful.stores.sqlite import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1], synchronous="NORMAL")
    print("ready", flush=True)
    version = 0
    for number in range(100):
        version = (await append(store, "theirs", str(number), version=version)).version
    await store.close()

asyncio.run(main())
"""

_CLAIM = """
import asyncio, sys
from sqlite_suite import run_of
from wakeful.stores import Commit
from wakeful.stores.sql.schema import APPLICATION_ID
from wakeful.stores.sqlite import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1])
    lease = store.keep("w1")
    run = run_of("t1")
    await store.commit(Commit(thread_id="t1", identity=run.identity, version=0, claim="w1", runs=[run]))
    print("ready", flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


def another_process(script: str, path: Path) -> subprocess.Popen[str]:
    """A process that has said that it is ready."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def end(process: subprocess.Popen[str]) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    return process.wait(120)


async def test_two_processes_write_to_one_file(path: Path) -> None:
    store = SqliteStore(path, synchronous="NORMAL")
    process = await asyncio.to_thread(another_process, _WRITE, path)
    version = 0
    for number in range(100):
        version = (await append(store, "ours", str(number), version=version)).version
    assert await asyncio.to_thread(end, process) == 0
    numbers = [str(number) for number in range(100)]
    assert (await told(store, "ours"), await told(store, "theirs")) == (numbers, numbers)
    assert await store.check() == []
    await store.close()


async def test_claim_of_killed_process_ends_at_once(path: Path) -> None:
    store = SqliteStore(path)
    process = await asyncio.to_thread(another_process, _CLAIM, path)
    view = await store.load("t1")
    assert view is not None
    assert view.thread.claimed
    assert await store.due() == []
    mine = Commit(thread_id="t1", version=view.thread.version, claim="w2")
    with pytest.raises(Conflict):
        await store.commit(mine)
    os.kill(process.pid, signal.SIGKILL)
    await asyncio.to_thread(end, process)
    assert [due.thread_id for due in await store.due()] == ["t1"]
    view = await store.load("t1")
    assert view is not None
    assert not view.thread.claimed
    assert (await store.commit(mine)).epoch == view.thread.epoch + 1
    await store.close()


async def test_claim_detects_killed_owner(path: Path) -> None:
    store = SqliteStore(path)
    process = await asyncio.to_thread(another_process, _CLAIM, path)
    os.kill(process.pid, signal.SIGKILL)
    await asyncio.to_thread(end, process)
    assert (await store.commit(Commit(thread_id="t1", version=1, claim="w2"))).epoch == 2
    await store.close()


async def test_thread_of_killed_owner_can_be_deleted(path: Path) -> None:
    store = SqliteStore(path)
    process = await asyncio.to_thread(another_process, _CLAIM, path)
    with pytest.raises(ThreadBusy):
        await store.delete("t1")
    os.kill(process.pid, signal.SIGKILL)
    await asyncio.to_thread(end, process)
    assert await store.delete("t1") == 1
    await store.close()


async def test_leftovers_of_killed_owner_are_removed_on_open(path: Path) -> None:
    process = await asyncio.to_thread(another_process, _CLAIM, path)
    os.kill(process.pid, signal.SIGKILL)
    await asyncio.to_thread(end, process)
    assert list(path.parent.glob("*-owner-*"))
    store = SqliteStore(path)
    assert list(path.parent.glob("*-owner-*")) == []
    assert [due.thread_id for due in await store.due()] == ["t1"]
    await store.close()


async def test_open_waits_for_file_being_created(path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        SqliteStore(path, busy_seconds=0.05)
    opening = asyncio.create_task(asyncio.to_thread(SqliteStore, path))
    done, _ = await asyncio.wait([opening], timeout=0.05)
    assert not done
    other.execute("COMMIT")
    store = await opening
    assert (await append(store, "t1", "x")).head == 1
    await store.close()
    other.close()


class Overtaken(SqliteStore):
    """A store where a thread is deleted after so many queries of what is read next."""

    deletes, queries = "", 0

    async def _query(self, sql: str, *args: Any) -> list[Any]:
        rows = await super()._query(sql, *args)
        if self.queries:
            self.queries -= 1
            if not self.queries:
                await self.delete(self.deletes)
        return rows


@pytest.mark.parametrize("queries", [1, 2, 3, 4, 5])
async def test_fork_read_during_base_deletion_is_complete(path: Path, queries: int) -> None:
    store, read = Overtaken(path), dict[str, int]()
    ways: dict[str, Callable[[], Awaitable[list[Any]]]] = {
        "messages": lambda: store.messages("fork"),
        "newest": lambda: store.messages("fork", newest=9),
        "events": lambda: store.events("fork"),
    }
    for name, way in ways.items():
        await append(store, "base", "x" * 40_000, "two")
        await store.fork("base", 2, "fork")
        await append(store, "fork", "three", version=1)
        store.deletes, store.queries = "base", queries
        read[name] = len(await way())
        await store.delete("fork")
    assert read == {"messages": 3, "newest": 3, "events": 3}
    await store.close()


async def test_read_during_deletion_leaves_nothing(path: Path) -> None:
    store = Overtaken(path)
    for queries, whole in ((1, 0), (2, 1)):  # Two are all that messages take.
        await append(store, "t", "x" * 40_000)
        store.deletes, store.queries = "t", queries
        assert len(await store.messages("t")) == whole
        await append(store, "t", "x" * 40_000)
        store.deletes, store.queries = "t", queries
        assert await store.events("t") == []
    await store.close()


async def test_two_stores_on_one_file_share_records(path: Path) -> None:
    one, two = SqliteStore(path), SqliteStore(path)
    lease = one.keep("w1")
    done = await one.commit(Commit(thread_id="t1", version=0, claim="w1"))
    with pytest.raises(Conflict):
        await two.commit(Commit(thread_id="t1", version=done.version, claim="w2"))
    assert await two.due() == []
    await lease.close()
    assert [due.thread_id for due in await two.due()] == ["t1"]
    await two.commit(Commit(thread_id="t1", version=done.version, claim="w2"))
    with pytest.raises(StaleFence):
        await one.commit(Commit(thread_id="t1", fence=Fence(done.epoch, "w1"), release=True))
    await one.close()
    await two.close()


# -- torn logs and backups -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A file whose commits are all in the log beside it, and what they said."""
    folder = tmp_path_factory.mktemp("written")

    async def write() -> list[str]:
        store = SqliteStore(folder / "live.db")
        version = 0
        for number in range(12):
            texts = [f"{number}", "x" * 40_000] if number % 4 == 3 else [f"{number}"]
            version = (await append(store, "t1", *texts, version=version)).version
        for suffix in ("", "-wal"):
            shutil.copy(folder / f"live.db{suffix}", folder / f"torn.db{suffix}")
        found = await told(store)
        await store.close()
        return found

    return folder / "torn.db", asyncio.run(write())


@given(share=st.floats(0, 1), off=st.integers(-100, 100))
@example(share=0, off=0)
@example(share=1, off=0)
@example(share=1, off=-1)
def test_torn_wal_leaves_prefix_of_commits(
    written: tuple[Path, list[str]], tmp_path_factory: pytest.TempPathFactory, share: float, off: int
) -> None:
    source, texts = written
    folder = tmp_path_factory.mktemp("torn")
    wal = source.with_name("torn.db-wal").read_bytes()
    shutil.copy(source, folder / "torn.db")
    (folder / "torn.db-wal").write_bytes(wal[: max(0, int(len(wal) * share) + off)])

    async def check() -> None:
        store = SqliteStore(folder / "torn.db")
        assert await store.check() == []
        found = await told(store)
        assert found == texts[: len(found)]
        if share == 1 and off >= 0:
            assert found == texts
        version = (await store.thread("t1") or _Nothing()).version
        await append(store, "t1", "more", version=version)
        assert await told(store) == [*found, "more"]
        await store.close()

    asyncio.run(check())
    shutil.rmtree(folder)


class _Nothing:
    version = 0


async def test_backup_works_during_writes(path: Path) -> None:
    store = SqliteStore(path, synchronous="NORMAL")

    async def write(thread_id: str) -> None:
        version = 0
        for number in range(60):
            version = (await append(store, thread_id, str(number), version=version)).version

    writing = [asyncio.ensure_future(write(f"t{n}")) for n in range(3)]
    await append(store, "first", "x")
    await store.backup(path.with_name("copy.db"))
    await asyncio.gather(*writing)
    copy = SqliteStore(path.with_name("copy.db"))
    assert await copy.check() == []
    assert await told(copy, "first") == ["x"]
    for number in range(3):
        found = await told(copy, f"t{number}")
        assert found == [str(n) for n in range(len(found))]
    await copy.close()
    await store.close()


async def test_backup_overwrites_nothing(path: Path) -> None:
    store = SqliteStore(path)
    with pytest.raises(StoreUnavailable, match="there already"):
        await store.backup(path)
    await append(store, "t1", "x")
    await store.close()


async def test_failed_backup_error_names_copy(path: Path) -> None:
    store = SqliteStore(path)
    with pytest.raises(StoreUnavailable, match=r"no/copy.db can't be made .*check that its folder"):
        await store.backup(path.with_name("no") / "copy.db")
    assert await store.check() == []
    await store.close()


async def test_interrupted_backup_leaves_no_copy(path: Path) -> None:
    store, copy = SqliteStore(path), path.with_name("copy.db")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(StoreError, match=r"store.db couldn't be copied into .*copy.db: "):
            await store.backup(copy)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    await store.backup(copy)
    await store.close()
