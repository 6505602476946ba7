"""Requests that come twice, answers that are half there, and what an application says about a thread."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from store_suite import StoreFactory, Writer, everything, identity, item, message, record, step

from wakeful.errors import Conflict, DuplicateRequest, RequestReused, StaleFence
from wakeful.stores import About, Chunk, Commit, Retention
from wakeful.types import Request
from wakeful.types.content import Text
from wakeful.types.events import MessageAdded
from wakeful.types.ids import new_id
from wakeful.types.messages import Message

# -- requests ------------------------------------------------------------------------------------------------


async def test_repeated_request_is_refused_with_its_run(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(request=Request("q1"), log=[message()])
        before = await everything(store)
        with pytest.raises(DuplicateRequest, match="'q1'") as refused:
            await writer.write(
                message("again"), request=Request("q1"), runs=[record("r2")], inbox=[item("a", "t2")]
            )
        assert refused.value.run_id == "r1"
        assert await everything(store) == before
        assert await store.load("t2") is None


async def test_request_is_refused_on_another_thread_too(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store, "t1").begin(request=Request("q1"))
        with pytest.raises(DuplicateRequest) as refused:
            await Writer(store, "t2").begin("r2", request=Request("q1"))
        assert refused.value.run_id == "r1"
        assert await store.load("t2") is None


async def test_item_id_counts_as_request_id(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(Commit(thread_id="t1", inbox=[item("q1")]))
        writer = Writer(store)
        with pytest.raises(DuplicateRequest) as refused:
            await writer.begin(request=Request("q1"))
        assert refused.value.run_id is None
        await writer.begin("r1", taken=["q1"])
        with pytest.raises(DuplicateRequest) as refused:
            await writer.write(request=Request("q1"))
        assert refused.value.run_id == "r1"


async def test_item_with_used_request_id_is_not_delivered(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(request=Request("q1"))
        done = await store.commit(Commit(thread_id="t1", inbox=[item("q1"), item("a")]))
        assert [i.id for i in (await writer.view()).inbox] == ["a"]
        assert done.inbox_head == 1


async def test_request_of_refused_commit_is_not_recorded(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        writer.version = 7
        with pytest.raises(Conflict):
            await writer.begin(request=Request("q1"))
        writer.version = 0
        await writer.begin(request=Request("q1"))


async def test_concurrent_equal_requests_have_one_winner(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writers = [Writer(store, f"t{n}") for n in range(6)]
        done = await asyncio.gather(
            *[w.claim(request=Request("q1"), runs=[record(f"r-{w.thread_id}", w.thread_id)]) for w in writers],
            return_exceptions=True,
        )
        assert sum(isinstance(one, DuplicateRequest) for one in done) == 5
        assert len(await store.runs()) == 1


async def test_request_is_found_as_item_with_its_run(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store).begin(request=Request("q1"))
        found = await store.item("q1")
        assert await store.has_id("q1")
        assert found is not None
        assert (found.thread_id, found.status, found.taken_by) == ("t1", "taken", "r1")
        assert (await Writer(store).view()).inbox == ()


async def test_request_with_another_digest_is_refused(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(request=Request("q1", "abc"))
        with pytest.raises(RequestReused, match="'q1' was made before, and asked for something else") as refused:
            await writer.write(message(), request=Request("q1", "xyz"))
        assert refused.value.request_id == "q1"
        for same in (Request("q1", "abc"), Request("q1")):
            with pytest.raises(DuplicateRequest):
                await writer.write(message(), request=same)
        await writer.write(request=Request("q2"))
        with pytest.raises(DuplicateRequest):
            await writer.write(message(), request=Request("q2", "abc"))
        found = await store.item("q1")
        assert found is not None
        assert found.digest == "abc"


@pytest.mark.parametrize("state", ["pending", "taken", "pruned"])
async def test_item_with_another_digest_is_refused(open_store: StoreFactory, state: str) -> None:
    async with open_store() as store:
        await store.commit(Commit("t1", inbox=[item("q1", digest="abc")]))
        writer = Writer(store)
        if state != "pending":
            done = record(status="done", finished_at=1)
            await writer.begin(taken=["q1"])
            await writer.release(runs=[done])
        if state == "pruned":
            await store.prune(Retention(runs=0))
        before = await everything(store)
        for commit in (
            Commit("t2", inbox=[item("q1", "t2", digest="xyz"), item("a", "t2")]),
            Commit("t2", version=0, log=[message()], request=Request("q1", "xyz")),
        ):
            with pytest.raises(RequestReused, match="'q1'"):
                await store.commit(commit)
        await store.commit(Commit("t1", inbox=[item("q1", digest="abc")]))
        await store.commit(Commit("t1", inbox=[item("q1")]))
        assert await everything(store) == before
        assert await store.thread("t2") is None
        found = await store.item("q1")
        assert found is not None
        assert found.digest == "abc"


async def test_concurrent_requests_of_one_id_have_one_winner(open_store: StoreFactory) -> None:
    async with open_store() as store:
        done = await asyncio.gather(
            *[store.commit(Commit(f"t{n}", inbox=[item("q1", f"t{n}", digest=f"d{n}")])) for n in range(4)],
            return_exceptions=True,
        )
        assert sum(isinstance(one, RequestReused) for one in done) == 3
        assert len(await store.threads()) == 1


async def test_follower_with_another_digest_is_left_out(open_store: StoreFactory) -> None:
    async with open_store() as store:
        then = [Commit(f"t{n}", inbox=[item("q1", f"t{n}", digest=digest)]) for n, digest in ((2, "b"), (3, "a"))]
        done = await store.commit(Commit("t1", inbox=[item("q1", digest="a")], then=then))
        assert [one is None for one in done.then] == [True, False]
        assert await store.load("t2") is None


async def test_repeated_fork_returns_the_first_one(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store).write(message())
        await Writer(store, "other").write(message())
        request = Request("q1", "abc")
        assert (await store.fork("t1", 1, "f1", request=request)).id == "f1"
        for same in (request, Request("q1")):
            assert (await store.fork("t1", 0, "f2", request=same)).id == "f1"
        for base, reused in (("t1", Request("q1", "xyz")), ("other", request)):
            with pytest.raises(RequestReused):
                await store.fork(base, 1, "f2", request=reused)
        with pytest.raises(DuplicateRequest):
            await Writer(store, "new").write(message(), request=request)
        await store.delete("f1")
        assert (await store.fork("t1", 1, "f2", request=request)).id == "f2"


async def test_concurrent_equal_forks_make_one_thread(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store).write(message())
        forks = [store.fork("t1", 1, f"f{n}", request=Request("q1")) for n in range(4)]
        assert len({made.id for made in await asyncio.gather(*forks)}) == 1
        assert len(await store.threads()) == 2


# -- chunks --------------------------------------------------------------------------------------------------


def chunk(offset: int, delta: str = "x", **fields: Any) -> Chunk:
    return replace(Chunk("m1", 1, offset, "text", delta), **fields)


def answer(text: str = "whole") -> Message:
    return Message(new_id(), "assistant", (Text(text),), 7)


async def test_chunks_are_kept_in_order_until_answer(open_store: StoreFactory) -> None:
    pieces = [chunk(0, "he\0"), chunk(3, "llo", kind="reasoning"), chunk(6, '{"a"', kind="call", call_id="c1")]
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(chunks=pieces[:1])
        await writer.write(chunks=pieces[1:])
        assert await store.chunks("t1") == pieces
        assert await store.chunks("t2") == []
        await writer.write(message("what the user says meanwhile"), step())
        assert await store.chunks("t1") == pieces
        await writer.write(answer())
        assert await store.chunks("t1") == []


async def test_answer_with_its_run_record_drops_chunks(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(chunks=[chunk(0)])
        told = answer()
        await writer.write(MessageAdded(identity("r7"), 0, 7, told))
        assert await store.chunks("t1") == []
        assert [(m.id, m.seq) for m in await store.messages("t1")] == [(told.id, 1)]


async def test_later_attempt_drops_earlier_chunks(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(chunks=[chunk(0), chunk(1)])
        again = [chunk(0, attempt=2), chunk(1, attempt=2)]
        await writer.write(chunks=again)
        assert await store.chunks("t1") == again


async def test_end_of_run_drops_its_chunks(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin(chunks=[chunk(0)])
        await writer.write(runs=[record(steps=1)])
        assert await store.chunks("t1") == [chunk(0)]
        await writer.release(runs=[record(status="done")])
        assert await store.chunks("t1") == []


async def test_chunks_need_fence_and_are_not_logged(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        before = await writer.begin()
        after = await writer.write(chunks=[chunk(0)])
        assert (after.head, after.version > before.version) == (before.head, True)
        stale = writer.fence
        await writer.release()
        with pytest.raises(StaleFence):
            await store.commit(Commit(thread_id="t1", fence=stale, chunks=[chunk(1)]))
        assert await store.chunks("t1") == [chunk(0)]


# -- what is said about a thread -----------------------------------------------------------------------------


async def test_title_and_metadata_need_no_claim(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        done = await writer.begin()
        meta = {"colour": "réd \0", "deep": [{"n": 1.5, "none": None}]}
        await store.commit(Commit(thread_id="t1", about=About("A title", meta)))
        await writer.write(message())
        thread = await store.thread("t1")
        assert thread is not None
        assert (thread.title, thread.metadata, thread.epoch) == ("A title", meta, done.epoch)


async def test_omitted_metadata_stays_and_empty_title_clears(open_store: StoreFactory) -> None:
    async with open_store() as store:
        for about in (About("one", {"a": 1}), About("two"), About(metadata={"b": 2})):
            await store.commit(Commit(thread_id="t1", about=about))
        thread = await store.thread("t1")
        assert thread is not None
        assert (thread.title, thread.metadata, thread.version) == ("two", {"b": 2}, 0)
        await store.commit(Commit(thread_id="t1", about=About("", {})))
        thread = await store.thread("t1")
        assert thread is not None
        assert (thread.title, thread.metadata) == (None, {})


async def test_metadata_creates_new_thread(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(Commit(thread_id="t1", about=About("new")))
        assert [thread.title for thread in await store.threads()] == ["new"]
        await Writer(store).begin(identity=identity())


async def test_reader_cannot_change_metadata(open_store: StoreFactory) -> None:
    async with open_store() as store:
        given = {"list": [1]}
        await store.commit(Commit(thread_id="t1", about=About(metadata=given)))
        given["list"].append(2)
        thread = await store.thread("t1")
        assert thread is not None
        thread.metadata["more"] = 1
        thread.metadata["list"].append(3)
        thread = await store.thread("t1")
        assert thread is not None
        assert thread.metadata == {"list": [1]}
