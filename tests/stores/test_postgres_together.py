"""Commits that go on with their runs, many in one statement: each is as it would have been alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from postgres_suite import connected, schema_of
from test_postgres_breaks import Lost, through_a_proxy

from conformance.store_suite import Writer, call, identity, item, message, record, step
from postgres_server import fresh_store
from wakeful.errors import InboxMoved, StaleFence
from wakeful.stores import Chunk, Commit, Committed, Fence, Store
from wakeful.stores._packing import Packer
from wakeful.stores._plans import plan_of
from wakeful.stores._postgres import PostgresStore
from wakeful.types.content import Text, ToolCall
from wakeful.types.messages import Message

COUNT = 6


def run_of(n: int) -> str:
    return f"run{n}"


async def begun(store: Store) -> list[Writer]:
    """Writers of threads with a run each."""
    writers = [Writer(store, f"t{n}") for n in range(COUNT)]
    for n, writer in enumerate(writers):
        await writer.begin(run_of(n), log=[message("go", id=f"go{n}")], identity=identity(run_of(n), f"t{n}"))
    return writers


def answer(n: int) -> dict[str, Any]:
    """An answer that asks for a call; another one isn't in it."""
    asked = ToolCall("c0", "look", {"at": "sky"})
    said = Message(f"answer{n}", "assistant", (Text(f"answer{n}"), asked), 7)
    return {
        "log": [said, step(1, identity(run_of(n), f"t{n}"))],
        "runs": [record(run_of(n), f"t{n}", steps=1, stage="acting", answer_id=said.id)],
        "calls": [call("c0", 1, run_id=run_of(n)), call("c1", 1, run_id=run_of(n))],
    }


def result(n: int) -> dict[str, Any]:
    return {
        "log": [message(f"result{n}", id=f"result{n}")],
        "runs": [record(run_of(n), f"t{n}", steps=1, stage="acting", answer_id=f"answer{n}")],
        "calls": [call("c0", 1, run_id=run_of(n), outcome="ok")],
    }


async def write(writer: Writer, n: int, changes: dict[str, Any]) -> Committed:
    return await writer.write(
        *changes["log"],
        identity=identity(run_of(n), f"t{n}"),
        **{key: value for key, value in changes.items() if key != "log"},
    )


async def all_of(store: PostgresStore) -> list[Any]:
    """All that the threads hold, but for when and by whom."""
    found: list[Any] = [
        await store._query("SELECT seq, kind, agent, at, ref, payload, size, more FROM log ORDER BY thread, seq"),
        await store._query("SELECT step, place, id, name, ref, arguments, payload FROM calls ORDER BY run, place"),
        await store._query("SELECT id, agent, status, step, acting, answer, payload FROM runs ORDER BY no"),
        await store._query("SELECT id, wakes, head, version FROM threads ORDER BY no"),
    ]
    for n in range(COUNT):
        view = await store.load(f"t{n}")
        assert view is not None
        thread = view.thread
        found.append((thread.version, thread.head, thread.epoch, thread.inbox_head, thread.open_run_id))
        found.append((view.run, view.calls, view.answer, view.inbox, await store.messages(f"t{n}")))
        found.append([type(event).__name__ for event in await store.events(f"t{n}")])
        found.append(await store.chunks(f"t{n}"))
    return found


async def test_what_is_written_together_is_as_if_each_was_written_alone() -> None:
    seen: list[Any] = []
    for together in (True, False):
        async with fresh_store() as store:
            writers = await begun(store)
            await writers[0].write(
                identity=identity(run_of(0), "t0"), chunks=[Chunk("answer0", 0, 0, "text", "an")]
            )
            before, answers = store.batches, list[Committed]()
            for changes in (answer, result):
                work = [write(writer, n, changes(n)) for n, writer in enumerate(writers)]
                answers += await asyncio.gather(*work) if together else [await one for one in work]
            assert store.batches[0] - before[0] == (2 if together else 2 * COUNT)
            seen.append((answers, await all_of(store)))
    assert seen[0] == seen[1]


async def test_those_that_are_refused_are_told_why_and_the_others_are_in() -> None:
    async with fresh_store() as store:
        writers = await begun(store)
        await store.commit(Commit("t1", inbox=[item("new", "t1")]))
        writers[0].fence = Fence(1, "another")
        work = [
            write(writer, n, {**answer(n), **({"inbox_head": 0} if n in (1, 2) else {})})
            for n, writer in enumerate(writers)
        ]
        batches = store.batches[0]
        done = await asyncio.gather(*work, return_exceptions=True)
        assert store.batches[0] == batches + 1
        assert [type(one) for one in done] == [StaleFence, InboxMoved] + [Committed] * (COUNT - 2)
        heads = [await store.head(f"t{n}") for n in range(COUNT)]
        assert heads == [1, 1] + [3] * (COUNT - 2)


async def test_those_that_come_alone_are_told_why_they_are_refused_and_write_nothing() -> None:
    async with fresh_store() as store:
        writers = await begun(store)
        for n, writer in enumerate(writers):  # What follows is told in arrays.
            await write(writer, n, answer(n))
        await store.commit(Commit("t1", inbox=[item("new", "t1")]))
        before = await all_of(store)
        writers[0].fence = Fence(1, "another")
        with pytest.raises(StaleFence):
            await write(writers[0], 0, result(0))
        with pytest.raises(InboxMoved):
            await write(writers[1], 1, {**result(1), "inbox_head": 0})
        assert await all_of(store) == before
        other = {"log": [message("other")], "runs": [record("other", "t2")]}
        await write(writers[2], 2, other)
        view = await store.load("t2")
        assert view is not None
        assert view.thread.open_run_id == "other"


async def test_a_run_that_is_new_to_its_thread_is_opened_beside_those_that_go_on() -> None:
    async with fresh_store() as store:
        writers = await begun(store)
        other = {"log": [message("other")], "runs": [record("other", "t3")]}
        work = [write(writer, n, other if n == 3 else result(n)) for n, writer in enumerate(writers)]
        await asyncio.gather(*work)
        view = await writers[3].view()
        assert view.run is not None
        assert (view.run.id, view.thread.version) == ("other", 2)


@pytest.mark.parametrize("what", ["request", "reply"])
async def test_all_of_them_are_in_once_though_the_connection_breaks(what: Lost) -> None:
    async with fresh_store() as near, through_a_proxy(near) as (far, proxy):
        writers = await begun(far)
        proxy.lose(what)
        done = await asyncio.gather(*[write(writer, n, answer(n)) for n, writer in enumerate(writers)])
        assert proxy.lost.is_set()
        assert [(one.version, one.head) for one in done] == [(2, 3)] * COUNT
        assert [await near.head(f"t{n}") for n in range(COUNT)] == [3] * COUNT


def is_plain(**changes: Any) -> bool:
    commit = Commit(
        "t0", **{"fence": Fence(1, "me"), "identity": identity(run_of(0), "t0"), **answer(0), **changes}
    )
    return '"plain":true' in plan_of("default", Packer(None), commit).control


async def test_they_never_read_whole_tables_though_these_were_empty_when_they_were_planned() -> None:
    async with fresh_store(pool_size=1) as store, connected(schema_of(store)) as other:

        async def read() -> dict[str, int]:
            await store._query("SELECT pg_stat_force_next_flush()")
            tables = f"pg_stat_user_tables WHERE schemaname = '{schema_of(store)}'"
            return dict(await other.fetch(f"SELECT relname, coalesce(seq_tup_read, 0) FROM {tables}"))

        for n in range(12):
            await some_of_all_kinds(store, f"early{n}")
        await other.execute(
            """INSERT INTO threads (tenant, id, created_at, updated_at) SELECT 'default', n, 0, 0 FROM
                generate_series(1, 5000) AS n;
            INSERT INTO runs (tenant, id, thread, agent, status, step, acting, payload)
                SELECT 'default', n, n, '', 'done', 0, 0, '' FROM generate_series(1, 5000) AS n"""
        )
        before = await read()
        for n in range(3):
            await some_of_all_kinds(store, f"late{n}")
        after = await read()
        assert {name: count - before[name] for name, count in after.items() if count - before[name] >= 5000} == {}


async def some_of_all_kinds(store: PostgresStore, name: str) -> None:
    """Runs that begin, go on and end, several at once, and tell other threads."""
    writers = [Writer(store, f"{name}-{n}") for n in range(3)]

    def own(writer: Writer, status: Any) -> dict[str, Any]:
        run_id, thread_id = f"r-{writer.thread_id}", writer.thread_id
        given = {"log": [message()], "runs": [record(run_id, thread_id, status=status)]}
        return {**given, "identity": identity(run_id, thread_id)}

    def told(writer: Writer, item_id: str) -> list[Any]:
        return [item(f"{item_id}-{writer.thread_id}", f"other-{writer.thread_id}")]

    await asyncio.gather(*[w.claim(**own(w, "running"), inbox=told(w, "a")) for w in writers])
    await asyncio.gather(*[w._commit(fence=w.fence, **own(w, "running")) for w in writers])
    await asyncio.gather(*[w.release(**own(w, "done"), inbox=told(w, "b")) for w in writers])


def test_only_a_commit_that_goes_on_with_its_run_and_does_nothing_else_is_one_of_them() -> None:
    assert is_plain()
    assert not is_plain(release=True)
    assert not is_plain(fence=None, version=0)
    assert not is_plain(inbox=[item("a", "t1")])
    assert not is_plain(taken=["a"])
    assert not is_plain(seen={"a": 1})
    assert not is_plain(runs=[record(run_of(0), "t0", status="done")])
    assert not is_plain(runs=[record(run_of(0), "t0"), record("another", "t0")])
