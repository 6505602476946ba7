"""A fork begins with another thread's log and state as they were at one entry, and goes its own way."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_suite import STORES, StoreFactory, Writer, everything, identity, item, message, record, step, ticket

from wakeful.errors import ThreadExists, UnknownThread, UsageError
from wakeful.stores import About, Commit, StateWrite, Store
from wakeful.types.events import MessageAdded


def state(value: int) -> list[StateWrite]:
    return [StateWrite("n", b"%d" % value)]


async def base_thread(store: Store) -> Writer:
    """Five entries: a message, an event, a message, an event, a message; the state follows the messages."""
    writer = Writer(store)
    await writer.begin(log=[message("a")], state=state(1))
    await writer.write(step(1), message("b"), state=state(2))
    await writer.write(step(2), message("c"), state=[*state(3), StateWrite("late", b"true")])
    return writer


async def texts(store: Store, thread_id: str, **page: int) -> list[str]:
    return [m.text for m in await store.messages(thread_id, **page)]


async def seqs(store: Store, thread_id: str, **page: int) -> list[int]:
    return [e.seq for e in await store.events(thread_id, **page)]


async def test_fork_has_log_and_state_up_to_its_entry(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await base_thread(store)
        fork = await store.fork("t1", 3, "f")
        assert (fork.id, fork.head, fork.base_id, fork.base_seq) == ("f", 3, "t1", 3)
        assert (fork.claimed, fork.open_run_id, fork.parent_id) == (False, None, None)
        assert await texts(store, "f") == ["a", "b"]
        assert await store.messages("f") == (await store.messages("t1"))[:2]
        assert await store.events("f") == (await store.events("t1"))[:3]
        view = await Writer(store, "f").view()
        assert (view.state, view.run, view.inbox) == ({"n": b"2"}, None, ())
        assert view.thread == fork == await store.thread("f")
        assert await store.head("f") == 3


async def test_runs_of_base_stay_with_base(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = await base_thread(store)
        await writer.write(tickets=[ticket("k1")], inbox=[item("i1")], about=About("title"))
        await store.fork("t1", 5, "f")
        assert await store.runs(thread_id="f") == []
        assert list(await store.tickets(thread_id="f")) == []
        assert [run.thread_id for run in await store.runs()] == ["t1"]
        assert all(event.run_id == "r1" for event in await store.events("f"))
        assert (await store.counts())["messages"] == 3


@pytest.mark.parametrize(("at", "told", "value"), [(0, [], None), (1, ["a"], b"1"), (5, ["a", "b", "c"], b"3")])
async def test_thread_can_be_forked_at_any_entry(
    open_store: StoreFactory, at: int, told: list[str], value: bytes | None
) -> None:
    async with open_store() as store:
        await base_thread(store)
        assert (await store.fork("t1", at, "f")).head == at
        assert await texts(store, "f") == told
        assert (await Writer(store, "f").view()).state.get("n") == value
        assert await seqs(store, "f") == list(range(1, at + 1))


async def test_invalid_fork_is_refused_and_makes_nothing(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await base_thread(store)
        await store.commit(Commit(thread_id="taken", about=About("mine")))
        for at in (-1, 6):
            with pytest.raises(UsageError, match="entries 1 to 5"):
                await store.fork("t1", at, "f")
        with pytest.raises(UnknownThread, match="'nowhere'"):
            await store.fork("nowhere", 0, "f")
        for existing in ("taken", "t1"):
            with pytest.raises(ThreadExists, match=f"'{existing}'"):
                await store.fork("t1", 1, existing)
        assert await store.thread("f") is None
        assert len(await store.threads()) == 2


async def test_fork_and_base_diverge(open_store: StoreFactory) -> None:
    async with open_store() as store:
        base = await base_thread(store)
        fork = Writer(store, "f")
        fork.version = (await store.fork("t1", 3, "f")).version
        done = await fork.claim(
            runs=[record("r2", "f")], log=[message("mine")], state=state(9), identity=identity("r2", "f")
        )
        assert done.head == 4
        await base.write(message("theirs"), state=state(4))
        assert await texts(store, "f") == ["a", "b", "mine"]
        assert await texts(store, "t1") == ["a", "b", "c", "theirs"]
        assert await seqs(store, "f") == [1, 2, 3, 4]
        assert (await fork.view()).state == {"n": b"9"}
        assert (await base.view()).state == {"n": b"4", "late": b"true"}
        assert [event.run_id for event in await store.events("f")] == ["r1", "r1", "r1", "r2"]


async def test_fork_is_paged_like_any_thread(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await base_thread(store)
        fork = Writer(store, "f")
        fork.version = (await store.fork("t1", 3, "f")).version
        await fork.write(message("x"), step(), message("y"))
        assert await seqs(store, "f", after=2, limit=2) == [3, 4]
        assert await seqs(store, "f", after=4) == [5, 6]
        assert await texts(store, "f", limit=2) == ["a", "b"]
        assert await texts(store, "f", after=1, limit=2) == ["b", "x"]
        assert await texts(store, "f", newest=3) == ["b", "x", "y"]
        assert await texts(store, "f", newest=3, after=3) == ["x", "y"]
        assert await texts(store, "f", newest=1) == ["y"]


@pytest.mark.parametrize("at", [1, 3, 4])
async def test_fork_of_fork_has_log_of_first(open_store: StoreFactory, at: int) -> None:
    async with open_store() as store:
        base = await base_thread(store)
        one = Writer(store, "one")
        one.version = (await store.fork("t1", 3, "one")).version
        await one.write(message("own"), state=state(7))
        before = [e.seq for e in await store.events("one")][:at], (await texts(store, "one", limit=9))
        two = Writer(store, "two")
        two.version = (await store.fork("one", at, "two")).version
        assert await seqs(store, "two") == before[0]
        assert await texts(store, "two") == {1: ["a"], 3: ["a", "b"], 4: ["a", "b", "own"]}[at]
        assert (await two.view()).state == {"n": {1: b"1", 3: b"2", 4: b"7"}[at]}
        await two.write(message("last"))
        await base.write(message("unseen"))
        assert (await texts(store, "two"))[-1] == "last"
        assert "unseen" not in await texts(store, "two")


async def test_fork_survives_deletion_of_base(open_store: StoreFactory) -> None:
    async with open_store() as store:
        base = await base_thread(store)
        await store.fork("t1", 3, "f")
        fork = Writer(store, "f")
        fork.version = 1
        await fork.write(message("mine"))
        told = await store.messages("f")
        await base.release(runs=[record(status="done")])
        assert await store.delete("t1") == 1
        assert await store.messages("f") == told
        assert await texts(store, "f", newest=2) == ["b", "mine"]
        view = await fork.view()
        assert (view.state, view.thread.head, view.thread.base_id) == ({"n": b"2"}, 4, None)
        await fork.write(message("more"))
        assert await seqs(store, "f") == [1, 3, 4, 5]
        assert all(isinstance(event, MessageAdded) for event in await store.events("f"))


@pytest.mark.parametrize("at", [1, 3, 4])
@pytest.mark.parametrize("order", [["t1", "one"], ["one", "t1"]])
async def test_fork_of_fork_survives_deletion_of_both(open_store: StoreFactory, at: int, order: list[str]) -> None:
    async with open_store() as store:
        base = await base_thread(store)
        await base.release(runs=[record(status="done")])
        one, two = Writer(store, "one"), Writer(store, "two")
        one.version = (await store.fork("t1", 3, "one")).version
        await one.write(message("own"))
        two.version = (await store.fork("one", at, "two")).version
        await two.write(message("last"))
        told = await store.messages("two")
        for thread_id in order:
            assert await store.delete(thread_id) == 1
            assert await store.messages("two") == told
        await two.write(message("more"))
        assert [m.text for m in await store.messages("two")] == [*[m.text for m in told], "more"]
        assert await store.delete("two") == 1
        assert not any((await store.counts()).values())


async def test_large_message_stays_in_fork_after_base_is_deleted(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer, large = Writer(store), "x" * 100_000
        await writer.write(message(large), state=[StateWrite("big", b'"%s"' % (b"y" * 100_000))])
        await store.fork("t1", 1, "f")
        await store.delete("t1")
        assert await texts(store, "f") == [large]
        assert len((await Writer(store, "f").view()).state["big"]) == 100_002


async def test_refused_fork_leaves_existing_one_unchanged(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await base_thread(store)
        await store.fork("t1", 3, "f")
        before = await everything(store, "f")
        with pytest.raises(ThreadExists):
            await store.fork("t1", 5, "f")
        assert await everything(store, "f") == before


@pytest.mark.parametrize("name", STORES)
@given(points=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=5))
def test_any_fork_tree_reads_like_copies(name: str, points: list[tuple[int, int]]) -> None:
    async def check() -> None:
        async with STORES[name]() as store:
            await Writer(store, "0").write(*[message(f"0.{n}") for n in range(4)])
            copies = {"0": [f"0.{n}" for n in range(4)]}
            for number, (parent, at) in enumerate(points, 1):
                base, new = str(parent % number), str(number)
                at = min(at, len(copies[base]))
                writer = Writer(store, new)
                writer.version = (await store.fork(base, at, new)).version
                await writer.write(*[message(f"{new}.{n}") for n in range(2)])
                copies[new] = [*copies[base][:at], f"{new}.0", f"{new}.1"]
            for thread_id in list(copies):
                for left, copy in copies.items():
                    assert [m.text for m in await store.messages(left)] == copy
                    assert [m.text for m in await store.messages(left, newest=3)] == copy[-3:]
                await store.delete(thread_id)
                del copies[thread_id]

    asyncio.run(check())
