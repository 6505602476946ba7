"""The inbox of a thread: anyone delivers, the owner takes, and nothing comes twice."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from store_suite import (
    StoreFactory,
    Writer,
    a_bit_of_everything,
    due_threads,
    everything,
    item,
    message,
    record,
    waiting,
)

from wakeful.errors import Conflict, InboxMoved
from wakeful.stores import Commit, Store
from wakeful.types.inbox import InboxItem
from wakeful.types.requests import ModelSettings
from wakeful.types.runs import Principal, RunOptions
from wakeful.types.tickets import Decision


async def test_item_is_delivered_to_claimed_or_new_thread(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(Commit(thread_id="t1", inbox=[item("a")]))
        writer = Writer(store)
        await writer.claim()
        await store.commit(Commit(thread_id="t1", inbox=[item("b")]))
        view = await writer.view()
        assert [i.id for i in view.inbox] == ["a", "b"]
        assert view.thread.inbox_head == 2


async def test_items_keep_their_order_and_content(open_store: StoreFactory) -> None:
    sent = [
        item(
            "a",
            message=message("héllo\0"),
            policy="steer",
            agent_id="agent",
            run_id="r7",
            principal=Principal("ann", claims={"role": "admin"}),
            options=RunOptions(ModelSettings(temperature=0.5)),
            seed={"calls": b"1"},
        ),
        item("b", kind="decision", decision=Decision("k1", "deny", reason="no")),
        item("c", kind="task", task_id="task1"),
    ]
    async with open_store() as store:
        await store.commit(Commit(thread_id="t1", inbox=sent[:2]))
        await store.commit(Commit(thread_id="t1", inbox=sent[2:]))
        found = (await Writer(store).view()).inbox
        assert [i.position for i in found] == [1, 2, 3]
        assert list(found) == [msgspec.structs.replace(i, position=n) for n, i in enumerate(sent, 1)]


async def test_item_is_delivered_once_in_any_status(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        await store.commit(Commit(thread_id="t1", inbox=[item("a"), item("a")]))
        await store.commit(Commit(thread_id="t1", inbox=[item("a")]))
        assert [i.id for i in (await writer.view()).inbox] == ["a"]
        await writer.write(message("taken"), taken=["a"])
        done = await store.commit(Commit(thread_id="t1", inbox=[item("a"), item("b")]))
        assert [i.id for i in (await writer.view()).inbox] == ["b"]
        assert done.inbox_head == 2


async def test_item_is_taken_with_its_message(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(inbox=[item("a"), item("b"), item("c")])
        await writer.write(message("b"), taken=["b"])
        view = await writer.view()
        assert [i.id for i in view.inbox] == ["a", "c"]
        assert view.thread.inbox_head == 3
        assert [m.text for m in await store.messages("t1")] == ["b"]


async def test_commit_delivers_to_other_threads_only_items(
    open_store: StoreFactory,
) -> None:
    async with open_store() as store:
        writer, other = Writer(store), Writer(store, "t2")
        await other.claim()
        await writer.begin()
        await writer.write(message(), inbox=[item("a", "t2"), item("b", "t3")])
        view = await other.view()
        assert [i.id for i in view.inbox] == ["a"]
        assert (view.thread.version, view.thread.head, view.thread.inbox_head) == (other.version, 0, 1)
        third = await store.load("t3")
        assert third is not None
        assert [i.id for i in third.inbox] == ["b"]
        await other.write(message())


async def test_refused_commit_delivers_nothing(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store).begin()
        with pytest.raises(Conflict):
            await store.commit(Commit(thread_id="t1", version=0, log=[message()], inbox=[item("a", "t2")]))
        assert await store.load("t2") is None
        await store.commit(Commit(thread_id="t2", inbox=[item("a", "t2")]))
        assert len((await Writer(store, "t2").view()).inbox) == 1


async def test_finish_is_refused_when_inbox_moved(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        seen = (await writer.begin()).inbox_head
        await store.commit(Commit(thread_id="t1", inbox=[item("a")]))
        before = await everything(store)
        with pytest.raises(InboxMoved, match="'t1'"):
            await writer.release(inbox_head=seen, **a_bit_of_everything())
        assert await everything(store) == before
        await writer.release(inbox_head=seen + 1, runs=[record(status="done")])
        assert (await writer.view()).run is None


async def test_taken_item_does_not_move_inbox_head(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        seen = (await writer.begin(inbox=[item("a")])).inbox_head
        await writer.write(message(), taken=["a"])
        await writer.release(inbox_head=seen)


async def test_concurrent_deliveries_are_all_kept(open_store: StoreFactory) -> None:
    async with open_store() as store:
        sent = [Commit(thread_id="t1", inbox=[item(f"i{n}")]) for n in range(20)]
        await asyncio.gather(*[store.commit(commit) for commit in sent])
        found = (await Writer(store).view()).inbox
        assert {i.id for i in found} == {f"i{n}" for n in range(20)}
        assert [i.position for i in found] == list(range(1, 21))


async def test_idle_delivery_is_refused_on_busy_thread(
    open_store: StoreFactory,
) -> None:
    async with open_store() as store:
        new = await store.commit(Commit(thread_id="t1", inbox=[item("a")], idle=True))
        assert (new.version, new.head, new.epoch, new.inbox_head) == (0, 0, 0, 1)
        again = await store.commit(Commit(thread_id="t1", inbox=[item("b")], idle=True))
        assert (again.epoch, again.inbox_head) == (0, 2)
        writer = Writer(store)
        await writer.claim()
        await _refused(store, item("c"))
        await writer.write(message("a"), runs=[record()], taken=["a", "b"])
        await _refused(store, item("c"))
        await writer.release(runs=[record(status="waiting", waiting=waiting("input"))])
        await _refused(store, item("c"))
        await writer.claim()
        await writer.release(runs=[record(status="done")])
        after = await store.commit(Commit(thread_id="t1", inbox=[item("c")], idle=True))
        assert (after.epoch, after.inbox_head) == ((await writer.view()).thread.epoch, 3)
        assert await due_threads(store) == ["t1"]


async def test_idle_delivery_is_refused_when_repeated(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(Commit(thread_id="t1", inbox=[item("a")], idle=True))
        await _refused(store, item("a"))
        await _refused(store, item("a", "t2"))
        assert await store.load("t2") is None


async def test_idle_deliveries_in_batch_are_refused_alone(
    open_store: StoreFactory,
) -> None:
    async with open_store() as store:
        await Writer(store).claim()
        sent = [Commit(thread_id=f"t{n}", inbox=[item(f"i{n}", f"t{n}")], idle=True) for n in range(8)]
        found = await asyncio.gather(*[store.commit(commit) for commit in sent], return_exceptions=True)
        assert [n for n, one in enumerate(found) if isinstance(one, Conflict)] == [1]
        assert sorted(await due_threads(store)) == ["t0", *[f"t{n}" for n in range(2, 8)]]


async def _refused(store: Store, given: InboxItem) -> None:
    before = await everything(store)
    with pytest.raises(Conflict, match=f"'{given.thread_id}' has an owner or an open run"):
        await store.commit(Commit(thread_id=given.thread_id, inbox=[given], idle=True))
    assert await everything(store) == before
