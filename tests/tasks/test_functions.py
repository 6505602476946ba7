"""Functions as tasks: begun in tools and by the application, awaited, cancelled, reported to their owner."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from msgspec import Struct

from loop.helpers import (
    Hold,
    Scripted,
    Spy,
    holding,
    replies_on,
    reply_text,
    soon,
    spying,
    until,
    until_idle,
)
from wakeful import (
    Agent,
    ConfigurationError,
    Delegate,
    FunctionModel,
    ModelRequest,
    RunFailed,
    Runtime,
    ScriptedModel,
    TaskContext,
    ToolContext,
    UsageError,
    call,
    task,
    tool,
)
from wakeful.delegation import task_tools
from wakeful.errors import InvalidArguments, UnknownTask
from wakeful.events import ToolProgress
from wakeful.stores import Commit
from wakeful.types.runs import Cancelled, NaturalEnd

from .conftest import Place
from .helpers import assert_quiet, clock, eventually, spawning, task_of, told


class Order(Struct):
    id: str
    amount: int


@task(effect="pure")
async def double(number: int) -> int:
    return number * 2


@task(name="ship")
async def ship_it(order: Order, ctx: TaskContext) -> dict[str, Any]:
    return {"id": order.id, "key": ctx.idempotency_key, "attempt": ctx.attempt}


@task
def in_a_thread(ctx: TaskContext) -> str:
    ctx.emit("halfway", {"thread": threading.current_thread() is not threading.main_thread()})
    return "from a thread"


@task
async def breaks() -> None:
    raise ValueError("it broke")


def idle(*tasks: Any, store: Any = None, **options: Any) -> Runtime:
    return Runtime([Agent("agent", model=ScriptedModel(["hello"] * 9))], tasks=tasks, store=store, **options)


def talking(*turns: Any) -> ScriptedModel:
    """A model that says something as often as it is asked: how often events are taken in together is open."""
    return ScriptedModel([*turns, *["ok"] * 60])


# -- from the application --------------------------------------------------------------------------------------


async def test_application_spawns_function_and_awaits_value(place: Place) -> None:
    async with idle(double, store=place()) as runtime:
        handle = await runtime.tasks.spawn(double, number=21)
        assert await soon(handle.value()) == 42
        result = await (await runtime.tasks.get(handle.id)).result()
        assert (result.text, result.termination) == ("42", NaturalEnd())
        assert (await handle.record()).status == "completed"


async def test_task_starts_for_thread_of_dead_owner(place: Place) -> None:
    runtime = idle(double, store=place())
    await runtime.run("agent", "hi", thread="t")
    thread = await runtime.threads.get("t")
    await runtime.store.commit(Commit("t", version=thread.version, claim="gone", lease=0))

    handle = await soon(runtime.tasks.spawn(double, number=21, thread="t"))

    assert await soon(handle.value()) == 42
    assert [task.id for task in await runtime.tasks.list("t")] == [handle.id]
    await runtime.close()


async def test_task_arguments_follow_signature(place: Place) -> None:
    async with idle(ship_it, store=place()) as runtime:
        handle = await runtime.tasks.spawn("ship", order=Order("o7", 3))
        assert await soon(handle.value()) == {"id": "o7", "key": f"{handle.id}:ship", "attempt": 1}
        with pytest.raises(InvalidArguments, match="missing required"):
            await runtime.tasks.spawn(ship_it)
        with pytest.raises(InvalidArguments, match="can't be kept as JSON"):
            await runtime.tasks.spawn(ship_it, order=object())
        with pytest.raises(InvalidArguments, match="by name only"):
            await runtime.tasks.spawn(ship_it, "a prompt", order=Order("o7", 3))


async def test_unknown_task_error_lists_known_tasks() -> None:
    runtime = idle(double)
    with pytest.raises(UsageError, match=r"'breaks' is no task .* \(known: double\)"):
        await runtime.tasks.spawn(breaks)
    with pytest.raises(UsageError, match=r"no agent or task 'nope' \(known: agent, double\)"):
        await runtime.tasks.spawn("nope")
    with pytest.raises(UnknownTask):
        await runtime.tasks.get("nope")
    run = await runtime.run("agent", "hi")
    with pytest.raises(UnknownTask):
        await runtime.tasks.get(run.run_id)
    await runtime.close()


def test_task_errors_are_all_listed() -> None:
    @task(name="a b", timeout=-1, effect="maybe")  # type: ignore[call-overload]
    async def bad(*args: int) -> None: ...

    with pytest.raises(ConfigurationError) as raised:
        idle(bad, double, task(name="double")(breaks.function), lambda: None)
    said = str(raised.value)
    for part in (
        "1 to 64 letters",
        "timeout is in seconds",
        "effect is 'pure'",
        "'*args'",
        "two tasks",
        "put @task",
    ):
        assert part in said


async def test_internal_agents_are_hidden() -> None:
    runtime = idle(double)
    assert list(runtime.agents) == ["agent"]
    with pytest.raises(UsageError, match=r"unknown agent 'nope' \(known: agent\)"):
        await runtime.run("nope", "hi")
    await runtime.close()


async def test_failed_function_reports_its_error(place: Place) -> None:
    async with idle(breaks, store=place()) as runtime:
        handle = await runtime.tasks.spawn(breaks)
        with pytest.raises(RunFailed, match=r"failed: ValueError: unexpected error, reference \S+$"):
            await soon(handle.value())
        (detail,) = await runtime.runs.errors((await handle.record()).target)
        assert detail.text == "ValueError: it broke"
        assert (await handle.record()).status == "failed"


async def test_lone_surrogate_in_function_error_is_replaced(place: Place) -> None:
    @task
    async def reads() -> None:
        raise OSError("no file caf\udce9")

    async with idle(reads, store=place()) as runtime:
        handle = await runtime.tasks.spawn(reads)
        with pytest.raises(RunFailed, match="OSError: unexpected error"):
            await soon(handle.value())
        (detail,) = await runtime.runs.errors((await handle.record()).target)
        assert detail.text == "OSError: no file caf\ufffd"


async def test_failed_function_can_be_retried(place: Place) -> None:
    left = [ValueError("not yet"), None]

    @task
    async def flaky() -> str:
        if (error := left.pop(0)) is not None:
            raise error
        return "there"

    async with idle(flaky, store=place()) as runtime:
        handle = await runtime.tasks.spawn(flaky)
        assert (await soon(handle.result(check=False))).error
        assert (await soon(runtime.runs.retry(handle.id))).text == "there"


async def test_agent_can_be_spawned(place: Place) -> None:
    async with idle(store=place()) as runtime:
        handle = await runtime.tasks.spawn("agent", "hi", thread="t", name="greeter")
        assert await soon(handle.value()) == "hello"
        assert [(t.name, t.agent_id, t.status) for t in await runtime.tasks.list("t")] == [
            ("greeter", "agent", "completed")
        ]


async def test_slow_function_is_stopped() -> None:
    hold, time = Hold(), clock()

    @task(timeout=5, effect="pure")
    async def slow() -> None:
        await hold.here()

    runtime = idle(slow, clock=time)
    handle = await runtime.tasks.spawn(slow)
    await soon(hold.reached.wait())
    await time.advance(6)
    result = await soon(handle.result(check=False))
    assert result.error == "TimedOut: it took longer than 5 s and was stopped"
    await runtime.close()


async def test_threaded_function_is_told_to_stop() -> None:
    begun = threading.Event()

    @task
    def loops(ctx: TaskContext) -> None:
        begun.set()
        while not ctx.cancelled:
            threading.Event().wait(0.001)
        ctx.check_cancelled()

    runtime = idle(loops)
    handle = await runtime.tasks.spawn(loops)
    await asyncio.to_thread(begun.wait, 5)
    assert await soon(handle.cancel("enough"))
    assert (await handle.result()).termination == Cancelled("enough")
    await runtime.close()


# -- from a tool -----------------------------------------------------------------------------------------------


async def test_agent_with_running_task_enters_awaiting_tasks(place: Place, scripted: Scripted) -> None:
    hold = Hold()

    @task
    async def survey(topic: str) -> str:
        await hold.here()
        return f"all about {topic}"

    model = scripted(call("begin"), "working on it", "owls are wise")
    agent = Agent("agent", model=model, tools=[spawning(survey, topic="owls", name="owls")])
    async with Runtime([agent], tasks=[survey], store=place()) as runtime:
        handle = await runtime.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        run = await eventually(lambda: waiting(runtime, handle.run_id))
        assert (run.waiting.reason, run.waiting.tasks) == ("awaiting_tasks", ((await task_of(runtime)).id,))
        assert "t" not in runtime._scope.dispatch.active
        hold.released.set()
        result = await soon(handle.result())
        assert (result.text, result.termination) == ("owls are wise", NaturalEnd())
        (said,) = await told(runtime)
        record = await task_of(runtime)
        assert said == (
            f'<background-task-event task_id="{record.id}" name="owls" function="survey" kind="completed">\n'
            "all about owls\n</background-task-event>"
        )
        assert (record.run_id, record.function, record.status) == (handle.run_id, "survey", "completed")
        assert record.call_id
        await assert_quiet(runtime)


async def waiting(runtime: Runtime, run_id: str) -> Any:
    run = await runtime.runs.get(run_id)
    return run if run.status == "waiting" else None


async def test_failure_reaches_owner(place: Place, scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted(call("begin"), "wait", "too bad"), tools=[spawning(breaks)])
    async with Runtime([agent], tasks=[breaks], store=place()) as runtime:
        assert (await soon(runtime.run("agent", "go", thread="t"))).text == "too bad"
        assert 'kind="failed"' in (await told(runtime))[0]
        assert "ValueError: unexpected error, reference " in (await told(runtime))[0]


async def test_spawn_rejects_reserved_name(scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted(call("begin"), "ok"), tools=[spawning(double, number=1, name="parent")])
    runtime = Runtime([agent], tasks=[double])
    await soon(runtime.run("agent", "go", thread="t"))
    assert reply_text((await replies_on(runtime, "t"))[0]) == "'parent' is a reserved name"
    with pytest.raises(InvalidArguments, match="reserved"):
        await runtime.tasks.spawn(double, number=1, name="all", thread="t")
    await runtime.close()


async def test_spawn_rejects_duplicate_name(place: Place, scripted: Scripted) -> None:
    hold = Hold()

    @task
    async def waits() -> str:
        await hold.here()
        return "done"

    tools = [spawning(waits, "one", name="same"), spawning(waits, "two", name="same")]
    agent = Agent("agent", model=scripted([call("one"), call("two")], "wait", "ok"), tools=tools)
    async with Runtime([agent], tasks=[waits], store=place()) as runtime:
        handle = await runtime.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        with pytest.raises(InvalidArguments, match="a running task named 'same' already exists"):
            await runtime.tasks.spawn(waits, name="same", thread="t")
        other = await runtime.tasks.spawn(
            waits, name="same", thread="other"
        )  # spawn_allows_same_name_on_different_threads
        hold.released.set()
        await soon(handle.result())
        await soon(other.result())
        texts = sorted(reply_text(reply) for reply in await replies_on(runtime, "t"))
        assert texts == ["a running task named 'same' already exists", "began same"]
        await soon((await runtime.tasks.spawn(waits, name="same", thread="t")).result())  # ..._after_completion
        assert [t.status for t in await runtime.tasks.list("t")] == ["completed", "completed"]


async def test_cancel_descendants_for_run_rejects_late_spawns(scripted: Scripted) -> None:
    hold = Hold()

    @tool
    async def late(ctx: ToolContext) -> str:
        """Begin something when it is too late."""
        try:
            await hold.here()
        except asyncio.CancelledError:
            await ctx.spawn(double, number=1)
            raise
        return ""

    agent = Agent("agent", model=scripted(call("late")), tools=[late])
    runtime = Runtime([agent], tasks=[double])
    handle = await runtime.start("agent", "go", thread="t")
    await soon(hold.reached.wait())
    assert await soon(handle.cancel())
    assert await runtime.tasks.list("t") == []
    (reply,) = await replies_on(runtime, "t")
    assert "has already been cancelled" in reply_text(reply)
    await runtime.close()


@pytest.mark.parametrize("what", ["function", "agent"])
async def test_task_is_cancelled_during_first_commit(what: str) -> None:
    asked = Spy()

    @task
    async def endless() -> None:
        asked.ran.append("function")
        await asyncio.Event().wait()

    async def answer(request: ModelRequest) -> str:
        asked.ran.append("agent")
        await asyncio.Event().wait()
        return ""

    async with Runtime([Agent("agent", model=FunctionModel(answer))], tasks=[endless]) as runtime:

        async def begin_and_cancel() -> Any:
            handle = await (
                runtime.tasks.spawn(endless) if what == "function" else runtime.tasks.spawn("agent", "go")
            )
            assert await handle.cancel("not needed")
            return handle

        # In a task of its own: between the two nothing else runs.
        handle = await soon(asyncio.create_task(begin_and_cancel()))
        assert (await handle.result()).termination == Cancelled("not needed")
    assert asked.ran == []


async def test_unstarted_task_is_cancelled_by_run_id(place: Place) -> None:
    began = False

    @task
    async def work() -> None:
        nonlocal began
        began = True

    front = Runtime([Agent("a", model=ScriptedModel([]))], tasks=[work], store=place(), execute=False)
    handle = await front.tasks.spawn(work)  # Nobody is there to begin it.
    cancelled = asyncio.create_task(front.cancel(handle.id, "not needed"))
    while not (view := await front.store.load(f"task-{handle.id}")) or len(view.inbox) < 2:
        await asyncio.sleep(0)
    async with Runtime([Agent("a", model=ScriptedModel([]))], tasks=[work], store=place()):
        assert await soon(cancelled)
        assert (await handle.result()).termination == Cancelled("not needed")
    assert not began
    await front.close()


async def test_detached_task_outlives_its_run(place: Place, scripted: Scripted) -> None:
    holds = {"mine": Hold(), "free": Hold()}

    @task
    async def waits(name: str) -> str:
        await holds[name].here()
        return f"{name} is done"

    tools = [
        spawning(waits, "mine", arguments={"name": "mine"}),
        spawning(waits, "free", arguments={"name": "free"}, detached=True, name="free"),
    ]
    agent = Agent("agent", model=scripted([call("mine"), call("free")], "wait", "heard"), tools=tools)
    async with Runtime([agent], tasks=[waits], store=place()) as runtime:
        handle = await runtime.start("agent", "go", thread="t")
        for hold in holds.values():
            await soon(hold.reached.wait())
        await eventually(lambda: waiting(runtime, handle.run_id))
        assert await soon(handle.cancel("stop"))
        mine, free = sorted(await runtime.tasks.list("t"), key=lambda one: one.name or "")
        assert (mine.status, free.status, free.run_id) == ("cancelled", "running", None)
        holds["free"].released.set()
        await soon((await runtime.tasks.get(free.id)).result())
        assert (await runtime.tasks.list("t"))[-1].status == "completed"
        assert [r.status for r in await runtime.runs.list(thread="t")] == ["done"]  # Nothing was begun for it.
        assert (await soon(runtime.run("agent", "news?", thread="t"))).text == "heard"
        assert "free is done" in (await told(runtime))[0]
        await until_idle(runtime)


async def test_detached_task_can_wake_its_owner(place: Place, scripted: Scripted) -> None:
    hold = Hold()

    @task
    async def waits() -> str:
        await hold.here()
        return "the file is there"

    tools = [spawning(waits, detached=True, wake="run", name="copy")]
    agent = Agent("agent", model=scripted(call("begin"), "I will tell you", "It is there!"), tools=tools)
    async with Runtime([agent], tasks=[waits], store=place()) as runtime:
        assert (await soon(runtime.run("agent", "go", thread="t"))).text == "I will tell you"
        await soon(hold.reached.wait())
        hold.released.set()
        await eventually(lambda: both_done(runtime))
        assert (await runtime.threads.messages("t"))[-1].text == "It is there!"
        assert (await runtime.runs.list(thread="t"))[0].identity.origin == "task"
        assert (await task_of(runtime)).status == "completed"
        await assert_quiet(runtime)


async def both_done(runtime: Runtime) -> bool:
    return [run.status for run in await runtime.runs.list(thread="t")] == ["done", "done"]


async def test_task_events_wait_while_run_is_suspended(place: Place, scripted: Scripted) -> None:
    hold = Hold()

    @task
    async def waits() -> str:
        await hold.here()
        return "the survey"

    tools = [spawning(waits), spying(Spy(), "pay", approval=True)]
    agent = Agent("agent", model=scripted([call("begin"), call("pay")], "all done"), tools=tools)
    async with Runtime([agent], tasks=[waits], store=place()) as runtime:
        result = await soon(runtime.run("agent", "go", thread="t"))
        (ticket,) = result.tickets
        hold.released.set()
        await soon((await runtime.tasks.get((await task_of(runtime)).id)).result())
        await until_idle(runtime)
        assert (await runtime.runs.get(result.run_id)).status == "waiting"
        assert await told(runtime) == []
        result = await soon(runtime.resume(result.run_id, ticket.approve()))
        assert (result.text, result.status) == ("all done", "done")
        assert "the survey" in (await told(runtime))[0]
        await assert_quiet(runtime)


async def test_task_end_does_not_wake_run_awaiting_another(place: Place, scripted: Scripted) -> None:
    """Else it would be woken again and again: it can't take the end in before its step is closed."""
    hold = Hold()

    @task
    async def quick() -> str:
        return "quick one"

    parent = Agent(
        "agent",
        model=scripted([call("begin"), call("agent_run_child", prompt="x")], "all done"),
        tools=[spawning(quick)],
        delegates=[Delegate("child", durable=True)],
    )
    child = Agent("child", model=scripted(call("wait"), "child done"), tools=[holding(hold)])
    async with Runtime([parent, child], tasks=[quick], store=place()) as runtime:
        handle = await runtime.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        await eventually(lambda: waiting(runtime, handle.run_id))
        (begun,) = [one for one in await runtime.tasks.list("t") if one.function is not None]
        await soon((await runtime.tasks.get(begun.id)).result())
        head = await runtime.store.head("t")
        for _ in range(50):
            await asyncio.sleep(0)
        assert await runtime.store.head("t") == head
        hold.released.set()
        assert (await soon(handle.result())).text == "all done"
        assert "quick one" in (await told(runtime))[0]


# -- what a task says while it runs ------------------------------------------------------------------------------


async def test_task_events_reach_owner_in_order(place: Place) -> None:
    hold = Hold()

    @task
    async def counts(ctx: TaskContext) -> str:
        for number in range(30):
            ctx.emit("count", number)
        await ctx.emit("last", {"of": 30})
        await hold.here()
        return "counted"

    agent = Agent("agent", model=talking(call("begin")), tools=[spawning(counts)])
    async with Runtime([agent], tasks=[counts], store=place()) as runtime:
        handle = await runtime.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        await eventually(lambda: heard(runtime, '{"of":30}'))
        hold.released.set()
        assert (await soon(handle.result())).status == "done"
        said = "\n".join(await told(runtime))
        assert said.index('kind="last"') < said.index('kind="completed"')


async def heard(runtime: Runtime, text: str) -> bool:
    return any(text in said for said in await told(runtime))


async def test_model_sees_latest_of_many_task_events(place: Place, scripted: Scripted) -> None:
    @task
    async def counts(ctx: TaskContext) -> str:
        for number in range(30):
            ctx.emit("count", number)
        return "counted"

    hold = Hold()

    tools = [spawning(counts), holding(hold)]
    agent = Agent("agent", model=scripted([call("begin"), call("wait")], "done"), tools=tools)
    async with Runtime([agent], tasks=[counts], store=place()) as runtime:
        handle = await runtime.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        await soon((await runtime.tasks.get((await eventually(lambda: runtime.tasks.list("t")))[0].id)).result())
        await until(lambda: len(runtime._scope.dispatch.active["t"].view.inbox) == 31)
        hold.released.set()
        assert (await soon(handle.result())).text == "done"
        (said,) = await told(runtime)
        assert said.count("<background-task-event") == 22
        assert "10 earlier events are left out" in said
        assert 'kind="count">\n29\n' in said


async def test_threaded_function_emits_to_owner(place: Place) -> None:
    agent = Agent("agent", model=talking(call("begin")), tools=[spawning(in_a_thread)])
    async with Runtime([agent], tasks=[in_a_thread], store=place()) as runtime:
        await soon(runtime.run("agent", "go", thread="t"))
        said = "\n".join(await told(runtime))
        assert 'kind="halfway">\n{"thread":true}' in said
        assert "from a thread" in said


async def test_emit_after_cancel_still_delivers(place: Place) -> None:
    hold = Hold()

    @task
    async def waits(ctx: TaskContext) -> None:
        try:
            await hold.here()
        finally:
            ctx.emit("cleaned", "up")

    agent = Agent("agent", model=talking(call("begin")), tools=[spawning(waits)])
    async with Runtime([agent], tasks=[waits], store=place()) as runtime:
        handle = await runtime.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        assert await soon((await runtime.tasks.get((await task_of(runtime)).id)).cancel("enough"))
        await soon(handle.result())
        said = "\n".join(await told(runtime))
        assert said.index('kind="cleaned"') < said.index('kind="cancelled"')


async def test_task_event_size_is_limited() -> None:
    said: list[str] = []

    @task
    async def chatty(ctx: TaskContext) -> None:
        for kind, payload in (("big", "x" * 20_000), ("odd one", 1), ("odd", object())):
            try:
                ctx.emit(kind, payload)
            except UsageError as error:
                said.append(str(error))
        try:
            for _ in range(1000):
                ctx.emit("more")
        except UsageError as error:
            said.append(str(error))

    runtime = idle(chatty)
    await soon((await runtime.tasks.spawn(chatty, thread="t")).value())
    parts = ("limit is 16,384", "a word", "no JSON", "200 events")
    assert [part for part, text in zip(parts, said, strict=True) if part not in text] == []
    await runtime.close()


async def test_task_progress_is_streamed_but_not_stored(scripted: Scripted) -> None:
    @task
    async def works(ctx: TaskContext) -> None:
        ctx.progress(0.5, message="half")

    agent = Agent("agent", model=scripted(call("begin"), "a", "b"), tools=[spawning(works)])
    runtime = Runtime([agent], tasks=[works])
    seen = [event async for event in runtime.stream("agent", "go", thread="t")]
    shown = [(e.name, e.fraction, e.message, e.run.depth) for e in seen if isinstance(e, ToolProgress)]
    assert shown == [("works", 0.5, "half", 1)]
    await runtime.close()


# -- cancelling ------------------------------------------------------------------------------------------------


async def test_cancel_by_pattern_stays_within_thread(place: Place) -> None:
    hold = Hold()

    @task
    async def waits() -> None:
        await hold.here()

    async with idle(waits, store=place()) as runtime:
        mine = [await runtime.tasks.spawn(waits, thread="t") for _ in range(3)]
        other = await runtime.tasks.spawn(waits, thread="other")
        await eventually(lambda: nothing_but(hold.times == 4))
        assert await soon(runtime.tasks.cancel_all("t")) == 3
        assert {(await h.record()).status for h in mine} == {"cancelled"}
        assert (await other.record()).status == "running"
        hold.released.set()
        await soon(other.result())


async def nothing_but(value: bool) -> bool:
    return value


async def test_task_is_adopted_by_run_that_owns_thread(place: Place) -> None:
    hold, started = Hold(), Hold()

    @task
    async def waits() -> str:
        await started.here()
        return "adopted and done"

    agent = Agent("agent", model=talking(call("wait")), tools=[holding(hold)])
    async with Runtime([agent], tasks=[waits], store=place()) as runtime:
        handle = await runtime.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        task_handle = await runtime.tasks.spawn(waits, thread="t", name="late")
        assert [(t.name, t.status) for t in await runtime.tasks.list("t")] == [("late", "running")]
        started.released.set()
        await soon(task_handle.result())
        hold.released.set()
        await soon(handle.result())
        assert "adopted and done" in (await told(runtime))[0]
        assert [t.status for t in await runtime.store.tasks("t")] == ["completed"]


async def test_sub_agent_waits_for_bg_task_completion_before_returning(place: Place, scripted: Scripted) -> None:
    hold = Hold()

    @task
    async def waits() -> str:
        await hold.here()
        return "the facts"

    agents = [
        Agent("agent", model=scripted(call("agent_run_child", prompt="x"), "all done"), delegates=["child"]),
        Agent("child", model=scripted(call("begin"), "wait", "child done"), tools=[spawning(waits)]),
    ]
    async with Runtime(agents, tasks=[waits], store=place()) as runtime:
        handle = await runtime.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        assert await replies_on(runtime, "t") == []
        hold.released.set()
        assert (await soon(handle.result())).text == "all done"
        (reply,) = await replies_on(runtime, "t")
        assert reply_text(reply) == "child done"
        await assert_quiet(runtime)


async def test_model_manages_functions_like_agents(place: Place, scripted: Scripted) -> None:
    hold = Hold()

    @task
    async def waits() -> None:
        await hold.here()

    model = scripted(
        call("begin"),
        call("task_status", task_id="job"),
        call("cancel_task", target={"relation": "child", "name": "job"}),
        call("task_status"),
        "stopped it",
    )
    agent = Agent("agent", model=model, tools=[spawning(waits, name="job"), *task_tools()])
    async with Runtime([agent], tasks=[waits], store=place()) as runtime:
        assert (await soon(runtime.run("agent", "go", thread="t"))).text == "stopped it"
        record = await task_of(runtime)
        replies = [json.loads(reply_text(reply)) for reply in (await replies_on(runtime, "t"))[1:]]
        shown = {"task_id": record.id, "name": "job", "function": "waits"}
        assert replies[0] == {**shown, "status": "running"}
        assert (replies[1]["status"], replies[1]["cancelled_count"]) == ("accepted", 1)
        assert replies[2]["tasks"] == [{**shown, "status": "cancelled", "error": "stopped by owner request"}]
        await assert_quiet(runtime)


async def test_stopped_function_cannot_be_resumed(place: Place, scripted: Scripted) -> None:
    hold = Hold()

    @task
    async def waits() -> None:
        await hold.here()

    @tool
    async def again(ctx: ToolContext) -> str:
        """Resume it."""
        (stopped,) = await ctx.tasks()
        await ctx.resume_task(stopped)
        return ""

    model = scripted(
        call("begin"), call("cancel_task", target={"relation": "child", "name": "job"}), call("again"), "ok"
    )
    agent = Agent("agent", model=model, tools=[spawning(waits, name="job"), again, *task_tools()])
    async with Runtime([agent], tasks=[waits], store=place()) as runtime:
        await soon(runtime.run("agent", "go", thread="t"))
        last = (await replies_on(runtime, "t"))[-1]
        assert "is a function and cannot be resumed; start it again" in reply_text(last)


async def test_task_cannot_wake_thread_without_agent() -> None:
    runtime = idle(double)
    with pytest.raises(UsageError, match="has had no run"):
        await runtime.tasks.spawn(double, number=1, thread="t", wake="run")
    assert await runtime.tasks.list("t") == []
    await runtime.close()


async def test_application_task_can_wake_its_owner(place: Place) -> None:
    async with idle(double, store=place()) as runtime:
        await soon(runtime.run("agent", "hi", thread="t"))
        await runtime.tasks.spawn(double, number=21, thread="t", wake="run")
        await eventually(lambda: both_done(runtime))
        assert "42" in (await told(runtime))[0]
        await assert_quiet(runtime)


@pytest.mark.parametrize("thread", [None, "t"])
async def test_repeated_spawn_request_starts_nothing(place: Place, thread: str | None) -> None:
    begun: list[int] = []

    @task
    async def counts(number: int) -> int:
        begun.append(number)
        return number

    async with idle(counts, store=place()) as runtime:
        if thread is not None:
            await soon(runtime.run("agent", "hi", thread=thread))
        same = [runtime.tasks.spawn(counts, number=1, thread=thread, request_id="r1") for _ in range(3)]
        handles = await asyncio.gather(*same)
        handles.append(await runtime.tasks.spawn(counts, number=1, thread=thread, request_id="r1"))
        assert {handle.id for handle in handles} == {handles[0].id}
        assert await soon(handles[0].value()) == 1
        assert begun == [1]
        assert thread is None or [one.id for one in await runtime.tasks.list(thread)] == [handles[0].id]


async def test_self_cancel_reaches_children_of_run(place: Place, scripted: Scripted) -> None:
    hold = Hold()

    @task
    async def waits() -> None:
        await hold.here()

    tools = [spawning(waits), *task_tools()]
    model = scripted(call("begin"), call("cancel_task", target={"relation": "self"}))
    async with Runtime([Agent("agent", model=model, tools=tools)], tasks=[waits], store=place()) as runtime:
        result = await soon(runtime.run("agent", "go", thread="t"))
        assert result.termination == Cancelled("stopped by itself")
        reply = json.loads(reply_text((await replies_on(runtime, "t"))[1]))
        assert (reply["root_task_id"], reply["cancelled_count"]) == (result.run_id, 2)
        assert (await task_of(runtime)).status == "cancelled"
        await until_idle(runtime)
        assert {run.status for run in await runtime.runs.list()} == {"done"}
