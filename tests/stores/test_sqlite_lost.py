"""A SQLite file that is lost or can't be written while it is open: nothing is acknowledged, readiness says why."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from wakeful import Agent, Runtime, ScriptedModel
from wakeful.errors import Conflict, StoreError, StoreFull, StoreLost, StoreUnavailable
from wakeful.stores import Commit, SqliteStore, StateWrite


def delete(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        if "-owner-" not in file.name:
            file.unlink()


def delete_wal(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


def delete_shared_memory(path: Path) -> None:
    path.with_name(f"{path.name}-shm").unlink()


def replace(path: Path) -> None:
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    copy.replace(path)


def truncate(path: Path) -> None:
    os.truncate(path, 0)


def truncate_wal(path: Path) -> None:
    os.truncate(path.with_name(f"{path.name}-wal"), 0)


def move_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))
    path.parent.write_text("a file where the folder was")


def size_of_wal(path: Path) -> int:
    return path.with_name(f"{path.name}-wal").stat().st_size


def set_mode(path: Path, mode: int) -> None:
    path.chmod(mode)


def modes_in(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}


DURING = [delete, delete_wal, delete_shared_memory, replace, truncate, move_folder]
LOSSES = pytest.mark.parametrize("lose", [*DURING, truncate_wal], ids=lambda lose: lose.__name__)


def opened(path: Path, synchronous: str = "FULL") -> Runtime:
    store = SqliteStore(path, synchronous=synchronous)  # type: ignore[arg-type]
    return Runtime([Agent("agent", model=ScriptedModel(["one", "two", "three"]))], store=store)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder" / "a.db"


@LOSSES
@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
async def test_commit_to_lost_file_is_not_acknowledged(
    path: Path, lose: Callable[[Path], None], synchronous: str
) -> None:
    runtime = opened(path, synchronous)
    await runtime.run("agent", "go", thread="t")
    assert await runtime.workers.readiness() is None
    lose(path)
    with pytest.raises(StoreLost, match="while it was open"):
        await runtime.store.commit(Commit("t2"))
    with pytest.raises(StoreError):
        await runtime.send("t", "more")
    with pytest.raises(StoreError):
        await runtime.run("agent", "more", thread="t")
    assert "while it was open" in (await runtime.workers.readiness() or "")
    await runtime.close()


@LOSSES
async def test_group_in_lost_file_is_not_acknowledged(path: Path, lose: Callable[[Path], None]) -> None:
    store = SqliteStore(path)
    await store.commit(Commit("t"))
    lose(path)
    found = await asyncio.gather(*[store.commit(Commit(f"t{n}")) for n in range(100)], return_exceptions=True)
    assert {type(one) for one in found} == {StoreLost}
    await store.close()


class LosingCodec:
    """Loses the file when a payload is encoded: between BEGIN and COMMIT."""

    def __init__(self) -> None:
        self.lose: Callable[[], None] | None = None

    def encode(self, data: bytes) -> bytes:
        lose, self.lose = self.lose, None
        if lose is not None:
            lose()
        return data

    def decode(self, data: bytes) -> bytes:
        return data


@pytest.mark.parametrize("lose", DURING, ids=lambda lose: lose.__name__)
async def test_file_lost_in_transaction_is_noticed(path: Path, lose: Callable[[Path], None]) -> None:
    codec = LosingCodec()
    store = SqliteStore(path, codec=codec)
    runtime = Runtime([Agent("agent", model=ScriptedModel(["one"]))], store=store)
    await store.commit(Commit("t"))
    codec.lose = lambda: lose(path)
    with pytest.raises(StoreLost):
        await runtime.send("t", "more", agent="agent")
    await runtime.close()


async def test_linked_file_is_one_store_with_its_target(path: Path) -> None:
    """SQLite names the WAL after the target, which it creates. Its lock must be free for a takeover, too."""
    link = path.with_name("link.db")
    link.symlink_to(path)
    by_link, by_name = SqliteStore(link), SqliteStore(path)
    assert modes_in(path.parent)["a.db"] == 0o600
    lease = by_link.keep("first", 60)
    done = await by_link.commit(Commit("t", claim="first", version=0, lease=0))
    with pytest.raises(Conflict):
        await by_name.commit(Commit("t", claim="second", version=done.version))
    await lease.close()
    delete_wal(path)
    with pytest.raises(StoreLost):
        await by_link.commit(Commit("t2"))
    await by_link.close()
    await by_name.close()


async def test_lease_without_its_folder_is_refused(path: Path) -> None:
    store = SqliteStore(path)
    move_folder(path)
    with pytest.raises(StoreUnavailable, match="owner file"):
        store.keep("worker")
    await store.close()


async def test_file_that_sqlite_makes_smaller_is_not_lost(path: Path) -> None:
    store = SqliteStore(path)
    for n in range(9):
        await store.commit(Commit(f"t{n}", version=0, state=[StateWrite("n", b'"%s"' % (b"x" * 100_000))]))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        await store.commit(Commit("after a checkpoint"))
        for n in range(9):
            await store.delete(f"t{n}")
        for sql in ("PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
            other.execute(sql)
        await store.commit(Commit("after VACUUM"))
    await store.probe()
    await store.close()


async def test_relative_path_is_not_lost_with_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runtime = opened(Path("a.db"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert (await runtime.run("agent", "go")).text == "one"
    await runtime.close()


async def test_process_is_not_ready_while_disk_is_full(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    runtime = Runtime([Agent("agent", model=ScriptedModel(["one"]))], store=store)
    fails = "SELECT RAISE(ABORT, 'database or disk is full')"
    store._database._writing.execute(f"CREATE TEMP TRIGGER full BEFORE INSERT ON main.meta BEGIN {fails}; END")
    with pytest.raises(StoreFull):
        await store.probe()
    assert "no room left" in (await runtime.workers.readiness() or "")
    store._database._writing.execute("DROP TRIGGER temp.full")
    assert await runtime.workers.readiness() is None
    await runtime.close()


async def test_used_up_quota_is_unavailability(path: Path) -> None:
    """SQLite reports it as an I/O error. A limit of file sizes has the same effect."""
    store = SqliteStore(path)
    large = [StateWrite("n", b'"%s"' % (b"x" * 100_000))]
    await store.commit(Commit("t", version=0, state=large))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_of_wal(path), before[1]))
    try:
        with pytest.raises(StoreUnavailable, match="quota"):
            await store.commit(Commit("t2", version=0, state=large))
        with pytest.raises(StoreUnavailable, match="quota"):
            await store.probe()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    await store.probe()
    await store.commit(Commit("t2", version=0, state=large))
    await store.close()


async def test_process_is_not_ready_when_disk_is_almost_full(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe may fit where a run doesn't: room for the WAL is part of being ready."""
    runtime = opened(path)
    free = 1_000_000
    monkeypatch.setattr("wakeful.stores.sqlite.file.disk_usage", lambda _: SimpleNamespace(free=free))
    assert "1000000 bytes are free" in (await runtime.workers.readiness() or "")
    free = 100_000_000
    assert await runtime.workers.readiness() is None
    await runtime.close()


async def test_process_is_not_ready_while_file_is_read_only(path: Path) -> None:
    runtime = opened(path)
    set_mode(path, 0o444)
    assert "read-only" in (await runtime.workers.readiness() or "")
    set_mode(path, 0o600)
    assert await runtime.workers.readiness() is None
    await runtime.close()


async def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    runtime = opened(tmp_path / "a.db")
    async with runtime:
        await runtime.run("agent", "go", thread="t")
        await runtime.store.backup(tmp_path / "b.db")  # type: ignore[attr-defined]
        modes = modes_in(tmp_path)
    assert {"a.db", "a.db-wal", "a.db-shm", "b.db"} < set(modes)
    assert any("-owner-" in name for name in modes)
    assert set(modes.values()) == {0o600}
