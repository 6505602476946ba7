"""The inbox of a thread: anyone delivers, the owner takes, and nothing comes twice."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from store_suite import (
    StoreFactory,
    Writer,
    a_bit_of_everything,
    everything,
    item,
    message,
    record,
)

from wakeful.errors import Conflict, InboxMoved
from wakeful.stores import Commit
from wakeful.types.requests import ModelSettings
from wakeful.types.runs import Principal, RunOptions
from wakeful.types.tickets import Decision


async def test_anyone_may_deliver_to_a_thread_claimed_or_new(open_store: StoreFactory) -> None:
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
        item("b", kind="decision", message=None, decision=Decision("k1", "deny", reason="no")),
        item("c", kind="task", message=None, task_id="task1"),
    ]
    async with open_store() as store:
        await store.commit(Commit(thread_id="t1", inbox=sent[:2]))
        await store.commit(Commit(thread_id="t1", inbox=sent[2:]))
        found = (await Writer(store).view()).inbox
        assert [i.position for i in found] == [1, 2, 3]
        assert list(found) == [msgspec.structs.replace(i, position=n) for n, i in enumerate(sent, 1)]


async def test_an_item_is_delivered_once_whatever_became_of_it(open_store: StoreFactory) -> None:
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


async def test_an_item_is_taken_with_the_message_it_became(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(inbox=[item("a"), item("b"), item("c")])
        await writer.write(message("b"), taken=["b"])
        view = await writer.view()
        assert [i.id for i in view.inbox] == ["a", "c"]
        assert view.thread.inbox_head == 3
        assert [m.text for m in await store.messages("t1")] == ["b"]


async def test_a_commit_delivers_to_other_threads_without_touching_them_otherwise(
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


async def test_a_refused_commit_delivers_nothing(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store).begin()
        with pytest.raises(Conflict):
            await store.commit(Commit(thread_id="t1", version=0, log=[message()], inbox=[item("a", "t2")]))
        assert await store.load("t2") is None
        await store.commit(Commit(thread_id="t2", inbox=[item("a", "t2")]))
        assert len((await Writer(store, "t2").view()).inbox) == 1


async def test_finishing_fails_if_something_arrived_unseen(open_store: StoreFactory) -> None:
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


async def test_taking_an_item_does_not_move_the_head_back(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        seen = (await writer.begin(inbox=[item("a")])).inbox_head
        await writer.write(message(), taken=["a"])
        await writer.release(inbox_head=seen)


async def test_of_many_deliveries_at_once_none_is_lost(open_store: StoreFactory) -> None:
    async with open_store() as store:
        sent = [Commit(thread_id="t1", inbox=[item(f"i{n}")]) for n in range(20)]
        await asyncio.gather(*[store.commit(commit) for commit in sent])
        found = (await Writer(store).view()).inbox
        assert {i.id for i in found} == {f"i{n}" for n in range(20)}
        assert [i.position for i in found] == list(range(1, 21))
