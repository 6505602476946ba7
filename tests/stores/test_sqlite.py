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

from wakeful import Agent, FunctionModel, Runtime, call, tool
from wakeful.errors import ConfigurationError, CorruptRow, StoreError, StoreFull, StoreRefused, StoreUnavailable
from wakeful.stores import Commit, Fence, InboxItem, StateWrite
from wakeful.stores import _files as files
from wakeful.stores import _schema as schema
from wakeful.stores._sqlite import SqliteStore, Synchronous
from wakeful.types.content import Text, ToolCall
from wakeful.types.messages import Message
from wakeful.types.runs import Call


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
async def test_the_pragmas_are_those_that_the_docs_promise(
    path: Path, synchronous: Synchronous, level: int
) -> None:
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
def test_an_option_that_means_nothing_is_refused_before_there_is_a_file(
    path: Path, option: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(option))} is"):
        SqliteStore(path, **option)
    assert not path.exists()


async def test_what_was_committed_is_there_when_the_file_is_opened_again(path: Path) -> None:
    store = SqliteStore(path)
    await append(store, "t1", "hello")
    await store.close()
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]
    again = SqliteStore(str(path))
    assert (again.path, await told(again), await again.check()) == (path, ["hello"], [])
    await again.close()


async def test_a_closed_store_says_so_and_may_be_closed_twice(path: Path) -> None:
    store = SqliteStore(path)
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.messages("t1")
    with pytest.raises(StoreUnavailable, match="closed"):
        await append(store, "t1", "x")


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    with path.open("wb"):
        pass
    store = SqliteStore(path)
    await append(store, "t1", "hello")
    assert await told(store) == ["hello"]
    await store.close()


async def test_its_size_is_told(path: Path) -> None:
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
def test_a_file_that_is_not_sqlite_is_refused_and_left_as_it_is(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    refuse(path, StoreRefused, "isn't a SQLite database")


def test_another_program_s_database_is_refused_and_left_as_it_is(path: Path) -> None:
    with raw(path) as db:
        db.execute("CREATE TABLE threads (id TEXT)")
        db.execute("INSERT INTO threads VALUES ('mine')")
    refuse(path, StoreRefused, "another program's database")


def test_a_damaged_database_is_refused_and_left_as_it_is(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\x00" + bytes(range(200)))
    refuse(path, StoreRefused, "left as it is")


def refusal(path: Path) -> str | None:
    """Why the store is refused, if it is."""
    try:
        store = SqliteStore(path)
    except StoreRefused as error:
        return str(error)
    asyncio.run(store.close())
    return None


def test_a_damaged_file_says_what_it_can_be_restored_from(path: Path) -> None:
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


async def test_a_file_whose_log_was_being_brought_home_when_its_process_died_is_opened(path: Path) -> None:
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
def test_a_path_that_cannot_be_a_file_is_refused(tmp_path: Path, name: str, match: str) -> None:
    with pytest.raises(StoreUnavailable, match=match):
        SqliteStore(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_sqlite_s_own_memory_is_no_store() -> None:
    with pytest.raises(StoreUnavailable, match="MemoryStore"):
        SqliteStore(":memory:")


async def test_a_file_of_a_newer_version_is_refused_and_left_as_it_is(path: Path) -> None:
    await SqliteStore(path).close()
    with raw(path) as db:
        db.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
        db.execute("UPDATE meta SET value = ? WHERE name = 'min_reader'", (str(schema.VERSION + 1),))
    refuse(path, StoreRefused, "upgrade wakeful")


async def test_a_newer_file_that_this_version_can_read_is_opened(path: Path) -> None:
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


async def test_an_older_file_is_migrated_with_a_backup_beside_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def made_older(path: Path) -> None:
    """Let a file be of the last version whose readers can't read it once it is migrated."""
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {schema.MIN_READER - 1}")
        db.execute("UPDATE meta SET value = ? WHERE name = 'min_reader'", (str(schema.MIN_READER - 1),))
        db.commit()


async def test_a_file_that_its_own_version_can_not_read_any_more_has_a_backup_beside_it(path: Path) -> None:
    store = SqliteStore(path)
    await append(store, "t1", "hello")
    await store.close()
    made_older(path)
    store = SqliteStore(path)
    assert (await told(store), await pragma(store, "user_version")) == (["hello"], schema.VERSION)
    await store.close()
    with closing(sqlite3.connect(path.with_name(f"store.db.v{schema.MIN_READER - 1}.bak"))) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (schema.MIN_READER - 1,)
        assert db.execute("SELECT value FROM meta").fetchall() == [(str(schema.MIN_READER - 1),)]


def test_a_file_that_is_migrated_again_is_copied_again_unless_it_is_as_it_was(path: Path) -> None:
    backup = path.with_name(f"store.db.v{schema.MIN_READER - 1}.bak")
    second = path.with_name(f"store.db.v{schema.MIN_READER - 1}-2.bak")

    async def migrate(*threads: str) -> None:
        store = SqliteStore(path)
        for thread in threads:
            await append(store, thread, "hello")
        await store.close()

    asyncio.run(migrate("t1"))
    made_older(path)
    older = path.read_bytes()
    asyncio.run(migrate())
    first = backup.read_bytes()

    path.write_bytes(older)  # As if the process had died in the middle.
    asyncio.run(migrate("t2"))
    assert list(path.parent.glob("*.bak*")) == [backup]

    made_older(path)  # As if the copy had been put back, and worked with.
    asyncio.run(migrate())
    assert sorted(path.parent.glob("*.bak*")) == [second, backup]
    assert backup.read_bytes() == first
    with closing(sqlite3.connect(second)) as db:
        assert db.execute("SELECT id FROM threads ORDER BY no").fetchall() == [("t1",), ("t2",)]


async def test_a_file_whose_log_was_kept_in_the_order_of_its_key_has_all_of_it_when_migrated(path: Path) -> None:
    """Up to version 7 the log and the ledger were tables without row ids."""

    async def seen(store: SqliteStore) -> list[object]:
        run_ids = [run.id for run in await store.runs()]
        ledger = [await store.calls(run_id) for run_id in run_ids]
        return [[await store.messages(t), await store.events(t), await store.load(t)] for t in ("a", "b")] + ledger

    @tool(approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    model = FunctionModel(lambda r: "done" if r.messages[-1].role == "tool" else call("pay", amount=3))
    agent = Agent("clerk", model=model, tools=[pay])
    async with Runtime([agent], store=path) as runtime:
        for thread in ("a", "b", "a", "b"):
            result = await runtime.run("clerk", "Go.", thread=thread)
            if thread == "a":
                await runtime.resume(result.run_id, result.tickets[0].approve())
    store = SqliteStore(path)
    before = await seen(store)
    await store.close()

    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        made = [text for number in (1, 3) for text in schema.statements(number, "sqlite")]
        for table in ("log", "calls"):
            db.execute(f"ALTER TABLE {table} RENAME TO {table}_8")
            for text in made:
                if text.startswith((f"CREATE TABLE {table} ", f"ALTER TABLE {table} ")):
                    db.execute(text)
            db.execute(f"INSERT INTO {table} SELECT * FROM {table}_8")
            db.execute(f"DROP TABLE {table}_8")
        db.execute("PRAGMA user_version = 7")
        with pytest.raises(sqlite3.OperationalError, match="no such column: rowid"):
            db.execute("SELECT rowid FROM log")

    store = SqliteStore(path)
    assert await seen(store) == before
    assert (await store.check(), await store.version()) == ([], schema.VERSION)
    assert path.with_name("store.db-wal").stat().st_size == 0
    rows = await store._query("SELECT (SELECT count(rowid) FROM log), (SELECT count(rowid) FROM calls)")
    assert rows == [(len(await store._query("SELECT 1 FROM log")), 4)]
    await store.close()
    assert path.with_name("store.db.v7.bak").exists()


async def test_half_a_backup_is_none_and_the_file_is_not_migrated(path: Path) -> None:
    store = SqliteStore(path)
    await append(store, "t1", "x" * 20_000)
    size = (await store.size())["bytes"]
    await store.close()
    made_older(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, limits[1]))
    try:
        with pytest.raises(StoreError):
            SqliteStore(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(path.parent.glob("*.bak*"))
    await SqliteStore(path).close()
    backup = path.with_name(f"store.db.v{schema.MIN_READER - 1}.bak")
    with closing(sqlite3.connect(backup)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT count(*) FROM threads").fetchone() == (1,)


async def test_a_migration_that_finds_no_room_says_why_and_leaves_nothing_but_the_file(path: Path) -> None:
    store = SqliteStore(path)
    for n in range(20):
        await append(store, f"t{n}", "x" * 20_000)
    size = (await store.size())["bytes"]
    await store.close()
    made_older(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50_000, limits[1]))  # Enough for a copy, not for its log.
    try:
        with pytest.raises(StoreUnavailable, match="disk"):
            SqliteStore(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [file.name for file in path.parent.iterdir() if "bak" in file.name] == []
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (schema.MIN_READER - 1,)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def damage(path: Path, what: bytes) -> None:
    """Overwrite the last page of a file that holds this."""
    with path.open("r+b") as file:
        file.seek(file.read().rindex(what) // files.PAGE_BYTES * files.PAGE_BYTES)
        file.write(b"\xff" * files.PAGE_BYTES)


async def test_a_damaged_file_that_can_not_be_migrated_is_left_to_the_version_that_wrote_it(path: Path) -> None:
    store = SqliteStore(path)
    for n in range(20):
        await append(store, f"t{n}", "x" * 1500)
    await store.close()
    made_older(path)
    damage(path, b"x" * 1500)
    refuse(path, StoreRefused, r"can't be brought from version 6 to 8, for it is damaged .*left as it is: restore")


async def test_a_migration_that_fails_leaves_the_file_at_its_version(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_a_full_disk_refuses_what_it_cannot_hold_and_the_file_stays_good(path: Path) -> None:
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


async def test_what_cannot_be_written_says_so_and_can_still_be_read(path: Path) -> None:
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


async def test_who_may_not_write_to_a_file_is_refused_and_leaves_nothing_in_the_way_of_who_may() -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        await SqliteStore(path).close()
        os.chmod(folder, 0o777)
        os.chmod(path, 0o444)
        for version in (schema.VERSION, schema.MIN_READER - 1):  # Neither is an old one migrated, or copied.
            with nobody():
                refuse(path, StoreUnavailable, r"store\.db is read-only; nothing was written: check its rights")
            os.chmod(path, 0o644)
            if version == schema.VERSION:
                made_older(path)
                os.chmod(path, 0o444)
        store = SqliteStore(path)
        await append(store, "t1", "hello")
        await store.close()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody can make a file")
def test_a_new_file_that_cannot_be_made_says_to_look_at_its_folder() -> None:
    with pytest.raises(StoreUnavailable, match=r"/proc/new.db can't be made .*folder.*or give another path"):
        SqliteStore("/proc/new.db")


async def test_a_lock_that_is_held_too_long_says_so(path: Path) -> None:
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


async def test_who_waits_for_a_lock_looks_often_enough_to_meet_a_gap(path: Path) -> None:
    store = SqliteStore(path)
    tried: list[str] = []
    store._database._writing.set_trace_callback(lambda sql: tried.append(sql) if "BEGIN" in sql else None)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        work = asyncio.ensure_future(append(store, "t1", "x"))
        async with asyncio.timeout(20):
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
async def test_a_message_that_cannot_be_read_is_named_and_other_threads_are_fine(
    path: Path, garbage: bytes
) -> None:
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
async def test_a_view_with_a_row_that_cannot_be_read_names_it(
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


async def test_what_is_asked_of_a_thread_and_cannot_be_read_names_the_thread_to_delete(path: Path) -> None:
    store = await damaged(path, f"UPDATE runs SET payload = ? WHERE thread = {T1}", b"garbage")
    item = InboxItem(id="i", thread_id="t1", kind="cancel", run_id="r-t1")
    await store.commit(Commit("t1", inbox=[item]))
    with raw(path) as db:
        db.execute("UPDATE inbox SET payload = 'garbage'")
    with pytest.raises(CorruptRow, match=r"^thread 't1': run r-t1 can't be read.*or delete the thread"):
        await store.runs(thread_id="t1")
    with pytest.raises(CorruptRow, match=r"^thread 't1': item i can't be read.*or delete the thread"):
        await store.item("i")
    await store.close()


async def test_a_ledger_whose_answer_cannot_be_read_says_so(path: Path) -> None:
    store = await damaged(path, f"UPDATE log SET payload = ? WHERE thread = {T1} AND seq = 2", b"garbage")
    for read in (store.calls, store.answer):
        with pytest.raises(CorruptRow, match=r"^thread 't1': message 2 can't be read"):
            await read("r-t1")
    with pytest.raises(CorruptRow, match=r"^thread 't1': (message|event) 2 can't be read"):
        await store.events("t1", after=1)
    assert [c.arguments for c in await store.calls("r-t2")] == [{"at": "sky"}]
    await store.close()


async def test_a_thread_with_a_damaged_row_can_be_deleted_and_written_to(path: Path) -> None:
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


async def test_a_check_tells_what_does_not_fit(path: Path) -> None:
    store = await damaged(path, "UPDATE threads SET head = 0, title = ? WHERE id = 't1'", b"x")
    assert await store.check() == ["thread 't1': the log ends at 0, but its last entry is 2"]
    await store.close()
