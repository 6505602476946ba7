"""Draining: on a durable store a graceful stop hands runs over and cancels none of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from loop.helpers import Hold, Scripted, assert_settled, holding, soon, until
from wakeful import Agent, Capacity, FunctionModel, MemoryStore, Runtime, call
from wakeful.errors import Overloaded, RunDeadLettered, RuntimeClosed, UsageError
from wakeful.server import app, lifespan
from wakeful.stores import MAX_ATTEMPTS, Commit, Fence
from wakeful.types.events import RunStart


def agent(scripted: Scripted, *turns: object, tools: tuple[object, ...] = ()) -> Agent:
    return Agent("agent", model=scripted(*turns), tools=list(tools))


async def finished_elsewhere(made: Agent, store: Path) -> list[str]:
    """The triggers of the thread's activations, once another runtime has finished its run."""
    async with Runtime([made], store=store) as other:
        (run,) = await other.runs.list(thread="t")
        result = await soon(other.wait(run.id))
        assert result.error is None
        await assert_settled(other, "t")
        return [e.trigger async for e in other.events("t", follow=False) if isinstance(e, RunStart)]


async def test_drain_finishes_open_step_and_hands_run_over(scripted: Scripted, tmp_path: Path) -> None:
    hold, store = Hold(), tmp_path / "store.db"
    made = agent(scripted, call("wait"), "done", tools=(holding(hold),))
    runtime = Runtime([made], store=store)
    run = asyncio.create_task(runtime.run("agent", "go", thread="t"))
    await soon(hold.reached.wait())
    draining = asyncio.create_task(runtime.workers.drain(30))
    await asyncio.sleep(0)
    hold.released.set()
    assert await soon(draining) == 0
    with pytest.raises(RuntimeClosed, match="another process on the store continues it"):
        await soon(run)
    assert (await runtime.runs.calls((await runtime.runs.list())[0].id))[0].outcome == "ok"
    (dispatch,) = await runtime.workers.dispatches()
    assert (dispatch.claimed_by, dispatch.attempts) == (None, 0)
    await runtime.close()
    assert await finished_elsewhere(made, store) == ["new", "recover"]


async def test_drain_cuts_off_slow_calls_by_effect(scripted: Scripted, tmp_path: Path) -> None:
    hold, store = Hold(), tmp_path / "store.db"
    made = agent(scripted, call("wait"), "done", tools=(holding(hold, effect="once"),))
    runtime = Runtime([made], store=store)
    run = asyncio.create_task(runtime.run("agent", "go", thread="t"))
    await soon(hold.reached.wait())
    assert await soon(runtime.workers.drain(0)) == 1
    with pytest.raises(RuntimeClosed):
        await soon(run)
    (record,) = await runtime.runs.list()
    assert (record.status, record.cancel) == ("running", None)
    await runtime.close()
    async with Runtime([made], store=store) as other:
        await soon(other.wait(record.id))
        (lost,) = await other.runs.calls(record.id)
        assert (lost.outcome, lost.attempt) == ("unknown", 1)


async def test_close_hands_runs_over_and_claims_nothing(scripted: Scripted, tmp_path: Path) -> None:
    hold, store = Hold(), tmp_path / "store.db"
    made = agent(scripted, call("wait"), "done", tools=(holding(hold),))
    runtime = Runtime([made], store=store)
    run = asyncio.create_task(runtime.run("agent", "go", thread="t"))
    await soon(hold.reached.wait())
    closing = asyncio.create_task(runtime.close())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeClosed):
        await runtime.run("agent", "more")
    hold.released.set()
    await soon(closing)
    with pytest.raises(RuntimeClosed):
        await soon(run)
    assert await finished_elsewhere(made, store) == ["new", "recover"]


async def test_drain_lets_last_step_finish_run(scripted: Scripted, tmp_path: Path) -> None:
    hold = Hold()
    made = agent(scripted, call("wait"), tools=(holding(hold, approval=False),))
    runtime = Runtime([made], store=tmp_path / "store.db")
    run = asyncio.create_task(runtime.run("agent", "go", thread="t"))
    await soon(hold.reached.wait())
    (record,) = await runtime.runs.list()
    stopping = asyncio.create_task(runtime.cancel(record.id))
    await asyncio.sleep(0)
    await soon(runtime.workers.drain(30))
    await soon(asyncio.gather(run, stopping, return_exceptions=True))
    assert (await runtime.runs.get(record.id)).status == "done"
    await runtime.close()


@pytest.mark.parametrize("durable", [True, False])
async def test_draining_runtime_is_not_ready_for_any_tenant(tmp_path: Path, durable: bool) -> None:
    hold = Hold()
    model = FunctionModel(lambda request: call("wait") if request.messages[-1].role == "user" else "done")
    made = Agent("agent", model=model, tools=[holding(hold)])
    runtime = Runtime([made], store=tmp_path / "store.db" if durable else None)
    served = app(runtime)
    transport = httpx.ASGITransport(served)
    async with lifespan(served), httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        assert (await client.get("/readyz")).status_code == 200
        await runtime.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        draining = asyncio.create_task(runtime.workers.drain(30))
        await asyncio.sleep(0)
        said = await client.get("/readyz")
        assert (said.status_code, "claims no more threads" in said.text) == (503, True)
        with pytest.raises(RuntimeClosed):
            await runtime.tenant("new").run("agent", "more")
        hold.released.set()
        await soon(draining)
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/healthz")).status_code == 200


# -- capacity ------------------------------------------------------------------------------------------------


async def test_claims_keep_concurrency_limit(scripted: Scripted, tmp_path: Path) -> None:
    hold = Hold()
    made = agent(scripted, *[call("wait")] * 3, *["done"] * 3, tools=(holding(hold),))
    store = tmp_path / "store.db"
    sender = Runtime([made], store=store, execute=False)
    for number in range(3):
        await sender.send(f"t{number}", "go", agent="agent")
    async with Runtime([made], store=store, capacity=Capacity(running=2)) as worker:
        await soon(hold.reached.wait())
        while sum(one.claimed_by is not None for one in await sender.workers.dispatches()) < 2:
            await asyncio.sleep(0)
        assert len(worker._scope.dispatch.active) <= 2
        hold.released.set()
        while len([run for run in await sender.runs.list() if run.status == "done"]) < 3:
            await asyncio.sleep(0.01)
        assert worker._scope.shared.worker.metrics.counts["wakeful_claims_total", ""] == 3
    await sender.close()


async def test_input_beyond_queue_depth_writes_nothing(scripted: Scripted) -> None:
    store = MemoryStore()
    runtime = Runtime([agent(scripted)], store=store, execute=False, capacity=Capacity(queued=2))
    for thread in ("a", "b"):
        await runtime.send(thread, "go", agent="agent")
    with pytest.raises(Overloaded, match="2 dispatches of this tenant wait"):
        await runtime.send("c", "go", agent="agent")
    with pytest.raises(Overloaded):
        await soon(runtime.run("agent", "go", thread="d"))
    assert [thread.id for thread in await store.threads()] == ["b", "a"]
    await runtime.tenant("other").send("c", "go", agent="agent")


# -- delays and priorities -----------------------------------------------------------------------------------


async def test_delayed_run_starts_when_due(scripted: Scripted, tmp_path: Path) -> None:
    async with Runtime([agent(scripted, "done")], store=tmp_path / "store.db") as runtime:
        begun = runtime._scope.env.clock.now()
        handle = await runtime.start("agent", "go", delay=1)
        assert await runtime.runs.list() == []
        assert (await soon(handle.result())).text == "done"
        assert (await runtime.runs.get(handle.run_id)).created_at >= begun + 1000


@pytest.mark.parametrize("bad", [{"delay": -1}, {"priority": 256}, {"at": "noon"}, {"priority": True}])
async def test_invalid_delay_or_priority_is_refused(scripted: Scripted, bad: dict[str, object]) -> None:
    runtime = Runtime([agent(scripted)])
    with pytest.raises(UsageError, match=r"delay|priority|time"):
        await runtime.start("agent", "go", **bad)  # type: ignore[arg-type]


# -- dead letters --------------------------------------------------------------------------------------------


async def give_up(runtime: Runtime) -> str:
    """A run in the middle whose every attempt failed; its id."""
    store = runtime.store
    for number in range(1, MAX_ATTEMPTS):  # The first was the death of its process.
        (one,) = (await store.claim(f"w{number}", agents=["agent"], limit=1, now=10**15)).claimed
        fence = Fence(one.epoch, f"w{number}")
        await store.commit(Commit("t", fence=fence, release=True, failed="no luck"))
    return (await runtime.runs.list())[0].id


async def left_in_the_middle(scripted: Scripted, *turns: str) -> tuple[Runtime, str]:
    hold = Hold()
    made = agent(scripted, call("wait"), *turns, tools=(holding(hold, effect="pure"),))
    store = MemoryStore()
    first = Runtime([made], store=store)
    run = asyncio.create_task(first.run("agent", "go", thread="t"))
    await soon(hold.reached.wait())
    await soon(_lose(first))
    await soon(asyncio.gather(run, return_exceptions=True))
    hold.released.set()
    second = Runtime([made], store=store)
    return second, await give_up(second)


async def _lose(runtime: Runtime) -> None:
    """The state that a process leaves which is cut off."""
    for act in list(runtime._scope.dispatch.active.values()):
        act.cut_off()
    await until(lambda: not runtime._scope.dispatch.active)
    lease = runtime._scope.shared.worker.state.lease
    assert lease is not None
    await lease.close()


async def test_dead_letter_is_listed_and_retried_by_run(scripted: Scripted) -> None:
    runtime, run_id = await left_in_the_middle(scripted, "done")
    (dead,) = await runtime.workers.dispatches(dead=True)
    assert (dead.run_id, dead.error, dead.attempts) == (run_id, "no luck", MAX_ATTEMPTS)
    with pytest.raises(RunDeadLettered, match="retry"):
        await soon(runtime.wait(run_id))
    with pytest.raises(RunDeadLettered):
        await soon(runtime.run("agent", "more", thread="t"))
    assert (await soon(runtime.runs.retry(run_id))).text == "done"
    assert await runtime.workers.dispatches() == []
    await assert_settled(runtime, "t")


async def test_dead_letter_may_be_cancelled_instead(scripted: Scripted) -> None:
    runtime, run_id = await left_in_the_middle(scripted)
    assert await soon(runtime.cancel(run_id))
    assert await runtime.workers.dispatches() == []
    assert (await runtime.runs.get(run_id)).status == "done"
