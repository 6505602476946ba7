"""Commits that go on with their runs and come together: one statement for all of them, and each for itself."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from postgres_suite import beside, connected, schema_of, texts, waits_for_a_lock
from test_postgres_breaks import Lost, crash, through_a_proxy

from conformance.store_suite import Writer, call, identity, item, message, record, step
from postgres_server import fresh_store
from wakeful.errors import InboxMoved, StaleFence, StoreUnavailable, WakefulError
from wakeful.stores import Chunk, Commit, Committed, Fence, Store
from wakeful.stores._groups import MANY
from wakeful.stores._postgres import PostgresStore
from wakeful.stores._steps import _MANY
from wakeful.types.content import Text, ToolCall
from wakeful.types.messages import Message

COUNT = 5
LONG_WAY = 1_000_000


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first commit that could go by a step does."""
    monkeypatch.setattr("wakeful.stores._groups.FIRST_STEPS", 0)


async def begun(store: Store, count: int = COUNT, **claim: Any) -> list[Writer]:
    """Writers of threads with a run each."""
    writers = [Writer(store, f"t{n}") for n in range(count)]
    for n, writer in enumerate(writers):
        await writer.begin(f"r{n}", log=[message("go", id=f"go{n}")], identity=who(n), **claim)
    return writers


def who(n: int) -> Any:
    return identity(f"r{n}", f"t{n}")


def goes_on(writer: Writer, text: str = "on", **changes: Any) -> Any:
    n = writer.thread_id[1:]
    run = {"runs": [record(f"r{n}", f"t{n}")], "identity": identity(f"r{n}", f"t{n}")}
    return writer.write(message(text, id=f"{text}{n}"), **{**run, **changes})


async def all_go_on(writers: list[Writer], text: str = "on", **changes: Any) -> list[Any]:
    return await asyncio.gather(*[goes_on(w, text, **changes) for w in writers], return_exceptions=True)


def answer(n: int) -> dict[str, Any]:
    """An answer that asks for n calls."""
    asked = [ToolCall(f"c{k}", "look", {"at": "sky"}) for k in range(n)]
    said = Message(f"answer{n}", "assistant", (Text("answer"), *asked), 7)
    return {
        "log": [said, step(1, who(n))],
        "runs": [record(f"r{n}", f"t{n}", steps=1, stage="acting", answer_id=said.id)],
        "calls": [call(f"c{k}", run_id=f"r{n}", state="started") for k in range(n)],
    }


def results(n: int) -> dict[str, Any]:
    """What came of the first of these calls."""
    return {
        "log": [message(f"result{n}", id=f"result{n}")],
        "runs": [record(f"r{n}", f"t{n}", steps=1, stage="acting", answer_id=f"answer{n}")],
        "calls": [call("c0", run_id=f"r{n}", state="finished", outcome="ok")] if n else [],
    }


async def write(writer: Writer, n: int, changes: dict[str, Any]) -> Committed:
    others = {key: value for key, value in changes.items() if key != "log"}
    return await writer.write(*changes["log"], identity=who(n), **others)


async def marks(store: PostgresStore) -> list[str]:
    """The ids of the last commits that have one: a step has none."""
    rows = await store._query("SELECT last_commit FROM threads WHERE last_commit IS NOT NULL ORDER BY id")
    return [last.partition(" ")[0] for (last,) in rows]


async def all_of(store: PostgresStore) -> list[Any]:
    """All that the tables hold, but for when and by whom."""
    return [
        await store._query("SELECT seq, kind, agent, at, ref, payload, size, more FROM log ORDER BY thread, seq"),
        await store._query("SELECT step, place, id, name, ref, arguments, payload FROM calls ORDER BY run, place"),
        await store._query("SELECT id, agent, status, step, acting, answer, payload FROM runs ORDER BY no"),
        await store._query("SELECT id, wakes, head, version, inbox_head, epoch FROM threads ORDER BY no"),
        await store._query("SELECT message, payload FROM chunks"),
    ]


@pytest.mark.parametrize(("first_steps", "together"), [(0, True), (0, False), (LONG_WAY, True)])
async def test_what_is_written_together_is_what_the_long_way_writes_alone(
    first_steps: int, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    for steps, at_once in ((first_steps, together), (LONG_WAY, False)):
        monkeypatch.setattr("wakeful.stores._groups.FIRST_STEPS", steps)
        async with fresh_store() as store:
            writers = await begun(store)
            for n in (1, 2):  # Threads of different lengths, some with parts of an answer.
                await writers[n].write(*[message(f"more{k}", id=f"more{k}") for k in range(n)], identity=who(n))
                await writers[n].write(identity=who(n), chunks=[Chunk(f"answer{n}", 0, 0, "text", "an")])
            before, batches, done = await marks(store), store.batches[0], list[Committed]()
            for changes in (answer, results):
                # In another order than that of the threads.
                work = [write(writer, n, changes(n)) for n, writer in reversed(list(enumerate(writers)))]
                done += await asyncio.gather(*work) if at_once else [await one for one in work]
            assert store.batches[0] - batches == (2 if at_once else 2 * COUNT)
            assert (await marks(store) == before) == (steps == 0)
            seen.append((done, await all_of(store)))
            assert await store.check() == []
    assert seen[0] == seen[1]


async def test_those_that_are_refused_are_told_why_and_the_others_are_in() -> None:
    async with fresh_store() as store, beside(store) as other:
        writers = await begun(store)
        await all_go_on(writers, "known")
        await other.commit(Commit("t1", inbox=[item("new", "t1")]))
        writers[0].fence = Fence(1, "another")
        found = await all_go_on(writers, "next", inbox_head=0)
        assert [type(one) for one in found] == [StaleFence, InboxMoved] + [Committed] * (COUNT - 2)
        known, following = ["go", "known"], ["go", "known", "next"]
        assert [await texts(store, w.thread_id) for w in writers] == [known] * 2 + [following] * (COUNT - 2)
        found = await all_go_on(writers[1:], "last")
        assert [one.version for one in found] == [3] + [4] * (COUNT - 2)


async def test_who_lost_its_thread_to_another_process_is_refused_beside_those_who_didnt() -> None:
    async with fresh_store() as store, beside(store) as other:
        writers = await begun(store, lease=0)
        await all_go_on(writers, "known")
        taker = Writer(other, "t2")
        taker.version = (await writers[2].view()).thread.version
        await taker.claim("theirs")
        found = await all_go_on(writers, "late")
        assert [type(one) for one in found] == [Committed, Committed, StaleFence, Committed, Committed]
        assert await texts(store, "t2") == ["go", "known"]


async def test_what_is_more_than_going_on_is_written_beside_those_that_only_go_on() -> None:
    async with fresh_store() as store:
        writers = await begun(store)
        before = await marks(store)
        work = [goes_on(w, inbox=[item("a", "t1")] if n == 0 else []) for n, w in enumerate(writers)]
        await asyncio.gather(*work)
        assert [await texts(store, w.thread_id) for w in writers] == [["go", "on"]] * COUNT
        assert [old != new for old, new in zip(before, await marks(store), strict=True)] == [
            n == 0 for n in range(COUNT)
        ]
        assert [i.id for i in (await writers[1].view()).inbox] == ["a"]


async def test_one_that_cant_be_written_fails_alone() -> None:
    async with fresh_store() as store:
        writers = await begun(store)
        work = [goes_on(writer) for writer in writers if writer.thread_id != "t2"]
        broken = Message("broken", "user", (Text("broken"),), 2**70)
        work.insert(2, writers[2].write(broken, runs=[record("r2", "t2")], identity=who(2)))
        found = await asyncio.gather(*work, return_exceptions=True)
        assert isinstance(found[2], WakefulError)
        assert [type(one) for n, one in enumerate(found) if n != 2] == [Committed] * (COUNT - 1)
        assert [await store.head(f"t{n}") for n in range(COUNT)] == [2, 2, 1, 2, 2]
        found = await all_go_on(writers, "next")
        assert [one.head for one in found] == [3, 3, 2, 3, 3]


@pytest.mark.parametrize("what", ["request", "reply"])
async def test_all_of_them_are_in_once_though_the_connection_breaks(what: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        writers = await begun(far)
        await all_go_on(writers, "first")
        before = await marks(near)
        proxy.lose(what)
        found = await all_go_on(writers, "second")
        assert proxy.lost.is_set()
        assert [(one.version, one.head) for one in found] == [(3, 3)] * COUNT
        await all_go_on(writers, "third")
        assert [await texts(near, w.thread_id) for w in writers] == [["go", "first", "second", "third"]] * COUNT
        assert await marks(near) == before


async def test_what_an_owner_writes_at_once_is_in_though_the_connection_breaks_over_the_last() -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        (writer,) = await begun(far, 1)
        await goes_on(writer, "first")
        proxy.lose("request", lambda data: b"last" in data)
        await asyncio.gather(goes_on(writer, "next"), goes_on(writer, "last"))
        assert proxy.lost.is_set()
        assert await texts(near, "t0") == ["go", "first", "next", "last"]


async def test_what_an_owner_writes_at_once_is_in_in_its_order() -> None:
    async with fresh_store() as store:
        (writer,) = await begun(store, 1)
        await goes_on(writer, "first")
        await asyncio.gather(goes_on(writer, "next"), goes_on(writer, "last"))
        assert await texts(store, "t0") == ["go", "first", "next", "last"]


@pytest.mark.parametrize("is_in", [True, False])
async def test_one_that_is_cancelled_is_in_once_and_before_what_its_owner_wrote_after_it(is_in: bool) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        (writer,) = await begun(far, 1)
        await goes_on(writer, "first")
        proxy.lose("reply" if is_in else "request", lambda data: b"next" in data)
        proxy.hold()
        work = [asyncio.create_task(goes_on(writer, text)) for text in ("next", "last")]
        await proxy.lost.wait()
        work[0].cancel()
        proxy.let_in()
        await asyncio.wait(work)
        assert await texts(near, "t0") == ["go", "first", "next", "last"]


@pytest.mark.parametrize("what", ["request", "reply"])
async def test_after_a_break_each_is_told_of_itself_though_one_has_another_owner_by_now(what: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        writers = await begun(far, lease=0)
        await all_go_on(writers, "first")
        proxy.lose(what)
        proxy.hold()
        last = asyncio.create_task(all_go_on(writers, "last"))
        await proxy.lost.wait()
        taker = Writer(near, "t1")
        taker.version = (await taker.view()).thread.version
        await taker.claim("theirs")
        await goes_on(taker, "theirs")
        proxy.let_in()
        found = await last
        if what == "request":
            assert isinstance(found.pop(1), StaleFence)
        assert [(one.version, one.head, one.epoch) for one in found] == [(3, 3, 1)] * len(found)
        said = ["go", "first", *(["last"] if what == "reply" else []), "theirs"]
        assert await texts(near, "t1") == said
        assert await texts(near, "t2") == ["go", "first", "last"]


async def test_the_threads_are_locked_in_the_order_of_their_ids() -> None:
    async with fresh_store() as store, connected(schema_of(store)) as other:
        writers = await begun(store)
        await all_go_on(writers, "known")
        async with other.transaction():
            await other.execute("SELECT 1 FROM threads WHERE id = 't2' FOR UPDATE")
            work = asyncio.gather(*[goes_on(writer) for writer in reversed(writers)])
            await waits_for_a_lock(other)
            async with connected(schema_of(store)) as third:
                await third.execute("SELECT 1 FROM threads WHERE id IN ('t3', 't4') FOR UPDATE NOWAIT")
                with pytest.raises(asyncpg.LockNotAvailableError):
                    await third.execute("SELECT 1 FROM threads WHERE id = 't1' FOR UPDATE NOWAIT")
        assert [one.version for one in await work] == [3] * COUNT


async def test_many_go_in_two_halves() -> None:
    async with fresh_store() as store:
        writers = await begun(store, MANY)
        batches = store.batches
        await all_go_on(writers)
        assert store.batches == (batches[0] + 2, batches[1] + MANY)


async def test_it_is_planned_for_large_tables_while_they_are_empty() -> None:
    async with fresh_store() as store, connected(schema_of(store)) as connection:
        await store.load("none")
        await connection.execute(f"PREPARE steps AS {_MANY}; SET plan_cache_mode = force_generic_plan")
        nothing = ", ".join(["'{}'"] * 31)
        rows = await connection.fetch(f"EXPLAIN EXECUTE steps ({nothing}, false)")
        plan = "\n".join([line for (line,) in rows])
        assert "Index Scan using threads_pkey" in plan
        for word in ("Seq Scan", "Hash", "Merge"):
            assert word not in plan


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left unsynced is so until something else is synced."""
    monkeypatch.setattr("wakeful.stores._unsynced.UNSYNCED_SECONDS", 3600)


async def test_what_needs_no_sync_is_synced_with_what_comes_with_it(never: None) -> None:
    async with fresh_store() as store:
        writers = await begun(store)

        async def both() -> None:
            await asyncio.gather(*[goes_on(w, unsynced=n > 0) for n, w in enumerate(writers)])

        await crash(store, both)
        assert [await texts(store, w.thread_id) for w in writers] == [["go", "on"]] * COUNT
        before = await marks(store)
        assert [one.version for one in await all_go_on(writers, "next")] == [3] * COUNT
        assert await marks(store) == before


async def test_nothing_is_written_behind_what_was_unsynced_together_when_the_server_crashed(never: None) -> None:
    async with fresh_store() as store:
        writers = await begun(store)

        async def unsynced() -> None:
            assert [one.version for one in await all_go_on(writers[1:], "lost", unsynced=True)] == [2] * (
                COUNT - 1
            )

        await crash(store, unsynced)
        found = await all_go_on(writers, "behind")
        assert isinstance(found[0], Committed)
        assert all(isinstance(one, StoreUnavailable) and "gone with a crash" in str(one) for one in found[1:])
        assert [await texts(store, w.thread_id) for w in writers] == [["go", "behind"]] + [["go"]] * (COUNT - 1)
