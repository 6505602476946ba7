"""Runs that begin on a new thread, and runs that end: one statement each, if all is as it was thought to be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from postgres_suite import connected, schema_of, texts, waits_for_a_lock
from test_postgres_breaks import Lost, through_a_proxy

from conformance.store_suite import Writer, due_threads, identity, item, message, record, step
from postgres_server import fresh_store
from wakeful.errors import Conflict, InboxMoved, Repeated, StaleFence
from wakeful.stores import Chunk, Commit, Committed
from wakeful.stores._postgres import PostgresStore


async def begin(writer: Writer, **changes: Any) -> Committed:
    given = {"log": [step(1), message("go")], "identity": identity("r1", writer.thread_id)}
    return await writer.begin(**{**given, **changes})


async def end(writer: Writer, **changes: Any) -> Committed:
    done = record("r1", writer.thread_id, status="done", steps=1, finished_at=9)
    own = {"log": [message("done")], "runs": [done], "identity": identity("r1", writer.thread_id), "inbox_head": 0}
    return await writer.release(**{**own, **changes})


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of the server to write commits, as far as it was a statement of ours."""
    from wakeful.stores import _groups

    found: list[str] = []

    def watched(name: str) -> None:
        made = getattr(_groups, name)

        def watch(plan: Any) -> Any:
            if (told := made(plan)) is not None:
                found.append(name)
            return told

        monkeypatch.setattr(_groups, name, watch)

    for name in ("opening_of", "beginning_of", "ending_of"):
        watched(name)
    return found


async def all_of(store: PostgresStore) -> list[Any]:
    """All that there is, but for when it was written and under which numbers and ids."""
    thread, run = "(SELECT no FROM threads)", "(SELECT no FROM runs)"
    last = ", ".join([f"split_part(last_commit, ' ', {n})" for n in (3, 4, 5)])
    tables = {
        "threads": f"tenant, id, version, head, epoch, inbox_head, wakes, open_run = {run}, last_run = {run}, "
        f"claim IS NULL, parent, created_at <= updated_at, {last}",
        "runs": f"tenant, id, thread = {thread}, agent, status, step, acting, answer, finished_at, payload, root, "
        "priority",
        "log": f"seq, thread = {thread}, run = {run}, kind, agent, at, ref, size, more",
        "inbox": f"id, tenant, thread = {thread}, kind, wake, position, status, taken_by, payload",
        "chunks": "message",
        "dispatches": "agent",
        "workers": "until - started_at",
    }
    return [await store._query(f"SELECT {columns} FROM {table} ORDER BY 1") for table, columns in tables.items()]


@pytest.mark.parametrize("request_id", [None, "q1"])
async def test_they_write_what_the_long_way_writes(
    request_id: str | None, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    for way in ("shortly", "the long way"):
        async with fresh_store() as store:
            writer = Writer(store)
            first = await begin(writer, request=request_id)
            half = await all_of(store)
            await writer.write(identity=identity(), chunks=[Chunk("answer", 0, 0, "text", "an")])
            last = await end(writer)
            seen.append((first, half, last, await all_of(store)))
            assert await store.check() == []
        if way == "shortly":
            assert sent == ["opening_of", "ending_of"]
            for name in ("opening_of", "beginning_of", "ending_of"):
                monkeypatch.setattr(f"wakeful.stores._groups.{name}", lambda plan: None)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("what", ["request", "reply"])
async def test_a_beginning_whose_connection_breaks_is_in_once(what: Lost, sent: list[str]) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        sent.clear()
        proxy.lose(what)
        done = await begin(Writer(far), log=[message("go")])
        assert proxy.lost.is_set()
        assert sent[0] == "opening_of"
        assert (done.version, done.head, done.epoch) == (1, 1, 1)
        assert await texts(near) == ["go"]


@pytest.mark.parametrize("what", ["request", "reply"])
async def test_an_end_whose_connection_breaks_is_in_once(what: Lost, sent: list[str]) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        writer = Writer(far)
        await begin(writer)
        sent.clear()
        proxy.lose(what)
        done = await end(writer)
        assert proxy.lost.is_set()
        assert sent[0] == "ending_of"
        assert (done.version, done.head, done.epoch) == (2, 3, 1)
        assert await texts(near) == ["go", "done"]
        assert (await writer.view()).run is None
        assert await due_threads(near) == []


async def test_a_thread_that_is_there_or_a_run_or_a_request_is_found() -> None:
    async with fresh_store() as store:
        first = Writer(store)
        await begin(first, request="q1")
        with pytest.raises(Conflict, match="owned by another"):
            await begin(Writer(store))
        with pytest.raises(Repeated) as repeated:
            await begin(Writer(store, "t2"), request="q1")
        assert repeated.value.run_id == "r1"
        await end(first)
        with pytest.raises(Conflict, match="at version 2, not 0"):
            await begin(Writer(store))
        assert (await first.view()).thread.version == 2
        assert await store.load("t2") is None


@pytest.mark.parametrize("request_id", ["a\0b", "a\x10b"])
async def test_a_request_of_any_characters_is_found_again(request_id: str) -> None:
    async with fresh_store() as store:
        await begin(Writer(store), request=request_id)
        with pytest.raises(Repeated) as repeated:
            await begin(Writer(store, "t2"), request=request_id)
        assert repeated.value.run_id == "r1"
        assert await store.load("t2") is None


async def test_who_lost_the_thread_ends_nothing() -> None:
    async with fresh_store() as store:
        first, second = Writer(store), Writer(store)
        await begin(first)
        await store.keep(first.fence.token if first.fence else "").close()
        second.version = 1
        await second.claim()
        with pytest.raises(StaleFence):
            await end(first)
        assert (await second.view()).thread.open_run_id == "r1"


async def test_what_waits_in_the_inbox_makes_the_thread_due_when_its_run_ends() -> None:
    async with fresh_store() as store:
        writer = Writer(store)
        await begin(writer)
        await store.commit(Commit(thread_id="t1", inbox=[item("next")]))
        with pytest.raises(InboxMoved):
            await end(writer)
        assert await due_threads(store) == []
        await end(writer, inbox_head=1)
        assert await due_threads(store) == ["t1"]


async def test_what_comes_while_a_run_ends_is_seen() -> None:
    async with fresh_store() as store, connected(schema_of(store)) as other:
        writer = Writer(store)
        await begin(writer)
        async with other.transaction():
            await other.execute("SELECT 1 FROM threads FOR UPDATE")
            ending = asyncio.create_task(end(writer))
            await waits_for_a_lock(other)
            await other.execute("UPDATE threads SET inbox_head = 1")
            await other.execute(
                "INSERT INTO inbox (tenant, id, thread, kind, wake, position, status) "
                "SELECT tenant, 'late', no, 'input', 'queue', 1, 'pending' FROM threads"
            )
        with pytest.raises(InboxMoved):
            await ending
        assert (await store._query("SELECT open_run IS NULL, claim IS NULL FROM threads")) == [(False, False)]


async def test_an_owner_whose_death_is_counted_while_its_run_ends_leaves_nothing_due() -> None:
    async with fresh_store() as store, connected(schema_of(store)) as other:
        writer = Writer(store)
        await begin(writer)
        async with other.transaction():
            await other.execute("UPDATE workers SET until = 0")
            await other.execute("SELECT claim_v3('other', 30000, '{nobody}', 1, NULL, NULL, '{}')")
            ending = asyncio.create_task(end(writer))
            await waits_for_a_lock(other)
        with pytest.raises(InboxMoved):
            await ending
        await end(writer, inbox_head=(await writer.view()).thread.inbox_head)
        assert await store.dispatches() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"log": [message(str(n)) for n in range(5)]},
        {"log": [message("x" * 40_000)]},
        {"inbox": [item("a", "t2")]},
        {"inbox_head": None},
        {"failed": "it broke"},
    ],
    ids=["much to say", "a blob", "an item", "whatever came", "a failure"],
)
async def test_what_is_more_than_an_end_goes_the_long_way(changes: dict[str, Any], sent: list[str]) -> None:
    async with fresh_store() as store:
        writer = Writer(store)
        await begin(writer)
        sent.clear()
        await end(writer, **changes)
        assert sent == []
        assert (await writer.view()).run is None
