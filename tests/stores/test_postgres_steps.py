"""Commits that go on with a run and come alone: one statement, if the thread is as its owner left it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from postgres_suite import beside, connected, schema_of, texts, waits_for_a_lock
from test_postgres_breaks import Lost, through_a_proxy

from conformance.store_suite import Writer, call, identity, item, message, record, step
from postgres_server import fresh_store
from wakeful.errors import InboxMoved, StaleFence, StoreUnavailable
from wakeful.stores import Chunk, Commit, Committed, Fence
from wakeful.stores._postgres import PostgresStore
from wakeful.stores._steps import MAX_ROWS
from wakeful.types.content import Text, ToolCall
from wakeful.types.messages import Message


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first commit that could go by a step does."""
    monkeypatch.setattr("wakeful.stores._groups.FIRST_STEPS", 0)


async def mark(store: PostgresStore, thread_id: str = "t1") -> str:
    """The id of the last commit that has one: a step has none."""
    ((last,),) = await store._query("SELECT last_commit FROM threads WHERE id = ?", thread_id)
    return last.partition(" ")[0]


async def begun(store: PostgresStore, thread_id: str = "t1") -> Writer:
    writer = Writer(store, thread_id)
    await writer.begin("r1", log=[message("go")], identity=identity("r1", thread_id))
    return writer


async def goes_on(writer: Writer, text: str = "on", **changes: Any) -> Committed:
    run = {"runs": [record("r1", writer.thread_id)], "identity": identity("r1", writer.thread_id)}
    return await writer.write(message(text), **{**run, **changes})


def answer(count: int) -> dict[str, Any]:
    """An answer that asks for so many calls."""
    asked = [ToolCall(f"c{n}", "look", {"at": "sky"}) for n in range(count)]
    said = Message("answer", "assistant", (Text("answer"), *asked), 7)
    return {
        "log": [said, step(1)],
        "runs": [record(steps=1, stage="acting", answer_id=said.id)],
        "calls": [call(f"c{n}", state="started") for n in range(count)],
    }


def results(*numbers: int) -> dict[str, Any]:
    """What came of these calls."""
    return {
        "log": [message(f"result{n}", id=f"result{n}") for n in numbers],
        "runs": [record(steps=1, stage="acting", answer_id="answer")],
        "calls": [call(f"c{n}", state="finished", outcome="ok", message_id=f"result{n}") for n in numbers],
    }


async def write(writer: Writer, changes: dict[str, Any]) -> Committed:
    return await writer.write(*changes.pop("log"), identity=identity(), **changes)


async def all_of(store: PostgresStore) -> list[Any]:
    """All that the thread holds, but for when, by whom and under which ids."""
    view = await store.load("t1")
    assert view is not None
    thread = view.thread
    return [
        (thread.version, thread.head, thread.epoch, thread.inbox_head, thread.open_run_id),
        (view.run, view.calls, view.answer, await store.chunks("t1")),
        [(m.text, m.seq) for m in await store.messages("t1")],
        [(type(event).__name__, event.seq) for event in await store.events("t1")],
        await store._query("SELECT step, acting, answer, status, agent FROM runs"),
        await store._query("SELECT step, place, id, name, ref, arguments, payload FROM calls ORDER BY place"),
        await store._query("SELECT wakes FROM threads"),
    ]


@pytest.mark.parametrize("count", [1, 3, MAX_ROWS])
async def test_a_step_writes_what_the_long_way_writes(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    for first_alone in (1000, 0):
        monkeypatch.setattr("wakeful.stores._groups.FIRST_STEPS", first_alone)
        async with fresh_store() as store:
            writer = await begun(store)
            await writer.write(identity=identity(), chunks=[Chunk("answer", 0, 0, "text", "an")])
            before, done = await mark(store), list[Committed]()
            for changes in (answer(count), results(0), results(*range(1, count))):
                if changes["log"]:
                    done.append(await write(writer, changes))
            assert (await mark(store) == before) == (first_alone == 0)
            seen.append((done, await all_of(store)))
            assert await store.check() == []
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    "changes",
    [
        lambda: answer(MAX_ROWS + 1),
        lambda: {**answer(1), "calls": [call("c0"), call("c1")]},
        lambda: {**answer(0), "log": [message("x" * 40_000)]},
        lambda: {**answer(0), "runs": [record("other")]},
        lambda: {**answer(0), "inbox": [item("a", "t2")]},
    ],
    ids=["many calls", "a call without an answer", "a blob", "another run", "an item"],
)
async def test_what_is_more_than_a_step_goes_the_long_way(changes: Any) -> None:
    async with fresh_store() as store:
        writer = await begun(store)
        before = await mark(store)
        await write(writer, changes())
        assert await mark(store) != before
        assert (await writer.view()).thread.version == 2


async def test_a_commit_that_is_refused_is_told_why_and_writes_nothing() -> None:
    async with fresh_store() as store:
        writer = await begun(store)
        await goes_on(writer, "known")
        await store.commit(Commit("t1", inbox=[item("new")]))
        before = await all_of(store)
        with pytest.raises(InboxMoved):
            await goes_on(writer, inbox_head=0)
        fence, writer.fence = writer.fence, Fence(1, "another")
        with pytest.raises(StaleFence):
            await goes_on(writer)
        assert await all_of(store) == before
        writer.fence = fence
        assert (await goes_on(writer, "after", inbox_head=1)).version == 3


async def test_who_lost_the_thread_to_another_process_is_refused() -> None:
    async with fresh_store() as store, beside(store) as other:
        writer = Writer(store)
        await writer.claim("mine", lease=0)
        await goes_on(writer)
        await goes_on(writer)
        taker = Writer(other)
        taker.version = (await writer.view()).thread.version
        await taker.claim("theirs")
        with pytest.raises(StaleFence):
            await goes_on(writer, "late")
        assert "late" not in await texts(store)


async def test_what_the_same_owner_wrote_elsewhere_is_no_harm() -> None:
    async with fresh_store() as store, beside(store) as other:
        writer, there = await begun(store), Writer(other)
        await goes_on(writer, "a")
        there.fence = writer.fence
        await goes_on(there, "b")
        await goes_on(writer, "c")
        await goes_on(writer, "d")
        assert await texts(store) == ["go", "a", "b", "c", "d"]


@pytest.mark.parametrize("unsynced", [False, True])
@pytest.mark.parametrize("what", ["request", "reply"])
async def test_a_step_whose_connection_breaks_is_in_once(what: Lost, unsynced: bool) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        writer = await begun(far)
        await goes_on(writer, "first", unsynced=unsynced)
        before = await mark(near)
        proxy.lose(what)
        done = await goes_on(writer, "second", unsynced=unsynced)
        assert proxy.lost.is_set()
        assert (done.version, done.head) == (3, 3)
        assert (await goes_on(writer, "third")).version == 4
        assert await texts(near) == ["go", "first", "second", "third"]
        assert await mark(near) == before


@pytest.mark.parametrize("what", ["request", "reply"])
async def test_a_step_counts_if_it_is_in_though_the_thread_has_another_owner_by_now(what: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        writer, taker = Writer(far), Writer(near)
        await writer.claim("mine", lease=0)
        await goes_on(writer, "first")
        await goes_on(writer, "second")
        proxy.lose(what)
        proxy.hold()
        last = asyncio.create_task(goes_on(writer, "last"))
        await proxy.lost.wait()
        taker.version = (await taker.view()).thread.version
        await taker.claim("theirs")
        await goes_on(taker, "theirs")
        proxy.let_in()
        if what == "request":
            with pytest.raises(StaleFence):
                await last
        else:
            done = await last
            assert (done.version, done.head, done.epoch) == (3, 3, 1)
        assert await texts(near) == ["first", "second", *(["last"] if what == "reply" else []), "theirs"]


async def test_after_a_commit_of_which_nobody_heard_the_next_goes_the_long_way() -> None:
    async with fresh_store() as near, through_a_proxy(near, wait_seconds=0.1) as (far, proxy):
        writer = await begun(far)
        await goes_on(writer, "first")
        proxy.lose("reply")
        proxy.hold()
        with pytest.raises(StoreUnavailable, match="can't be reached"):
            await goes_on(writer, "unheard")
        proxy.let_in()
        before = await mark(near)
        assert (await goes_on(writer, "next")).version == 4
        assert await mark(near) != before
        assert await texts(near) == ["go", "first", "unheard", "next"]


async def test_the_time_of_a_threads_last_change_is_exact_to_the_minute_while_its_run_goes_on() -> None:
    async with fresh_store() as store:
        writer = await begun(store)
        await store._query("UPDATE threads SET updated_at = 7 RETURNING no")
        await goes_on(writer)
        stepped = (await writer.view()).thread.updated_at
        await writer.release(log=[message()], runs=[record(status="done")], identity=identity())
        ended = (await writer.view()).thread.updated_at
        assert stepped % 60_000 == 0
        assert 0 <= ended - stepped <= 120_000


async def test_one_whose_writer_is_cancelled_is_written_once_and_its_writer_hears_of_it_after_that() -> None:
    async with fresh_store() as store:
        writer, heard = await begun(store), list[str]()
        await goes_on(writer, "known")

        async def write() -> None:
            await goes_on(writer, "waits")
            heard.append("written")
            await asyncio.sleep(0)
            heard.append("not told")

        async with connected(schema_of(store)) as other:
            async with other.transaction():
                await other.execute("SELECT 1 FROM threads FOR UPDATE")
                task = asyncio.create_task(write())
                await waits_for_a_lock(other)
                task.cancel()
            await asyncio.wait([task])
        assert (heard, task.cancelled()) == (["written"], True)
        await goes_on(writer, "after")
        assert await texts(store) == ["go", "known", "waits", "after"]
        assert await store.check() == []


async def test_what_comes_for_a_thread_while_a_step_is_on_its_way_is_written_after_it() -> None:
    async with fresh_store() as store, connected(schema_of(store)) as other:
        writer = await begun(store)
        async with other.transaction():
            await other.execute("SELECT 1 FROM threads FOR UPDATE")
            step = asyncio.create_task(goes_on(writer))
            await waits_for_a_lock(other)
            sent = asyncio.create_task(store.commit(Commit(thread_id="t1", inbox=[item("a")])))
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            assert ((await step).version, (await sent).inbox_head) == (2, 1)


async def test_a_store_is_closed_once_one_that_is_on_its_way_is_written() -> None:
    async with fresh_store() as store, beside(store) as later:
        writer = await begun(store)
        await goes_on(writer, "known")
        async with connected(schema_of(store)) as other:
            async with other.transaction():
                await other.execute("SELECT 1 FROM threads FOR UPDATE")
                task = asyncio.create_task(goes_on(writer, "last"))
                await waits_for_a_lock(other)
                closing = asyncio.create_task(store.close())
                await asyncio.sleep(0)
            await closing
            assert await texts(later) == ["go", "known", "last"]
        await task
