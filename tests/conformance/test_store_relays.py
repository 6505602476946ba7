"""Relays: written through the one door, each revision once; and found when they are due."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from store_suite import StoreFactory, Writer, item, message, record, rows_left, step

from wakeful.errors import Conflict, InboxMoved, StaleFence
from wakeful.stores import Commit, Fence, Relay, Retention, Store
from wakeful.types.runs import NaturalEnd, Outcome


def relay(relay_id: str = "p1", **fields: Any) -> Relay:
    return Relay(
        id=relay_id, **({"thread_id": "t1", "run_id": "r1", "kind": "push", "payload": b"\0secret"} | fields)
    )


async def put(store: Store, *relays: Relay) -> None:
    await store.commit(Commit("t1", relays=relays))


def changed(of: Relay, **fields: Any) -> Relay:
    return replace(of, revision=of.revision + 1, **fields)


async def test_relay_is_read_back_exactly(open_store: StoreFactory) -> None:
    async with open_store() as store:
        full = relay(cursor=3, due_at=4, attempts=5, last_error="no \0 answer", owner="w", until=6, created_at=7)
        large = relay("p2", run_id=None, kind="message", cursor=-1, payload=b"x" * 50_000)
        await put(store, full, large)
        assert (await store.relay("p1"), await store.relay("p2")) == (full, large)
        assert await store.relay("p3") is None


async def test_relay_needs_neither_claim_nor_version_and_raises_none(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        begun = await writer.begin()
        await put(store, relay())
        view = await writer.view()
        assert (view.thread.version, view.thread.head, view.thread.epoch) == (begun.version, 0, begun.epoch)
        await writer.write(message())


async def test_each_revision_is_written_once(open_store: StoreFactory) -> None:
    async with open_store() as store:
        first = relay()
        await put(store, first)
        second = changed(first, attempts=1)
        await put(store, second)
        for stale in (changed(first, attempts=9), replace(first, attempts=9), changed(changed(second))):
            with pytest.raises(Conflict, match="p1"):
                await put(store, stale)
        with pytest.raises(Conflict, match="p2"):
            await put(store, relay("p2", revision=2))
        assert await store.relay("p1") == second


async def test_concurrent_takes_of_relay_have_one_winner(open_store: StoreFactory) -> None:
    async with open_store() as store:
        free = relay()
        await put(store, free)
        takers = [put(store, changed(free, owner=worker, until=99)) for worker in ("a", "b", "c")]
        came = await asyncio.gather(*takers, return_exceptions=True)
        assert sorted(type(each).__name__ for each in came) == ["Conflict", "Conflict", "NoneType"]
        assert (await store.relay("p1")).owner == "abc"[came.index(None)]  # type: ignore[union-attr]


async def test_commit_with_stale_relay_writes_nothing(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        with pytest.raises(Conflict):
            await writer.write(message(), inbox=[item("a")], relays=[relay(revision=7)])
        assert await store.messages("t1") == []
        assert await store.item("a") is None
        await writer.write(message(), relays=[relay()])
        assert (await store.relay("p1"), len(await store.messages("t1"))) == (relay(), 1)


async def test_refused_commit_writes_no_relay(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store).begin()
        with pytest.raises(StaleFence):
            await store.commit(Commit("t1", fence=Fence(9, "x"), log=[step()], relays=[relay()]))
        with pytest.raises(InboxMoved):
            await store.commit(Commit("t1", inbox_head=9, relays=[relay()]))
        assert await store.relay("p1") is None


async def test_relay_may_come_before_its_thread(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await put(store, relay())
        assert (await store.thread("t1")) is not None
        await Writer(store).begin()


async def test_relays_are_filtered_by_status(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await put(store, relay("p1"), relay("p2", run_id="r2", status="dead"), relay("p3", kind="message"))
        await store.commit(Commit("t2", relays=[relay("p4", thread_id="t2", status="done")]))

        async def listed(**which: Any) -> list[str]:
            return [found.id for found in await store.relays(**which)]

        assert await listed() == ["p1", "p2", "p3", "p4"]
        assert await listed(thread_id="t1", kind="push") == ["p1", "p2"]
        assert await listed(run_id="r2") == ["p2"]
        assert (await listed(status="dead"), await listed(status="done")) == (["p2"], ["p4"])
        assert (await listed(after="p2"), await listed(limit=1)) == (["p3", "p4"], ["p1"])
        assert await store.tenant("other").relays() == []
        assert await store.tenant("other").relay("p1") is None


async def test_relay_is_due_when_log_is_ahead_of_cursor(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(log=[message(), message()])

        async def due(now: int = 100, kind: str = "push") -> list[str]:
            return [found.id for found in await store.due_relays(kind, now)]

        await put(
            store,
            relay("p1", due_at=50),
            relay("p2", cursor=1),
            relay("read", cursor=2),
            relay("later", due_at=101),
            relay("leased", owner="w", until=101),
            relay("dead", status="dead"),
            relay("m1", kind="message", cursor=-1),
        )
        assert await due() == ["p2", "p1"]
        assert await due(101) == ["leased", "p2", "p1", "later"]
        assert await due(kind="message") == ["m1"]
        assert await store.tenant("other").due_relays("push", 100) == []
        assert [found.id for found in await store.due_relays("push", 100, limit=1)] == ["p2"]
        await writer.write(message())
        assert await due() == ["p2", "read", "p1"]


async def test_relay_is_deleted_with_thread_and_run(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        done = record(status="done", finished_at=1, outcome=Outcome(NaturalEnd()))
        await writer.release(runs=[done])
        await put(store, relay("p1"), relay("p2", run_id=None))
        await store.prune(Retention(runs=0))
        assert [found.id for found in await store.relays()] == ["p2"]
        await store.delete("t1")
        assert (await store.relays(), await rows_left(store)) == ([], {})


async def test_pending_input_is_found_by_its_run_id(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        await store.commit(Commit("t1", inbox=[item("asked", run_id="r2", agent_id="agent"), item("plain")]))
        found = await store.item_of_run("r2")
        assert found is not None
        assert (found.id, found.status, found.taken_by) == ("asked", "pending", None)
        assert await store.item_of_run("r1") is None
        assert await store.tenant("other").item_of_run("r2") is None
        await writer.write(taken=["asked"])
        assert (await store.item_of_run("r2")).status == "taken"  # type: ignore[union-attr]
