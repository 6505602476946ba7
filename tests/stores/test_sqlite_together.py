"""Commits of many owners on SQLite: one transaction, and each its own outcome."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from sqlite_suite import run_of, told

from wakeful.errors import StaleFence, StoreFull, StoreUnavailable
from wakeful.stores import Chunk, Commit, Committed, Fence
from wakeful.stores.sqlite import SqliteStore
from wakeful.stores.sqlite.writer import MAX_BATCH
from wakeful.types.calls import Call
from wakeful.types.content import Text, ToolCall
from wakeful.types.events import StepStart
from wakeful.types.ids import new_id
from wakeful.types.inbox import InputItem
from wakeful.types.messages import Message, user_message

NAMES = ["a", "b", "c", "d"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def opened(path: Path, names: list[str] = NAMES) -> tuple[SqliteStore, dict[str, Fence]]:
    """A store with threads that are owned, each as its owner's first words left it."""
    store, fences = SqliteStore(path), dict[str, Fence]()
    for name in names:
        run = run_of(name)
        begin = Commit(thread_id=name, identity=run.identity, runs=[run], version=0, claim="me")
        fences[name] = Fence((await store.commit(begin)).epoch, "me")
    await asyncio.gather(*[says(store, name, fences[name], "first") for name in names])
    return store, fences


def says(store: SqliteStore, name: str, fence: Fence, text: str, **more: Any) -> Coroutine[Any, Any, Committed]:
    run = more.pop("run", None) or run_of(name)
    log = [Message(new_id(), "user", (Text(text),), 7), StepStart(run.identity, 0, 7, 1)]
    commit = Commit(thread_id=name, identity=run.identity, runs=[run], fence=fence, **({"log": log} | more))
    return store.commit(commit)


def traced(store: SqliteStore) -> list[str]:
    """The first words of the statements that the store executes from now on."""
    statements: list[str] = []

    def trace(sql: str) -> None:
        if (words := " ".join(sql.split()[:3])) not in statements[-1:]:
            statements.append(words)

    store._database._writing.set_trace_callback(trace)
    return statements


async def test_commits_of_many_owners_share_a_transaction(path: Path) -> None:
    store, fences = await opened(path)
    statements, before = traced(store), store.batches
    done = await asyncio.gather(*[says(store, name, fences[name], name) for name in NAMES])
    assert (statements.count("BEGIN IMMEDIATE"), statements.count("COMMIT")) == (1, 1)
    assert [now - then for now, then in zip(store.batches, before, strict=True)] == [1, len(NAMES)]
    assert [(one.version, one.head) for one in done] == [(3, 4)] * len(NAMES)
    assert [await told(store, name) for name in NAMES] == [["first", name] for name in NAMES]
    await store.close()


async def test_batched_calls_and_runs_are_read_back_exactly(path: Path) -> None:
    store, fences = await opened(path)

    def answered(name: str) -> Coroutine[Any, Any, Committed]:
        call = ToolCall(f"call-{name}", "look", {"at": name})
        answer = Message(f"answer-{name}", "assistant", (call,), 7)
        run = run_of(name, stage="acting", steps=1, answer_id=answer.id)
        row = Call(call.id, run.id, 1, 0, "look", {"at": name})
        return says(store, name, fences[name], "", run=run, log=[answer], calls=[row])

    await asyncio.gather(*[answered(name) for name in NAMES])
    for name in NAMES:
        view = await store.load(name)
        assert view is not None
        assert view.run is not None
        assert (view.run.steps, view.answer and view.answer.id) == (1, f"answer-{name}")
        assert [(call.id, call.arguments) for call in view.calls] == [(f"call-{name}", {"at": name})]
    await store.close()


async def test_replaced_owner_in_batch_is_refused_alone(path: Path) -> None:
    store, fences = await opened(path)
    fences["b"] = Fence(fences["b"].epoch + 1, "me")
    work = [says(store, name, fences[name], "second") for name in NAMES]
    done = await asyncio.gather(*work, return_exceptions=True)
    assert [type(one) for one in done] == [Committed, StaleFence, Committed, Committed]
    assert [await told(store, name) for name in "ab"] == [["first", "second"], ["first"]]
    again = await asyncio.gather(*[says(store, name, fences[name], "third") for name in "acd"])
    assert [one.head for one in again] == [6, 6, 6]
    await store.close()


async def test_owner_in_batch_sees_its_inbox_head(path: Path) -> None:
    store, fences = await opened(path)
    await store.commit(Commit(thread_id="b", inbox=[InputItem(id="i", thread_id="b", message=user_message("x"))]))
    done = await asyncio.gather(*[says(store, name, fences[name], "second") for name in NAMES])
    assert [one.inbox_head for one in done] == [0, 1, 0, 0]
    assert [await told(store, name) for name in NAMES] == [["first", "second"]] * len(NAMES)
    await store.close()


async def test_lone_surrogates_in_batch_are_replaced(path: Path) -> None:
    store, fences = await opened(path)
    texts = ["plain", "half \ud800", "plain", "plain"]
    work = [says(store, name, fences[name], text) for name, text in zip(NAMES, texts, strict=True)]
    assert [one.head for one in await asyncio.gather(*work)] == [4] * len(NAMES)
    assert [(await told(store, name))[1] for name in NAMES] == ["plain", "half �", "plain", "plain"]
    await store.close()


async def test_chunks_of_batched_answers_are_dropped(path: Path) -> None:
    store, fences = await opened(path)
    for name in NAMES:
        chunk = Chunk("m", 0, 0, "text", "so far")
        await store.commit(Commit(name, run_of(name).identity, fences[name], chunks=[chunk]))
    answers = [Message(new_id(), "assistant", (Text("whole"),), 7) for _ in NAMES]
    work = zip(NAMES, answers, strict=True)
    await asyncio.gather(*[says(store, name, fences[name], "", log=[answer]) for name, answer in work])
    assert [await store.chunks(name) for name in NAMES] == [[]] * len(NAMES)
    await store.close()


async def test_full_disk_refuses_whole_batch(path: Path) -> None:
    store, fences = await opened(path)
    db = store._database._writing
    db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
    work = [says(store, name, fences[name], "x" * 9000) for name in NAMES]
    done = await asyncio.gather(*work, return_exceptions=True)
    assert [type(one) for one in done] == [StoreFull] * len(NAMES)
    db.execute("PRAGMA max_page_count = 1000000")
    done = await asyncio.gather(*[says(store, name, fences[name], "second") for name in NAMES])
    assert [one.head for one in done] == [4] * len(NAMES)
    assert await store.check() == []
    await store.close()


async def test_loop_continues_while_other_process_writes(path: Path) -> None:
    store, fences = await opened(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    work = [asyncio.ensure_future(says(store, name, fences[name], "second")) for name in NAMES]
    for _ in range(5):
        await asyncio.sleep(0)
    assert not any(one.done() for one in work)
    other.execute("COMMIT")
    other.close()
    assert [one.head for one in await asyncio.gather(*work)] == [4] * len(NAMES)
    await store.close()


async def test_large_batch_is_split(path: Path) -> None:
    names = [f"t{n}" for n in range(MAX_BATCH + 5)]
    store, fences = await opened(path, names)
    before = store.batches
    done = await asyncio.gather(*[says(store, name, fences[name], "second") for name in names])
    assert [one.head for one in done] == [4] * len(names)
    assert [now - then for now, then in zip(store.batches, before, strict=True)] == [2, len(names)]
    await store.close()


async def test_close_writes_or_refuses_open_commits(path: Path) -> None:
    store, fences = await opened(path)
    work = [asyncio.ensure_future(says(store, name, fences[name], "second")) for name in NAMES]
    await asyncio.sleep(0)
    await store.close()
    done = await asyncio.gather(*work, return_exceptions=True)
    again = SqliteStore(path)
    for name, one in zip(NAMES, done, strict=True):
        assert isinstance(one, Committed | StoreUnavailable)
        assert await told(again, name) == (["first", "second"] if isinstance(one, Committed) else ["first"])
    await again.close()


async def test_last_commits_before_close_are_settled(path: Path) -> None:
    names = [f"t{n}" for n in range(MAX_BATCH + 5)]
    store, fences = await opened(path, names)
    work = [asyncio.ensure_future(says(store, name, fences[name], "second")) for name in names]
    await asyncio.sleep(0)
    store._database.writer.is_closed = True
    done = await asyncio.gather(*work, return_exceptions=True)
    assert [type(one) for one in done] == [StoreUnavailable] * len(names)
    store._database.writer.is_closed = False
    await store.close()


async def test_loops_of_several_threads_write_to_one_store(path: Path) -> None:
    store, fences = await opened(path)

    async def talk(name: str) -> int:
        for n in range(20):
            done = await says(store, name, fences[name], str(n))
        return done.head

    heads = await asyncio.gather(*[asyncio.to_thread(asyncio.run, talk(name)) for name in NAMES])
    assert heads == [42] * len(NAMES)
    await store.close()
