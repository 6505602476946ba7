"""Tenants share a store and see nothing of each other."""

from __future__ import annotations

import pytest
from store_suite import StoreFactory, Writer, call, everything, item, message, record, step, ticket

from wakeful.errors import DuplicateRequest, StaleFence, UnknownThread
from wakeful.stores import About, Chunk, Commit, Fence, Retention, StateWrite, Store
from wakeful.types import Request
from wakeful.types.content import Text
from wakeful.types.messages import Message
from wakeful.types.tickets import Decision


async def fill(store: Store, text: str) -> Writer:
    """A thread of a tenant with one of each thing, under ids that every tenant uses."""
    writer, told = Writer(store), Message("m1", "assistant", (Text(text),), 7)
    await writer.begin(
        request=Request("q1"),
        log=[told, step()],
        calls=[call("c1")],
        tickets=[ticket("k1", message=text)],
        decisions=[Decision("k1", reason=text, id="d1")],
        state=[StateWrite("calls", b"1")],
        inbox=[item("i1", message=message(text))],
        about=About(text),
    )
    run = record(stage="acting", answer_id="m1", tree_calls=len(text))
    await writer.write(runs=[run], chunks=[Chunk("m2", 1, 0, "text", text)])
    return writer


async def test_equal_ids_of_two_tenants_are_independent(open_store: StoreFactory) -> None:
    async with open_store() as store:
        other = store.tenant("other")
        await fill(store, "one")
        await fill(other, "other")
        for handle, text in ((store, "one"), (other, "other")):
            thread, ticket_, found = await handle.thread("t1"), await handle.ticket("k1"), await handle.item("i1")
            assert thread is not None
            assert ticket_ is not None
            assert found is not None
            assert found.message is not None
            assert (thread.title, ticket_.message, found.message.text) == (text, text, text)
            assert [m.text for m in await handle.messages("t1")] == [text]
            assert [d.reason for d in await handle.decisions("k1")] == [text]
            assert [c.delta for c in await handle.chunks("t1")] == [text]
            assert [r.tree_calls for r in await handle.runs()] == [len(text)]
            assert [t.message for t in await handle.tickets(status="open")] == [text]
            assert len(await handle.threads()) == 1
            assert (await handle.counts())["threads"] == 1


async def test_records_of_another_tenant_cannot_be_read(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await fill(store, "secret")
        other = store.tenant("other")
        assert await other.load("t1") is None
        assert await other.thread("t1") is None
        assert await other.head("t1") == 0
        assert await other.messages("t1") == await other.messages("t1", newest=5) == []
        assert await other.events("t1") == []
        assert await other.chunks("t1") == []
        assert await other.run("r1") is None
        assert await other.answer("r1") is None
        assert list(await other.calls("r1")) == []
        assert list(await other.tickets("r1")) == list(await other.tickets(thread_id="t1")) == []
        assert list(await other.tickets()) == []
        assert await other.ticket("k1") is None
        assert list(await other.decisions("k1")) == []
        assert await other.item("i1") is None
        assert await other.item("q1") is None
        assert await other.runs() == await other.runs(thread_id="t1") == []
        assert await other.threads() == []
        assert not any((await other.counts()).values())


async def test_records_of_another_tenant_cannot_be_changed(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer, other = await fill(store, "mine"), store.tenant("other")
        await writer.release()
        before = await everything(store)
        assert await other.delete("t1") == 0
        with pytest.raises(UnknownThread):
            await other.fork("t1", 1, "t2")
        with pytest.raises(StaleFence):
            await other.commit(Commit(thread_id="t1", fence=Fence(1, "anybody"), log=[message()]))
        await other.commit(Commit(thread_id="t1", about=About("theirs"), inbox=[item("i1")]))
        pruned = await other.prune(
            Retention(chunks=-60_000, events=-60_000, runs=-60_000, runs_kept=0, threads_kept=0)
        )
        assert (pruned.chunks, pruned.events, pruned.runs) == (0, 0, 0)
        assert await everything(store) == before


async def test_request_of_one_tenant_is_new_to_another(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store).begin(request=Request("q1"))
        await Writer(store.tenant("other")).begin(request=Request("q1"))
        with pytest.raises(DuplicateRequest):
            await Writer(store.tenant("other"), "t2").begin("r2", request=Request("q1"))


async def test_claim_covers_all_tenants(open_store: StoreFactory) -> None:
    async with open_store() as store:
        for name in ("default", "one", "two"):
            await store.tenant(name).commit(Commit(thread_id="t1", inbox=[item("a", agent_id=name)]))
        seen = await store.tenant("nobody").due()
        assert sorted((due.tenant, due.thread_id, due.agent_id) for due in seen) == [
            ("default", "t1", "default"),
            ("one", "t1", "one"),
            ("two", "t1", "two"),
        ]


async def test_two_handles_of_one_tenant_share_records(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store.tenant("one")).write(message("hello"))
        assert [m.text for m in await store.tenant("one").messages("t1")] == ["hello"]
        assert [m.text for m in await store.tenant("default").messages("t1")] == []


async def test_deletion_and_prune_stay_within_tenant(open_store: StoreFactory) -> None:
    async with open_store() as store:
        other = store.tenant("other")
        for handle in (store, other):
            await (await fill(handle, "text")).release(runs=[record(status="done", finished_at=1)], taken=["i1"])
        before = await everything(other)
        pruned = await store.prune(Retention(events=0, runs=0))
        assert (pruned.events, pruned.runs) == (1, 1)
        assert await store.delete("t1") == 1
        assert await everything(other) == before
        assert await other.item("i1") is not None


async def test_tenants_with_threads_are_listed(open_store: StoreFactory) -> None:
    async with open_store() as store:
        assert await store.tenants() == []
        await fill(store, "one")
        await fill(store.tenant("acme"), "other")
        store.tenant("nobody")
        assert await store.tenants() == ["acme", "default"]
