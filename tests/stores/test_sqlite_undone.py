"""A rollback on SQLite leaves nothing: no rows, no cached heads, and no waiting writer."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from sqlite_suite import raw, run_of, told

from wakeful.errors import CodecFailed, StaleFence, StoreUnavailable
from wakeful.stores import Commit, Committed, Fence
from wakeful.stores.sqlite import SqliteStore
from wakeful.types.content import Text
from wakeful.types.inbox import DecisionItem
from wakeful.types.messages import Message
from wakeful.types.runs import Identity, RunRecord, Waiting
from wakeful.types.tickets import Decision

WAITING = {"status": "waiting", "agent_id": "other", "waiting": Waiting("user_input", 7, ("decision",))}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


class Panic(BaseException):
    """An error that a codec may raise which isn't written in Python."""


class Fragile:
    """A codec that can't encode some things, for a while."""

    def __init__(self, error: type[BaseException] = ValueError) -> None:
        self.error = error
        self.broken = True

    def encode(self, data: bytes) -> bytes:
        if self.broken and b"poison" in data:
            raise self.error
        return data

    def decode(self, data: bytes) -> bytes:
        return data


def begins(name: str, text: str = "hello", lease: int = 60_000) -> Commit:
    run, log = run_of(name), [Message(f"m-{name}", "user", (Text(text),), 7)]
    return Commit(name, run.identity, runs=[run], version=0, claim="me", log=log, lease=lease)


def says(name: str, fence: Fence, text: str, run: RunRecord | None = None, **more: object) -> Commit:
    run = run or run_of(name)
    return Commit(name, run.identity, fence, runs=[run], log=[Message(text, "user", (Text(text),), 7)], **more)


async def owned(store: SqliteStore, name: str, lease: int = 60_000) -> Fence:
    return Fence((await store.commit(begins(name, lease=lease))).epoch, "me")


def rows(path: Path) -> list[tuple[str, str, str]]:
    """Runs with their statuses and agents, as the file has them."""
    with raw(path) as db:
        return db.execute("SELECT id, status, agent FROM runs ORDER BY no").fetchall()


async def test_rolled_back_status_is_written_next_time(path: Path) -> None:
    store = SqliteStore(path)
    fence = await owned(store, "t")
    child = begins("c", "half \ud800")  # The first attempt is undone for this, and the second one is mended.
    await store.commit(says("t", fence, "two", run_of("t", **WAITING), then=[child]))
    assert rows(path) == [("r-t", "waiting", "other"), ("r-c", "running", "agent")]
    await store.close()


@pytest.mark.parametrize("between", [True, False])
async def test_rolled_back_run_start_gets_its_own_row(path: Path, between: bool) -> None:
    codec = Fragile()
    store = SqliteStore(path, codec=codec)
    fence = await owned(store, "t")
    await store.commit(says("t", fence, "bye", run_of("t", status="done", finished_at=9)))
    second = RunRecord(
        identity=Identity("r2", "t", "agent", "r2"), status="running", agent_id="agent", created_at=1
    )
    with pytest.raises(CodecFailed):
        await store.commit(says("t", fence, "next", second, then=[begins("c", "poison")]))
    codec.broken = False
    if between:
        await store.commit(begins("u"))
    await store.commit(says("t", fence, "next", second, then=[begins("c", "poison")]))
    names = ["r-t", *(["r-u"] if between else []), "r2", "r-c"]
    assert [row[0] for row in rows(path)] == names
    view = await store.load("t")
    assert view is not None
    assert view.thread.open_run_id == "r2"
    await store.close()


async def test_reclaimed_thread_is_not_read_from_cache(path: Path) -> None:
    one, two = SqliteStore(path), SqliteStore(path)
    stale = await owned(one, "t", lease=1)
    await one.commit(says("t", stale, "one"))
    while not (claimed := (await two.claim("other", agents=["agent"], limit=1)).claimed):
        await asyncio.sleep(0)
    waits = run_of("t", **WAITING | {"agent_id": "agent"})
    await two.commit(says("t", Fence(claimed[0].epoch, "other"), "two", waits, release=True))
    with pytest.raises(StaleFence):
        await one.commit(says("t", stale, "late"))
    await two.commit(Commit("t", inbox=[DecisionItem(id="i", thread_id="t", decision=Decision("k"))]))
    (again,) = (await one.claim("me", agents=["agent"], limit=1)).claimed
    await one.commit(says("t", Fence(again.epoch, "me"), "three"))
    assert rows(path) == [("r-t", "running", "agent")]
    await one.close()
    await two.close()


@pytest.mark.parametrize("error", [ValueError, MemoryError, Panic])
async def test_codec_error_fails_its_commit_alone(path: Path, error: type[BaseException]) -> None:
    store = SqliteStore(path, codec=Fragile(error))
    fences = {name: await owned(store, name) for name in "abc"}
    work = [says("a", fences["a"], "fine"), says("b", fences["b"], "poison"), begins("d", "poison"), begins("e")]
    done = await asyncio.gather(*map(store.commit, work), return_exceptions=True)
    assert [isinstance(one, Committed) for one in done] == [True, False, False, True]
    alone = store._database.writer.write(lambda _: (_ for _ in ()).throw(error()))
    with pytest.raises(error):
        await alone
    await store.commit(says("c", fences["c"], "still there"))
    assert [await told(store, name) for name in "abcde"] == [
        ["hello", "fine"],
        ["hello"],
        ["hello", "still there"],
        [],
        ["hello"],
    ]
    assert await store.check() == []
    await store.close()


async def test_commit_during_close_is_refused(path: Path) -> None:
    class Closing(Fragile):
        """Closes the store in the middle of a transaction that the event loop began."""

        def encode(self, data: bytes) -> bytes:
            if b"close" in data and threading.current_thread() is threading.main_thread():
                closing.start()
                store._database.writer._thread._thread.join()
            return data

    store = SqliteStore(path, codec=Closing())
    closing = threading.Thread(target=lambda: store._database.close())
    names = ["a", "b", "c"]
    fences = {name: await owned(store, name) for name in names}
    work = [*[says(name, fences[name], "late") for name in names], begins("d", "close"), begins("e")]
    with store._database.writer._lock:
        pass  # The thread has let go of the connection, so that the event loop takes it.
    done = await asyncio.gather(*map(store.commit, work), return_exceptions=True)
    closing.join()
    assert {type(one) for one in done} == {Committed}
    with pytest.raises(StoreUnavailable):
        await store.commit(says("a", fences["a"], "later"))
    again = SqliteStore(path, codec=Fragile())
    for commit, one in zip(work, done, strict=True):
        last = commit.log[0]
        assert isinstance(last, Message)
        assert ((await told(again, commit.thread_id))[-1:] == [last.text]) is isinstance(one, Committed)
    await again.close()
