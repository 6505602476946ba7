"""The runtime as an object: what it refuses, what it knows, and how it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loop.helpers import Hold, Scripted, Spy, assert_cancelled, assert_settled, holding, soon, spying, until
from wakeful import (
    Agent,
    ConfigurationError,
    Image,
    MemoryStore,
    Principal,
    Retention,
    Runtime,
    ScriptedModel,
    SqliteStore,
    Text,
    ToolContext,
    call,
    tool,
)
from wakeful.errors import InvalidInput, RuntimeClosed, UnknownAgent, UnknownRun, UsageError
from wakeful.runtime import TenantRuntime
from wakeful.stores import ThreadView
from wakeful.testing import FakeClock
from wakeful.types import Url
from wakeful.types.runs import Cancelled

# -- closing -------------------------------------------------------------------------------------------------


async def test_close_cancels_runs_and_waits_for_them(scripted: Scripted) -> None:
    hold = Hold()
    store = MemoryStore()
    agent = Agent("agent", model=scripted(call("wait")), tools=[holding(hold, effect="pure")])
    runtime = Runtime([agent], store=store)
    task = asyncio.create_task(runtime.run("agent", "go", thread="t"))
    await soon(hold.reached.wait())
    await runtime.close()
    run = (await store.runs(thread_id="t"))[0]
    assert run.outcome is not None
    assert run.outcome.termination == Cancelled("the runtime was closed")
    assert (await soon(task)).termination == Cancelled("the runtime was closed")
    await assert_cancelled(Runtime([agent], store=store), "t")


async def test_context_manager_closes_runtime(scripted: Scripted) -> None:
    store = MemoryStore()
    async with Runtime([Agent("agent", model=scripted("hello"))], store=store) as runtime:
        await runtime.send("t", "hi", agent="agent")
    assert (await store.runs(thread_id="t"))[0].status == "done"
    with pytest.raises(RuntimeClosed):
        await runtime.run("agent", "more")


CALLS: dict[str, Callable[[Runtime], Any]] = {
    "run": lambda r: r.run("agent", "go"),
    "start": lambda r: r.start("agent", "go"),
    "start later": lambda r: r.start("agent", "go", delay=5),
    "stream": lambda r: r.stream("agent", "go"),
    "send": lambda r: r.send("t", "go"),
    "resume": lambda r: r.resume("r", answers={"x": 1}),
    "retry": lambda r: r.runs.retry("r"),
    "wait": lambda r: r.wait("r"),
    "cancel": lambda r: r.cancel("r"),
    "result": lambda r: r.runs.result("r"),
    "answer": lambda r: r.tickets.answer("x", True),
    "reassign": lambda r: r.tickets.reassign("x", "ann"),
    "events": lambda r: r.events("t"),
    "events so far": lambda r: r.events("t", follow=False),
    "messages": lambda r: r.threads.messages("t"),
    "state": lambda r: r.threads.state("t"),
    "get_run": lambda r: r.runs.get("r"),
    "list_runs": lambda r: r.runs.list(),
    "ledger": lambda r: r.runs.ledger("r"),
    "tickets": lambda r: r.tickets.list(),
    "decisions": lambda r: r.tickets.decisions("x"),
    "dispatches": lambda r: r.workers.dispatches(),
    "threads": lambda r: r.threads.list(),
    "describe": lambda r: r.threads.describe("t", title="T"),
    "fork": lambda r: r.threads.fork("t"),
    "delete": lambda r: r.threads.delete("t"),
    "import_thread": lambda r: r.threads.import_([]),
    "prune": lambda r: r.threads.prune(Retention()),
    "check_parked": lambda r: r.runs.check_parked(),
    "spawn": lambda r: r.tasks.spawn("agent", "go"),
    "task": lambda r: r.tasks.get("x"),
    "tasks": lambda r: r.tasks.list("t"),
    "schedule": lambda r: r.schedules.put("daily", "agent", "go", cron="@daily"),
    "schedules": lambda r: r.schedules.list(),
    "unschedule": lambda r: r.schedules.delete("daily"),
    "usage": lambda r: r.usage(),
    "pause": lambda r: r.runs.pause("r"),
    "dead_letters": lambda r: r.mail.dead_letters(),
    "relays": lambda r: r.mail.relays(),
    "replay": lambda r: r.mail.replay("x"),
    "drop": lambda r: r.mail.drop("x"),
    "pending": lambda r: r.mail.pending("t"),
    "edit": lambda r: r.mail.edit("x", "other"),
    "move": lambda r: r.mail.move("x"),
    "retract": lambda r: r.mail.retract("x"),
    "a tenant's": lambda r: r.tenant("new").run("agent", "go"),
    "async with": lambda r: r.__aenter__(),
}


async def attempt(make: Callable[[], Any]) -> None:
    """Make a call, and await its result or the first event of its stream."""
    made = make()
    await (anext(made) if isinstance(made, AsyncIterator) else made)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_closed_runtime_refuses_every_call(kind: str, scripted: Scripted, tmp_path: Path) -> None:
    store = None if kind == "memory" else tmp_path / "a.db"
    async with Runtime([Agent("agent", model=scripted("one", "two"))], store=store) as runtime:
        handle, task = await runtime.start("agent", "go"), await runtime.tasks.spawn("agent", "go")
        await handle.result()
        await task.result()
    calls: list[Callable[[], Any]] = [partial(make, runtime) for make in CALLS.values()]
    calls += [handle.result, handle.cancel, handle.events, task.record, task.result, task.cancel]
    for make in calls:
        with pytest.raises(RuntimeClosed, match=r"^the runtime was closed; make a new one$"):
            await attempt(make)
    for refused in (lambda: runtime.threads.export("t"), runtime.as_worker):
        with pytest.raises(RuntimeClosed):
            refused()
    assert await runtime.workers.readiness() == "the runtime was closed; make a new one"


def test_closed_runtime_refuses_sync_calls(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted())])
    asyncio.run(runtime.close())
    with pytest.raises(RuntimeClosed, match="make a new one"):
        runtime.run_sync("agent", "go")
    with pytest.raises(RuntimeClosed, match="make a new one"):
        runtime.resume_sync("r", answers={"x": 1})


async def test_leaving_a_tenants_handle_keeps_the_runtime_open(scripted: Scripted) -> None:
    async with Runtime([Agent("agent", model=scripted(*["ok"] * 4))]) as runtime:
        async with runtime.tenant("acme") as acme:
            await acme.run("agent", "go", thread="t")
        for handle in (acme, runtime.tenant("other"), runtime):
            assert (await handle.run("agent", "go")).text == "ok"
        assert len(await acme.threads.messages("t")) == 2
    with pytest.raises(RuntimeClosed):
        await acme.run("agent", "go")


async def test_tenants_handle_reaches_no_other_tenant_and_no_lifetime(scripted: Scripted) -> None:
    acme = Runtime([Agent("agent", model=scripted())]).tenant("acme")
    assert isinstance(acme, TenantRuntime)
    assert not isinstance(acme, Runtime)
    public = {name for name in dir(acme) if not name.startswith("_")}
    assert not public & {"tenant", "close", "as_worker", "override", "drain"}
    assert not hasattr(acme.workers, "drain")
    assert {name for name in dir(Runtime) if not name.startswith("_")} - public == {
        "tenant",
        "close",
        "as_worker",
        "override",
    }


def test_runtime_has_few_public_attributes(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted())])
    verbs = "run run_sync start stream resume resume_sync cancel send events wait close tenant as_worker override"
    nouns = "usage runs threads tickets grants tasks mail schedules workers agents store memories tracer"
    assert {name for name in dir(runtime) if not name.startswith("_")} == {*verbs.split(), *nouns.split()}


async def test_unserved_tenant_handles_close_with_the_last(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted(*["ok"] * 3))])
    async with runtime.tenant("acme") as acme:
        async with runtime.tenant("other") as other:
            await other.run("agent", "go")
        assert (await other.run("agent", "go")).text == "ok"
        assert (await acme.run("agent", "go")).text == "ok"
    with pytest.raises(RuntimeClosed):
        await runtime.run("agent", "go")


async def test_close_is_idempotent(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted())])
    await runtime.close()
    await runtime.close()


async def test_queued_callers_are_told_that_runtime_closed(scripted: Scripted) -> None:
    hold = Hold()
    store = MemoryStore()
    agent = Agent("agent", model=scripted(call("wait"), "later"), tools=[holding(hold, effect="pure")])
    runtime = Runtime([agent], store=store)
    first = asyncio.create_task(runtime.run("agent", "one", thread="t"))
    await soon(hold.reached.wait())
    second = asyncio.create_task(runtime.run("agent", "two", thread="t"))
    await asyncio.sleep(0)
    await soon(runtime.close())
    await soon(first)
    with pytest.raises(RuntimeClosed):
        await soon(second)
    fresh = Runtime([agent], store=store)
    await fresh._scope.dispatch.start_if_due("t")
    await until(lambda: not fresh._scope.dispatch.tasks)
    assert [m.text for m in await store.messages("t") if m.role == "user"] == ["one", "two"]
    await assert_settled(fresh, "t")


async def test_close_abandons_tools_that_do_not_stop(scripted: Scripted, fake_clock: FakeClock) -> None:
    hold = Hold()

    @tool
    async def stubborn() -> str:
        """Ignore every wish to stop."""
        while not hold.released.is_set():
            try:
                await hold.here()
            except asyncio.CancelledError:
                pass
        return "too late"

    store, agent = MemoryStore(), Agent("agent", model=scripted(call("stubborn")), tools=[stubborn])
    runtime = Runtime([agent], clock=fake_clock, store=store)
    run = asyncio.create_task(runtime.run("agent", "go", thread="t"))
    try:
        await soon(hold.reached.wait())
        closing = asyncio.create_task(runtime.close())
        await fake_clock.advance(0)
        await fake_clock.advance(5)
        await soon(closing)
        await soon(run)
        assert runtime.workers.abandoned == 1
        await assert_cancelled(Runtime([agent], store=store), "t")
    finally:
        hold.released.set()
    await until(lambda: runtime.workers.abandoned == 0)


# -- what is refused -----------------------------------------------------------------------------------------


async def test_unknown_agent_error_lists_known_agents(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted())])
    with pytest.raises(UnknownAgent, match=r"'nobody' \(known: agent\)"):
        await runtime.run("nobody", "go")


@pytest.mark.parametrize("thread", ["", "x" * 129, "ü" * 65])
async def test_thread_id_length_is_limited(scripted: Scripted, thread: str) -> None:
    runtime = Runtime([Agent("agent", model=scripted())])
    with pytest.raises(InvalidInput, match="1 to 128 bytes"):
        await runtime.run("agent", "go", thread=thread)


@pytest.mark.parametrize("input", ["", [], "x" * (1024 * 1024 + 1)])
async def test_empty_or_too_large_input_is_refused(scripted: Scripted, input: Any) -> None:
    runtime = Runtime([Agent("agent", model=scripted())])
    with pytest.raises(InvalidInput):
        await runtime.run("agent", input, thread="t")
    assert await runtime.runs.list() == []


async def test_input_may_have_several_parts(scripted: Scripted) -> None:
    model = scripted("nice")
    runtime = Runtime([Agent("agent", model=model)])
    parts = [Text("look"), Image(Url("https://example.com/a.png"))]
    await runtime.run("agent", parts, thread="t")
    assert model.requests[0].messages[0].content == tuple(parts)


async def test_lone_surrogates_in_input_are_replaced(scripted: Scripted) -> None:
    model = scripted("ok")
    await Runtime([Agent("agent", model=model)]).run("agent", "a\ud800b")
    assert model.requests[0].messages[0].text == "a\ufffdb"


def test_configuration_error_lists_all_problems(scripted: Scripted) -> None:
    agents = [
        Agent("a b", model=scripted()),
        Agent("twice", model="nope:model"),
        Agent("twice", model=scripted(), delegates=["nobody"]),
        Agent("toolish", model=scripted(), tools=["missing"]),
    ]
    with pytest.raises(ConfigurationError) as caught:
        Runtime(agents)
    text = str(caught.value)
    for part in ("'a b'", "'twice' is defined twice", "nope:model", "no tool named 'missing'"):
        assert part in text


# -- what it knows -------------------------------------------------------------------------------------------


async def test_runs_are_found_by_thread_and_status_newest_first(scripted: Scripted) -> None:
    tools = [spying(Spy(), "ask", approval=True)]
    runtime = Runtime([Agent("agent", model=scripted("a", "b", call("ask")), tools=tools)])
    one = await runtime.run("agent", "go", thread="t")
    two = await runtime.run("agent", "go", thread="t")
    three = await runtime.run("agent", "go", thread="u")
    assert [r.id for r in await runtime.runs.list()] == [three.run_id, two.run_id, one.run_id]
    assert [r.id for r in await runtime.runs.list(thread="t")] == [two.run_id, one.run_id]
    assert [r.id for r in await runtime.runs.list(status="waiting")] == [three.run_id]
    assert [r.id for r in await runtime.runs.list(before=two.run_id)] == [one.run_id]
    assert [r.id for r in await runtime.runs.list(limit=1)] == [three.run_id]


async def test_unknown_runs_are_refused_and_unknown_threads_are_empty(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted())])
    for question in (runtime.runs.get("nope"), runtime.runs.calls("nope")):
        with pytest.raises(UnknownRun, match="nope"):
            await question
    assert await runtime.threads.messages("nope") == []
    assert [e async for e in runtime.events("nope", follow=False)] == []


async def test_principal_reaches_tools_messages_and_records(scripted: Scripted) -> None:
    seen: list[Principal | None] = []

    @tool
    async def who(ctx: ToolContext) -> str:
        """Note who asks."""
        seen.append(ctx.principal)
        return "noted"

    ann = Principal("ann", claims={"role": "admin"})
    runtime = Runtime([Agent("agent", model=scripted(call("who"), "ok"), tools=[who])])
    result = await runtime.run("agent", "go", thread="t", principal=ann)
    assert seen == [ann]
    assert (await runtime.runs.get(result.run_id)).principal == ann
    producer = (await runtime.threads.messages("t"))[0].producer
    assert producer is not None
    assert producer.principal_id == "ann"


async def test_run_accepts_agent_object_and_makes_thread(scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted("a", "b"))
    runtime = Runtime([agent])
    one, two = await runtime.run(agent, "go"), await runtime.run(agent, "go")
    assert one.thread_id != two.thread_id
    assert runtime.agents == {"agent": agent}


async def test_background_run_failure_is_logged(scripted: Scripted, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(MemoryStore):
        broken = False

        async def messages(self, *args: Any, **options: Any) -> Any:
            if self.broken:
                raise OSError("disk on fire")
            return await super().messages(*args, **options)

    store = Broken()
    runtime = Runtime([Agent("agent", model=scripted("one"))], store=store)
    await runtime.run("agent", "go", thread="t")
    store.broken = True
    with caplog.at_level(logging.ERROR, "wakeful"):
        await runtime.send("t", "two")
        await until(lambda: not runtime._scope.dispatch.tasks)
    assert "a run in the background failed" in caplog.text


# -- event loops ---------------------------------------------------------------------------------------------


def test_runtime_belongs_to_its_first_event_loop(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted("one", "three"))])
    assert asyncio.run(runtime.run("agent", "go")).text == "one"
    assert asyncio.run(runtime.run("agent", "go")).text == "three"

    async def elsewhere() -> None:
        await asyncio.sleep(0)
        loop = asyncio.new_event_loop()
        try:
            runtime._scope.shared.loop = loop
            with pytest.raises(UsageError, match="another event loop"):
                await runtime.run("agent", "go")
        finally:
            loop.close()

    asyncio.run(elsewhere())


def test_run_sync_error_names_way_to_use_running_loop(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted("one", "two"))])

    async def application() -> str:
        await runtime.run("agent", "go")
        with pytest.raises(UsageError, match=r"another event loop.*run_coroutine_threadsafe") as refused:
            await asyncio.to_thread(runtime.run_sync, "agent", "go")
        assert "from other threads" not in str(refused.value)
        loop = asyncio.get_running_loop()
        run = runtime.run("agent", "go")
        return (await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(run, loop).result())).text

    assert asyncio.run(application()) == "two"


async def test_run_sync_is_refused_inside_event_loop(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted())])
    with pytest.raises(UsageError, match="inside an event loop"):
        runtime.run_sync("agent", "go")


def test_run_sync_works_for_several_tenants_of_one_runtime(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted("one", "two"))])
    assert runtime.run_sync("agent", "go").text == "one"
    assert runtime.tenant("acme").run_sync("agent", "go").text == "two"


def test_run_sync_repeats_on_one_thread(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted("one", "two"))])
    assert runtime.run_sync("agent", "go", thread="t").text == "one"
    assert runtime.run_sync("agent", "go", thread="t").text == "two"
    loop = runtime._scope.shared.own_loop._loop
    assert loop is not None
    loop.call_soon_threadsafe(loop.stop)


class ClosesSlowly(SqliteStore):
    """A store that is slow to read a thread, and read it when everything but the store is closed."""

    hold: Hold | None = None
    answered: asyncio.Task[Any] | None = None

    async def load(self, thread_id: str) -> ThreadView | None:
        view = await super().load(thread_id)
        if self.hold is not None:
            await self.hold.here()
        return view

    async def close(self) -> None:
        if self.hold is not None and self.answered is not None:
            self.hold.released.set()
            await asyncio.wait([self.answered])
        await super().close()


async def test_run_started_during_close_keeps_no_claim(
    tmp_path: Path,
) -> None:
    store, spy = ClosesSlowly(tmp_path / "a.db"), Spy()
    agent = Agent("agent", model=ScriptedModel([call("act"), "done"]), tools=[spying(spy, "act", approval=True)])
    runtime = Runtime([agent], store=store)
    waiting = await runtime.run("agent", "go", thread="t")
    store.hold = Hold()
    store.answered = asyncio.create_task(runtime.tickets.answer(waiting.tickets[0].id, True))
    await soon(store.hold.reached.wait())
    await soon(runtime.close())
    with pytest.raises(RuntimeClosed):
        await store.answered
    assert spy.ran == []
    async with Runtime([agent], store=tmp_path / "a.db") as another:
        thread = await another.store.thread("t")
        assert thread is not None
        assert not thread.claimed
