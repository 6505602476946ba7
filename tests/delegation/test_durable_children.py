"""How a call begins another agent: by the commit that starts it; and how it takes the answer: as it is told."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from loop.helpers import Scripted, replies_on, reply_text, soon
from wakeful import Agent, Delegate, Runtime, SqliteStore, call
from wakeful.stores import Commit

from .conftest import Place


class Watched(SqliteStore):
    """A store that remembers what was committed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.commits: list[Commit] = []

    async def commit(self, commit: Commit) -> Any:
        self.commits.append(commit)
        return await super().commit(commit)


def parent(scripted: Scripted, **how: Any) -> Agent:
    model = scripted(call("agent_run_child", prompt="do it"), "done")
    return Agent("parent", model=model, delegates=[Delegate("child", **how)])


async def test_child_starts_in_commit_of_its_call(tmp_path: Path, scripted: Scripted) -> None:
    store = Watched(str(tmp_path / "store.db"))
    async with Runtime([parent(scripted), Agent("child", model=scripted("hi"))], store=store) as runtime:
        assert (await soon(runtime.run("parent", "go"))).text == "done"
    (begun,) = [c for c in store.commits if any(task.status == "running" for task in c.tasks)]
    assert [c.state for c in begun.calls] == ["started"]
    assert len(store.commits) == 6


async def test_durable_call_waits_from_start(tmp_path: Path, scripted: Scripted) -> None:
    store = Watched(str(tmp_path / "store.db"))
    agents = [parent(scripted, durable=True), Agent("child", model=scripted("hi"))]
    async with Runtime(agents, store=store) as runtime:
        assert (await soon(runtime.run("parent", "go", thread="t"))).text == "done"
        (reply,) = await replies_on(runtime, "t")
    assert reply_text(reply) == "hi"
    (begun,) = [c for c in store.commits if c.inbox and c.inbox[0].kind == "input"]
    assert ([c.state for c in begun.calls], begun.release) == (["suspended"], True)
    assert len(store.commits) == 4


@dataclasses.dataclass
class Report:
    pages: int


async def test_durable_typed_output_is_read_from_child(place: Place, scripted: Scripted) -> None:
    child = Agent("child", model=scripted('{"pages": 3}'), output=Report)
    async with Runtime([parent(scripted, durable=True), child], store=place()) as runtime:
        assert (await soon(runtime.run("parent", "go", thread="t"))).text == "done"
        (reply,) = await replies_on(runtime, "t")
    assert reply.error is None
    assert b'"pages":3' in bytes(reply.data)


@pytest.mark.parametrize("durable", [False, True])
async def test_failed_durable_child_is_error_result(durable: bool, place: Place, scripted: Scripted) -> None:
    child = Agent("child", model=scripted(ValueError("no paper")), expose_errors=True)
    async with Runtime([parent(scripted, durable=durable), child], store=place()) as runtime:
        assert (await soon(runtime.run("parent", "go", thread="t"))).text == "done"
        (reply,) = await replies_on(runtime, "t")
    assert reply.error is not None
    assert reply_text(reply).startswith("agent child did not complete (failed): ")
    assert reply_text(reply).endswith("no paper")
