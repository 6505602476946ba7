"""Durable children and their callers in one process: what they need of the store, and what others do meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from loop.helpers import Scripted, replies_on, reply_text, soon
from wakeful import Agent, Delegate, Runtime, ScriptedModel, SqliteStore, TokenBudget, Turn, Usage, call, tool
from wakeful.stores import Commit, Committed, StateWrite

READS = ("load", "messages", "run", "runs", "answer", "item", "tasks", "tickets", "thread")


class Watched(SqliteStore):
    """A store that remembers what was committed and read; one that is `plain` writes each commit by itself."""

    def __init__(self, path: Path, *, plain: bool = False) -> None:
        super().__init__(path)
        self.commits: list[Commit] = []
        self.reads: list[str] = []
        self.plain = plain

    async def commit(self, commit: Commit) -> Committed:
        self.commits.append(commit)
        return await super().commit(replace(commit, then=()) if self.plain else commit)

    def __getattribute__(self, name: str) -> Any:
        if name in READS:
            self.reads.append(name)
        return super().__getattribute__(name)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def ask(child: str = "child") -> Any:
    return call(f"agent_run_{child}", prompt="do it")


def parent(model: Any, **how: Any) -> Agent:
    return Agent("parent", model=model, delegates=[Delegate("child", durable=True)], **how)


async def test_local_child_shares_commits_without_reads(path: Path, scripted: Scripted) -> None:
    store = Watched(path)
    agents = [parent(scripted(ask(), ask(), "done")), Agent("child", model=scripted("one", "two"))]
    runtime = Runtime(agents, store=store)
    store.reads.clear()  # It was looked at whether it is a store.
    result = await soon(runtime.run("parent", "go"))
    assert (result.text, store.reads) == ("done", [])
    # The input; twice the call with the child's beginning, and its end with the caller's going on; the end.
    assert [len(commit.then) for commit in store.commits] == [0, 1, 1, 1, 1, 0]
    assert [reply_text(reply) for reply in await replies_on(runtime, result.thread_id)] == ["one", "two"]
    assert not runtime._scope.dispatch.parked.by_thread
    await runtime.close()


async def test_children_of_one_step_start_in_one_commit(path: Path, scripted: Scripted) -> None:
    store = Watched(path)
    agents = [parent(scripted([ask(), ask(), ask()], "done")), Agent("child", model=scripted("a", "b", "c"))]
    async with Runtime(agents, store=store) as runtime:
        result = await soon(runtime.run("parent", "go"))
        replies = [reply_text(reply) for reply in await replies_on(runtime, result.thread_id)]
        assert (result.text, sorted(replies)) == ("done", ["a", "b", "c"])
        assert {run.status for run in await runtime.runs.list()} == {"done"}
        assert not runtime._scope.dispatch.parked.by_thread
    assert 3 in [len(commit.then) for commit in store.commits]


async def test_store_without_group_commit_is_supported(path: Path, scripted: Scripted) -> None:
    store = Watched(path, plain=True)
    agents = [parent(scripted(ask(), "done")), Agent("child", model=scripted("hi"))]
    async with Runtime(agents, store=store) as runtime:
        result = await soon(runtime.run("parent", "go"))
        (reply,) = await replies_on(runtime, result.thread_id)
    assert (result.text, reply_text(reply)) == ("done", "hi")


async def test_changed_parent_is_read_again(path: Path, scripted: Scripted) -> None:
    store, other = Watched(path), SqliteStore(path)

    @tool
    async def meddle() -> str:
        """Write to the thread of the caller, which waits."""
        view = await other.load("t")
        assert view is not None
        await other.commit(Commit("t", version=view.thread.version, state=[StateWrite("other", b"1")]))
        return "done"

    child = Agent("child", model=scripted(call("meddle"), "hi"), tools=[meddle])
    async with Runtime([parent(scripted(ask(), "done")), child], store=store) as runtime:
        assert (await soon(runtime.run("parent", "go", thread="t"))).text == "done"
        (reply,) = await replies_on(runtime, "t")
        assert reply_text(reply) == "hi"
    await other.close()


async def test_parent_sees_input_that_arrived_during_wait(path: Path) -> None:
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @tool
    async def interfere() -> str:
        """Have the caller stopped."""
        await runtime.cancel(await started, "enough")
        return "done"

    child = Agent("child", model=ScriptedModel([call("interfere"), "hi"]), tools=[interfere])
    async with Runtime([parent(ScriptedModel([ask(), "done"])), child], store=path) as runtime:
        handle = await runtime.start("parent", "go", thread="t")
        started.set_result(handle.run_id)
        result = await soon(handle.result())
        assert result.termination is not None
        assert "enough" in repr(result.termination)
        ends = [await soon(runtime.wait(run.id)) for run in await runtime.runs.list()]
        assert {end.status for end in ends} == {"done"}


async def test_parent_is_not_kept_when_child_waits(path: Path, scripted: Scripted) -> None:
    @tool(approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    child = Agent("child", model=scripted(call("pay"), "hi"), tools=[pay])
    async with Runtime([parent(scripted(ask(), "done")), child], store=path) as runtime:
        result = await soon(runtime.run("parent", "go"))
        assert (result.status, len(result.tickets)) == ("waiting", 1)
        assert not runtime._scope.dispatch.parked.by_thread
        result = await soon(runtime.resume(result.run_id, result.tickets[0].approve()))
        assert result.text == "done"


@pytest.mark.parametrize("plain", [False, True], ids=["together", "apart"])
async def test_child_usage_counts_for_parent(plain: bool, path: Path, scripted: Scripted) -> None:
    child = Agent("child", model=scripted(Turn(text="hi", usage=Usage(input_tokens=90, output_tokens=10))))
    caller = parent(scripted(ask()), stop=[TokenBudget(50, tree=True)])
    async with Runtime([caller, child], store=Watched(path, plain=plain)) as runtime:
        result = await soon(runtime.run("parent", "go"))
        assert result.error is not None
        assert "stopped by" in result.error
        assert result.usage.total_tokens == 100


async def test_child_that_cannot_start_is_reported_once(path: Path, scripted: Scripted) -> None:
    child = Agent("child", model=scripted(RuntimeError("no")))
    async with Runtime([parent(scripted(ask(), "done")), child], store=path) as runtime:
        result = await soon(runtime.run("parent", "go"))
        (reply,) = await replies_on(runtime, result.thread_id)
        assert (result.text, reply.error is not None) == ("done", True)
