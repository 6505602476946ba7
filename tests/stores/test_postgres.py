"""Rules of Postgres alone: batches, schemas, and text that it can't hold."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

import pytest
from msgspec.structs import replace
from postgres_suite import beside, connected, schema_of, texts, waits_for_a_lock

from conformance.store_suite import (
    Writer,
    a_bit_of_everything,
    call,
    die,
    everything,
    identity,
    item,
    message,
    record,
)
from postgres_server import fresh_store, server
from wakeful.errors import (
    ConfigurationError,
    CorruptRow,
    DuplicateRequest,
    InboxFull,
    InvalidStore,
    StaleFence,
    StoreError,
    StoreUnavailable,
)
from wakeful.stores import Commit, Fence, StateWrite
from wakeful.stores.codec.packer import BLOB_BYTES
from wakeful.stores.postgres import PostgresStore
from wakeful.stores.postgres.connections import Retry
from wakeful.stores.sql.schema import VERSION
from wakeful.types import Request
from wakeful.types.runs import Principal

# -- claims ---------------------------------------------------------------------------------------------------


async def test_claim_comes_with_its_view() -> None:
    async with fresh_store() as store:
        other, odd = store.tenant("other"), "t\0\u241b"
        await store.commit(Commit(odd, inbox=[item("i\0", odd, message=message("a\0b"))]))
        await other.commit(Commit("t1", inbox=[item("i1")]))
        left = Writer(store)
        await left.claim("dead", inbox=[item("waiting")])
        everything = a_bit_of_everything()
        await left.write(*everything.pop("log"), **everything)
        await die(store, "dead")
        claimed = (await store.claim("w", agents=["agent", ""], limit=10)).claimed
        names = {(one.tenant, one.thread_id) for one in claimed}
        assert names == {("default", odd), ("default", "t1"), ("other", "t1")}
        for one in claimed:
            assert one.view == await store.tenant(one.tenant).load(one.thread_id)
            assert one.view is not None
            assert (one.view.thread.owner, one.view.thread.epoch) == ("w", one.epoch)


async def test_unreadable_view_does_not_delay_claim() -> None:
    async with fresh_store() as store:
        for name, text in (("large", "x" * BLOB_BYTES), ("broken", "x"), ("plain", "x")):
            await store.commit(Commit(name, inbox=[item(name, name, message=message(text))]))
        async with connected(schema_of(store)) as connection:
            await connection.execute("UPDATE inbox SET payload = '{' WHERE id = 'broken'")
        claimed = (await store.claim("w", agents=[""], limit=10)).claimed
        assert {one.thread_id: one.view is not None for one in claimed} == {
            "large": False,
            "broken": False,
            "plain": True,
        }
        assert (await Writer(store, "large").view()).inbox[0].message is not None
        with pytest.raises(CorruptRow, match="item broken can't be read"):
            await store.load("broken")


# -- batches -------------------------------------------------------------------------------------------------


async def test_concurrent_commits_share_a_batch() -> None:
    async with fresh_store() as store:
        writers = [Writer(store, f"t{n}") for n in range(100)]
        await asyncio.gather(*[writer.begin(log=[message()]) for writer in writers])
        batches, commits = store.batches
        assert commits == 100
        assert batches <= 10
        assert (await store.counts())["messages"] == 100


async def test_single_commit_is_sent_alone() -> None:
    async with fresh_store() as store:
        writer = Writer(store)
        for n in range(3):
            await writer.write(message(str(n)))
        assert store.batches == (3, 3)


async def test_commits_of_one_thread_never_share_a_batch() -> None:
    async with fresh_store() as store:
        writer = Writer(store)
        await writer.claim()
        await asyncio.gather(*[writer.write(message(str(n))) for n in range(10)])
        assert await texts(store) == [str(n) for n in range(10)]
        assert store.batches == (11, 11)


async def test_concurrent_views_take_few_connections() -> None:
    async with fresh_store() as store:
        other = store.tenant("other")
        for tenant in (store, other):
            for n in range(20):
                await Writer(tenant, f"t{n}\0").begin(f"r{n}", log=[message()] * n)
        async with beside(store) as reader:
            there = reader.tenant("other")
            ids = [f"t{n}\0" for n in range(20)]
            asked = [handle.load(name) for handle in (reader, there) for name in [*ids, "nowhere", *ids]]
            views = await asyncio.gather(*asked)
            heads = [None if view is None else (view.thread.id, view.thread.head) for view in views]
            mine = [(name, n) for n, name in enumerate(ids)]
            assert heads == [*mine, None, *mine] * 2
            assert all(view is None or (view.run and view.run.id == f"r{view.thread.head}") for view in views)
            assert len(reader._database.reads._idle) <= 2


async def test_cancelled_view_cancels_no_other() -> None:
    async with fresh_store() as store:
        await Writer(store).begin()
        leaves = asyncio.ensure_future(store.load("t1"))
        stays = asyncio.ensure_future(store.load("t1"))
        await asyncio.sleep(0)
        leaves.cancel()
        assert await stays is not None
        assert await store.load("t1") is not None


async def test_refused_commit_in_batch_leaves_others_alone() -> None:
    async with fresh_store() as store:
        writers = [Writer(store, f"t{n}") for n in range(5)]
        await asyncio.gather(*[writer.claim() for writer in writers])
        writers[2].fence = Fence(1, "another")
        before = store.batches
        done = await asyncio.gather(*[w.write(message("in")) for w in writers], return_exceptions=True)
        assert [type(one).__name__ for one in done] == ["Committed"] * 2 + ["StaleFence"] + ["Committed"] * 2
        assert store.batches == (before[0] + 1, before[1] + 5)
        assert [await texts(store, w.thread_id) for w in writers] == [["in"], ["in"], [], ["in"], ["in"]]


async def test_late_refusal_in_batch_is_rolled_back_alone() -> None:
    async with fresh_store() as store:
        await store.commit(Commit(thread_id="full", inbox=[item(f"i{n}", "full") for n in range(1000)]))
        one, two, three = (Writer(store, name) for name in ("a", "b", "c"))
        done = await asyncio.gather(
            one.write(message("in")),
            two.write(message("out"), inbox=[item("kept out", "new"), item("too many", "full")]),
            three.write(message("in"), inbox=[item("kept", "new")]),
            return_exceptions=True,
        )
        assert [type(d).__name__ for d in done] == ["Committed", "InboxFull", "Committed"]
        assert isinstance(done[1], InboxFull)
        assert "'full'" in str(done[1])
        assert await store.thread("b") is None
        view = await store.load("new")
        assert view is not None
        assert [i.id for i in view.inbox] == ["kept"]


async def test_unwritable_commit_fails_alone() -> None:
    async with fresh_store() as store:
        writers = [Writer(store, f"t{n}") for n in range(3)]
        too_late = record("r1", "t1", status="done", finished_at=2**63)
        done = await asyncio.gather(
            writers[0].write(message("in")),
            writers[1].write(message("out"), runs=[too_late]),
            writers[2].write(message("in")),
            return_exceptions=True,
        )
        assert isinstance(done[1], StoreError)
        assert [await texts(store, w.thread_id) for w in writers] == [["in"], [], ["in"]]


async def test_cancelled_commit_is_still_written() -> None:
    async with fresh_store() as store:
        await Writer(store).write(message("first"))
        async with connected(schema_of(store)) as other:
            async with other.transaction():
                await other.execute("SELECT 1 FROM threads FOR UPDATE")
                second = Writer(store)
                second.version = 1
                task = asyncio.create_task(second.write(message("second")))
                await waits_for_a_lock(other)
                task.cancel()
            await asyncio.wait([task])
        assert await texts(store) == ["first", "second"]


# -- schemas and tenants -------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", [{"pool_size": 0}, {"pool_size": "many"}, {"wait_seconds": -1}])
def test_invalid_option_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(option))} is"):
        PostgresStore(server().url(), **option)


async def test_pool_of_one_connection_is_enough() -> None:
    async with fresh_store(pool_size=1) as store:
        writers = [Writer(store, f"t{n}") for n in range(5)]
        await asyncio.gather(*[w.write(message()) for w in writers], *[store.head("t1") for _ in range(5)])
        assert await store.delete("t1") == 1
        assert (await store.counts())["messages"] == 4


async def test_schemas_of_one_database_are_isolated() -> None:
    async with fresh_store() as one, fresh_store() as two:
        await Writer(one).write(message("one"))
        assert await two.load("t1") is None
        async with connected() as connection:
            sql = "SELECT count(*) FROM pg_tables WHERE schemaname = $1 AND tablename = 'threads'"
            assert await connection.fetchval(sql, schema_of(one)) == 1
            assert await connection.fetchval(sql, "public") == 0


@pytest.mark.parametrize("name", ["", "Upper", "pg_mine", "a b", 'x"; DROP TABLE y', "x" * 64, "ä", 5, None])
def test_invalid_schema_name_is_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="schema"):
        PostgresStore(server().url(), schema=name)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("default_transaction_read_only = on", "read-only"),
        ("lock_timeout = '10ms'", "rows that another session has locked"),
    ],
)
async def test_session_with_bad_settings_is_not_reused(setting: str, said: str) -> None:
    """An operator changes them back, and only new sessions have them so."""
    async with fresh_store(pool_size=1) as store, connected(schema_of(store)) as other:
        writer = Writer(store)
        await writer.write(message())
        await store._database.writes.run(lambda connection: connection.execute(f"SET {setting}"))
        async with other.transaction():
            await other.execute("SELECT 1 FROM threads FOR UPDATE")
            with pytest.raises(StoreUnavailable, match=said):
                await writer.write(message())
        await writer.write(message())
        assert (await store.counts())["messages"] == 2


async def test_zero_wait_still_allows_a_moment_to_connect() -> None:
    async with fresh_store(wait_seconds=0) as store:
        assert await store.head("t1") == 0


def test_wait_counts_from_the_call() -> None:
    """A statement that failed slowly, as on a silent network, is retried once."""
    broken, now = ConnectionResetError(), monotonic()
    late, early = Retry(now - 1), Retry(now + 60)
    assert [late.after(broken, ever_connected=True) for _ in range(2)] == [0.0, None]
    assert [early.after(broken, ever_connected=True) for _ in range(3)] == [0.0, 0.05, 0.1]


@pytest.mark.parametrize("url", [None, 5, "app.db"])
def test_invalid_url_is_refused(url: Any) -> None:
    with pytest.raises(StoreUnavailable, match="begins with postgres://"):
        PostgresStore(url)


async def test_concurrent_opens_create_schema_once() -> None:
    stores = [PostgresStore(server().url(), schema="at_once") for _ in range(6)]
    try:
        assert await asyncio.gather(*[store.head("t1") for store in stores]) == [0] * 6
    finally:
        await asyncio.gather(*[store.close() for store in stores])
        async with connected() as connection:
            await connection.execute("DROP SCHEMA at_once CASCADE")


async def test_newer_schema_version_is_refused_unless_compatible() -> None:
    async with fresh_store() as store, connected(schema_of(store)) as connection:
        await Writer(store).write(message())
        await connection.execute("UPDATE meta SET value = '99' WHERE name = 'version'")
        async with beside(store) as other:
            assert await texts(other) == ["hello"]
        await connection.execute("UPDATE meta SET value = '99' WHERE name = 'min_reader'")
        async with beside(store) as other:
            with pytest.raises(InvalidStore, match=r"newer version.*upgrade"):
                await other.head("t1")
        await connection.execute("UPDATE meta SET value = '1' WHERE name = 'min_reader'")
        await connection.execute(f"UPDATE meta SET value = '{VERSION}' WHERE name = 'version'")


@pytest.mark.parametrize("table", ["threads (no int)", "meta (name text, value text)", "meta (id int)"])
async def test_foreign_schema_is_left_unchanged(table: str) -> None:
    async with connected() as connection:
        await connection.execute(f"CREATE SCHEMA foreign_tables; CREATE TABLE foreign_tables.{table}")
        store = PostgresStore(server().url(), schema="foreign_tables")
        try:
            with pytest.raises(InvalidStore, match=r"foreign_tables.*another program"):
                await store.head("t1")
            sql = "SELECT count(*) FROM pg_tables WHERE schemaname = 'foreign_tables'"
            assert await connection.fetchval(sql) == 1
        finally:
            await store.close()
            await connection.execute("DROP SCHEMA foreign_tables CASCADE")


async def test_schema_with_other_tables_is_shared() -> None:
    async with connected() as connection:
        await connection.execute("CREATE SCHEMA shared_schema; CREATE TABLE shared_schema.customers (id int)")
        store = PostgresStore(server().url(), schema="shared_schema")
        try:
            await Writer(store).write(message())
            assert await texts(store) == ["hello"]
        finally:
            await store.close()
            await connection.execute("DROP SCHEMA shared_schema CASCADE")


async def test_tenants_share_pool_and_are_isolated() -> None:
    async with fresh_store() as store:
        acme = store.tenant("acme")
        mine, theirs = Writer(store), Writer(acme)
        await asyncio.gather(mine.begin(log=[message("mine")]), theirs.begin(log=[message("theirs")]))
        assert (await texts(store), await texts(acme)) == (["mine"], ["theirs"])
        assert store.batches == acme.batches
        await store.commit(Commit(thread_id="t2", inbox=[item("same", "t2")]))
        assert await acme.item("same") is None
        with pytest.raises(StaleFence):
            await acme.commit(Commit(thread_id="t1", fence=mine.fence, identity=identity(), log=[message()]))
        await mine.release()
        assert await store.delete("t1") == 1
        assert await texts(acme) == ["theirs"]


# -- what is written -----------------------------------------------------------------------------------------

ODD = ["nul \0 nul", "\x10", "\x100", "\\u0000", "\\\\u0010 \0\x10\0", "😀 é \u2028 \ufffd", "'; --", "$1 ? %s"]


@pytest.mark.parametrize("odd", ODD)
async def test_text_is_stored_exactly(odd: str) -> None:
    async with fresh_store(tenant=odd) as store:
        writer = Writer(store, odd)
        await writer.begin(
            odd,
            log=[message(odd)],
            state=[StateWrite(odd, b'"v"')],
            inbox=[item(odd, odd, message=message(odd)), item("other", f"{odd} too")],
            request=Request(f"{odd} again"),
            identity=identity(odd, odd),
        )
        view = await writer.view()
        assert (view.thread.id, view.thread.open_run_id, view.state) == (odd, odd, {odd: b'"v"'})
        assert [i.id for i in view.inbox] == [odd]
        assert await texts(store, odd) == [odd]
        assert (await store.run(odd)) == record(odd, odd)
        with pytest.raises(DuplicateRequest) as caught:
            await writer.write(request=Request(f"{odd} again"))
        assert caught.value.run_id == odd
        assert sorted(thread.id for thread in await store.threads()) == sorted([odd, f"{odd} too"])


async def test_call_with_invalid_tool_name_is_stored() -> None:
    async with fresh_store() as store:
        strange = replace(call("c1"), id="c\0", name="lo\0ok", arguments={"a\0": "\0"})
        await Writer(store).begin(calls=[strange])
        assert list(await store.calls("r1")) == [strange]


async def test_ids_sort_by_bytes() -> None:
    async with fresh_store() as store:
        ids = ["B", "a", "_", "b", "A"]
        for run_id in ids:
            await Writer(store, f"t{run_id}").write(runs=[record(run_id, f"t{run_id}")])
        assert [run.id for run in await store.runs()] == sorted(ids, reverse=True)
        async with connected() as connection:  # Whatever the database's own order is.
            sql = "SELECT DISTINCT collation_name FROM information_schema.columns WHERE table_schema = $1"
            found = await connection.fetch(f"{sql} AND data_type = 'text'", schema_of(store))
        assert [row[0] for row in found] == ["C"]


async def test_message_of_ten_megabytes_is_stored() -> None:
    async with fresh_store() as store:
        large = "0123456789abcdef" * (10 * 1024 * 1024 // 16)
        writer = Writer(store)
        await writer.begin(log=[message("small"), message(large)], inbox=[item("i1", message=message(large))])
        _, found = await store.messages("t1")
        assert found.text == large
        view = await writer.view()
        assert view.inbox[0].message is not None
        assert view.inbox[0].message.text == large


class Mirror:
    """A codec: bytes backwards, which nobody reads by accident."""

    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    def decode(self, data: bytes) -> bytes:
        return data[::-1]


async def test_codec_makes_payloads_unreadable() -> None:
    async with fresh_store(codec=Mirror()) as store:
        secret = "open sesame"
        writer = Writer(store)
        await writer.begin(
            log=[message(secret), message(secret * 10_000)],
            state=[StateWrite("word", f'"{secret}"'.encode())],
            inbox=[item("i1", message=message(secret))],
        )
        assert await texts(store) == [secret, secret * 10_000]
        assert (await writer.view()).state == {"word": f'"{secret}"'.encode()}
        async with connected(schema_of(store)) as connection:
            for table in ("log", "state", "inbox", "runs", "blobs"):
                payloads = await connection.fetch(f"SELECT payload FROM {table} WHERE payload IS NOT NULL")
                assert payloads
                assert not [row for row in payloads if secret.encode() in row[0]]


# -- its own doings ------------------------------------------------------------------------------------------


async def test_check_names_broken_ledger() -> None:
    async with fresh_store() as store:
        await Writer(store).begin(log=[message()])
        assert await store.check() == []
        async with connected(schema_of(store)) as connection:
            await connection.execute("UPDATE threads SET head = 0, claim = NULL")
        assert len(await store.check()) == 2
        assert (await store.size())["bytes"] > 0


async def test_store_belongs_to_one_loop_at_a_time() -> None:
    async with fresh_store() as store:
        await store.head("t1")
        with pytest.raises(StoreUnavailable, match="another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(store.head("t1")))


async def test_closed_store_refuses_calls() -> None:
    async with fresh_store() as store:
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.head("t1")
        with pytest.raises(StoreUnavailable, match="closed"):
            await Writer(store).write(message())


async def test_close_waits_for_commits_in_flight() -> None:
    async with fresh_store() as one, beside(one) as two:
        commits = [asyncio.create_task(Writer(two, f"t{n}").write(message())) for n in range(20)]
        await asyncio.sleep(0)
        await two.close()
        assert all(task.exception() is None for task in commits)
        assert (await one.counts())["messages"] == 20


async def test_repeated_view_is_equal() -> None:
    async with fresh_store() as one, beside(one) as two:
        await Writer(one).begin(log=[message()], calls=[call("c1")], state=[StateWrite("k", b"1")])
        assert await everything(one) == await everything(two)


async def test_view_and_window_take_one_round_trip_each() -> None:
    async with fresh_store(pool_size=1) as store:
        await Writer(store).write(*[message(f"m{n}") for n in range(30)])
        asked: list[str] = []

        async def listen(connection: Any) -> None:
            connection.add_query_logger(lambda record: asked.append(record.query))

        async def taken() -> int:
            await asyncio.sleep(0)  # The listener is called in the loop's next turn.
            return len(asked)

        await store._database.reads.run(listen)
        assert await store.load("t1") is not None
        assert await taken() == 1
        window = await store.messages("t1", newest=20)
        assert await taken() == 2
        assert [m.text for m in window] == [f"m{n}" for n in range(10, 30)]
        assert [m.text for m in await store.messages("t1", after=window[-3].seq or 0)] == ["m28", "m29"]
        assert [m.text for m in await store.messages("t1", limit=2)] == ["m0", "m1"]
        assert await taken() == 4


async def test_unchanged_run_fields_are_not_rewritten() -> None:
    async with fresh_store() as store:
        writer, claims = Writer(store), {"claim": "x" * 1500}
        await writer.begin(log=[message("first")])

        async def written(commits: int) -> int:
            before = await store._query("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
            for number in range(commits):
                stage: Any = ("acting", "inferring", "between")[number % 3]
                run = record("r1", principal=Principal("ann", claims=claims), stage=stage, updated_at=number)
                await writer.write(message("more"), runs=[run])
            after = await store._query("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
            return int(after[0][0] - before[0][0])

        await written(10)  # Pages that are touched for the first time are logged whole.
        # So they are after a checkpoint of the server's, and it may clean up besides, at any time.
        assert min([await written(30) for _ in range(10)]) < 30 * 1300
