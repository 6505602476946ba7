"""The context of a tool, in real runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from wakeful import Agent, MemoryStore, Principal, Runtime, StateKey, ToolContext, call, tool
from wakeful.errors import ToolCancelled, UsageError
from wakeful.testing import Recorder
from wakeful.types.events import (
    ActivityDelta,
    ActivitySnapshot,
    RunStart,
    ToolCallDone,
    ToolCallReady,
    ToolOutput,
    ToolProgress,
)
from wakeful.types.runs import Cancelled, EndRequested


class Visits(StateKey[int, int]):
    name, scope, merge = "visits", "thread", "commutative"
    default = 0

    def apply(self, value: int, update: int) -> int:
        return value + update


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop run until something holds."""
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0)


class Seen:
    """Keeps the contexts of a tool's calls."""

    def __init__(self) -> None:
        self.contexts: list[ToolContext] = []

    @tool(effect="pure")
    async def look(self, ctx: ToolContext) -> str:
        """Look at the context."""
        self.contexts.append(ctx)
        return "seen"


# -- what it sees --------------------------------------------------------------------------------------------


async def test_context_has_run_and_call(scripted: Any) -> None:
    seen = Seen()
    model = scripted([call("look"), call("look")], "done")
    async with Runtime([Agent("a", model=model, tools=[seen.look])]) as runtime:
        result = await runtime.run("a", "go", thread="t1")
        calls = await runtime.runs.calls(result.run_id)
    one, two = seen.contexts
    assert [c.call_id for c in seen.contexts] == [row.id for row in calls]
    assert (one.name, one.attempt, one.decision) == ("look", 1, None)
    assert (one.run.run_id, one.run.thread_id, one.run.agent_id) == (result.run_id, "t1", "a")
    assert (one.run.root_run_id, one.run.depth, one.run.origin) == (result.run_id, 0, "user")
    assert one.idempotency_key == f"{result.run_id}:{one.call_id}" != two.idempotency_key


async def test_context_has_principal(scripted: Any) -> None:
    seen, ann = Seen(), Principal("ann", claims={"role": "admin"})
    model = scripted(call("look"), "done", call("look"), "done")
    async with Runtime([Agent("a", model=model, tools=[seen.look])]) as runtime:
        await runtime.run("a", "go", principal=ann)
        await runtime.run("a", "go")
    assert [ctx.principal for ctx in seen.contexts] == [ann, None]


async def test_fence_grows_with_every_takeover_of_thread(scripted: Any) -> None:
    seen = Seen()
    model = scripted([call("look"), call("look")], "done", call("look"), "done")
    async with Runtime([Agent("a", model=model, tools=[seen.look])]) as runtime:
        await runtime.run("a", "go", thread="t1")
        await runtime.run("a", "go", thread="t1")
    one, two, three = [ctx.fence for ctx in seen.contexts]
    assert 0 < one == two < three


async def test_context_of_child_has_lineage(scripted: Any) -> None:
    seen = Seen()
    lead = Agent("lead", model=scripted(call("agent_run_helper", prompt="look"), "done"), delegates=["helper"])
    helper = Agent("helper", model=scripted(call("look"), "looked"), tools=[seen.look])
    async with Runtime([lead, helper]) as runtime:
        result = await runtime.run("lead", "go", thread="t1")
    (ctx,) = seen.contexts
    assert (ctx.run.root_run_id, ctx.run.parent_run_id, ctx.run.parent_thread_id) == (
        result.run_id,
        result.run_id,
        "t1",
    )
    assert (ctx.run.depth, ctx.run.origin, ctx.run.agent_id) == (1, "subagent", "helper")


# -- state ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_context_state_is_snapshot_of_call_start(scripted: Any, kind: str) -> None:
    seen: list[tuple[int, int]] = []

    def visit(ctx: ToolContext) -> str:
        """Visit."""
        before = ctx.state[Visits]
        ctx.update(Visits, 1)
        seen.append((before, ctx.state[Visits]))
        return "ok"

    async def visit_async(ctx: ToolContext) -> str:
        """Visit."""
        return visit(ctx)

    chosen = tool(name="visit")(visit if kind == "sync" else visit_async)
    model = scripted(call("visit"), call("visit"), "done")
    async with Runtime([Agent("a", model=model, tools=[chosen])], keys=[Visits]) as runtime:
        await runtime.run("a", "go")
    assert seen == [(0, 0), (1, 1)]


async def test_failed_tool_changes_no_state(scripted: Any) -> None:
    seen = Seen()

    @tool
    async def fail(ctx: ToolContext) -> str:
        """Update, then fail."""
        ctx.update(Visits, 1)
        raise ValueError("no")

    model = scripted(call("fail"), call("look"), "done")
    async with Runtime([Agent("a", model=model, tools=[fail, seen.look])], keys=[Visits]) as runtime:
        await runtime.run("a", "go")
    assert seen.contexts[0].state[Visits] == 0


# -- what it shows -------------------------------------------------------------------------------------------


def show(ctx: ToolContext) -> str:
    """Show everything that can be shown."""
    ctx.stream("first ")
    ctx.progress(0.5, done=1, total=2, message="half")
    ctx.activity("plan", {"steps": ["a"]})
    ctx.activity_delta("plan", [{"op": "add", "path": "/steps/-", "value": "b"}])
    ctx.stream("last")
    return "shown"


async def show_async(ctx: ToolContext) -> str:
    """Show everything that can be shown."""
    return show(ctx)


SHOWING = [tool(name="show")(show), tool(name="show")(show_async)]


@pytest.mark.parametrize("shown", SHOWING, ids=["sync", "async"])
async def test_tool_output_reaches_stream_in_order(scripted: Any, shown: Any) -> None:
    model = scripted(call("show"), "done")
    async with Runtime([Agent("a", model=model, tools=[shown])]) as runtime:
        seen = await Recorder().record(runtime.stream("a", "go", thread="t1"))
    ready, done = seen.one(ToolCallReady), seen.one(ToolCallDone)
    between = seen.events[seen.events.index(ready) + 1 : seen.events.index(done)]
    live = [e for e in between if not e.durable]
    assert [type(e) for e in live] == [ToolOutput, ToolProgress, ActivitySnapshot, ActivityDelta, ToolOutput]
    assert all(e.call_id == ready.call_id for e in live)  # pyright: ignore[reportAttributeAccessIssue]
    assert all(ready.seq <= e.seq < done.seq for e in live)
    progress, activity, delta = seen.one(ToolProgress), seen.one(ActivitySnapshot), seen.one(ActivityDelta)
    assert [e.delta for e in seen.of(ToolOutput)] == ["first ", "last"]
    assert (progress.fraction, progress.done, progress.total, progress.message) == (0.5, 1, 2, "half")
    assert (activity.activity, activity.content) == ("plan", {"steps": ["a"]})
    assert delta.patch == [{"op": "add", "path": "/steps/-", "value": "b"}]


@pytest.mark.parametrize("shown", SHOWING, ids=["sync", "async"])
async def test_tool_output_is_not_logged(scripted: Any, shown: Any) -> None:
    model = scripted(call("show"), "done")
    async with Runtime([Agent("a", model=model, tools=[shown])]) as runtime:
        await runtime.run("a", "go", thread="t1")
        logged = [e async for e in runtime.events("t1", follow=False)]
    assert all(e.durable for e in logged)
    assert next(e for e in logged if isinstance(e, ToolCallDone)).outcome == "ok"


async def test_tool_output_is_live(scripted: Any) -> None:
    go_on = asyncio.Event()

    @tool
    async def slow(ctx: ToolContext) -> str:
        """Show something, and wait for a reader to have seen it."""
        ctx.stream("begun")
        await go_on.wait()
        return "ok"

    model = scripted(call("slow"), "done")
    async with Runtime([Agent("a", model=model, tools=[slow])]) as runtime:
        async for event in runtime.stream("a", "go"):
            if isinstance(event, ToolOutput):
                go_on.set()
    assert go_on.is_set()


async def test_tool_output_of_child_reaches_parent_stream(scripted: Any) -> None:
    lead = Agent("lead", model=scripted(call("agent_run_helper", prompt="x"), "done"), delegates=["helper"])
    helper = Agent("helper", model=scripted(call("show"), "ok"), tools=[SHOWING[0]])
    async with Runtime([lead, helper]) as runtime:
        seen = await Recorder().record(runtime.stream("lead", "go"))
    assert [e.run.agent_id for e in seen.of(ToolOutput)] == ["helper", "helper"]


# -- asking --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_every_attempt_has_same_key_and_each_question_its_answer(scripted: Any, kind: str) -> None:
    attempts: list[tuple[int, str, Any]] = []

    def order(ctx: ToolContext) -> str:
        """Order something, with questions."""
        attempts.append((ctx.attempt, ctx.idempotency_key, ctx.decision and ctx.decision.value))
        size = ctx.ask("Which size?")
        colour = ctx.ask("Which colour?")
        return f"{size} {colour}"

    async def order_async(ctx: ToolContext) -> str:
        """Order something, with questions."""
        return order(ctx)

    chosen = tool(name="order", resumable=True)(order if kind == "sync" else order_async)
    async with Runtime([Agent("a", model=scripted(call("order"), "ordered"), tools=[chosen])]) as runtime:
        result = await runtime.run("a", "go", thread="t1")
        for answer, question in (("large", "Which size?"), ("red", "Which colour?")):
            assert result.status == "waiting"
            (ticket,) = result.tickets
            assert (ticket.message, ticket.asked_by) == (question, "tool")
            result = await runtime.resume(result.run_id, ticket.answer(answer))
        (reply,) = [m.reply for m in await runtime.threads.messages("t1") if m.reply is not None]
    assert reply.content[0].text == "large red"
    assert [(attempt, value) for attempt, _, value in attempts] == [(1, None), (2, "large"), (3, "red")]
    assert len({key for _, key, _ in attempts}) == 1


@pytest.mark.parametrize("group", [True, False])
async def test_parallel_questions_have_their_own_answers(scripted: Any, group: bool) -> None:
    @tool(resumable=True)
    async def order(ctx: ToolContext) -> str:
        """Order something, with questions that don't wait for each other."""

        async def ask(question: str) -> str:
            return ctx.ask(question)

        questions = ("Which size?", "Which colour?")
        if not group:
            return " ".join(await asyncio.gather(*[ask(question) for question in questions]))
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(ask(question)) for question in questions]
        return " ".join(task.result() for task in asked)

    answers = {"Which size?": "large", "Which colour?": "red"}
    async with Runtime([Agent("a", model=scripted(call("order"), "ordered"), tools=[order])]) as runtime:
        result = await runtime.run("a", "go", thread="t1")
        while result.status == "waiting":
            (ticket,) = result.tickets
            result = await runtime.resume(result.run_id, ticket.answer(answers.pop(ticket.message)))
        (reply,) = [m.reply for m in await runtime.threads.messages("t1") if m.reply is not None]
    assert reply.content[0].text == "large red"


async def test_once_tool_cannot_ask_while_running(scripted: Any) -> None:
    @tool
    async def pay(ctx: ToolContext) -> str:
        """Pay, then ask."""
        return ctx.ask("Sure?")

    async with Runtime([Agent("a", model=scripted(call("pay"), "no"), tools=[pay])]) as runtime:
        result = await runtime.run("a", "go", thread="t1")
        (reply,) = [m.reply for m in await runtime.threads.messages("t1") if m.reply is not None]
    assert result.status == "done"
    assert "resumable=True" in reply.content[0].text


async def test_awaited_question_is_refused_before_ticket_opens(scripted: Any) -> None:
    @tool(resumable=True)
    async def pay(ctx: ToolContext) -> str:
        """Pay if somebody agrees."""
        return str(await ctx.ask("Sure?", deadline=5))

    async with Runtime([Agent("a", model=scripted(call("pay"), "no"), tools=[pay])]) as runtime:
        result = await runtime.run("a", "go", thread="t1")
        (reply,) = [m.reply for m in await runtime.threads.messages("t1") if m.reply is not None]
    assert result.status == "done"
    assert "leave the await out" in reply.content[0].text


# -- stopping ------------------------------------------------------------------------------------------------


class Patient:
    """A sync tool that runs until the test lets it look around."""

    def __init__(self) -> None:
        self.context: ToolContext | None = None
        self.look_now = threading.Event()
        self.saw: list[Any] = []

    @tool
    def work(self, ctx: ToolContext) -> str:
        """Work until told to stop."""
        self.saw.append(ctx.cancelled)
        ctx.check_cancelled()
        self.context = ctx
        assert self.look_now.wait(120)
        self.saw.append(ctx.cancelled)
        try:
            ctx.check_cancelled()
        except ToolCancelled as stopped:
            self.saw.append(str(stopped))
            raise
        return "finished"

    def told_to_stop(self) -> bool:
        return self.context is not None and self.context.cancelled


async def test_sync_tool_sees_that_its_run_was_cancelled(scripted: Any) -> None:
    patient = Patient()
    async with Runtime([Agent("a", model=scripted(call("work")), tools=[patient.work])]) as runtime:
        run = asyncio.create_task(runtime.run("a", "go"))
        await until(lambda: patient.context is not None)
        (record,) = await runtime.runs.list()
        cancelling = asyncio.create_task(runtime.cancel(record.id, "enough"))
        await until(patient.told_to_stop)
        assert not run.done()
        patient.look_now.set()
        assert await cancelling
        result = await run
        assert runtime.workers.abandoned == 0
    assert patient.saw == [False, True, "work was told to stop"]
    assert result.termination == Cancelled("enough")


async def test_async_tool_is_cancelled_with_its_run(scripted: Any) -> None:
    seen: list[Any] = []
    started = asyncio.Event()

    @tool
    async def wait(ctx: ToolContext) -> str:
        """Wait for ever."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(ctx.cancelled)
        return "never"

    async with Runtime([Agent("a", model=scripted(call("wait")), tools=[wait])]) as runtime:
        run = asyncio.create_task(runtime.run("a", "go"))
        await started.wait()
        (record,) = await runtime.runs.list()
        await runtime.cancel(record.id)
        assert (await run).status == "done"
    assert seen == [True]


async def test_successful_call_is_never_cancelled(scripted: Any) -> None:
    seen = Seen()
    async with Runtime([Agent("a", model=scripted(call("look"), "done"), tools=[seen.look])]) as runtime:
        await runtime.run("a", "go")
    assert not seen.contexts[0].cancelled


# -- steering the run ----------------------------------------------------------------------------------------


async def test_tool_may_end_run(scripted: Any) -> None:
    @tool
    async def finish(ctx: ToolContext) -> str:
        """End it here."""
        ctx.end_run("all done")
        return "bye"

    async with Runtime([Agent("a", model=scripted(call("finish")), tools=[finish])]) as runtime:
        result = await runtime.run("a", "go")
    assert result.termination == EndRequested("all done")


async def test_tool_may_run_another_agent(scripted: Any) -> None:
    @tool
    async def consult(question: str, ctx: ToolContext) -> dict[str, Any]:
        """Ask the expert."""
        child = await ctx.run_agent("expert", question)
        return {"text": child.text, "status": child.status, "steps": child.steps}

    a = Agent("a", model=scripted(call("consult", question="why?"), "done"), tools=[consult])
    store = MemoryStore()
    async with Runtime([a, Agent("expert", model=scripted("because"))], store=store) as runtime:
        seen = await Recorder().record(runtime.stream("a", "go", thread="t1"))
        (reply,) = [m.reply for m in await runtime.threads.messages("t1") if m.reply is not None]
    assert reply.content[0].text == '{"text":"because","status":"completed","steps":1}'
    assert [e.run.depth for e in seen.of(RunStart)] == [0, 1]


async def test_unknown_agent_is_tool_error(scripted: Any) -> None:
    @tool
    async def consult(ctx: ToolContext) -> str:
        """Ask nobody."""
        return (await ctx.run_agent("nobody", "hello")).text

    async with Runtime([Agent("a", model=scripted(call("consult"), "done"), tools=[consult])]) as runtime:
        await runtime.run("a", "go", thread="t1")
        (reply,) = [m.reply for m in await runtime.threads.messages("t1") if m.reply is not None]
    assert reply.error == "failed"
    assert "agent not found: nobody" in reply.content[0].text


# -- once the call has ended --------------------------------------------------------------------------------


LATE: dict[str, Callable[[ToolContext], Any]] = {
    "end_run": lambda ctx: ctx.end_run("late"),
    "update": lambda ctx: ctx.update(Visits, 1),
    "handoff": lambda ctx: ctx.handoff("agent"),
    "notify": lambda ctx: ctx.notify("told"),
    "schedule": lambda ctx: ctx.schedule("act", phase="run_end"),
    "ask": lambda ctx: ctx.ask("Late?"),
    "stream": lambda ctx: ctx.stream("late"),
    "progress": lambda ctx: ctx.progress(0.5),
    "activity": lambda ctx: ctx.activity("plan", []),
    "activity_delta": lambda ctx: ctx.activity_delta("plan", []),
    "run_agent": lambda ctx: ctx.run_agent("agent", "late"),
    "spawn": lambda ctx: ctx.spawn("agent", "late"),
    "send": lambda ctx: ctx.send("parent", "late"),
    "sleep": lambda ctx: ctx.sleep(1),
    "cancel_self": lambda ctx: ctx.cancel_self(),
}


async def begun(late: Callable[[ToolContext], Any], ctx: ToolContext) -> None:
    await late(ctx)


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("how", ["returned", "failed", "let go"])
async def test_context_is_unusable_after_call(scripted: Any, late: str, how: str) -> None:
    kept: list[ToolContext] = []

    @tool(effect="pure", timeout=0.001 if how == "let go" else None)
    async def keep(ctx: ToolContext) -> str:
        """Keep the context."""
        kept.append(ctx)
        if how == "failed":
            raise ValueError
        if how == "let go":
            try:
                await asyncio.sleep(60)
            finally:
                await release.wait()
        return "kept"

    release = asyncio.Event()
    agent = Agent("agent", model=scripted(call("keep"), "done", "again"), tools=[keep])
    async with Runtime([agent], keys=[Visits], cancel_grace=0.01) as runtime:
        result = await runtime.run("agent", "go", thread="t1")
        with pytest.raises(UsageError, match=r"has ended, and its context with it: .*ctx\.spawn"):
            await begun(LATE[late], kept[0])
        release.set()
        # What it says about the call can still be read.
        assert (kept[0].call_id, kept[0].run.run_id) == (
            (await runtime.runs.calls(result.run_id))[0].id,
            result.run_id,
        )
        assert (await runtime.run("agent", "on", thread="t1")).text == "again"
