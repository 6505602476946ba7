"""Rows that can't be read: what can be done all the same, in SQLite and in Postgres."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from conformance.store_suite import (
    STORES,
    StoreFactory,
    Writer,
    identity,
    item,
    message,
    record,
    step,
    ticket,
    waiting,
)
from wakeful import Agent, Runtime, ScriptedModel, SqliteStore
from wakeful.errors import CorruptRow
from wakeful.stores import About, Chunk, Commit, Records, Relay, StateWrite, Store
from wakeful.stores.codec.packer import Packer
from wakeful.stores.codec.reader import Reader
from wakeful.stores.sql import payloads
from wakeful.stores.sql.base import Script
from wakeful.stores.sql.store import SqlStore
from wakeful.types import ApiKey
from wakeful.types.calls import Call
from wakeful.types.codec import encode
from wakeful.types.content import ToolCall
from wakeful.types.events import ToolCallReady
from wakeful.types.messages import Message
from wakeful.types.runs import RunRecord, TaskRecord, TaskRef
from wakeful.types.tickets import Decision

T1 = "(SELECT no FROM threads WHERE id = 't1')"


@pytest.fixture(params=["sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest) -> StoreFactory:
    """Opens a fresh store whose rows can be damaged."""
    return STORES[request.param]


async def spoil(store: Any, sql: str, *args: Any) -> None:
    """Change rows behind the store's back: `?` is a payload that can't be read."""

    def script() -> Script[None]:
        yield sql, (b"garbage", *args)

    await cast(SqlStore, store)._transact(script)


# -- deleting ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE runs SET payload = ? WHERE id = 'r-kid'",
        "UPDATE inbox SET payload = ?",
        "UPDATE threads SET metadata = ? WHERE id = 'kid'",
    ],
)
async def test_owner_is_told_of_deleted_unreadable_task(open_store: StoreFactory, damage: str) -> None:
    async with open_store() as store:
        owner = Writer(store)
        await owner.begin(tasks=[TaskRecord("r-kid", "t1", "r1", target="r-kid", target_thread="kid")])
        await owner.release(runs=[record(status="waiting", waiting=waiting("task"))])
        lineage = replace(identity("r-kid", "kid"), parent_thread_id="t1")
        task = TaskRef("r-kid")
        if "inbox" in damage:
            await store.commit(Commit("t1", inbox=[item("i", "kid", lineage=lineage, task=task)]))
        else:
            run = RunRecord(identity=lineage, agent_id="agent", task=task, created_at=1)
            await Writer(store, "kid").write(message(), runs=[run], identity=lineage, about=About("a", {"b": 1}))
        await spoil(store, damage)
        assert await store.delete("kid") == 1
        (heard,) = (await owner.view()).inbox
        assert (heard.id, heard.task_id) == ("r-kid:done:1", "r-kid")


@pytest.mark.parametrize(("table", "column"), [("runs", "payload"), ("threads", "metadata")])
async def test_unreadable_thread_can_be_deleted(tmp_path: Path, table: str, column: str) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await Writer(store).write(message(), runs=[record(status="waiting", waiting=waiting("decision"))])
    await spoil(store, f"UPDATE {table} SET {column} = ?")
    runtime = Runtime([Agent("agent", model=ScriptedModel([]))], store=store)
    assert await runtime.threads.delete("t1") == 1
    await runtime.close()


# -- the check -------------------------------------------------------------------------------------------------


async def one_of_each(store: Store, thread_id: str = "t1") -> None:
    """A thread with a row in every table that has payloads."""
    writer = Writer(store, thread_id)
    run = record(f"r-{thread_id}", thread_id, steps=9, stage="acting")
    answer = Message(f"a-{thread_id}", "assistant", (ToolCall(f"c-{thread_id}", "look", {"at": "sky"}),), 7)
    ready = ToolCallReady(run.identity, 0, 8, f"c-{thread_id}", "look", {"at": "sky"})
    await writer.begin(
        run.id,
        log=[message("x" * 100_000), answer, ready, step(run=run.identity)],
        identity=run.identity,
        calls=[Call(f"c-{thread_id}", run.id, 9, 0, "look", {"at": "sky"})],
        inbox=[item(f"i-{thread_id}", thread_id)],
        about=About("title", {"a": 1}),
    )
    await writer.release(
        identity=run.identity,
        runs=[run],
        tickets=[ticket(f"k-{thread_id}", f"c-{thread_id}", run_id=run.id)],
        decisions=[Decision(f"k-{thread_id}", id=f"d-{thread_id}")],
        state=[StateWrite("n", b"1"), StateWrite("m", b"2", run.id)],
        tasks=[TaskRecord(f"task-{thread_id}", thread_id, run.id)],
        chunks=[Chunk("m", 1, 0, "text", "x")],
        relays=[Relay(id=f"y-{thread_id}", thread_id=thread_id, kind="push")],
    )


ROWS = {
    "threads": ("metadata", "id = 't1'", "metadata"),
    "runs": ("payload", "id = 'r-t1'", "run r-t1"),
    "log": ("payload", f"thread = {T1} AND seq = 1", "message 1"),
    "log ": ("more", f"thread = {T1} AND seq = 2", "what follows 2"),
    "chunks": ("payload", f"thread = {T1}", r"chunk \d+"),
    "calls": ("payload", "id = 'c-t1'", "call c-t1"),
    "tickets": ("payload", "id = 'k-t1'", "ticket k-t1"),
    "decisions": ("payload", "id = 'd-t1'", "decision d-t1"),
    "state": ("payload", f"thread = {T1} AND name = 'm'", "state m"),
    "state_log": ("payload", f"thread = {T1}", "state n"),
    "inbox": ("payload", "id = 'i-t1'", "item i-t1"),
    "tasks": ("payload", "id = 'task-t1'", "task task-t1"),
    "relays": ("payload", "id = 'y-t1'", "relay y-t1"),
}


@pytest.mark.parametrize("table", ROWS)
async def test_check_names_unreadable_row(open_store: StoreFactory, table: str) -> None:
    column, where, name = ROWS[table]
    async with open_store() as store:
        for thread_id in ("t1", "t2"):
            await one_of_each(store, thread_id)
        sound = await check(store)
        await spoil(store, f"UPDATE {table} SET {column} = ? WHERE {where}")
        (problem,) = set(await check(store)) - set(sound)
        assert re.match(
            rf"thread 't1', table {table.strip()}: {name} can't be read \(.*delete the thread$", problem
        )


async def test_check_names_unreadable_record(open_store: StoreFactory) -> None:
    async with open_store() as store:
        keys = [ApiKey(id=key_id, name="ci", hash=b"", principal_id="ann") for key_id in ("k1", "k2")]
        await store.put(Records(put=keys[:1]))
        await store.tenant("acme").put(Records(put=keys[1:]))
        assert await check(store) == []
        await spoil(store, "UPDATE records SET payload = ?")
        first, second = sorted(await check(store))
        assert re.match(r"table records: key k1 can't be read \(.*restore it from a backup$", first)
        assert second.startswith("tenant 'acme', table records: key k2 can't be read")
        for read in (store.record(ApiKey, "k1"), store.find_record(ApiKey, "k2")):
            with pytest.raises(CorruptRow, match=r"^table records: key k\d can't be read"):
                await read
        await store.put(Records(put=[replace(keys[0], id="k3")]))
        assert [key.id for key in await store.records(ApiKey)] == ["k3"]


async def test_check_finds_missing_blob_of_any_tenant(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await one_of_each(store.tenant("acme"))
        assert await check(store) == []
        await spoil(store, "UPDATE blobs SET payload = ?")
        (problem,) = await check(store)
        assert problem.startswith("tenant 'acme', thread 't1', table log: message 1 can't be read")
        await spoil(store, "DELETE FROM blobs WHERE payload = ?")
        (problem,) = await check(store)
        assert re.search("table log: message 1 can't be read .blob [0-9a-f]{64} is missing", problem)


async def test_check_reads_all_pages_and_limits_names(
    open_store: StoreFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payloads, "PAGE", 3)
    monkeypatch.setattr(payloads, "NAMED", 5)
    async with open_store() as store:
        for n in range(4):
            await Writer(store, f"t{n}").write(message("a"), message("b"), state=[StateWrite("n", b"1")])
        await spoil(store, "UPDATE log SET payload = ?")
        await spoil(store, f"UPDATE state SET payload = ? WHERE thread = {T1}")
        problems = await check(store)
        assert [p.partition(":")[0] for p in problems[:2]] == ["thread 't0', table log"] * 2
        assert problems[5] == "table log: 3 more rows can't be read"
        assert problems[6].startswith("thread 't1', table state: state n can't be read")


async def test_check_without_codec_says_so_once(tmp_path: Path) -> None:
    class Reversed:
        def encode(self, data: bytes) -> bytes:
            return data[::-1]

        decode = encode

    store = SqliteStore(tmp_path / "store.db", codec=Reversed())
    await one_of_each(store)
    assert await store.check() == []
    await store.close()
    plain = SqliteStore(tmp_path / "store.db")
    (problem,) = await plain.check()
    assert re.match(
        r"\d+ rows were written through a codec, and the store was opened without one: open it", problem
    )
    await plain.close()


@pytest.mark.parametrize("words", [b"[]", b"[" * 100_000, b"null", b'["a", {}]', b"[7]"])
def test_undecodable_event_is_unreadable_row(words: bytes) -> None:
    read = Reader(Packer(), {}, "thread 't1'")
    with pytest.raises(CorruptRow, match=r"^thread 't1': event 2 can't be read"):
        read.event("tool_call_ready", identity(), 2, 7, words, encode(message()))


# -- lists ---------------------------------------------------------------------------------------------------

LISTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "runs": ("runs SET payload = ? WHERE id", lambda store, **page: store.runs(**page)),
    "threads": ("threads SET metadata = ? WHERE id", lambda store, **page: store.threads(**page)),
    "tickets": ("tickets SET payload = ? WHERE id", lambda store, **page: store.tickets(**page)),
    "relays": ("relays SET payload = ? WHERE id", lambda store, **page: store.relays(**page)),
    "due": ("relays SET payload = ? WHERE id", lambda store, **page: store.due_relays("push", 9, **page)),
}
PREFIX = {"runs": "r-", "threads": "", "tickets": "k-", "relays": "y-", "due": "y-"}


@pytest.mark.parametrize("name", LISTS)
async def test_list_skips_unreadable_rows_and_logs_once(
    open_store: StoreFactory, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    (damage, read), prefix = LISTS[name], PREFIX[name]
    async with open_store() as store:
        for n in range(6):
            await one_of_each(store, f"t{n}")
        whole = [one.id for one in await read(store)]
        for n in (1, 2, 5):
            await spoil(store, f"UPDATE {damage} = ?", f"{prefix}t{n}")
        caplog.clear()
        left = [one_id for one_id in whole if one_id[-1] not in "125"]
        assert len(whole) == 6
        for _ in range(2):
            assert [one.id for one in await read(store)] == left
        assert [one.id for one in await read(store.tenant("default"), limit=2)] == left[:2]
        assert sorted(r.getMessage().partition(":")[2][:12] for r in caplog.records) == [
            " thread 't1'",
            " thread 't2'",
            " thread 't5'",
        ]


async def test_page_is_full_despite_unreadable_rows(
    open_store: StoreFactory,
) -> None:
    async with open_store() as store:
        for n in range(9):
            await one_of_each(store, f"t{n}")
        await spoil(store, "UPDATE runs SET payload = ? WHERE id NOT IN ('r-t4', 'r-t3', 'r-t0')")
        pages: list[list[str]] = []
        while page := await store.runs(before=pages[-1][-1] if pages else None, limit=2):
            pages.append([run.id for run in page])
        assert pages == [["r-t4", "r-t3"], ["r-t0"]]
        await spoil(store, "UPDATE runs SET payload = ? WHERE id = 'r-t0'")
        assert await store.runs(before="r-t1") == []


async def test_unreadable_row_is_reported_on_direct_read(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await one_of_each(store)
        await spoil(store, "UPDATE runs SET payload = ?")
        await spoil(store, "UPDATE tickets SET payload = ?")
        await spoil(store, "UPDATE relays SET payload = ?")
        for asked in (
            store.run("r-t1"),
            store.runs(thread_id="t1"),
            store.ticket("k-t1"),
            store.tickets(thread_id="t1"),
            store.relay("y-t1"),
            store.relays(thread_id="t1"),
        ):
            with pytest.raises(CorruptRow, match=r"^thread 't1': .*can't be read"):
                await asked


async def test_overview_shows_readable_rows(open_store: StoreFactory) -> None:
    async with open_store() as store:
        for thread_id in ("t1", "t2"):
            await one_of_each(store, thread_id)
        for table in ("runs", "tickets", "tasks"):
            await spoil(store, f"UPDATE {table} SET payload = ? WHERE id LIKE ?", "%t1")
        seen = await cast(SqlStore, store).overview()
        assert [run.id for run in seen.runs] == ["r-t2"]
        assert [one.id for one in seen.tickets] == ["k-t2"]
        assert [task.id for task in seen.tasks] == ["task-t2"]


async def test_list_distinguishes_missing_key_from_damage(tmp_path: Path) -> None:
    class Shifted:
        def __init__(self, by: int) -> None:
            self.by = by

        def encode(self, data: bytes) -> bytes:
            return bytes([self.by, *data])

        def decode(self, data: bytes) -> bytes:
            if data[0] != self.by:
                raise ValueError("another key")
            return data[1:]

    path = tmp_path / "store.db"
    store = SqliteStore(path, codec=Shifted(1))
    await one_of_each(store)
    await store.close()
    for codec, words in ((None, "open the store with that codec"), (Shifted(2), "another key")):
        other = SqliteStore(path, codec=codec)
        with pytest.raises(CorruptRow, match=words):
            await other.runs()
        if codec is not None:
            await one_of_each(other, "t2")
            assert [run.id for run in await other.runs()] == ["r-t2"]
        await other.close()


async def check(store: Any) -> list[str]:
    return await store.check()
