"""A child whose parent's thread is deleted finishes without a report, and leaves no other thread behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from loop.helpers import Hold, Scripted, holding, soon, until_idle
from postgres_server import fresh_database
from wakeful import Agent, Delegate, Runtime, call
from wakeful.types.runs import NaturalEnd

from .helpers import ask, lead, run_of, until_true

HOW = [Delegate("worker", background=True), Delegate("worker", durable=True)]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """Each kind of store there is."""
    if request.param == "memory":
        return None
    return str(tmp_path / "store.db") if request.param == "sqlite" else fresh_database()


@pytest.mark.parametrize("how", HOW, ids=["background", "waited-for"])
async def test_deletion_of_owner_deletes_child_thread(
    how: Delegate, store: str | None, scripted: Scripted
) -> None:
    hold = Hold()
    agents = [
        lead(scripted(*([ask(background=True), "waiting"] if how.background else [ask()])), how),
        Agent("worker", model=scripted(call("wait"), "worked"), tools=[holding(hold)]),
    ]
    async with Runtime(agents, store=store) as runtime:
        handle = await runtime.start("lead", "go", thread="t")
        await soon(hold.reached.wait())

        async def waits() -> bool:
            return (await runtime.runs.get(handle.run_id)).status == "waiting"

        await until_true(waits)
        assert await runtime.threads.delete("t", children="detach") == 1
        worker = await run_of(runtime, "worker")
        hold.released.set()
        assert (await soon(runtime.wait(worker.id))).termination == NaturalEnd()
        await until_idle(runtime)
        assert [thread.id for thread in await runtime.threads.list()] == [worker.thread_id]
        assert await runtime.store.due() == []
