"""A caller loses its thread to another process while its child runs: the new owner gets the result."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path
from typing import Any

from loop.helpers import Hold, holding, soon
from wakeful import Agent, FunctionModel, ModelRequest, Runtime, call
from wakeful.loop import notify_item
from wakeful.stores import Commit, Fence, Store, open_store
from wakeful.types.content import text_of
from wakeful.types.events import RunStart
from wakeful.types.runs import NaturalEnd


def asking(*asked: Any) -> FunctionModel:
    """A model that makes this call, then repeats its result."""

    def answer(request: ModelRequest) -> Any:
        replies = [message.reply for message in request.messages if message.reply is not None]
        told = [reply.error or text_of(reply.content) for reply in replies]
        return " and ".join(told) or list(asked)

    return FunctionModel(answer)


def office(path: Path, long: Hold, short: Hold | None = None) -> Runtime:
    """A lead whose helper takes long, and who may do something short beside."""
    both = [call("agent_run_helper", prompt="Help"), *[call("short")] * (short is not None)]
    tools = [] if short is None else [holding(short, "short", effect="pure")]
    agents = [
        Agent("lead", asking(*both), tools=tools, delegates=["helper"]),
        Agent("helper", asking(call("long")), tools=[holding(long, "long", effect="pure")]),
    ]
    return Runtime(agents, store=path)


async def steal(path: Path, store: Store, owner: Runtime) -> None:
    """Take the lead's thread from its owner, whose lease is over for a moment; what else it has it keeps."""
    db = sqlite3.connect(path)
    ((until,),) = db.execute("SELECT until FROM workers WHERE id = ?", (owner.workers.id,)).fetchall()
    with db:
        db.execute("UPDATE workers SET until = 0")
    claims = await store.claim("thief", agents=["lead"], limit=1)
    with db:
        db.execute("UPDATE workers SET until = ? WHERE id = ?", (until, owner.workers.id))
    db.close()
    (claimed,) = claims.claimed
    assert claimed.thread_id == "t"
    await store.commit(Commit("t", fence=Fence(claimed.epoch, "thief"), release=True))


async def waits(store: Store) -> None:
    while (view := await store.load("t")) is None or view.run is None or view.run.status != "waiting":
        await asyncio.sleep(0.01)


async def recovered(store: Store) -> None:
    while not [e for e in await store.events("t") if isinstance(e, RunStart) and e.trigger == "recover"]:
        await asyncio.sleep(0.01)


async def ended(store: Store) -> str:
    while not (runs := await store.runs(thread_id="t")) or runs[0].status != "done":
        await asyncio.sleep(0.01)
    answer = await store.answer(runs[0].id)
    return "" if answer is None else answer.text


async def settled(store: Store) -> None:
    """Both runs ended, no thread is claimed, and nothing is pending."""
    runs = await store.runs()
    ends = sorted((run.agent_id, run.outcome.termination) for run in runs if run.outcome is not None)
    assert ends == [("helper", NaturalEnd()), ("lead", NaturalEnd())]
    for run in runs:
        view = await store.load(run.thread_id)
        assert view is not None
        assert (list(view.inbox), view.thread.claimed) == ([], False)
    assert await store.due() == []


async def test_child_reports_to_new_owner_of_call(tmp_path: Path) -> None:
    long, path = Hold(), tmp_path / "app.db"
    first, store = office(path, long), open_store(path)
    running = asyncio.create_task(first.run("lead", "go", thread="t"))
    await soon(long.reached.wait())
    await steal(path, store, first)
    async with office(path, long).as_worker(agents=["lead"]):
        await soon(waits(store))
        long.released.set()
        assert await soon(ended(store)) == "long done"
    await asyncio.gather(running, return_exceptions=True)
    await first.close()
    await settled(store)
    assert long.times == 1
    await store.close()


async def test_child_of_lost_parent_is_not_cancelled(tmp_path: Path) -> None:
    long, short, path = Hold(), Hold(), tmp_path / "app.db"
    first, store = office(path, long, short), open_store(path)
    running = asyncio.create_task(first.run("lead", "go", thread="t"))
    await soon(asyncio.gather(long.reached.wait(), short.reached.wait()))
    await steal(path, store, first)
    # It notices when it can't write the result of the other call.
    short.released.set()
    async with office(path, long, short):
        await soon(recovered(store))
        long.released.set()
        assert await soon(ended(store)) in ("short done and long done", "long done and short done")
    await asyncio.gather(running, return_exceptions=True)
    await first.close()
    await settled(store)
    await store.close()


async def test_child_awaited_by_another_owner_is_not_stopped(
    tmp_path: Path,
) -> None:
    """The answer came late: the call's present owner executes the child by now, and gets its result."""
    long, path = Hold(), tmp_path / "app.db"
    runtime, store = office(path, long), open_store(path)
    running = asyncio.create_task(runtime.run("lead", "go", thread="t"))
    await soon(long.reached.wait())
    (task,) = await store.tasks("t")
    await store.commit(Commit(task.target_thread, inbox=[notify_item(task, 1)]))
    await runtime._scope.dispatch.refresh_inbox(task.target_thread, sys.maxsize)
    long.released.set()
    assert (await soon(running)).text == "long done"
    (task,) = await store.tasks("t")
    assert (task.status, task.error) == ("completed", None)
    await settled(store)
    await runtime.close()
    await store.close()
