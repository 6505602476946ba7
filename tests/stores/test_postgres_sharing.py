"""Several pools on one database, and the leases of those who use them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from postgres_suite import beside, connected, schema_of, texts, waits_for_a_lock

from conformance.store_suite import Writer, identity, item, message
from postgres_server import fresh_store
from wakeful.errors import Conflict, DuplicateRequest, StaleFence
from wakeful.stores import Commit, Fence, Retention
from wakeful.stores.postgres import PostgresStore
from wakeful.types import Request
from wakeful.types.ids import new_id

# -- several pools on one database ---------------------------------------------------------------------------


async def test_pools_see_each_others_commits_and_claims() -> None:
    async with fresh_store() as one, beside(one) as two:
        owner, other = Writer(one), Writer(two)
        await owner.begin(log=[message("mine")])
        other.version = owner.version
        with pytest.raises(Conflict):
            await other.claim()
        assert await texts(two) == ["mine"]
        await owner.release()
        other.version = owner.version
        await other.claim()
        owner.fence = Fence(1, "old")
        with pytest.raises(StaleFence):
            await owner.write(message("late"))
        await other.write(message("yours"))
        assert await texts(one) == ["mine", "yours"]


async def test_concurrent_claims_of_pools_have_one_winner() -> None:
    async with fresh_store() as one, beside(one) as two, beside(one) as three:
        writers = [Writer(store) for store in (one, two, three) for _ in range(4)]
        done = await asyncio.gather(*[w.claim(log=[message()]) for w in writers], return_exceptions=True)
        assert sorted(type(d).__name__ for d in done) == ["Committed"] + ["Conflict"] * 11
        assert len(await texts(one)) == 1


async def test_cross_deliveries_of_pools_never_deadlock() -> None:
    async with fresh_store() as one, beside(one) as two:

        def delivery(store: PostgresStore, first: str, second: str) -> Any:
            commit = Commit(thread_id=first, inbox=[item(new_id(), first), item(new_id(), second)])
            return store.commit(commit)

        for n in range(20):
            a, b = f"a{n}", f"b{n}"
            await asyncio.gather(delivery(one, a, b), delivery(two, b, a))
        heads = [thread.inbox_head for thread in await one.threads(limit=100)]
        assert heads == [2] * 40
        async with connected() as connection:
            sql = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
            assert await connection.fetchval(sql) == 0


async def test_concurrent_request_of_two_pools_runs_once() -> None:
    async with fresh_store() as one, beside(one) as two:
        for n in range(10):
            done = await asyncio.gather(
                *[
                    Writer(store, f"{name}{n}").write(
                        message(), request=Request(f"q{n}"), identity=identity(f"r{name}{n}", f"{name}{n}")
                    )
                    for store, name in ((one, "a"), (two, "b"))
                ],
                return_exceptions=True,
            )
            (refused,) = [d for d in done if isinstance(d, DuplicateRequest)]
            winner = "ab"[done.index(refused) - 1]
            assert refused.run_id == f"r{winner}{n}"
            assert await one.thread(f"{'ab'[done.index(refused)]}{n}") is None


async def test_concurrent_claim_and_deletion_have_one_winner() -> None:
    async with fresh_store() as store, beside(store) as other, connected(schema_of(store)) as blocker:
        writer = Writer(store)
        await writer.write(message())
        async with blocker.transaction():
            await blocker.execute("SELECT 1 FROM threads FOR UPDATE")
            claim = asyncio.create_task(writer.claim())
            await waits_for_a_lock(blocker)
            delete = asyncio.create_task(other.delete("t1"))
        await asyncio.wait([claim, delete])
        if delete.exception() is None:  # It came first.
            assert isinstance(claim.exception(), Conflict)
            assert await store.thread("t1") is None
        else:
            assert claim.exception() is None
            assert await texts(store) == ["hello"]


async def test_prune_skips_locked_thread() -> None:
    async with fresh_store() as store, connected(schema_of(store)) as other:
        for name in ("idle", "written"):
            await Writer(store, name).write(message())
        async with other.transaction():
            await other.execute("SELECT 1 FROM threads WHERE id = 'written' FOR UPDATE")
            pruning = asyncio.create_task(store.prune(Retention(threads=-1000)))
            done, _ = await asyncio.wait([pruning], timeout=120)
        assert (await pruning).threads == 1
        assert done == {pruning}
        assert [thread.id for thread in await store.threads()] == ["written"]


# -- leases --------------------------------------------------------------------------------------------------


async def test_lease_is_renewed_while_loop_beats() -> None:
    async with fresh_store() as store:
        writer = Writer(store)
        await writer.claim("worker", lease=0)
        lease = store.keep("worker", 300)
        async with asyncio.timeout(120), connected(schema_of(store)) as other:
            seen: set[int] = set()
            while len(seen) < 4:
                lease.beat()
                seen.add(await other.fetchval("SELECT until FROM workers WHERE id = 'worker'"))
            assert (await writer.view()).thread.claimed
            while (await writer.view()).thread.claimed:
                pass  # Without a beat.
        await lease.close()


async def test_lease_is_renewed_while_loop_is_busy() -> None:
    async with fresh_store() as store:
        await Writer(store).claim("worker", lease=0)
        lease = store.keep("worker", 2000)

        def until() -> int:
            async def ask() -> int:
                async with connected(schema_of(store)) as other:
                    return await other.fetchval("SELECT until FROM workers WHERE id = 'worker'")

            return asyncio.run(ask())

        def look() -> None:
            first = until()
            while until() == first:
                pass

        looking = threading.Thread(target=look)
        looking.start()
        looking.join(timeout=120)  # The loop stands still meanwhile.
        assert not looking.is_alive()
        await lease.close()


async def test_closed_lease_frees_threads_at_once() -> None:
    async with fresh_store() as store:
        writer = Writer(store)
        await writer.begin()
        assert writer.fence is not None
        lease = store.keep(writer.fence.token)
        await lease.close()
        assert not (await writer.view()).thread.claimed
        assert [due.thread_id for due in await store.due()] == ["t1"]
        assert lease.renewals.ok == 0  # Its claim has said how long it counts.
        await lease.close()


async def test_close_of_store_closes_its_leases() -> None:
    async with fresh_store() as one, beside(one) as two:
        await Writer(two).claim("worker")
        two.keep("worker")
        await two.close()
        assert not (await Writer(one).view()).thread.claimed
