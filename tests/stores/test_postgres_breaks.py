"""Broken connections and restarts of the server: a commit is written once, and its writer gets its result."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import asyncpg
import pytest
from lossy_proxy import Proxy, proxied
from msgspec.structs import replace
from postgres_suite import connected, schema_of, texts, waits_for_a_lock

from conformance.store_suite import Writer, due_threads, identity, item, message, record
from postgres_server import fresh_store, server
from wakeful.errors import Conflict, StaleFence, StoreUnavailable
from wakeful.stores import About, Commit, Committed, Fence, Records, Relay
from wakeful.stores.postgres import PostgresStore
from wakeful.types import ApiKey, Request

Lost = Literal["request", "reply"]
LOST = pytest.mark.parametrize("lost", ["request", "reply"])


@asynccontextmanager
async def through_a_proxy(store: PostgresStore, **options: Any) -> AsyncIterator[tuple[PostgresStore, Proxy]]:
    """The same tables, over connections that a test may break."""
    async with proxied(server().port) as proxy:
        url = f"postgres://postgres@127.0.0.1:{proxy.port}/postgres"
        far = PostgresStore(url, schema=schema_of(store), **options)
        try:
            yield far, proxy
        finally:
            await far.close()


def has(text: str) -> Callable[[bytes], bool]:
    """Whether a request has this text in a payload: of all requests of a commit, only its statement has."""
    return lambda data: text.encode() in data


def step_of(writer: Writer, text: str, **changes: Any) -> Any:
    run = f"r-{writer.thread_id}"
    own = {"runs": [record(run, writer.thread_id)], "identity": identity(run, writer.thread_id)}
    return writer.write(message(text), **{**own, **changes})


async def begun(store: PostgresStore, count: int, **changes: Any) -> list[Writer]:
    """Writers of threads that have an open run each."""
    writers = [Writer(store, f"t{n}") for n in range(count)]
    for writer in writers:
        run = f"r-{writer.thread_id}"
        await writer.begin(run, log=[message("go")], identity=identity(run, writer.thread_id), **changes)
    return writers


# -- lone commits ----------------------------------------------------------------------------------------------


@LOST
@pytest.mark.parametrize("release", [False, True])
async def test_lost_commit_is_written_once(lost: Lost, release: bool) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        writer = Writer(far)
        await writer.begin(log=[message("first")])
        proxy.lose(lost, has("second"))
        done = await writer.write(message("second"), release=release, inbox=[item("a", "t2")])
        assert proxy.lost.is_set()
        assert await texts(near) == ["first", "second"]
        assert (done.head, done.version) == (2, 2)
        view = await near.load("t2")
        assert view is not None
        assert [i.id for i in view.inbox] == ["a"]


@LOST
async def test_lost_steps_are_written_once_and_in_order(lost: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        (writer,) = await begun(far, 1)
        for n in range(3):
            proxy.lose(lost, has(f"step{n}"))
            assert (await step_of(writer, f"step{n}")).version == n + 2
            assert proxy.lost.is_set()
        assert await texts(near, "t0") == ["go", "step0", "step1", "step2"]


@LOST
async def test_lost_new_thread_is_made_once(lost: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        proxy.lose(lost, has("first"))
        done = await Writer(far).begin(log=[message("first")], request=Request("q1"))
        assert proxy.lost.is_set()
        assert (done.version, done.head, done.epoch) == (1, 1, 1)
        assert await texts(near) == ["first"]


@LOST
async def test_lost_claim_of_a_known_thread_is_made_once(lost: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        writer = Writer(far)
        await writer.write(message("first"))
        proxy.lose(lost, has("second"))
        done = await writer.begin("r2", log=[message("second")], identity=identity("r2"))
        assert proxy.lost.is_set()
        assert (done.version, done.epoch) == (2, 1)
        assert await texts(near) == ["first", "second"]


@LOST
async def test_lost_commit_without_a_claim_is_written_once(lost: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        writer = Writer(far)
        await writer.write(message("first"))
        proxy.lose(lost, has("second"))
        assert (await writer.write(message("second"))).version == 2
        assert proxy.lost.is_set()
        assert await texts(near) == ["first", "second"]


@LOST
async def test_lost_end_of_a_run_is_written_once(lost: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        (writer,) = await begun(far, 1)
        proxy.lose(lost, has("last"))
        done = record("r-t0", "t0", status="done", steps=1, finished_at=9)
        own = {"log": [message("last")], "runs": [done], "identity": identity("r-t0", "t0")}
        ended = await writer.release(**own, inbox_head=0)
        assert proxy.lost.is_set()
        assert (ended.version, ended.head, ended.epoch) == (2, 2, 1)
        assert await texts(near, "t0") == ["go", "last"]
        assert (await writer.view()).run is None
        assert await due_threads(near) == []


@LOST
async def test_lost_release_without_changes_is_made_once(lost: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        (writer,) = await begun(far, 1)
        proxy.lose(lost, has("it broke"))
        await writer.release(failed="it broke")
        assert proxy.lost.is_set()
        assert [(d.attempts, d.claimed_by, d.error) for d in await near.dispatches()] == [(1, None, "it broke")]


@LOST
async def test_lost_item_is_delivered_once(lost: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        sent = item("a", message=message("hello there"))
        proxy.lose(lost, has("hello there"))
        done = await far.commit(Commit(thread_id="t1", inbox=[sent]))
        assert proxy.lost.is_set()
        assert (done.inbox_head, sent.position) == (1, 1)
        view = await near.load("t1")
        assert view is not None
        assert [i.id for i in view.inbox] == ["a"]


@LOST
async def test_lost_edit_of_a_pending_item_is_made_once(lost: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        await near.commit(Commit("t1", inbox=[item("a")]))
        edit = item("a", message=message("edited"), position=1, revision=1)
        proxy.lose(lost, has("edited"))
        await far.commit(Commit("t1", pending=[edit]))
        assert proxy.lost.is_set()
        (found,) = (await Writer(near).view()).inbox
        assert (found.id, found.revision) == ("a", 1)


@LOST
async def test_lost_relay_is_written_once(lost: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        relay = Relay(id="relay1", thread_id="t1", kind="webhook", cursor=-1, revision=1)
        proxy.lose(lost, has("webhook"))
        await far.commit(Commit("t1", relays=[relay]))
        assert proxy.lost.is_set()
        found = await near.relay("relay1")
        assert found is not None
        assert found.revision == 1


@LOST
async def test_lost_records_are_written_once(lost: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        old = ApiKey(id="k1", name="old", hash=b"", principal_id="ann")
        await near.put(Records(put=[old, replace(old, id="k2")]))
        proxy.lose(lost, has("k2"))
        await far.put(
            Records(
                put=[replace(old, name="new", revision=2), replace(old, id="k3")], removed=[replace(old, id="k2")]
            )
        )
        assert proxy.lost.is_set()
        assert [(key.id, key.name) for key in await near.records(ApiKey)] == [("k3", "old"), ("k1", "new")]


@LOST
async def test_lost_title_is_written(lost: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        await Writer(near).write(message())
        proxy.lose(lost, has("a title"))
        await far.commit(Commit("t1", about=About(title="a title")))
        assert proxy.lost.is_set()
        thread = await near.thread("t1")
        assert thread is not None
        assert thread.title == "a title"


# -- batches ---------------------------------------------------------------------------------------------------


@LOST
async def test_every_commit_of_a_lost_batch_is_written_once(lost: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        writers = await begun(far, 5)
        writers[1].fence = None  # This one is refused, before the break and after it.
        batches = far.batches
        proxy.lose(lost, has("batched"))
        done = await asyncio.gather(*[step_of(w, "batched") for w in writers], return_exceptions=True)
        assert proxy.lost.is_set()
        assert far.batches == (batches[0] + 1, batches[1] + 5)
        assert [type(d) for d in done] == [Committed, Conflict, Committed, Committed, Committed]
        found = [await texts(near, w.thread_id) for w in writers]
        assert found == [["go", *([] if n == 1 else ["batched"])] for n in range(5)]
        writers.pop(1)
        done = await asyncio.gather(*[step_of(w, "after") for w in writers])
        assert [(d.version, d.head) for d in done] == [(3, 3)] * 4


@LOST
async def test_lost_batch_of_all_kinds_is_written_once(lost: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        stepping, ending = await begun(far, 2)
        proxy.lose(lost, has("of all kinds"))
        text = "of all kinds"
        done = record("r-t1", "t1", status="done", finished_at=9)
        await asyncio.gather(
            step_of(stepping, text),
            ending.release(log=[message(text)], runs=[done], identity=identity("r-t1", "t1")),
            Writer(far, "new").begin(
                "r3", log=[message(text)], identity=identity("r3", "new"), request=Request("q")
            ),
            far.commit(Commit("inbox", inbox=[item("i", "inbox", message=message(text))])),
        )
        assert proxy.lost.is_set()
        assert await texts(near, "t0") == await texts(near, "t1") == ["go", text]
        assert await texts(near, "new") == [text]
        assert [entry.id for entry in (await Writer(near, "inbox").view()).inbox] == ["i"]
        assert await near.check() == []


async def test_commit_behind_a_lost_one_is_written_after_it() -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        (writer,) = await begun(far, 1)
        proxy.lose("request", has("next"))
        await asyncio.gather(step_of(writer, "next"), step_of(writer, "last"))
        assert proxy.lost.is_set()
        assert await texts(near, "t0") == ["go", "next", "last"]


@LOST
async def test_cancelled_lost_commit_is_written_once_in_order(lost: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        (writer,) = await begun(far, 1)
        proxy.lose(lost, has("next"))
        proxy.hold()
        work = [asyncio.create_task(step_of(writer, text)) for text in ("next", "last")]
        await proxy.lost.wait()
        work[0].cancel()
        proxy.let_in()
        await asyncio.wait(work)
        assert await texts(near, "t0") == ["go", "next", "last"]


# -- another owner since ---------------------------------------------------------------------------------------


@LOST
async def test_lost_batch_is_settled_though_one_thread_was_taken_over(lost: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        writers = await begun(far, 5, lease=0)
        proxy.lose(lost, has("last"))
        proxy.hold()
        last = asyncio.gather(*[step_of(w, "last") for w in writers], return_exceptions=True)
        await proxy.lost.wait()
        taker = Writer(near, "t1")
        taker.version = (await taker.view()).thread.version
        await taker.claim("theirs")
        await step_of(taker, "theirs")
        proxy.let_in()
        found = await last
        if lost == "request":
            assert isinstance(found.pop(1), StaleFence)
        assert [(one.version, one.head, one.epoch) for one in found] == [(2, 2, 1)] * len(found)
        assert await texts(near, "t1") == ["go", *(["last"] if lost == "reply" else []), "theirs"]
        assert await texts(near, "t2") == ["go", "last"]


async def test_lost_release_counts_though_the_thread_has_another_owner() -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        first, second = Writer(far), Writer(near)
        await first.begin(log=[message("mine")])
        proxy.lose("reply", has("my last"))
        proxy.hold()
        last = asyncio.create_task(
            first.release(log=[message("my last"), message("word")], runs=[record(status="done")])
        )
        await proxy.lost.wait()
        thread = await near.thread("t1")
        assert thread is not None
        second.version = thread.version
        await second.begin("r2", identity=identity("r2"), log=[message("yours")])
        await second.write(message("too"), identity=identity("r2"))
        proxy.let_in()
        done = await last
        assert (done.version, done.head, done.epoch) == (2, 3, 1)
        assert await texts(near) == ["mine", "my last", "word", "yours", "too"]


async def test_commit_after_one_of_unknown_outcome_reads_the_head() -> None:
    async with fresh_store() as near, through_a_proxy(near, wait_seconds=0.1) as (far, proxy):
        (writer,) = await begun(far, 1)
        proxy.lose("reply", has("unheard"))
        proxy.hold()
        with pytest.raises(StoreUnavailable, match="can't be reached"):
            await step_of(writer, "unheard")
        proxy.let_in()
        assert (await step_of(writer, "next")).version == 3
        assert await texts(near, "t0") == ["go", "unheard", "next"]


async def test_lost_statement_that_still_runs_is_not_repeated() -> None:
    """The client gives up on a statement that waits for a lock; the server still executes it."""
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        (writer,) = await begun(far, 1)
        blocker = await asyncpg.connect(server().url(), server_settings={"search_path": schema_of(near)})
        try:
            await blocker.execute("BEGIN; SELECT 1 FROM threads FOR UPDATE")
            stepping = asyncio.create_task(step_of(writer, "once"))
            await waits_for_a_lock(blocker)
            proxy.cut()
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            async with asyncio.timeout(120), connected() as other:
                while await other.fetchval(waiting) < 2:
                    await asyncio.sleep(0.01)
            await blocker.execute("COMMIT")
            assert (await stepping).version == 2
        finally:
            await blocker.close()
        assert await texts(near, "t0") == ["go", "once"]


# -- reads, scripts and restarts -------------------------------------------------------------------------------


async def test_lost_read_is_repeated() -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        await Writer(near).write(message("here"))
        assert await texts(far) == ["here"]
        proxy.lose("reply")
        assert await texts(far) == ["here"]
        assert proxy.lost.is_set()


@LOST
async def test_lost_fork_and_deletion_are_made_once(lost: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        await Writer(near).write(message("a"), message("b"))
        proxy.lose(lost, has("COMMIT"))
        forked = await far.fork("t1", 1, "t2")
        assert proxy.lost.is_set()
        assert (forked.id, forked.head) == ("t2", 1)
        proxy.lose(lost, has("COMMIT"))
        assert await far.delete("t1") == 1
        assert proxy.lost.is_set()
        assert await texts(near, "t2") == ["a"]


async def test_connection_that_the_server_ends_is_replaced() -> None:
    async with fresh_store() as store:
        writer = Writer(store)
        await writer.begin()
        connection = await asyncpg.connect(server().url())
        try:
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'wakeful'"
            )
        finally:
            await connection.close()
        await writer.write(message("still here"))
        assert await texts(store) == ["still here"]


async def test_absent_server_is_waited_for_up_to_wait_seconds() -> None:
    async with fresh_store() as near, through_a_proxy(near, wait_seconds=0.3) as (far, proxy):
        writer = Writer(far)
        await writer.write(message("first"))
        proxy.lose("request", has("lost"))
        proxy.hold()
        clock = asyncio.get_running_loop().time
        began = clock()
        with pytest.raises(StoreUnavailable, match="can't be reached"):
            async with asyncio.timeout(120):
                await writer.write(message("lost"))
        assert clock() - began >= 0.3
        proxy.let_in()
        await writer.write(message("again"))
        assert await texts(near) == ["first", "again"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["stopped", "crashed"])
async def test_commit_in_flight_at_server_restart_is_written_once(how: signal.Signals) -> None:
    async with fresh_store() as store:
        writer = Writer(store)
        await writer.begin(log=[message("before")])
        other = await asyncpg.connect(server().url(), server_settings={"search_path": schema_of(store)})
        await other.execute("BEGIN; SELECT 1 FROM threads FOR UPDATE")
        commit = asyncio.create_task(writer.write(message("during")))
        await waits_for_a_lock(other)
        await asyncio.to_thread(server().stop, how)
        other.terminate()
        reading = asyncio.create_task(texts(store))
        await asyncio.to_thread(server().start)
        async with asyncio.timeout(120):
            await commit
            assert (await reading)[0] == "before"
        await writer.write(message("after"))
        assert await texts(store) == ["before", "during", "after"]


async def crash(store: PostgresStore, before: Callable[[], Awaitable[None]]) -> None:
    """Crash the server while nothing but the commits themselves has flushed the WAL."""
    other = await asyncpg.connect(server().url())
    (writer,) = await other.fetch("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")
    over = asyncio.Event()
    other.add_termination_listener(lambda _: over.set())
    os.kill(writer["pid"], signal.SIGSTOP)
    try:
        await before()
        stopping = asyncio.create_task(asyncio.to_thread(server().stop, signal.SIGQUIT))
        await asyncio.wait_for(over.wait(), 120)  # All of its processes have the signal.
    finally:
        os.kill(writer["pid"], signal.SIGCONT)
    await stopping
    await asyncio.to_thread(server().start)


async def test_claim_lost_in_a_crash_is_refused_and_made_again() -> None:
    async with fresh_store() as store:
        await store.commit(Commit("t", inbox=[item("one", "t", agent_id="agent")]))

        async def claim() -> None:
            (claimed,) = (await store.claim("first", agents=["agent"], limit=1)).claimed
            assert claimed.epoch == 1

        await crash(store, claim)
        with pytest.raises(StaleFence):
            await store.commit(Commit("t", fence=Fence(1, "first"), log=[message()], identity=identity()))
        (claimed,) = (await store.claim("second", agents=["agent"], limit=1)).claimed
        assert (claimed.epoch, claimed.attempts, claimed.taken_over) == (1, 0, False)


async def test_claim_is_on_disk_with_the_first_commit_under_its_fence() -> None:
    async with fresh_store() as store:
        await store.commit(Commit("t", inbox=[item("one", "t", agent_id="agent")]))

        async def begin() -> None:
            await store.claim("first", agents=["agent"], limit=1)
            await store.commit(Commit("t", fence=Fence(1, "first"), log=[message()], identity=identity()))

        await crash(store, begin)
        thread = await store.thread("t")
        assert thread is not None
        assert (thread.epoch, thread.owner, thread.head) == (1, "first", 1)
        assert (await store.claim("second", agents=["agent"], limit=1)).claimed == ()


async def test_acknowledged_commits_are_on_disk() -> None:
    async with fresh_store() as store:
        (one, other) = await begun(store, 2)

        async def write() -> None:
            await step_of(one, "alone")
            await asyncio.gather(step_of(one, "together"), step_of(other, "together"))

        await crash(store, write)
        assert await texts(store, "t0") == ["go", "alone", "together"]
        assert await texts(store, "t1") == ["go", "together"]
        assert (await step_of(one, "after")).version == 4


async def test_lease_survives_a_restart_of_the_server() -> None:
    async with fresh_store() as store:
        writer = Writer(store)
        await writer.claim("worker", lease=0)
        lease = store.keep("worker", 60_000)
        async with asyncio.timeout(120):
            while not (await writer.view()).thread.claimed:
                pass
            await asyncio.to_thread(server().stop)
            await asyncio.to_thread(server().start)
            await lease.close()
            assert not (await writer.view()).thread.claimed
