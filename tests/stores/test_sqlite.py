"""The SQLite store and its file: made, refused, migrated, full, damaged. What every store promises is in
tests/conformance."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from sqlite_suite import append, pragma, raw, run_of, told

from wakeful.errors import (
    ConfigurationError,
    CorruptRow,
    InvalidStore,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from wakeful.stores import Commit, Fence, StateWrite
from wakeful.stores.sql import schema
from wakeful.stores.sqlite import SqliteStore, Synchronous
from wakeful.stores.sqlite import file as files
from wakeful.types.calls import Call
from wakeful.types.content import Text, ToolCall
from wakeful.types.inbox import CancelItem
from wakeful.types.messages import Message


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def refuse(path: Path, error: type[Exception], match: str) -> None:
    """Opening the path fails, and leaves everything in its folder as it was."""
    before = {file.name: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}
    with pytest.raises(error, match=match):
        SqliteStore(path)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir() if file.is_file()} == before


def bring_home(source: Path, target: Path, size: int) -> None:
    """Write the first bytes of one file over those of another."""
    with target.open("r+b") as file:
        file.write(source.read_bytes()[:size])


# -- the file ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("synchronous", "level"), [("FULL", 2), ("NORMAL", 1)])
async def test_pragmas_equal_documented_ones(path: Path, synchronous: Synchronous, level: int) -> None:
    store = SqliteStore(path, synchronous=synchronous)
    assert await pragma(store, "journal_mode") == "wal"
    assert await pragma(store, "synchronous") == level
    assert await pragma(store, "application_id") == schema.APPLICATION_ID
    assert await pragma(store, "user_version") == schema.VERSION
    await store.close()


async def test_full_sync_is_the_default(path: Path) -> None:
    store = SqliteStore(path)
    assert await pragma(store, "synchronous") == 2
    await store.close()


@pytest.mark.parametrize(
    "option", [{"synchronous": "full"}, {"synchronous": "EXTRA"}, {"busy_seconds": "long"}, {"busy_seconds": -1}]
)
def test_invalid_option_is_refused_before_file_exists(path: Path, option: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(option))} is"):
        SqliteStore(path, **option)
    assert not path.exists()


async def test_committed_records_survive_reopen(path: Path) -> None:
    store = SqliteStore(path)
    await append(store, "t1", "hello")
    await store.close()
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]
    again = SqliteStore(str(path))
    assert (again.path, await told(again), await again.check()) == (path, ["hello"], [])
    await again.close()


async def test_closed_store_refuses_calls(path: Path) -> None:
    store = SqliteStore(path)
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.messages("t1")
    with pytest.raises(StoreUnavailable, match="closed"):
        await append(store, "t1", "x")


async def test_empty_file_becomes_store(path: Path) -> None:
    with path.open("wb"):
        pass
    store = SqliteStore(path)
    await append(store, "t1", "hello")
    assert await told(store) == ["hello"]
    await store.close()


async def test_store_reports_its_size(path: Path) -> None:
    store = SqliteStore(path)
    small = (await store.size())["bytes"]
    await append(store, "t1", "x" * 200_000)
    assert (await store.size())["bytes"] > small + 150_000
    await store.delete("t1")
    assert (await store.size())["free"] > 150_000
    assert await store.check() == []
    await store.close()


# -- refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"not a database", b"x" * 5000, b"SQLite format 2\x00" + bytes(100)])
def test_non_sqlite_file_is_left_unchanged(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    refuse(path, InvalidStore, "isn't a SQLite database")


def test_foreign_database_is_left_unchanged(path: Path) -> None:
    with raw(path) as db:
        db.execute("CREATE TABLE threads (id TEXT)")
        db.execute("INSERT INTO threads VALUES ('mine')")
    refuse(path, InvalidStore, "another program's database")


def test_damaged_database_is_left_unchanged(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\x00" + bytes(range(200)))
    refuse(path, InvalidStore, "left as it is")


def refusal(path: Path) -> str | None:
    """Why the store is refused, if it is."""
    try:
        store = SqliteStore(path)
    except InvalidStore as error:
        return str(error)
    asyncio.run(store.close())
    return None


def test_damaged_file_error_names_backup(path: Path) -> None:
    assert refusal(path) is None
    good, page = path.read_bytes(), files.PAGE_BYTES
    said: list[str | None] = []
    for start in range(page, len(good), page):
        path.write_bytes(good[:start] + b"\xab" * page + good[start + page :])
        said.append(refusal(path))
    refused = [text for text in said if text is not None]
    assert len(refused) > 1
    for text in refused:
        assert re.search(r"store.db .*is damaged .*`wakeful store backup`.*\.bak", text)


async def test_file_opens_after_death_during_checkpoint(path: Path) -> None:
    store = SqliteStore(path)
    await append(store, "t1", "x" * 50_000)
    dead = path.with_name("dead.db")
    for end in ("", "-wal"):
        shutil.copy(f"{path}{end}", f"{dead}{end}")
    await store.close()
    bring_home(path, dead, files.PAGE_BYTES)  # It counts pages that are still in the log alone.
    found = SqliteStore(dead)
    assert await told(found) == ["x" * 50_000]
    await found.close()


@pytest.mark.parametrize(("name", "match"), [("missing/store.db", "doesn't exist"), ("", "is a folder")])
def test_invalid_path_is_refused(tmp_path: Path, name: str, match: str) -> None:
    with pytest.raises(StoreUnavailable, match=match):
        SqliteStore(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_sqlite_memory_path_is_refused() -> None:
    with pytest.raises(StoreUnavailable, match="MemoryStore"):
        SqliteStore(":memory:")


async def test_newer_file_is_left_unchanged(path: Path) -> None:
    await SqliteStore(path).close()
    with raw(path) as db:
        db.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
        db.execute("UPDATE meta SET value = ? WHERE name = 'min_reader'", (str(schema.VERSION + 1),))
    refuse(path, InvalidStore, "upgrade wakeful")


async def test_compatible_newer_file_is_opened(path: Path) -> None:
    await SqliteStore(path).close()
    with raw(path) as db:
        db.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    store = SqliteStore(path)
    await append(store, "t1", "hello")
    assert await told(store) == ["hello"]
    assert await pragma(store, "user_version") == schema.VERSION + 1
    await store.close()


# -- migrated ------------------------------------------------------------------------------------------------


def next_version(monkeypatch: pytest.MonkeyPatch, script: str) -> int:
    """Let there be one more migration."""
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, script))
    monkeypatch.setattr(files, "VERSION", schema.VERSION + 1)
    return schema.VERSION + 1


async def test_older_file_is_migrated_with_backup(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(path)
    await append(store, "t1", "hello")
    await store.close()
    newer = next_version(
        monkeypatch, "CREATE TABLE notes (no {number}, note {bytes}); CREATE INDEX n ON notes (no)"
    )
    store = SqliteStore(path)
    assert await told(store) == ["hello"]
    assert await pragma(store, "user_version") == newer
    assert await store._query("SELECT count(*) FROM notes") == [(0,)]
    await store.close()
    monkeypatch.undo()
    backup = path.with_name(f"store.db.v{schema.VERSION}.bak")
    old = SqliteStore(backup)
    assert (await told(old), await old.check()) == (["hello"], [])
    assert await pragma(old, "user_version") == schema.VERSION
    await old.close()


def next_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be a release with one more migration, whose files this one can't read."""
    newer = next_version(monkeypatch, "CREATE TABLE copies AS SELECT * FROM log, (VALUES (1), (2), (3), (4))")
    monkeypatch.setattr(files, "MIN_READER", newer)


def version_of(path: Path) -> tuple[int, str]:
    """The version of a file, and the oldest one that can read it."""
    with closing(sqlite3.connect(path)) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        return version, db.execute("SELECT value FROM meta WHERE name = 'min_reader'").fetchone()[0]


async def test_migrated_file_has_backup_of_its_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(path)
    await append(store, "t1", "hello")
    await store.close()
    next_release(monkeypatch)
    store = SqliteStore(path)
    assert await told(store) == ["hello"]
    await store.close()
    assert version_of(path) == (schema.VERSION + 1, str(schema.VERSION + 1))
    assert version_of(path.with_name(f"store.db.v{schema.VERSION}.bak")) == (schema.VERSION, "1")


def test_repeated_migration_makes_another_backup_of_changed_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = path.with_name(f"store.db.v{schema.VERSION}.bak")
    second = path.with_name(f"store.db.v{schema.VERSION}-2.bak")

    async def reopen(*threads: str) -> None:
        store = SqliteStore(path)
        for thread in threads:
            await append(store, thread, "hello")
        await store.close()

    asyncio.run(reopen("t1"))
    older = path.read_bytes()
    next_release(monkeypatch)
    asyncio.run(reopen())
    first = backup.read_bytes()

    path.write_bytes(older)  # As after a crash in the middle of the migration.
    asyncio.run(reopen())
    assert list(path.parent.glob("*.bak*")) == [backup]

    path.write_bytes(older)  # As if the backup had been restored, and used.
    monkeypatch.undo()
    asyncio.run(reopen("t2"))
    next_release(monkeypatch)
    asyncio.run(reopen())
    assert sorted(path.parent.glob("*.bak*")) == [second, backup]
    assert backup.read_bytes() == first
    with closing(sqlite3.connect(second)) as db:
        assert db.execute("SELECT id FROM threads ORDER BY no").fetchall() == [("t1",), ("t2",)]


async def test_migration_stops_if_its_backup_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(path)
    await append(store, "t1", "x" * 20_000)
    size = (await store.size())["bytes"]
    await store.close()
    next_release(monkeypatch)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, limits[1]))
    try:
        with pytest.raises(StoreError):
            SqliteStore(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(path.parent.glob("*.bak*"))
    await SqliteStore(path).close()
    backup = path.with_name(f"store.db.v{schema.VERSION}.bak")
    with closing(sqlite3.connect(backup)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT count(*) FROM threads").fetchone() == (1,)


async def test_migration_leaves_file_alone_when_disk_is_full(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(path)
    for n in range(80):
        await append(store, f"t{n}", "x" * 5000)
    size = (await store.size())["bytes"]
    await store.close()
    next_release(monkeypatch)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50_000, limits[1]))  # Enough for a copy, not for its WAL.
    try:
        with pytest.raises(StoreUnavailable, match="disk"):
            SqliteStore(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [file.name for file in path.parent.iterdir() if "bak" in file.name] == []
    assert version_of(path) == (schema.VERSION, "1")
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def damage(path: Path, what: bytes) -> None:
    """Overwrite the last page of a file that holds this."""
    with path.open("r+b") as file:
        file.seek(file.read().rindex(what) // files.PAGE_BYTES * files.PAGE_BYTES)
        file.write(b"\xff" * files.PAGE_BYTES)


async def test_damaged_file_is_not_migrated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(path)
    for n in range(20):
        await append(store, f"t{n}", "x" * 1500)
    await store.close()
    next_release(monkeypatch)
    damage(path, b"x" * 1500)
    refuse(
        path,
        InvalidStore,
        r"can't be brought from version 1 to 2, for it is damaged .*left as it is: restore",
    )


async def test_failed_migration_keeps_file_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(path)
    await append(store, "t1", "hello")
    await store.close()
    next_version(monkeypatch, "CREATE TABLE notes (no {number}); CREATE TABLE threads (no {number})")
    with pytest.raises(StoreUnavailable, match="already exists"):
        SqliteStore(path)
    monkeypatch.undo()
    store = SqliteStore(path)
    assert await told(store) == ["hello"]
    assert await store._query("SELECT name FROM sqlite_master WHERE name = 'notes'") == []
    await store.close()


# -- no room, no rights --------------------------------------------------------------------------------------


async def test_full_disk_leaves_file_intact(path: Path) -> None:
    store = SqliteStore(path)
    await append(store, "t1", "before")
    await pragma(store, f"max_page_count = {await pragma(store, 'page_count') + 4}")
    with pytest.raises(StoreFull, match="no room left"):
        await append(store, "t2", "x" * 500_000)
    assert await store.thread("t2") is None
    assert (await told(store), await store.check()) == (["before"], [])
    await pragma(store, "max_page_count = 1000000")
    await append(store, "t2", "x" * 500_000)
    assert [len(text) for text in await told(store, "t2")] == [500_000]
    assert await store.check() == []
    await store.close()


async def test_unwritable_store_can_be_read(path: Path) -> None:
    store = SqliteStore(path)
    await append(store, "t1", "before")
    store._database._writing.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreUnavailable, match="read-only"):
        await append(store, "t2", "x")
    assert await told(store) == ["before"]
    store._database._writing.execute("PRAGMA query_only = OFF")
    await append(store, "t2", "x")
    await store.close()


@contextmanager
def nobody() -> Iterator[None]:
    """Let this process be somebody who may write only to what everybody may."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


async def test_unwritable_file_is_refused_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        await SqliteStore(path).close()
        os.chmod(folder, 0o777)
        os.chmod(path, 0o444)
        for is_older in (False, True):  # An older file is neither migrated nor copied.
            if is_older:
                next_release(monkeypatch)
            with nobody():
                refuse(path, StoreUnavailable, r"store\.db is read-only; nothing was written: check its rights")
        os.chmod(path, 0o644)
        store = SqliteStore(path)
        await append(store, "t1", "hello")
        await store.close()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody can make a file")
def test_uncreatable_file_error_names_folder() -> None:
    with pytest.raises(StoreUnavailable, match=r"/proc/new.db can't be made .*folder.*or give another path"):
        SqliteStore("/proc/new.db")


async def test_lock_timeout_is_reported(path: Path) -> None:
    store = SqliteStore(path, busy_seconds=0.01)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked by another process"):
        await append(store, "t1", "x")
    other.execute("ROLLBACK")
    other.close()
    await append(store, "t1", "x")
    assert await told(store) == ["x"]
    await store.close()


async def test_lock_retries_are_frequent(path: Path) -> None:
    store = SqliteStore(path)
    tried: list[str] = []
    store._database._writing.set_trace_callback(lambda sql: tried.append(sql) if "BEGIN" in sql else None)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        work = asyncio.ensure_future(append(store, "t1", "x"))
        async with asyncio.timeout(120):
            while len(tried) < 100:  # SQLite's own way to wait is to ask itself, ten times a second.
                await asyncio.sleep(0)
        other.execute("ROLLBACK")
    await work
    assert await told(store) == ["x"]
    await store.close()


# -- rows that can't be read ---------------------------------------------------------------------------------


async def damaged(path: Path, sql: str, garbage: bytes) -> SqliteStore:
    """A store with threads t1 and t2, where one payload of t1 is garbage."""
    store = SqliteStore(path)
    for thread_id in ("t1", "t2"):
        answer = Message(f"m-{thread_id}", "assistant", (ToolCall(f"c-{thread_id}", "look", {"at": "sky"}),), 7)
        run = run_of(thread_id, stage="acting", steps=1, answer_id=answer.id)
        await store.commit(
            Commit(
                thread_id=thread_id,
                identity=run.identity,
                version=0,
                claim="w",
                log=[Message(f"u-{thread_id}", "user", (Text("hello"),), 7), answer],
                runs=[run],
                calls=[Call(f"c-{thread_id}", run.id, 1, 0, "look", {"at": "sky"})],
                state=[StateWrite("n", b"1")],
            )
        )
    await store.close()
    with raw(path) as db:
        changed = db.execute(sql, (garbage,)).rowcount
        assert changed == 1
    return SqliteStore(path)


T1 = "(SELECT no FROM threads WHERE id = 't1')"
GARBAGE = [b"\xff\xfe garbage", b"{", b"\x02{}", b'\x02{"type":"blob","digest":"00"}', b"\x01coded", b""]


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_unreadable_message_is_named_alone(path: Path, garbage: bytes) -> None:
    store = await damaged(path, f"UPDATE log SET payload = ? WHERE thread = {T1} AND seq = 1", garbage)
    for read in (store.messages, store.events):
        with pytest.raises(CorruptRow, match=r"thread 't1': (message|event) 1 can't be read"):
            await read("t1")
        assert len(await read("t2")) == 2
    assert [m.seq for m in await store.messages("t1", after=1)] == [2]
    assert await store.load("t1") is not None
    await store.close()


@pytest.mark.parametrize(
    ("table", "column", "where", "name"),
    [
        ("runs", "payload", f"thread = {T1}", "run r-t1"),
        ("calls", "payload", "id = 'c-t1'", "call c-t1"),
        ("state", "payload", f"thread = {T1}", None),
        ("log", "payload", f"thread = {T1} AND seq = 2", "message 2"),
        ("threads", "metadata", "id = 't1'", "metadata"),
    ],
)
async def test_unreadable_row_in_view_is_named(
    path: Path, table: str, column: str, where: str, name: str | None
) -> None:
    garbage = b'\x02{"type":"blob","digest":"00"}'
    store = await damaged(path, f"UPDATE {table} SET {column} = ? WHERE {where}", garbage)
    with pytest.raises(CorruptRow, match=f"thread 't1': {name or 'state n'} can't be read.*blob 00 is missing"):
        await store.load("t1")
    view = await store.load("t2")
    assert view is not None
    assert [c.arguments for c in view.calls] == [{"at": "sky"}]
    await store.close()


async def test_unreadable_thread_error_names_thread(path: Path) -> None:
    store = await damaged(path, f"UPDATE runs SET payload = ? WHERE thread = {T1}", b"garbage")
    item = CancelItem(id="i", thread_id="t1", run_id="r-t1")
    await store.commit(Commit("t1", inbox=[item]))
    with raw(path) as db:
        db.execute("UPDATE inbox SET payload = 'garbage'")
    with pytest.raises(CorruptRow, match=r"^thread 't1': run r-t1 can't be read.*or delete the thread"):
        await store.runs(thread_id="t1")
    with pytest.raises(CorruptRow, match=r"^thread 't1': item i can't be read.*or delete the thread"):
        await store.item("i")
    await store.close()


async def test_unreadable_answer_in_ledger_is_named(path: Path) -> None:
    store = await damaged(path, f"UPDATE log SET payload = ? WHERE thread = {T1} AND seq = 2", b"garbage")
    for read in (store.calls, store.answer):
        with pytest.raises(CorruptRow, match=r"^thread 't1': message 2 can't be read"):
            await read("r-t1")
    with pytest.raises(CorruptRow, match=r"^thread 't1': (message|event) 2 can't be read"):
        await store.events("t1", after=1)
    assert [c.arguments for c in await store.calls("r-t2")] == [{"at": "sky"}]
    await store.close()


async def test_damaged_thread_can_be_deleted_and_recreated(path: Path) -> None:
    store = await damaged(path, f"UPDATE log SET payload = ? WHERE thread = {T1} AND seq = 1", b"garbage")
    await store.commit(
        Commit(thread_id="t1", fence=Fence(1, "w"), identity=run_of("t1").identity, log=[_message()], release=True)
    )
    assert [m.text for m in await store.messages("t1", after=2)] == ["more"]
    assert await store.delete("t1") == 1
    assert await store.check() == []
    await store.close()


def _message() -> Message:
    return Message("more", "user", (Text("more"),), 7)


async def test_check_lists_contradictions(path: Path) -> None:
    store = await damaged(path, "UPDATE threads SET head = 0, title = ? WHERE id = 't1'", b"x")
    assert await store.check() == ["thread 't1': the log ends at 0, but its last entry is 2"]
    await store.close()
