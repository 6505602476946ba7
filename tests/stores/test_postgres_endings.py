"""Runs that begin and runs that end: one statement each, if all is as it was thought to be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from postgres_suite import connected, schema_of, texts, waits_for_a_lock
from test_postgres_breaks import Lost, through_a_proxy

from conformance.store_suite import Writer, due_threads, identity, item, message, record, step
from postgres_server import fresh_store
from wakeful.errors import Conflict, InboxMoved, Repeated, StaleFence
from wakeful.stores import Chunk, Commit, Committed, Fence
from wakeful.stores._postgres import PostgresStore


async def begin(writer: Writer, run_id: str = "r1", **changes: Any) -> Committed:
    own = identity(run_id, writer.thread_id)
    return await writer.begin(run_id, **{"log": [step(1, own), message("go")], "identity": own, **changes})


async def end(writer: Writer, run_id: str = "r1", **changes: Any) -> Committed:
    done = record(run_id, writer.thread_id, status="done", steps=1, finished_at=9)
    own = {"log": [message("done")], "runs": [done], "identity": identity(run_id, writer.thread_id)}
    return await writer.release(**{**own, "inbox_head": 0, **changes})


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

    for name in ("beginning_of", "ending_of"):
        watched(name)
    return found


async def all_of(store: PostgresStore) -> list[Any]:
    """All that there is, but for when it was written and under which numbers and ids."""
    thread, run = "(SELECT no FROM threads)", "(SELECT max(no) FROM runs)"
    last = ", ".join([f"split_part(last_commit, ' ', {n})" for n in (3, 4, 5)])
    tables = {
        "threads": f"tenant, id, version, head, epoch, inbox_head, wakes, open_run = {run}, last_run = {run}, "
        f"claim IS NULL, parent, created_at <= updated_at, {last}",
        "runs": f"id, tenant, thread = {thread}, agent, status, step, acting, answer, finished_at, payload, root, "
        "priority",
        "log": f"seq, thread = {thread}, run = {run}, kind, agent, at, ref, size, more",
        "inbox": f"id, tenant, thread = {thread}, kind, wake, position, status, taken_by, payload IS NULL",
        "chunks": "message",
        "dispatches": "agent, priority, held, mark, attempts",
        "workers": "id = 'w', until - started_at",
    }
    return [await store._query(f"SELECT {columns} FROM {table} ORDER BY 1") for table, columns in tables.items()]


async def with_an_item(store: PostgresStore, worker: str = "w") -> dict[str, Any]:
    """What a worker begins a run with that was given input: the item is in the thread's inbox, and the thread is
    the worker's."""
    await store.commit(Commit(thread_id="t1", inbox=[item("input", agent_id="agent")]))
    (claimed,) = (await store.claim(worker, agents=["agent"], limit=1)).claimed
    head = await store.thread("t1")
    assert head is not None
    return {
        "fence": Fence(claimed.epoch, worker),
        "taken": ["input"],
        "seen": {"input": 0},
        "inbox_head": head.inbox_head,
    }


async def under_a_fence(store: PostgresStore, changes: dict[str, Any]) -> Committed:
    given = {"log": [message("input")], "runs": [record("r3")], "identity": identity("r3")}
    return await store.commit(Commit(thread_id="t1", **given, **changes))


@pytest.mark.parametrize("request_id", [None, "q1"])
async def test_they_write_what_the_long_way_writes(
    request_id: str | None, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    for way in ("shortly", "the long way"):
        async with fresh_store() as store:
            writer = Writer(store)
            seen.append([await begin(writer, request=request_id), await all_of(store)])
            await writer.write(identity=identity(), chunks=[Chunk("answer", 0, 0, "text", "an")])
            seen[-1] += [await end(writer), await all_of(store)]
            seen[-1] += [await begin(writer, run_id="r2", request=request_id and "q2"), await all_of(store)]
            await end(writer, run_id="r2")
            seen[-1] += [await under_a_fence(store, await with_an_item(store)), await all_of(store)]
            assert await store.check() == []
        if way == "shortly":
            assert sent == ["beginning_of", "ending_of"] * 2 + ["beginning_of"]
            for name in ("beginning_of", "ending_of"):
                monkeypatch.setattr(f"wakeful.stores._groups.{name}", lambda plan: None)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("what", ["request", "reply"])
async def test_a_beginning_whose_connection_breaks_is_in_once(what: Lost, sent: list[str]) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        sent.clear()
        proxy.lose(what)
        done = await begin(Writer(far), log=[message("go")])
        assert proxy.lost.is_set()
        assert sent[0] == "beginning_of"
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


async def ends_too_late(other: Any, writer: Writer, before: Sequence[str], meanwhile: Sequence[str] = ()) -> None:
    """Begin a run, and end it in the middle of another transaction, behind which the end has to look again."""
    await begin(writer)
    async with other.transaction():
        for statement in before:
            await other.execute(statement)
        ending = asyncio.create_task(end(writer))
        await waits_for_a_lock(other)
        for statement in meanwhile:
            await other.execute(statement)
    with pytest.raises(InboxMoved):
        await ending


async def test_what_comes_while_a_run_ends_is_seen() -> None:
    comes = """INSERT INTO inbox (tenant, id, thread, kind, wake, position, status)
               SELECT tenant, 'late', no, 'input', 'queue', 1, 'pending' FROM threads"""
    async with fresh_store() as store, connected(schema_of(store)) as other:
        locks, moves = "SELECT 1 FROM threads FOR UPDATE", "UPDATE threads SET inbox_head = 1"
        await ends_too_late(other, Writer(store), [locks], [moves, comes])
        assert (await store._query("SELECT open_run IS NULL, claim IS NULL FROM threads")) == [(False, False)]


async def test_an_owner_whose_death_is_counted_while_its_run_ends_leaves_nothing_due() -> None:
    counts = "SELECT claim_v3('other', 30000, '{nobody}', 1, NULL, NULL, '{}')"
    async with fresh_store() as store, connected(schema_of(store)) as other:
        writer = Writer(store)
        await ends_too_late(other, writer, ["UPDATE workers SET until = 0", counts])
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


@pytest.mark.parametrize("odd", ["nul \0 nul", "\x10", "\x100", "$1 ? %s '"])
async def test_text_is_kept_to_the_letter(odd: str, sent: list[str]) -> None:
    async with fresh_store(tenant=odd) as store:
        writer = Writer(store, odd)
        await begin(writer, odd, request=f"{odd} again")
        assert (await writer.view()).thread.open_run_id == odd
        await end(writer, odd)
        await store.commit(Commit(thread_id=odd, inbox=[item(odd, odd)]))
        last = identity("next", odd)
        begun = {"log": [message(odd)], "identity": last, "taken": [odd], "seen": {odd: 0}, "inbox_head": 1}
        await begin(writer, "next", **begun)
        assert sent == ["beginning_of", "ending_of", "beginning_of"]
        assert await texts(store, odd) == ["go", "done", odd]
        assert (await store.run(odd)) == record(odd, odd, status="done", steps=1, finished_at=9)
        assert (await writer.view()).inbox == ()
        with pytest.raises(Repeated) as caught:
            await begin(Writer(store, "another"), "other", request=f"{odd} again")
        assert caught.value.run_id == odd
