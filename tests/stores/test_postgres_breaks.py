"""Connections that break and servers that restart: what was committed is in once, and whoever waited goes on."""

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
from postgres_suite import schema_of, texts, waits_for_a_lock

from conformance.store_suite import Writer, identity, item, message, record
from postgres_server import fresh_store, server
from wakeful.errors import Conflict, StaleFence, StoreUnavailable
from wakeful.stores import Commit, Committed, Fence
from wakeful.stores._groups import FIRST_STEPS
from wakeful.stores._postgres import PostgresStore

Lost = Literal["request", "reply"]


@asynccontextmanager
async def through_a_proxy(store: PostgresStore, **options: Any) -> AsyncIterator[tuple[PostgresStore, Proxy]]:
    """The same tables, over connections that a test may break. One is open, and knows the statements of commits: a
    request of theirs has one reply."""
    async with proxied(server().port) as proxy:
        url = f"postgres://postgres@127.0.0.1:{proxy.port}/postgres"
        far = PostgresStore(url, schema=schema_of(store), **options)
        try:
            await Writer(far, "warm").write(message())
            ended = Writer(far, "ended")
            await ended.begin(log=[message()], request="warm")
            await ended.release(log=[message()], runs=[record("r1", "ended", status="done")], inbox_head=0)
            await far.commit(Commit(thread_id="sent", inbox=[item("warm", "sent")]))
            yield far, proxy
        finally:
            await far.close()


@pytest.mark.parametrize("what", ["request", "reply"])
@pytest.mark.parametrize("release", [False, True])
async def test_a_commit_whose_connection_breaks_is_in_once(what: Lost, release: bool) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        writer = Writer(far)
        await writer.begin(log=[message("first")])
        proxy.lose(what)
        done = await writer.write(message("second"), release=release, inbox=[item("a", "t2")])
        assert proxy.lost.is_set()
        assert await texts(near) == ["first", "second"]
        assert (done.head, done.version) == (2, 2)
        view = await near.load("t2")
        assert view is not None
        assert [i.id for i in view.inbox] == ["a"]


@pytest.mark.parametrize("what", ["request", "reply"])
async def test_a_new_thread_whose_connection_breaks_is_made_once(what: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        proxy.lose(what)
        done = await Writer(far).begin(log=[message("first")], request="q1")
        assert proxy.lost.is_set()
        assert (done.version, done.head, done.epoch) == (1, 1, 1)
        assert await texts(near) == ["first"]


@pytest.mark.parametrize("what", ["request", "reply"])
async def test_every_commit_of_a_batch_whose_connection_breaks_is_in_once(what: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        writers = [Writer(far, f"t{n}") for n in range(5)]
        await asyncio.gather(*[writer.begin() for writer in writers])
        writers[1].fence = None  # This one is refused, before the break and after it.
        batches = far.batches
        proxy.lose(what)
        done = await asyncio.gather(*[w.write(message("in")) for w in writers], return_exceptions=True)
        assert proxy.lost.is_set()
        assert far.batches == (batches[0] + 1, batches[1] + 5)
        assert [type(d) for d in done] == [Committed, Conflict, Committed, Committed, Committed]
        assert [await texts(near, w.thread_id) for w in writers] == [["in"], [], ["in"], ["in"], ["in"]]


async def test_an_item_whose_connection_breaks_is_delivered_once() -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        sent = item("a")
        proxy.lose("reply")
        done = await far.commit(Commit(thread_id="t1", inbox=[sent]))
        assert proxy.lost.is_set()
        assert (done.inbox_head, sent.position) == (1, 1)
        view = await near.load("t1")
        assert view is not None
        assert [i.id for i in view.inbox] == ["a"]


async def test_a_commit_that_is_in_counts_though_the_thread_has_another_owner_by_now() -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        first, second = Writer(far), Writer(near)
        await first.begin(log=[message("mine")])
        proxy.lose("reply")
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


async def test_a_read_whose_connection_breaks_is_made_again() -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        await Writer(near).write(message("here"))
        assert await texts(far) == ["here"]  # Now the connection knows the statements: a request has one reply.
        proxy.lose("reply")
        assert await texts(far) == ["here"]
        assert proxy.lost.is_set()


@pytest.mark.parametrize("what", ["request", "reply"])
async def test_a_fork_whose_connection_breaks_at_the_end_is_made_once(what: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        await Writer(near).write(message("a"), message("b"))
        proxy.lose(what, lambda data: b"COMMIT" in data)
        forked = await far.fork("t1", 1, "t2")
        assert proxy.lost.is_set()
        assert (forked.id, forked.head) == ("t2", 1)
        proxy.lose(what, lambda data: b"COMMIT" in data)
        assert await far.delete("t1") == 1
        assert proxy.lost.is_set()
        assert await texts(near, "t2") == ["a"]


async def test_a_connection_that_the_server_ends_is_replaced() -> None:
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


async def test_a_server_that_stays_away_is_waited_for_so_long_and_no_longer() -> None:
    async with fresh_store() as near, through_a_proxy(near, wait_seconds=0.3) as (far, proxy):
        proxy.lose("request")
        proxy.hold()
        clock = asyncio.get_running_loop().time
        began = clock()
        with pytest.raises(StoreUnavailable, match="can't be reached"):
            async with asyncio.timeout(30):
                await Writer(far).write(message())
        assert clock() - began >= 0.3
        proxy.let_in()
        await Writer(far).write(message("again"))
        assert await texts(near) == ["again"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["stopped", "crashed"])
async def test_a_commit_under_way_when_the_server_restarts_waits_and_is_in_once(how: signal.Signals) -> None:
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
        async with asyncio.timeout(30):
            await commit
            assert (await reading)[0] == "before"
        await writer.write(message("after"))
        assert await texts(store) == ["before", "during", "after"]


async def crash(store: PostgresStore, before: Callable[[], Awaitable[None]]) -> None:
    """Crash the server while nothing but a commit's own flush has brought its log to the disk."""
    other = await asyncpg.connect(server().url())
    (writer,) = await other.fetch("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")
    over = asyncio.Event()
    other.add_termination_listener(lambda _: over.set())
    os.kill(writer["pid"], signal.SIGSTOP)
    try:
        await before()
        stopping = asyncio.create_task(asyncio.to_thread(server().stop, signal.SIGQUIT))
        await asyncio.wait_for(over.wait(), 20)  # All of its processes were told.
    finally:
        os.kill(writer["pid"], signal.SIGCONT)
    await stopping
    await asyncio.to_thread(server().start)


async def test_a_claim_that_a_crash_undid_is_refused_and_is_made_again() -> None:
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


async def test_a_claim_is_on_the_disk_with_the_first_commit_under_its_fence() -> None:
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


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left unsynced is so until something else is synced."""
    monkeypatch.setattr("wakeful.stores._unsynced.UNSYNCED_SECONDS", 3600)


async def goes_on(writer: Writer, text: str, unsynced: bool = False) -> None:
    await writer.write(message(text), runs=[record(f"r{writer.thread_id}", writer.thread_id)], unsynced=unsynced)


@asynccontextmanager
async def going_on(*thread_ids: str) -> AsyncIterator[tuple[PostgresStore, list[Writer]]]:
    """Owners who have written often enough to be known for going on."""
    async with fresh_store() as store:
        writers = [Writer(store, thread_id) for thread_id in thread_ids]
        for writer in writers:
            await writer.begin(f"r{writer.thread_id}")
            for _ in range(FIRST_STEPS):
                await writer.write(message("old"), runs=[record(f"r{writer.thread_id}", writer.thread_id)])
        yield store, writers


@pytest.mark.parametrize("together", [False, True], ids=["alone", "in a group"])
async def test_nothing_is_written_behind_what_was_unsynced_when_the_server_crashed(
    never: None, together: bool
) -> None:
    async with going_on("1", "2") as (store, (one, other)):
        await crash(store, lambda: goes_on(one, "lost", unsynced=True))
        await store.commit(Commit("1", inbox=[item("i", "1")]))  # What others put into its inbox changes nothing.
        works = [goes_on(one, "behind"), *([goes_on(other, "new")] if together else [])]
        found = await asyncio.gather(*works, return_exceptions=True)
        assert isinstance(found[0], StoreUnavailable)
        assert "gone with a crash" in str(found[0])
        assert found[1:] == [None] * together
        await one.release()
        assert set(await texts(store, "1")) == {"old"}


async def test_the_next_commit_brings_what_was_unsynced_to_the_disk(never: None) -> None:
    async with going_on("1") as (store, (writer,)):

        async def write() -> None:
            await goes_on(writer, "unsynced", unsynced=True)
            await goes_on(writer, "synced")

        await crash(store, write)
        await goes_on(writer, "after")
        assert (await texts(store, "1"))[-3:] == ["unsynced", "synced", "after"]


async def test_what_was_unsynced_is_soon_on_the_disk_if_nothing_follows() -> None:
    async with going_on("1") as (store, (writer,)):

        async def write() -> None:
            await goes_on(writer, "unsynced", unsynced=True)
            groups = store._database.groups
            async with asyncio.timeout(30):
                while groups._syncing is None:
                    await asyncio.sleep(0)
                await groups._syncing

        await crash(store, write)
        await goes_on(writer, "after")
        assert (await texts(store, "1"))[-2:] == ["unsynced", "after"]


async def test_a_lease_survives_a_restart_of_the_server() -> None:
    async with fresh_store() as store:
        writer = Writer(store)
        await writer.claim("worker", lease=0)
        lease = store.keep("worker", 60_000)
        async with asyncio.timeout(30):
            while not (await writer.view()).thread.claimed:
                pass
            await asyncio.to_thread(server().stop)
            await asyncio.to_thread(server().start)
            await lease.close()
            assert not (await writer.view()).thread.claimed
