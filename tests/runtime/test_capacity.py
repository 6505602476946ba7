"""The load of a process: its own agents only, within its limits, and no waits that can't end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from loop.helpers import soon, until
from wakeful import (
    Agent,
    Capacity,
    FunctionModel,
    MailPolicy,
    ModelRequest,
    Runtime,
    SqliteStore,
    ToolContext,
    call,
    task,
    tool,
)
from wakeful.bus import MemoryBus
from wakeful.dispatch import worker as dispatch_worker
from wakeful.errors import Overloaded
from wakeful.server import app, lifespan
from wakeful.stores import Store

LIMITS = [Capacity(running=2), Capacity(per_tenant=2), Capacity(per_agent={"agent": 2})]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store | None:
    return None if request.param == "memory" else SqliteStore(tmp_path / "store.db", synchronous="NORMAL")


class Gauge:
    """A model that says how many are asked at once, and keeps them until the test lets them go."""

    def __init__(self, *, held: bool = True) -> None:
        self.now = self.most = self.asked = 0
        self.free = asyncio.Event()
        if not held:
            self.free.set()

    async def __call__(self, _: ModelRequest) -> str:
        self.now, self.asked = self.now + 1, self.asked + 1
        self.most = max(self.most, self.now)
        await self.free.wait()
        await asyncio.sleep(0)  # Whoever is begun too early is seen.
        self.now -= 1
        return "done"

    def agent(self, name: str = "agent", **options: Any) -> Agent:
        return Agent(name, model=FunctionModel(self), **options)


async def all_done(runtime: Runtime, count: int, agent: str = "agent") -> None:
    async with asyncio.timeout(120):
        while len([r for r in await runtime.runs.list(agent=agent) if r.status == "done"]) < count:
            await asyncio.sleep(0.01)


# -- how much ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", LIMITS, ids=["running", "per_tenant", "per_agent"])
async def test_runs_beyond_capacity_wait_their_turn(store: Store | None, capacity: Capacity) -> None:
    gauge = Gauge()
    async with Runtime([gauge.agent()], store=store, capacity=capacity) as runtime:
        runs = [asyncio.create_task(runtime.run("agent", "go")) for _ in range(3)]
        started = [await soon(runtime.start("agent", "go")) for _ in range(3)]  # None waits for its turn.
        for number in range(3):
            await soon(runtime.send(f"t{number}", "go", agent="agent"))
        await until(lambda: gauge.now == 2)
        gauge.free.set()
        assert [result.text for result in await soon(asyncio.gather(*runs))] == ["done"] * 3
        assert [(await soon(handle.result())).text for handle in started] == ["done"] * 3
        await all_done(runtime, 9)
        assert (gauge.most, gauge.asked) == (2, 9)
        assert runtime.workers.metrics.active == 0


async def test_server_keeps_capacity_limit(store: Store | None) -> None:
    gauge = Gauge()
    runtime = Runtime([gauge.agent()], store=store, capacity=Capacity(running=1))
    served = app(runtime)
    transport = httpx.ASGITransport(served)

    async def ask(client: httpx.AsyncClient, number: int) -> str:
        message = {"messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": "go"}]}
        asked = {"jsonrpc": "2.0", "id": number, "method": "SendMessage", "params": {"message": message}}
        answer = await client.post("/a2a/agent", headers={"A2A-Version": "1.0"}, json=asked)
        return answer.json()["result"]["task"]["status"]["state"]

    async with lifespan(served), httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        asking = [asyncio.create_task(ask(client, number)) for number in range(4)]
        await until(lambda: gauge.now == 1)
        gauge.free.set()
        assert await asyncio.wait_for(asyncio.gather(*asking), 120) == ["TASK_STATE_COMPLETED"] * 4
    assert (gauge.most, gauge.asked) == (1, 4)


@pytest.mark.parametrize("running", [1, 2])
async def test_runs_within_capacity_are_not_queued(running: int, store: Store | None) -> None:
    gauge = Gauge(held=False)
    capacity = Capacity(running=running, queued=0)
    async with asyncio.timeout(120), Runtime([gauge.agent()], store=store, capacity=capacity) as runtime:
        for _ in range(5):
            assert (await runtime.run("agent", "go")).text == "done"
        assert runtime.workers.metrics.counts["wakeful_claims_total", ""] == 0


async def test_input_beyond_queue_depth_is_refused(store: Store | None) -> None:
    gauge = Gauge()
    async with Runtime([gauge.agent()], store=store, capacity=Capacity(running=1, queued=1)) as runtime:
        await soon(runtime.start("agent", "go"))
        await until(lambda: gauge.now == 1)
        await soon(runtime.start("agent", "go"))
        for refused in (
            lambda: runtime.start("agent", "go"),
            lambda: runtime.run("agent", "go"),
            lambda: runtime.send("t", "go", agent="agent"),
        ):
            with pytest.raises(Overloaded):
                await soon(refused())
        gauge.free.set()
        await all_done(runtime, 2)


async def test_unlimited_capacity_neither_queues_nor_refuses(store: Store | None) -> None:
    gauge = Gauge()
    async with Runtime([gauge.agent()], store=store, capacity=Capacity(queued=1)) as runtime:
        await soon(asyncio.gather(*[runtime.send(f"t{n}", "go", agent="agent") for n in range(4)]))
        await until(lambda: gauge.now == 4)
        gauge.free.set()
        await all_done(runtime, 4)


async def test_queued_input_is_withdrawn_when_caller_leaves(store: Store | None) -> None:
    gauge = Gauge()
    async with Runtime([gauge.agent()], store=store, capacity=Capacity(running=1)) as runtime:
        first = asyncio.create_task(runtime.run("agent", "go"))
        await until(lambda: gauge.now == 1)
        second = asyncio.create_task(runtime.run("agent", "go", thread="second"))
        async with asyncio.timeout(120):
            while not await runtime.mail.pending("second"):
                await asyncio.sleep(0.01)
        second.cancel()
        await soon(asyncio.gather(second, return_exceptions=True))
        async with asyncio.timeout(120):
            while await runtime.mail.pending("second"):
                await asyncio.sleep(0.01)
        gauge.free.set()
        await soon(first)
        assert (await soon(runtime.run("agent", "go"))).text == "done"
        assert gauge.asked == 2


# -- what is waited for --------------------------------------------------------------------------------------


def asks(tool_name: str) -> FunctionModel:
    """A model that calls a tool, and repeats its result."""

    def reply(request: ModelRequest) -> Any:
        last = request.messages[-1]
        return call(tool_name) if last.role == "user" else last.reply.content[0].text  # type: ignore[union-attr]

    return FunctionModel(reply)


async def _in_a_child(runtime: Runtime, ctx: ToolContext) -> str:
    return (await ctx.run_agent("helper", "help")).text


async def _in_a_task(runtime: Runtime, ctx: ToolContext) -> str:
    handle = await runtime.tasks.spawn("helper", "help")
    return (await handle.result()).text


async def _in_a_run(runtime: Runtime, ctx: ToolContext) -> str:
    return (await runtime.run("helper", "help")).text


async def _in_a_run_that_was_started(runtime: Runtime, ctx: ToolContext) -> str:
    return (await (await runtime.start("helper", "help")).result()).text


async def _in_a_stream(runtime: Runtime, ctx: ToolContext) -> str:
    return str(len([event async for event in runtime.stream("helper", "help")]) and "helped")


@pytest.mark.parametrize(
    "waits",
    [_in_a_child, _in_a_task, _in_a_run, _in_a_run_that_was_started, _in_a_stream],
    ids=lambda one: one.__name__.strip("_"),
)
@pytest.mark.parametrize("capacity", [Capacity(running=1), Capacity(per_tenant=1)], ids=["running", "per_tenant"])
async def test_awaited_child_needs_no_extra_capacity(
    store: Store | None, capacity: Capacity, waits: Callable[[Runtime, ToolContext], Any]
) -> None:
    @tool
    async def wait(ctx: ToolContext) -> str:
        """Wait for somebody else's work."""
        return await waits(runtime, ctx)

    boss = Agent("boss", model=asks("wait"), tools=[wait], delegates=["helper"])
    helper = Agent("helper", model=FunctionModel(lambda _: "helped"))
    async with Runtime([boss, helper], store=store, capacity=capacity) as runtime:
        assert (await soon(runtime.run("boss", "go"))).text == "helped"


async def test_detached_child_waits_for_capacity(store: Store | None) -> None:
    gauge = Gauge()

    @tool
    async def begin(ctx: ToolContext) -> str:
        """Begin work."""
        for _ in range(3):
            await runtime.start("agent", "go")
        return "begun"

    boss = Agent("boss", model=asks("begin"), tools=[begin])
    async with Runtime([boss, gauge.agent()], store=store, capacity=Capacity(running=1)) as runtime:
        assert (await soon(runtime.run("boss", "go"))).text == "begun"
        await until(lambda: gauge.now == 1)
        gauge.free.set()
        await all_done(runtime, 3)
        assert gauge.most == 1


async def test_waiting_run_resumes_when_capacity_is_full(
    store: Store | None,
) -> None:
    gauge = Gauge()

    @tool(approval=True)
    def act() -> str:
        """Do it."""
        return "acted"

    asking = Agent("asking", model=asks("act"), tools=[act])
    async with Runtime([asking, gauge.agent()], store=store, capacity=Capacity(running=1)) as runtime:
        waiting = [await soon(runtime.run("asking", "go", thread=f"t{n}")) for n in range(2)]
        first = asyncio.create_task(runtime.run("agent", "go"))
        await until(lambda: gauge.now == 1)
        (ticket,) = waiting[0].tickets
        done = await soon(runtime.resume(waiting[0].run_id, answers={ticket.id: True}))
        assert done.text == "acted"
        again = await soon(runtime.run("asking", "again", thread="t1"))
        assert (again.status, (await runtime.runs.get(waiting[1].run_id)).status) == ("waiting", "done")
        gauge.free.set()
        await soon(first)


async def test_queued_task_can_be_cancelled(store: Store | None) -> None:
    gauge = Gauge()
    async with Runtime([gauge.agent()], store=store, capacity=Capacity(running=1)) as runtime:
        first = asyncio.create_task(runtime.run("agent", "go"))
        await until(lambda: gauge.now == 1)
        spawned = await soon(runtime.tasks.spawn("agent", "more"))
        started = await soon(runtime.start("agent", "more"))
        assert await soon(spawned.cancel())
        assert await soon(started.cancel())
        gauge.free.set()
        await soon(first)
        assert gauge.asked == 1


# -- for whom ------------------------------------------------------------------------------------------------


def office(gauge: Gauge) -> dict[str, Any]:
    """An agent that writes to another one, spawns it, and begins a function."""

    @task
    async def work() -> None:
        gauge.asked += 1

    @tool
    async def begin(ctx: ToolContext) -> str:
        """Begin work."""
        await ctx.spawn(work, detached=True)
        await ctx.spawn("agent", "go", detached=True)
        return "begun"

    def reply(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if last.role != "user":
            return "done"
        if last.text == "begin":
            return call("begin")
        to = [{"relation": "agent", "thread_id": f"b{n}", "agent_id": "agent"} for n in range(4)]
        return [call("send_message", to=one, message="hi") for one in to]

    writer = Agent("writer", model=FunctionModel(reply), tools=[begin], mail=MailPolicy(to=("agent:agent",)))
    reader = gauge.agent(mail=MailPolicy(accept=("agent:writer",)))
    return {"agents": [writer, reader], "tasks": [work]}


@pytest.mark.parametrize("capacity", [Capacity(), Capacity(running=8)], ids=["unlimited", "limited"])
async def test_worker_leaves_other_agents_work_to_others(tmp_path: Path, capacity: Capacity) -> None:
    gauge, path = Gauge(held=False), tmp_path / "store.db"
    made = office(gauge)
    async with Runtime(**made, store=path).as_worker(agents=["writer"], capacity=capacity) as worker:
        await soon(worker.run("writer", "write"))
        await soon(worker.run("writer", "begin"))
        await worker.schedules.put("soon", "agent", "go", delay=0)
        async with asyncio.timeout(120):
            while len(await worker.workers.dispatches()) < 7 or any(
                one.agent_id == "(schedule)" for one in await worker.workers.dispatches()
            ):
                await asyncio.sleep(0.01)
        waiting = [(one.agent_id, one.claimed_by) for one in await worker.workers.dispatches()]
        assert sorted(waiting, key=str) == [("agent", None)] * 6 + [("task:work", None)]
        asked = await soon(worker.start("agent", "go"))
        assert (gauge.asked, worker._scope.dispatch.active) == (0, {})
        async with Runtime(**made, store=path).as_worker(agents=["agent", "task:work"]):
            assert (await soon(asked.result())).text == "done"
            await all_done(worker, 7)
            await all_done(worker, 1, "task:work")
    assert gauge.asked == 8


@pytest.mark.parametrize("running", [None, 8])
async def test_agent_limit_applies_to_messages_and_schedules(store: Store | None, running: int | None) -> None:
    gauge, capacity = Gauge(), Capacity(running=running, per_agent={"agent": 1})
    made = office(gauge)
    async with Runtime(**made, store=store, capacity=capacity) as runtime:
        await soon(runtime.run("writer", "write"))
        for number in range(2):
            await runtime.schedules.put(f"s{number}", "agent", "go", delay=0)
        await until(lambda: gauge.now == 1)
        gauge.free.set()
        await all_done(runtime, 6)
        assert gauge.most == 1


async def test_other_workers_are_woken_for_work_left_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_worker, "IDLE_WITH_BUS", 60.0)
    gauge, path, bus = Gauge(held=False), tmp_path / "store.db", MemoryBus()
    made = office(gauge)
    async with (
        Runtime(**made, store=path, bus=bus).as_worker(agents=["agent"]) as other,
        Runtime(**made, store=path, bus=bus).as_worker(agents=["writer"], capacity=Capacity(running=8)) as worker,
    ):
        await until(lambda: worker._scope.shared.signals.healthy and other._scope.shared.signals.healthy)
        await soon(worker.run("writer", "write"))
        await all_done(worker, 4)
    assert gauge.asked == 4
