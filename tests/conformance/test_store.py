"""The promises of every store: one way to write, fenced, atomic, append-only."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_suite import (
    STORES,
    StoreFactory,
    Writer,
    a_bit_of_everything,
    call,
    everything,
    identity,
    item,
    message,
    numbered,
    record,
    step,
)

from wakeful.errors import Conflict, StaleFence
from wakeful.stores import Commit, Fence, StateWrite
from wakeful.types.content import Text, ToolReply
from wakeful.types.events import MessageAdded, StepStart
from wakeful.types.ids import new_id
from wakeful.types.messages import Message

# -- what is not there ---------------------------------------------------------------------------------------


async def test_unwritten_thread_does_not_exist(open_store: StoreFactory) -> None:
    async with open_store() as store:
        assert await store.load("t1") is None
        assert await store.messages("t1") == []
        assert await store.events("t1") == []
        assert await store.run("r1") is None
        assert await store.runs() == []
        assert list(await store.calls("r1")) == []
        assert list(await store.tickets("r1")) == []


async def test_empty_commit_changes_nothing(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(Commit(thread_id="t1"))
        assert await store.load("t1") is None
        writer = Writer(store)
        await writer.begin(log=[message()])
        before = await everything(store)
        done = await writer.write()
        assert await everything(store) == before
        assert (done.version, done.head) == (before["view"].thread.version, 1)


# -- claims and fences ---------------------------------------------------------------------------------------


async def test_claim_holds_until_release(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        assert (await writer.view()).thread.claimed
        await writer.write(message())
        await writer.release()
        assert not (await writer.view()).thread.claimed


async def test_every_claim_has_higher_epoch(open_store: StoreFactory) -> None:
    async with open_store() as store:
        epochs: list[int] = []
        writer = Writer(store)
        for _ in range(3):
            epochs.append((await writer.claim()).epoch)
            await writer.release()
        assert epochs == sorted(set(epochs))
        assert (await writer.view()).thread.epoch == epochs[-1]


async def test_claimed_thread_cannot_be_claimed(open_store: StoreFactory) -> None:
    async with open_store() as store:
        owner, other = Writer(store), Writer(store)
        other.version = (await owner.begin()).version
        before = await everything(store)
        with pytest.raises(Conflict, match="'t1'"):
            await other.claim(log=[message()])
        assert await everything(store) == before
        await owner.write(message())


async def test_claim_and_first_writes_are_atomic(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        done = await writer.claim("w1", runs=[record()], log=[step(), message()])
        view = await writer.view()
        assert (view.run, view.thread.claimed, view.thread.epoch) == (record(), True, done.epoch)
        assert (view.thread.owner, await store.thread("t1")) == ("w1", view.thread)
        assert done.head == 2


async def test_claim_needs_version_it_saw(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.write(message())
        before = await everything(store)
        for seen in (0, None, writer.version + 1):
            with pytest.raises(Conflict):
                await store.commit(Commit(thread_id="t1", version=seen, claim="x", log=[message()]))
        assert await everything(store) == before


async def test_new_thread_is_at_version_0(open_store: StoreFactory) -> None:
    async with open_store() as store:
        with pytest.raises(Conflict):
            await store.commit(Commit(thread_id="t1", version=1, claim="x", identity=identity()))
        assert await store.load("t1") is None
        await store.commit(Commit(thread_id="t1", version=0, claim="x", identity=identity()))
        assert await store.load("t1") is not None


@pytest.mark.parametrize("stale", ["token", "epoch", "released", "never claimed"])
async def test_stale_fence_writes_nothing(open_store: StoreFactory, stale: str) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(log=[message()], inbox=[item("waiting")])
        fence = writer.fence
        assert fence is not None
        if stale == "token":
            fence = Fence(fence.epoch, "another")
        elif stale == "epoch":
            fence = Fence(fence.epoch - 1, fence.token)
        else:
            await writer.release()
        if stale == "released":
            await writer.claim()
        before = await everything(store)
        with pytest.raises(StaleFence, match="'t1'"):
            await store.commit(
                Commit(thread_id="t1", fence=fence, identity=identity(), release=True, **a_bit_of_everything())
            )
        assert await everything(store) == before
        assert await store.run("r9") is None


async def test_fence_of_another_thread_is_refused(open_store: StoreFactory) -> None:
    async with open_store() as store:
        one, two = Writer(store, "t1"), Writer(store, "t2")
        await one.claim()
        await two.claim()
        with pytest.raises(StaleFence):
            await store.commit(
                Commit(thread_id="t2", fence=one.fence, identity=identity(thread_id="t2"), log=[message()])
            )
        assert await store.messages("t2") == []


async def test_claimed_thread_refuses_other_writers(open_store: StoreFactory) -> None:
    async with open_store() as store:
        owner = Writer(store)
        await owner.begin(inbox=[item("waiting")])
        before = await everything(store)
        for changes in a_bit_of_everything().items():
            if changes[0] == "inbox":
                continue
            with pytest.raises(Conflict):
                await store.commit(
                    Commit(thread_id="t1", version=owner.version, identity=identity(), **dict([changes]))
                )
        assert await everything(store) == before


async def test_only_claim_holder_can_release(open_store: StoreFactory) -> None:
    async with open_store() as store:
        owner = Writer(store)
        await owner.begin()
        for version in (None, owner.version):
            with pytest.raises(Conflict):
                await store.commit(Commit(thread_id="t1", version=version, release=True))
        await owner.write(message())
        assert (await owner.view()).thread.claimed


async def test_last_writes_and_release_are_atomic(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        await writer.release(log=[message("bye")], runs=[record(status="done")])
        view = await writer.view()
        assert (view.run, view.thread.claimed, view.thread.head) == (None, False, 1)
        assert view.thread.owner is None


async def test_concurrent_claims_have_one_winner(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writers = [Writer(store) for _ in range(8)]
        done = await asyncio.gather(*[w.claim(log=[message()]) for w in writers], return_exceptions=True)
        assert sum(isinstance(one, Conflict) for one in done) == 7
        assert len(await store.messages("t1")) == 1


# -- versions ------------------------------------------------------------------------------------------------


async def test_unclaimed_write_needs_and_raises_version(open_store: StoreFactory) -> None:
    async with open_store() as store:
        one, two = Writer(store), Writer(store)
        first = await one.write(message("a"))
        with pytest.raises(Conflict, match="version"):
            await two.write(message("b"))
        two.version = first.version
        second = await two.write(message("c"))
        assert second.version > first.version
        assert [m.text for m in await store.messages("t1")] == ["a", "c"]


@pytest.mark.parametrize("kind", sorted(set(a_bit_of_everything()) - {"inbox"}))
async def test_every_kind_of_write_raises_version(open_store: StoreFactory, kind: str) -> None:
    async with open_store() as store:
        writer = Writer(store)
        before = (await writer.begin(calls=[call("c9", 9)], inbox=[item("waiting")])).version
        change = {kind: a_bit_of_everything()[kind]}
        assert (await writer._commit(fence=writer.fence, **change)).version > before


async def test_inbox_append_does_not_raise_version(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        before = await writer.begin()
        after = await store.commit(Commit(thread_id="t1", inbox=[item("a")]))
        assert after.version == before.version
        assert after.inbox_head == before.inbox_head + 1
        await writer.release()
        await store.commit(Commit(thread_id="t1", inbox=[item("b")]))
        await writer.claim()


# -- the log -------------------------------------------------------------------------------------------------


async def test_messages_and_events_are_numbered_without_gaps(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        entries = [step(1), message("a"), message("b"), step(2), message("c")]
        heads = [
            (await writer.begin(log=entries[:1])).head,
            (await writer.write(*entries[1:4])).head,
            (await writer.write(runs=[record(steps=2)])).head,
            (await writer.write(entries[4])).head,
        ]
        assert heads == [1, 4, 4, 5]
        assert [e.seq for e in await store.events("t1")] == [1, 2, 3, 4, 5]
        assert [(m.seq, m.text) for m in await store.messages("t1")] == [(2, "a"), (3, "b"), (5, "c")]


async def test_each_thread_has_its_own_numbers(open_store: StoreFactory) -> None:
    async with open_store() as store:
        one, two = Writer(store, "t1"), Writer(store, "t2")
        await one.write(message("a"), message("b"))
        await two.write(message("c"))
        assert [m.seq for m in await store.messages("t2")] == [1]
        assert [m.text for m in await store.messages("t1")] == ["a", "b"]


async def test_refused_commit_leaves_no_gap(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.write(message("a"))
        with pytest.raises(Conflict):
            await store.commit(Commit(thread_id="t1", version=0, identity=identity(), log=[message("x"), step()]))
        await writer.write(message("b"))
        assert [(m.seq, m.text) for m in await store.messages("t1")] == [(1, "a"), (2, "b")]


async def test_message_is_event_at_its_position(open_store: StoreFactory) -> None:
    async with open_store() as store:
        told = message("hi")
        await Writer(store).begin(log=[step(1), told, step(2)])
        first, middle, last = await store.events("t1")
        assert (first, last) == (StepStart(identity(), 1, 7, 1), StepStart(identity(), 3, 7, 2))
        assert isinstance(middle, MessageAdded)
        assert (middle.message, middle.seq) == (numbered(told, 2), 2)
        assert (middle.at, middle.run) == (told.created_at, identity())


async def test_log_is_read_in_pages_after_cursor(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store).begin(log=[step(1), message("a"), step(2), message("b"), message("c")])

        async def events(**page: int) -> list[int]:
            return [e.seq for e in await store.events("t1", **page)]

        async def texts(**page: int) -> list[str]:
            return [m.text for m in await store.messages("t1", **page)]

        assert await events(after=2) == [3, 4, 5]
        assert await events(after=1, limit=2) == [2, 3]
        assert await events(after=5) == []
        assert await events(after=99) == []
        assert await texts(after=2) == ["b", "c"]
        assert await texts(after=3) == ["b", "c"]
        assert await texts(limit=2) == ["a", "b"]
        assert await texts(after=2, limit=1) == ["b"]
        assert await texts(after=5) == []


@pytest.mark.parametrize("name", STORES)
@given(
    commits=st.lists(st.lists(st.sampled_from(["message", "event"]), max_size=4), max_size=6),
    page=st.integers(1, 5),
)
def test_log_pages_of_any_size_join_to_log(name: str, commits: list[list[str]], page: int) -> None:
    async def check() -> None:
        async with STORES[name]() as store:
            writer, written = Writer(store), list[str]()
            await writer.begin()
            for commit in commits:
                log = [message() if kind == "message" else step() for kind in commit]
                await writer.write(*log)
                written += commit
            seen: list[Any] = []
            while found := await store.events("t1", after=len(seen), limit=page):
                assert len(found) <= page
                seen += found
            assert [e.seq for e in seen] == list(range(1, len(written) + 1))
            assert ["message" if isinstance(e, MessageAdded) else "event" for e in seen] == written
            told: list[Message] = []
            while more := await store.messages("t1", after=told[-1].seq if told else 0, limit=page):
                told += more
            assert [m.seq for m in told] == [n for n, kind in enumerate(written, 1) if kind == "message"]

    asyncio.run(check())


async def test_records_are_read_back_exactly(open_store: StoreFactory) -> None:
    reply = ToolReply("c1", "look", (Text("nul \0 😀 \u2028"),), data=msgspec.Raw(b'{"n":18446744073709551615}'))
    told = Message(new_id(), "tool", (reply,), 2**53)
    async with open_store() as store:
        await Writer(store).begin(log=[told])
        (found,) = await store.messages("t1")
        assert found == numbered(told, 1)


async def test_reader_cannot_change_stored_records(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(log=[message()], state=[StateWrite("calls", b"1")], calls=[call("c1")])
        before = await everything(store)
        (await store.messages("t1")).clear()
        (await store.events("t1")).clear()
        (await writer.view()).state.clear()
        assert await everything(store) == before
