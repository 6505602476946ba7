"""A grouped statement on SQLite writes the same rows as single statements, for one owner or many."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlite_suite import run_of, told

from wakeful.stores import Commit, Fence, MemoryStore, Store
from wakeful.stores.sqlite import SqliteStore
from wakeful.types.calls import Call
from wakeful.types.content import Text, ToolCall
from wakeful.types.events import Event, StepEnd, StepStart
from wakeful.types.messages import Message
from wakeful.types.runs import Waiting

NAMES = ["a", "b", "c"]
# What could be taken for a number.
IDS = st.sampled_from(["7", "007", "1e5", "0x10", "-0", " 1", "+1", "1.0", "call"])


class Step(NamedTuple):
    """The additions of an owner to its thread."""

    thread: str = "a"
    id: str = "call"
    messages: int = 1
    calls: int = 1
    events: bool = True
    status: Any = "running"
    agent: str = "agent"
    # Whether it is written with the next one, if that is another owner's.
    together: bool = False


STEPS = st.builds(
    Step,
    thread=st.sampled_from(NAMES),
    id=IDS,
    messages=st.sampled_from([1, 1, 1, 2, 5]),
    calls=st.integers(0, 4),
    events=st.booleans(),
    status=st.sampled_from(["running", "running", "waiting"]),
    agent=st.sampled_from(["agent", "010"]),
    together=st.booleans(),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def begin(store: Store, names: list[str]) -> dict[str, Fence]:
    fences: dict[str, Fence] = {}
    for name in names:
        run = run_of(name)
        first = Commit(thread_id=name, identity=run.identity, runs=[run], version=0, claim="me")
        fences[name] = Fence((await store.commit(first)).epoch, "me")
    return fences


def commit_of(number: int, step: Step, fence: Fence) -> Commit:
    parts = [ToolCall(f"{step.id}{number}.{n}", step.id, {"n": n}) for n in range(step.calls)]
    answer = Message(f"m{number}", "assistant", (Text("so"), *parts), 7)
    said = [Message(f"{number}.{n}", "user", (Text(step.id),), 8) for n in range(1, step.messages)]
    waiting = Waiting("user_input", 7, ("decision",)) if step.status == "waiting" else None
    own = {"status": step.status, "agent_id": step.agent, "waiting": waiting, "answer_id": answer.id}
    run = run_of(step.thread, steps=number, stage="acting", **own)
    before: list[Event] = [StepStart(run.identity, 0, 9, number)] if step.events else []
    rows = [Call(part.id, run.id, number, n, part.name, part.arguments) for n, part in enumerate(parts)]
    log = [*before, answer, *said, StepEnd(run.identity, 0, 9, number), StepStart(run.identity, 0, 9, number + 1)]
    return Commit(thread_id=step.thread, identity=run.identity, fence=fence, runs=[run], log=log, calls=rows)


async def everything(store: Store) -> list[object]:
    """All that is read of the threads, but for when they were written."""
    found: list[object] = []
    for name in NAMES:
        view = await store.load(name)
        assert view is not None
        thread = view.thread
        found += [(thread.version, thread.head, thread.open_run_id), view.run, view.calls, view.answer]
        found += [await store.messages(name), await store.events(name)]
        found += [[run.id for run in await store.runs(status=status)] for status in ("running", "waiting")]
        found += [[run.id for run in await store.runs(agent_id=agent)] for agent in ("agent", "010")]
    return found


@given(st.lists(STEPS, max_size=12))
@settings(deadline=None)
def test_batched_commits_equal_memory_store(steps: list[Step]) -> None:
    async def check(path: Path) -> None:
        memory, store = MemoryStore(), SqliteStore(path)
        fences = await begin(memory, NAMES)
        assert await begin(store, NAMES) == fences
        group: dict[str, Commit] = {}
        for number, step in enumerate(steps, 1):
            await memory.commit(commit_of(number, step, fences[step.thread]))
            if step.thread in group:
                await asyncio.gather(*map(store.commit, group.values()))
                group = {}
            group[step.thread] = commit_of(number, step, fences[step.thread])
            if not step.together:
                await asyncio.gather(*map(store.commit, group.values()))
                group = {}
        await asyncio.gather(*map(store.commit, group.values()))
        assert await everything(store) == await everything(memory)
        assert await store.check() == []
        await store.close()

    with TemporaryDirectory() as folder:
        asyncio.run(check(Path(folder, "store.db")))


async def test_commits_of_many_rows_are_written_together(path: Path) -> None:
    store = SqliteStore(path)
    fences = await begin(store, NAMES)

    def long(name: str, count: int) -> Commit:
        run = run_of(name)
        log = [Message(f"{name}{n}", "user", (Text(str(n)),), 7) for n in range(count)]
        return Commit(thread_id=name, identity=run.identity, fence=fences[name], runs=[run], log=log)

    counts = dict(zip(NAMES, (400, 2, 200), strict=True))
    done = await asyncio.gather(*[store.commit(long(name, count)) for name, count in counts.items()])
    assert [one.head for one in done] == [*counts.values()]
    assert [await told(store, name) for name in NAMES] == [
        [str(n) for n in range(count)] for count in counts.values()
    ]
    await store.close()


async def test_unwritable_commit_of_batch_fails_alone(path: Path) -> None:
    store = SqliteStore(path)
    fences = await begin(store, NAMES)
    times = dict(zip(NAMES, (7, 2**70, 7), strict=True))
    work = [
        store.commit(
            Commit(thread_id=name, identity=run_of(name).identity, fence=fences[name], runs=[run_of(name)],
                   log=[Message(name, "user", (Text(name),), at)])
        )
        for name, at in times.items()
    ]  # fmt: skip
    done = await asyncio.gather(*work, return_exceptions=True)
    assert [isinstance(one, OverflowError) for one in done] == [False, True, False]
    assert [await told(store, name) for name in NAMES] == [["a"], [], ["c"]]
    await store.close()


async def test_start_shares_transaction_with_steps(path: Path) -> None:
    store = SqliteStore(path)
    fences = await begin(store, NAMES)
    statements: list[str] = []
    new = run_of("new")
    beginning = Commit(thread_id="new", identity=new.identity, runs=[new], version=0, claim="me")
    others = [commit_of(1, Step(name), fences[name]) for name in NAMES]
    before = store.batches
    store._database._writing.set_trace_callback(lambda sql: statements.append(sql.split()[0]))
    await asyncio.gather(*map(store.commit, [*others, beginning]))
    assert (statements.count("BEGIN"), statements.count("COMMIT")) == (1, 1)
    assert [now - then for now, then in zip(store.batches, before, strict=True)] == [1, len(NAMES) + 1]
    await store.close()
