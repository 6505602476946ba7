"""Commits on Postgres, alone and in batches: one guarded statement writes them, and each is decided for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace
from postgres_suite import beside, connected, schema_of, texts, waits_for_a_lock

from conformance.store_suite import Writer, call, due_threads, identity, item, message, record, step
from postgres_server import fresh_store
from wakeful.errors import Conflict, DuplicateRequest, InboxMoved, StaleFence, WakefulError
from wakeful.stores import Chunk, Commit, Committed, Fence, Records, Store
from wakeful.stores.postgres import PostgresStore
from wakeful.stores.postgres.queue import MANY
from wakeful.types import ApiKey, Request
from wakeful.types.content import Text, ToolCall
from wakeful.types.messages import Message

COUNT = 6


def identity_of(writer: Writer) -> Any:
    return identity(f"r-{writer.thread_id}", writer.thread_id)


def record_of(writer: Writer, **fields: Any) -> Any:
    return record(f"r-{writer.thread_id}", writer.thread_id, **fields)


async def begin(writer: Writer, **changes: Any) -> Committed:
    own = identity_of(writer)
    return await writer.begin(own.run_id, **{"log": [message("go")], "identity": own, **changes})


async def begun(store: Store, count: int = COUNT, **changes: Any) -> list[Writer]:
    """Writers of threads that have an open run each."""
    writers = [Writer(store, f"t{n}") for n in range(count)]
    for writer in writers:
        await begin(writer, **changes)
    return writers


async def go_on(writer: Writer, text: str = "on", **changes: Any) -> Committed:
    own = {"runs": [record_of(writer)], "identity": identity_of(writer)}
    return await writer.write(message(text), **{**own, **changes})


async def end(writer: Writer, **changes: Any) -> Committed:
    done = record_of(writer, status="done", steps=1, finished_at=9)
    own = {"log": [message("done")], "runs": [done], "identity": identity_of(writer)}
    return await writer.release(**{**own, "inbox_head": 0, **changes})


async def all_go_on(writers: Sequence[Writer], text: str = "on", **changes: Any) -> list[Any]:
    return await asyncio.gather(*[go_on(w, text, **changes) for w in writers], return_exceptions=True)


def answer(writer: Writer, calls: int) -> dict[str, Any]:
    """An answer that asks for calls of a tool. One more call isn't in the message."""
    own = identity_of(writer)
    asked = [ToolCall(f"c{n}", "look", {"at": "sky"}) for n in range(calls)]
    said = Message(f"answer-{writer.thread_id}", "assistant", (Text("answer"), *asked), 7)
    return {
        "log": [said, step(1, own)],
        "runs": [record_of(writer, steps=1, stage="acting", answer_id=said.id)],
        "calls": [call(f"c{n}", run_id=own.run_id, state="started") for n in range(calls + 1)],
        "identity": own,
    }


def result(writer: Writer) -> dict[str, Any]:
    """The result of the first call."""
    own = identity_of(writer)
    return {
        "log": [message("result", id=f"result-{writer.thread_id}")],
        "runs": [record_of(writer, steps=1, stage="acting", answer_id=f"answer-{writer.thread_id}")],
        "calls": [call("c0", run_id=own.run_id, state="finished", outcome="ok")],
        "identity": own,
    }


async def write(writer: Writer, changes: dict[str, Any]) -> Committed:
    return await writer.write(*changes["log"], **{key: value for key, value in changes.items() if key != "log"})


async def rows_of(store: PostgresStore) -> list[Any]:
    """All rows, without times, numbers and workers."""
    return [
        await store._query("SELECT seq, kind, agent, ref, size FROM log ORDER BY thread, seq"),
        await store._query("SELECT step, place, id, name, ref, arguments, payload FROM calls ORDER BY run, place"),
        await store._query("SELECT id, agent, status, step, acting, answer, payload FROM runs ORDER BY id"),
        await store._query("SELECT id, wakes, head, version, inbox_head, epoch, handed FROM threads ORDER BY id"),
        await store._query("SELECT message, payload FROM chunks"),
        await store._query("SELECT agent, priority, held, mark, attempts FROM dispatches ORDER BY thread"),
        await store._query("SELECT id, kind, wake, position, status, taken_by FROM inbox ORDER BY id"),
    ]


# -- what is written -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", [1, 3, 20], ids=["few rows", "some rows", "many rows"])
async def test_batch_writes_the_rows_that_lone_commits_write(calls: int) -> None:
    seen: list[Any] = []
    for is_batch in (True, False):
        async with fresh_store() as store:
            writers = [Writer(store, f"t{n}") for n in range(COUNT)]

            async def at_once(work: Sequence[Any], is_batch: bool = is_batch) -> list[Any]:
                return list(await asyncio.gather(*work)) if is_batch else [await one for one in work]

            found = await at_once([begin(w, request=Request(f"q-{w.thread_id}")) for w in writers])
            chunk = Chunk("answer-t1", 0, 0, "text", "an")
            await writers[1].write(identity=identity_of(writers[1]), chunks=[chunk])
            await store.commit(Commit("t2", inbox=[item("waiting", "t2", agent_id="agent")]))
            before = store.batches
            # In another order than that of the threads' numbers.
            found += await at_once([write(w, answer(w, calls)) for w in reversed(writers)])
            found += await at_once([write(w, result(w)) for w in writers])
            found += await at_once([end(w, inbox_head=None) for w in writers])
            assert store.batches[0] - before[0] == (3 if is_batch else 3 * COUNT)
            assert await store.check() == []
            seen.append((found, await rows_of(store)))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("odd", ["nul \0 nul", "\x10", "\x100", "$1 ? %s '"])
async def test_texts_are_kept_as_they_are(odd: str) -> None:
    async with fresh_store(tenant=odd) as store:
        writer = Writer(store, odd)
        await writer.begin(odd, log=[message("go")], identity=identity(odd, odd), request=Request(f"{odd} again"))
        assert (await writer.view()).thread.open_run_id == odd
        done = record(odd, odd, status="done", steps=1, finished_at=9)
        await writer.release(log=[message("done")], runs=[done], identity=identity(odd, odd), inbox_head=0)
        await store.commit(Commit(thread_id=odd, inbox=[item(odd, odd)]))
        taken = {"taken": [odd], "seen": {odd: 0}, "inbox_head": 1}
        await writer.begin("next", log=[message(odd)], identity=identity("next", odd), **taken)
        assert await texts(store, odd) == ["go", "done", odd]
        assert await store.run(odd) == done
        assert (await writer.view()).inbox == ()
        with pytest.raises(DuplicateRequest) as caught:
            await Writer(store, "another").begin("other", request=Request(f"{odd} again"))
        assert caught.value.run_id == odd


async def test_lone_surrogates_are_replaced() -> None:
    async with fresh_store() as store:
        writers = [Writer(store, f"t{n}") for n in range(2)]
        await asyncio.gather(writers[0].write(message("half \ud83d")), writers[1].write(message("whole")))
        assert await texts(store, "t0") == ["half \ufffd"]
        assert await texts(store, "t1") == ["whole"]


async def test_new_threads_in_one_commit_have_their_own_numbers() -> None:
    async with fresh_store() as store:
        names = [f"t{n}" for n in range(200)]
        await store.commit(Commit("t0", inbox=[item(f"i-{name}", name) for name in names]))
        assert len(await store.threads(limit=1000)) == 200
        assert await store.check() == []


async def test_batches_of_large_commits_are_split() -> None:
    async with fresh_store() as store:
        writers = await begun(store, 5)
        found = await all_go_on(writers, "x" * 2_000_000)
        assert [type(one) for one in found] == [Committed] * 5


# -- refusals --------------------------------------------------------------------------------------------------


async def test_refused_commits_leave_the_rest_of_their_batch_alone() -> None:
    async with fresh_store() as store, beside(store) as other:
        writers = await begun(store)
        await all_go_on(writers, "known")
        await other.commit(Commit("t1", inbox=[item("new", "t1")]))
        writers[0].fence = Fence(1, "another")
        before = store.batches
        found = await all_go_on(writers, "next", inbox_head=0)
        assert store.batches == (before[0] + 1, before[1] + COUNT)
        assert [type(one) for one in found] == [StaleFence, InboxMoved] + [Committed] * (COUNT - 2)
        known, following = ["go", "known"], ["go", "known", "next"]
        assert [await texts(store, w.thread_id) for w in writers] == [known] * 2 + [following] * (COUNT - 2)
        found = await all_go_on(writers[1:], "last")
        assert [one.version for one in found] == [3] + [4] * (COUNT - 2)


async def test_refused_lone_commits_write_nothing() -> None:
    async with fresh_store() as store:
        (writer,) = await begun(store, 1)
        await store.commit(Commit("t0", inbox=[item("new", "t0")]))
        before = await rows_of(store)
        with pytest.raises(InboxMoved):
            await go_on(writer, inbox_head=0)
        fence, writer.fence = writer.fence, Fence(1, "another")
        with pytest.raises(StaleFence):
            await go_on(writer)
        assert await rows_of(store) == before
        writer.fence = fence
        assert (await go_on(writer, inbox_head=1)).version == 2


async def test_worker_that_lost_its_thread_is_refused() -> None:
    async with fresh_store() as store, beside(store) as other:
        writers = await begun(store, lease=0)
        await all_go_on(writers, "known")
        taker = Writer(other, "t2")
        taker.version = (await writers[2].view()).thread.version
        await taker.claim("theirs")
        found = await all_go_on(writers, "late")
        assert [type(one) for one in found] == [StaleFence if n == 2 else Committed for n in range(COUNT)]
        assert await texts(store, "t2") == ["go", "known"]


async def test_existing_thread_run_and_request_are_found() -> None:
    async with fresh_store() as store:
        first = Writer(store)
        await begin(first, request=Request("q1"))
        with pytest.raises(Conflict, match="owned by another"):
            await begin(Writer(store))
        with pytest.raises(DuplicateRequest) as repeated:
            await begin(Writer(store, "t2"), request=Request("q1"))
        assert repeated.value.run_id == "r-t1"
        await end(first)
        with pytest.raises(Conflict, match="at version 2, not 0"):
            await begin(Writer(store))
        assert (await first.view()).thread.version == 2
        assert await store.load("t2") is None


async def test_commit_that_postgres_cannot_hold_fails_alone() -> None:
    async with fresh_store() as store:
        writers = await begun(store)
        broken = Message("broken", "user", (Text("broken"),), 2**70)
        work = [go_on(writer) for writer in writers if writer.thread_id != "t2"]
        work.insert(2, writers[2].write(broken, runs=[record_of(writers[2])], identity=identity_of(writers[2])))
        found = await asyncio.gather(*work, return_exceptions=True)
        assert isinstance(found[2], WakefulError)
        assert [type(one) for n, one in enumerate(found) if n != 2] == [Committed] * (COUNT - 1)
        assert [await store.head(f"t{n}") for n in range(COUNT)] == [2, 2, 1, 2, 2, 2]
        assert [one.head for one in await all_go_on(writers, "next")] == [3, 3, 2, 3, 3, 3]


# -- stale heads -----------------------------------------------------------------------------------------------


async def test_commit_by_the_same_owner_in_another_process_is_seen() -> None:
    async with fresh_store() as store, beside(store) as other:
        (writer,), there = await begun(store, 1), Writer(other, "t0")
        await go_on(writer, "a")
        there.fence = writer.fence
        await go_on(there, "b")
        await go_on(writer, "c")
        await go_on(writer, "d")
        assert await texts(store, "t0") == ["go", "a", "b", "c", "d"]


async def test_step_reports_items_that_arrived_meanwhile() -> None:
    async with fresh_store() as store, beside(store) as other:
        (writer,) = await begun(store, 1)
        await other.commit(Commit("t0", inbox=[item("new", "t0")]))
        assert (await go_on(writer)).inbox_head == 1
        await end(writer, inbox_head=1)
        assert await due_threads(store) == ["t0"]


async def test_pending_items_make_the_thread_due_at_the_end_of_its_run() -> None:
    async with fresh_store() as store:
        writer = Writer(store)
        await begin(writer)
        await store.commit(Commit(thread_id="t1", inbox=[item("next")]))
        with pytest.raises(InboxMoved):
            await end(writer)
        assert await due_threads(store) == []
        await end(writer, inbox_head=1)
        assert await due_threads(store) == ["t1"]


async def test_record_that_another_process_changes_is_refused() -> None:
    async with fresh_store() as store, connected(schema_of(store)) as other:
        key = ApiKey(id="k1", name="old", hash=b"", principal_id="ann")
        await store.put(Records(put=[key]))
        async with other.transaction():
            await other.execute("UPDATE records SET revision = 2")
            changing = asyncio.create_task(store.put(Records(put=[replace(key, revision=2)])))
            await waits_for_a_lock(other)
        with pytest.raises(Conflict, match="revision 2, not 1"):
            await changing


async def test_key_that_another_process_makes_is_refused() -> None:
    async with fresh_store() as store, connected(schema_of(store)) as other:
        key = ApiKey(id="k1", name="old", hash=b"", principal_id="ann")
        await store.put(Records(put=[replace(key, id="k2")]))
        async with other.transaction():
            await other.execute(
                "INSERT INTO records (tenant, kind, id, at, revision, payload) VALUES ('x', 'key', 'k1', 1, 1, '')"
            )
            making = asyncio.create_task(store.put(Records(put=[key])))
            await waits_for_a_lock(other)
        with pytest.raises(Conflict, match="belongs to another tenant"):
            await making


async def test_item_that_arrives_while_a_run_ends_is_seen() -> None:
    async with fresh_store() as store, connected(schema_of(store)) as other:
        writer = Writer(store)
        await begin(writer)
        async with other.transaction():
            await other.execute("SELECT 1 FROM threads FOR UPDATE")
            ending = asyncio.create_task(end(writer))
            await waits_for_a_lock(other)
            await other.execute("UPDATE threads SET inbox_head = 1")
            await other.execute(
                """INSERT INTO inbox (tenant, id, thread, kind, wake, position, status)
                   SELECT tenant, 'late', no, 'input', 'queue', 1, 'pending' FROM threads"""
            )
        with pytest.raises(InboxMoved):
            await ending
        assert await store._query("SELECT open_run IS NULL, claim IS NULL FROM threads") == [(False, False)]


async def test_death_counted_at_run_end_leaves_nothing_due() -> None:
    async with fresh_store() as store, beside(store) as other, connected(schema_of(store)) as connection:
        writer = Writer(store)
        await begin(writer)
        await connection.execute("UPDATE workers SET until = 0")
        await other.claim("other", agents=["nobody"], limit=1)
        with pytest.raises(InboxMoved):
            await end(writer)
        await end(writer, inbox_head=(await writer.view()).thread.inbox_head)
        assert await store.dispatches() == []


async def test_revived_dead_letter_is_due_though_its_head_is_cached() -> None:
    async with fresh_store() as store, beside(store) as other:
        writer = Writer(store)
        await begin(writer)
        for n in range(5):
            await writer.release(failed=f"failure {n}")
            writer.version = (await writer.view()).thread.version
            if n < 4:
                await writer.claim()
        assert [d.error for d in await store.dispatches(dead=True)] == ["failure 4"]
        assert await other.revive("t1")
        await store.commit(Commit("t1", inbox=[item("more")]))
        assert [d.attempts for d in await store.dispatches(dead=False)] == [0]


async def test_contended_thread_gets_every_delivery_once() -> None:
    async with fresh_store() as one, beside(one) as two, beside(one) as three:
        work = [
            store.commit(Commit("t1", inbox=[item(f"{name}{n}")]))
            for n in range(20)
            for name, store in (("a", one), ("b", two), ("c", three))
        ]
        await asyncio.gather(*work)
        view = await Writer(one).view()
        assert [entry.position for entry in view.inbox] == list(range(1, 61))
        assert len({entry.id for entry in view.inbox}) == 60


async def test_same_item_from_several_senders_is_delivered_once() -> None:
    async with fresh_store() as one, beside(one) as two:
        for n in range(10):
            sent = [item(f"i{n}") for _ in range(6)]
            stores = [one, two] * 3
            await asyncio.gather(*[s.commit(Commit("t1", inbox=[i])) for s, i in zip(stores, sent, strict=True)])
        assert [entry.id for entry in (await Writer(one).view()).inbox] == [f"i{n}" for n in range(10)]


# -- order and cancellation ------------------------------------------------------------------------------------


async def test_commits_of_one_owner_are_written_in_order() -> None:
    async with fresh_store() as store:
        (writer,) = await begun(store, 1)
        await asyncio.gather(*[go_on(writer, str(n)) for n in range(10)])
        assert await texts(store, "t0") == ["go", *[str(n) for n in range(10)]]


async def test_many_commits_are_sent_in_two_halves() -> None:
    async with fresh_store() as store:
        writers = await begun(store, MANY)
        batches = store.batches
        await all_go_on(writers)
        assert store.batches == (batches[0] + 2, batches[1] + MANY)


async def test_cancelled_commit_is_written_once_and_cancels_after() -> None:
    async with fresh_store() as store:
        (writer,), heard = await begun(store, 1), list[str]()

        async def write() -> None:
            await go_on(writer, "waits")
            heard.append("written")
            await asyncio.sleep(0)
            heard.append("not cancelled")

        async with connected(schema_of(store)) as other:
            async with other.transaction():
                await other.execute("SELECT 1 FROM threads FOR UPDATE")
                task = asyncio.create_task(write())
                await waits_for_a_lock(other)
                task.cancel()
            await asyncio.wait([task])
        assert (heard, task.cancelled()) == (["written"], True)
        await go_on(writer, "after")
        assert await texts(store, "t0") == ["go", "waits", "after"]


async def test_delivery_waits_for_the_step_in_flight() -> None:
    async with fresh_store() as store, connected(schema_of(store)) as other:
        (writer,) = await begun(store, 1)
        async with other.transaction():
            await other.execute("SELECT 1 FROM threads FOR UPDATE")
            stepping = asyncio.create_task(go_on(writer))
            await waits_for_a_lock(other)
            sending = asyncio.create_task(store.commit(Commit(thread_id="t0", inbox=[item("a", "t0")])))
            await asyncio.sleep(0)
        async with asyncio.timeout(30):
            assert ((await stepping).version, (await sending).inbox_head) == (2, 1)


async def test_close_waits_for_the_step_in_flight() -> None:
    async with fresh_store() as store, beside(store) as later:
        (writer,) = await begun(store, 1)
        async with connected(schema_of(store)) as other:
            async with other.transaction():
                await other.execute("SELECT 1 FROM threads FOR UPDATE")
                task = asyncio.create_task(go_on(writer, "last"))
                await waits_for_a_lock(other)
                closing = asyncio.create_task(store.close())
                await asyncio.sleep(0)
            await closing
            assert await texts(later, "t0") == ["go", "last"]
        await task


# -- locks and plans -------------------------------------------------------------------------------------------


async def test_batch_locks_threads_in_order_of_their_numbers() -> None:
    async with fresh_store() as store, connected(schema_of(store)) as other:
        writers = await begun(store)
        async with other.transaction():
            await other.execute("SELECT 1 FROM threads WHERE id = 't2' FOR UPDATE")
            work = asyncio.gather(*[go_on(writer) for writer in reversed(writers)])
            await waits_for_a_lock(other)
            async with connected(schema_of(store)) as third:
                await third.execute("SELECT 1 FROM threads WHERE id IN ('t3', 't4') FOR UPDATE NOWAIT")
                with pytest.raises(asyncpg.LockNotAvailableError):
                    await third.execute("SELECT 1 FROM threads WHERE id = 't1' FOR UPDATE NOWAIT")
        assert [one.version for one in await work] == [2] * COUNT


async def test_plans_made_on_empty_tables_read_no_whole_table() -> None:
    async with fresh_store(pool_size=2) as store, connected(schema_of(store)) as other:

        async def rows_read() -> dict[str, int]:
            for pool in (store._database.reads, store._database.writes):
                await pool.run(lambda connection: connection.fetch("SELECT pg_stat_force_next_flush()"))
            tables = f"pg_stat_user_tables WHERE schemaname = '{schema_of(store)}'"
            return dict(await other.fetch(f"SELECT relname, coalesce(seq_tup_read, 0) FROM {tables}"))

        for n in range(12):
            await write_all_kinds(store, f"early{n}")
        await other.execute(
            """INSERT INTO threads (tenant, id, created_at, updated_at) SELECT 'default', n, 0, 0 FROM
                generate_series(1, 5000) AS n;
            INSERT INTO runs (tenant, id, thread, agent, status, step, acting, payload)
                SELECT 'default', n, n, '', 'done', 0, 0, '' FROM generate_series(1, 5000) AS n;
            INSERT INTO inbox (tenant, id, thread, kind, wake, position, status)
                SELECT 'default', n, n, 'input', 'queue', 1, 'taken' FROM generate_series(1, 5000) AS n;
            INSERT INTO dispatches (thread, tenant, agent, priority, due_at)
                SELECT -n, 'default', 'other', 128, 1 FROM generate_series(1, 5000) AS n"""
        )
        before = await rows_read()
        for n in range(3):
            await write_all_kinds(store, f"late{n}")
        after = await rows_read()
        assert {name: count - before[name] for name, count in after.items() if count - before[name] >= 5000} == {}


async def write_all_kinds(store: PostgresStore, name: str) -> None:
    """Runs that start, continue and end, several at once, deliveries, and claims."""
    writers = [Writer(store, f"{name}-{n}") for n in range(3)]

    def deliver(writer: Writer, item_id: str) -> list[Any]:
        return [item(f"{item_id}-{writer.thread_id}", f"other-{writer.thread_id}", agent_id="agent")]

    await asyncio.gather(*[begin(w, inbox=deliver(w, "a")) for w in writers])
    await all_go_on(writers)
    await asyncio.gather(*[end(w, inbox=deliver(w, "b")) for w in writers])
    claims = await store.claim("worker", agents=["agent"], limit=2)
    for one in claims.claimed:
        await store.commit(Commit(one.thread_id, fence=Fence(one.epoch, "worker"), release=True, failed="no"))
