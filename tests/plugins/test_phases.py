"""Phases: their order, the snapshot they share, and what hooks can see and do in each."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loop.helpers import Scripted, Spy, assert_settled, events_of, spying
from wakeful import (
    Agent,
    FunctionModel,
    ModelError,
    Plugin,
    Principal,
    RetryPolicy,
    Runtime,
    SqliteStore,
    StateKey,
    ToolContext,
    Turn,
    Usage,
    call,
    tool,
)
from wakeful.errors import UsageError
from wakeful.plugins import (
    AfterInference,
    AfterTool,
    BeforeInference,
    BeforeTool,
    ContextMessage,
    GateAnswer,
    GateTool,
    RunEnd,
    Step,
)
from wakeful.stores import Commit, Committed
from wakeful.types.events import StateDelta
from wakeful.types.runs import EndRequested, NaturalEnd


class Late(StateKey[int, int]):
    name = "late"


class Diary(Plugin):
    """Writes down every phase it sees."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def activate(self, ctx: Step) -> None:
        self.seen.append("activate")

    async def run_start(self, ctx: Step) -> None:
        self.seen.append(f"run_start {ctx.step}")

    async def step_start(self, ctx: Step) -> None:
        self.seen.append(f"step_start {ctx.step}")

    async def before_inference(self, ctx: BeforeInference) -> None:
        self.seen.append(f"before_inference {','.join(ctx.tools)}")

    async def after_inference(self, ctx: AfterInference) -> None:
        answer = ctx.answer
        assert answer is not None
        self.seen.append(f"after_inference {ctx.stop} {len(answer.calls)} {ctx.usage.input_tokens} {ctx.offered}")

    async def gate_tool(self, ctx: GateTool) -> GateAnswer:
        self.seen.append(f"gate_tool {ctx.call.name} {ctx.arguments}")
        return None

    async def before_tool(self, ctx: BeforeTool) -> None:
        self.seen.append(f"before_tool {ctx.call.name} {ctx.arguments}")

    async def after_tool(self, ctx: AfterTool) -> None:
        self.seen.append(f"after_tool {ctx.call.name} {ctx.outcome} {ctx.reply.error}")

    async def step_end(self, ctx: Step) -> None:
        self.seen.append(f"step_end {ctx.step}")

    async def run_end(self, ctx: RunEnd) -> None:
        self.seen.append(f"run_end {ctx.status} {type(ctx.termination).__name__}")


async def test_phases_come_in_their_order(scripted: Scripted) -> None:
    diary = Diary()
    turns = [Turn(calls=[call("act", x=1)], usage=Usage(input_tokens=7)), "done"]
    agent = Agent("agent", model=scripted(*turns), tools=[spying(Spy(), "act")], plugins=[diary])
    await Runtime([agent]).run("agent", "go")
    assert diary.seen == [
        "activate",
        "run_start 0",
        "step_start 1",
        "before_inference act",
        "after_inference tool_use 1 7 ('act',)",
        "gate_tool act {'x': 1}",
        "before_tool act {'x': 1}",
        "after_tool act ok None",
        "step_end 1",
        "step_start 2",
        "before_inference act",
        "after_inference end_turn 0 0 ('act',)",
        "step_end 2",
        "run_end done NaturalEnd",
    ]


async def test_suspension_ends_activation_and_not_step(scripted: Scripted) -> None:
    diary = Diary()
    tools = [spying(Spy(), "ask", approval=True)]
    runtime = Runtime([Agent("agent", model=scripted(call("ask"), "done"), tools=tools, plugins=[diary])])
    result = await runtime.run("agent", "go", thread="t")
    assert diary.seen[-2:] == ["gate_tool ask {}", "run_end waiting NoneType"]
    diary.seen.clear()
    await runtime.resume(result.run_id, result.tickets[0].approve())
    assert diary.seen[:5] == [
        "run_start 1",
        "gate_tool ask {}",
        "before_tool ask {}",
        "after_tool ask ok None",
        "step_end 1",
    ]


@pytest.mark.parametrize(("answer", "expected"), [("result", "ok None"), ("deny", "blocked denied")])
async def test_call_finished_by_ticket_runs_after_tool(scripted: Scripted, answer: str, expected: str) -> None:
    diary = Diary()
    tools = [spying(Spy(), "ask", approval=True)]
    runtime = Runtime([Agent("agent", model=scripted(call("ask"), "done"), tools=tools, plugins=[diary])])
    result = await runtime.run("agent", "go", thread="t")
    diary.seen.clear()
    (ticket,) = result.tickets
    await runtime.resume(result.run_id, ticket.result("given") if answer == "result" else ticket.deny())
    assert diary.seen[:2] == ["run_start 1", f"after_tool ask {expected}"]


class Word(StateKey[str, str]):
    """An exclusive key."""

    name, scope, default = "word", "thread", "-"


async def test_hooks_of_phase_share_one_snapshot(scripted: Scripted) -> None:
    seen: list[str] = []

    def writes(label: str) -> Plugin:
        async def hook(self: Plugin, ctx: Step) -> None:
            if ctx.state[Word] == "seeded":  # Not when it runs again.
                seen.append(label)
            await asyncio.sleep(0)
            ctx.update(Word, label)

        return type(label, (Plugin,), {"step_start": hook})()

    runtime = Runtime(
        [Agent("agent", model=scripted("ok"), plugins=[writes("A"), writes("B"), writes("C")])], keys=[Word]
    )
    await runtime.run("agent", "go", state={Word: "seeded"})
    assert seen == ["A", "B", "C"]


async def test_hooks_of_phase_run_in_the_task_of_the_run(scripted: Scripted) -> None:
    tasks: list[Any] = []

    def notes(label: str) -> Plugin:
        async def hook(self: Plugin, ctx: Step) -> None:
            tasks.append(asyncio.current_task())

        return type(label, (Plugin,), {"step_start": hook})()

    runtime = Runtime([Agent("agent", model=scripted("ok"), plugins=[notes("A"), notes("B")])])
    await runtime.run("agent", "go")
    assert len(tasks) == 2
    assert len(set(tasks)) == 1


async def test_concurrent_hooks_run_side_by_side_first(scripted: Scripted) -> None:
    barrier = asyncio.Barrier(2)
    seen: list[str] = []

    def meets(label: str) -> Plugin:
        async def hook(self: Plugin, ctx: Step) -> None:
            await barrier.wait()
            seen.append(f"met on {ctx.state[Word]}")

        return type(label, (Plugin,), {"step_start": hook, "concurrent": True})()

    class InTurn(Plugin):
        async def step_start(self, ctx: Step) -> None:
            seen.append("in turn")

    plugins = [InTurn(), meets("A"), meets("B")]
    runtime = Runtime([Agent("agent", model=scripted("ok"), plugins=plugins)], keys=[Word])
    await runtime.run("agent", "go", state={Word: "seeded"})
    assert seen == ["met on seeded", "met on seeded", "in turn"]


async def test_hook_writes_are_visible_in_next_phase(scripted: Scripted) -> None:
    seen: list[str] = []

    class Writer(Plugin):
        keys = (Word,)

        async def run_start(self, ctx: Step) -> None:
            ctx.update(Word, "written")
            seen.append(ctx.state[Word])

        async def step_start(self, ctx: Step) -> None:
            seen.append(ctx.state[Word])

    await Runtime([Agent("agent", model=scripted("ok"), plugins=[Writer()])]).run("agent", "go")
    assert seen == ["-", "written"]


async def test_phase_is_committed_before_next_user_code(scripted: Scripted) -> None:
    class Writer(Plugin):
        keys = (Word,)

        async def run_start(self, ctx: Step) -> None:
            ctx.update(Word, "written")

        async def step_start(self, ctx: Step) -> None:
            stored = await runtime.store.load("t")
            assert stored is not None
            assert stored.state == {"word": b'"written"'}
            seen.append("yes")

    seen: list[str] = []
    runtime = Runtime([Agent("agent", model=scripted("ok"), plugins=[Writer()])])
    result = await runtime.run("agent", "go", thread="t")
    assert (result.termination, seen) == (NaturalEnd(), ["yes"])
    assert [e.changes for e in await events_of(runtime, "t", StateDelta)] == [{"word": "written"}]


async def test_run_finish_is_last_event_after_run_end_writes(
    scripted: Scripted,
) -> None:
    class Writer(Plugin):
        keys = (Word,)

        async def run_end(self, ctx: RunEnd) -> None:
            ctx.update(Word, "over")

    runtime = Runtime([Agent("agent", model=scripted("ok"), plugins=[Writer()])])
    seen = [event.type async for event in runtime.stream("agent", "go", thread="t")]
    assert seen[-2:] == ["state_delta", "run_finish"]
    assert await runtime.threads.state("t") == {"word": "over"}


@pytest.mark.parametrize(
    ("phase", "ran", "text"),
    [
        ("run_start", [], ""),
        ("step_start", [], ""),
        ("before_inference", [], ""),
        ("after_inference", [], "so"),
        ("before_tool", [], "so"),
        ("after_tool", ["act"], "so"),
        ("step_end", ["act"], "so"),
    ],
)
async def test_hook_may_end_run_before_unstarted_calls(
    scripted: Scripted, phase: str, ran: list[str], text: str
) -> None:
    async def stop(self: Plugin, ctx: Any) -> None:
        ctx.end_run("that will do")

    spy = Spy()
    turns = [Turn(text="so", calls=[call("act")])] if text else []
    plugin = type("Stops", (Plugin,), {phase: stop})()
    runtime = Runtime([Agent("agent", model=scripted(*turns), tools=[spying(spy, "act")], plugins=[plugin])])
    result = await runtime.run("agent", "go", thread="t")
    assert result.termination == EndRequested("that will do")
    assert (spy.ran, result.text) == (ran, text)
    await assert_settled(runtime, "t")


async def test_tool_ends_run_after_its_siblings(scripted: Scripted) -> None:
    spy = Spy()

    @tool
    async def last(ctx: ToolContext) -> str:
        """End it."""
        ctx.end_run("asked for")
        return "ended"

    runtime = Runtime(
        [Agent("agent", model=scripted([call("last"), call("act")]), tools=[last, spying(spy, "act")])]
    )
    result = await runtime.run("agent", "go", thread="t")
    assert result.termination == EndRequested("asked for")
    assert spy.ran == ["act"]
    await assert_settled(runtime, "t")


async def test_hooks_see_principal_and_run(scripted: Scripted) -> None:
    seen: list[Any] = []

    class Looks(Plugin):
        async def run_start(self, ctx: Step) -> None:
            seen.append((ctx.principal, ctx.run.thread_id, ctx.run.agent_id))

    ann = Principal("ann")
    await Runtime([Agent("agent", model=scripted("ok"), plugins=[Looks()])]).run(
        "agent", "go", thread="t", principal=ann
    )
    assert seen == [(ann, "t", "agent")]


async def test_run_end_hook_sees_pending_waits(scripted: Scripted) -> None:
    seen: list[Any] = []

    class Ends(Plugin):
        async def run_end(self, ctx: RunEnd) -> None:
            seen.append((ctx.status, ctx.termination, ctx.waiting))

    tools = [spying(Spy(), "ask", approval=True)]
    runtime = Runtime([Agent("agent", model=scripted(call("ask"), "done"), tools=tools, plugins=[Ends()])])
    result = await runtime.run("agent", "go")
    (first,) = seen
    assert first[:2] == ("waiting", None)
    assert first[2].tickets == (result.tickets[0].id,)
    await runtime.resume(result.run_id, result.tickets[0].approve())
    assert seen[1] == ("done", NaturalEnd(), None)


async def test_run_end_hook_may_end_waiting_run(scripted: Scripted) -> None:
    seen: list[str] = []

    class Impatient(Plugin):
        async def run_end(self, ctx: RunEnd) -> None:
            seen.append(ctx.status)
            ctx.end_run("nobody is there to answer")

    spy = Spy()
    agent = Agent("agent", scripted(call("ask")), tools=[spying(spy, "ask", approval=True)], plugins=[Impatient()])
    runtime = Runtime([agent])
    result = await runtime.run("agent", "go", thread="t")
    assert result.termination == EndRequested("nobody is there to answer")
    assert (seen, spy.ran) == (["waiting", "done"], [])
    await assert_settled(runtime, "t")


async def test_hooks_run_again_for_retried_model_call(scripted: Scripted) -> None:
    diary = Diary()
    model = scripted(ModelError("busy", transient=True), "done")

    class Some(Plugin):
        async def step_start(self, ctx: Step) -> None:
            await diary.step_start(ctx)

        async def before_inference(self, ctx: BeforeInference) -> None:
            await diary.before_inference(ctx)

    await Runtime([Agent("agent", model=model, plugins=[Some()], retry=RetryPolicy(backoff=0))]).run("agent", "go")
    assert diary.seen == ["step_start 1", "before_inference ", "before_inference "]


@pytest.mark.parametrize(
    "late",
    [
        lambda ctx: ctx.update(Late, 1),
        lambda ctx: ctx.end_run(),
        lambda ctx: ctx.handoff("agent"),
        lambda ctx: ctx.add_context(ContextMessage("k", "text")),
        lambda ctx: ctx.remove_context("k"),
    ],
)
async def test_hook_context_is_unusable_after_hook(scripted: Scripted, late: Any) -> None:
    kept: list[Step] = []

    class Keeps(Plugin):
        keys = (Late,)

        async def step_start(self, ctx: Step) -> None:
            kept.append(ctx)

    result = await Runtime([Agent("agent", model=scripted("done"), plugins=[Keeps()])]).run("agent", "go")
    with pytest.raises(UsageError, match="the hook of this context has ended"):
        late(kept[0])
    assert (kept[0].step, kept[0].run.run_id) == (1, result.run_id)


# -- costs ---------------------------------------------------------------------------------------------------


class Counted(SqliteStore):
    """Counts commits."""

    commits = 0

    async def commit(self, commit: Commit) -> Committed:
        self.commits += 1
        return await super().commit(commit)


class StepHooks(Plugin):
    """Four hooks of a step that do nothing."""

    def __init__(self, number: int) -> None:
        self.name = f"{type(self).__name__}-{number}"

    async def step_start(self, ctx: Step) -> None:
        pass

    async def before_inference(self, ctx: BeforeInference) -> None:
        pass

    async def after_inference(self, ctx: AfterInference) -> None:
        pass

    async def step_end(self, ctx: Step) -> None:
        pass


class AllHooks(StepHooks):
    async def before_tool(self, ctx: BeforeTool) -> None:
        pass

    async def after_tool(self, ctx: AfterTool) -> None:
        pass


async def count_commits(path: Path, plugins: list[Plugin]) -> int:
    """The commits of a run of three steps, two of them with a call."""

    def answer(request: Any) -> Any:
        return "done" if len(request.messages) == 5 else call("look")

    store = Counted(path / f"{len(plugins)}.db")
    agent = Agent("agent", model=FunctionModel(answer), tools=[spying(Spy(), "look")])
    async with Runtime([agent], plugins=plugins, store=store) as runtime:
        assert (await runtime.run("agent", "go")).steps == 3
    return store.commits


async def test_plugins_cost_one_commit_a_step(tmp_path: Path) -> None:
    bare = await count_commits(tmp_path, [])
    assert await count_commits(tmp_path, [StepHooks(number) for number in range(20)]) <= bare + 3


async def test_commits_are_independent_of_plugin_count(tmp_path: Path) -> None:
    """All hooks of a phase run after one commit, so it is the number of phases that counts."""
    one = await count_commits(tmp_path, [AllHooks(0)])
    assert await count_commits(tmp_path, [AllHooks(number) for number in range(20)]) == one


async def test_tool_hooks_change_their_own_copies(scripted: Scripted) -> None:
    seen: list[Any] = []

    class Changing(Plugin):
        async def before_tool(self, ctx: BeforeTool) -> None:
            seen.append((ctx.arguments["place"], ctx.call.arguments["place"]))
            ctx.arguments["place"] = ctx.call.arguments["place"] = "changed"
            seen.append((ctx.arguments["place"], ctx.call.arguments["place"]))

        async def after_tool(self, ctx: AfterTool) -> None:
            seen.append(ctx.call.arguments["place"])

    class Second(Changing):
        pass

    @tool
    async def visit(place: str) -> str:
        """Visit a place."""
        seen.append(place)
        return place

    agent = Agent("agent", model=scripted(call("visit", place="Rome"), "done"), tools=[visit])
    await Runtime([agent], plugins=[Changing(), Second()]).run("agent", "go")
    both = [("Rome", "Rome"), ("changed", "changed")]
    assert seen == [*both, *both, "Rome", "Rome", "Rome"]
