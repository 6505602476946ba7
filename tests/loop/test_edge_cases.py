"""The reference's edge cases, rows 1 to 18: commands, phases, keys, limits and endings."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from wakeful import (
    Agent,
    ConfigurationError,
    FunctionModel,
    Limits,
    MemoryStore,
    ModelError,
    Plugin,
    Runtime,
    StateKey,
    StopOnTool,
    TokenBudget,
    ToolContext,
    Turn,
    Usage,
    WallTime,
    call,
    tool,
)
from wakeful.errors import StateError
from wakeful.plugins import RunEnd, Step, action, notice
from wakeful.stores import Commit, Committed
from wakeful.testing import FakeClock
from wakeful.types import ContentMatch
from wakeful.types.events import ErrorRaised, RunFinish, StateDelta, StepEnd, StepStart
from wakeful.types.runs import Cancelled, EndRequested, Failed, NaturalEnd, Stopped

from .helpers import (
    Scripted,
    Spy,
    assert_settled,
    events_of,
    log_of,
    replies_on,
    reply_text,
    soon,
    spying,
)


class Word(StateKey[str, str]):
    """An exclusive key of the thread."""

    name, scope, default = "word", "thread", ""


class Words(StateKey[list[str], str]):
    """A commutative key of the thread."""

    name, scope, merge = "words", "thread", "commutative"
    default: list[str] = []

    def apply(self, value: list[str], update: str) -> list[str]:
        return [*value, update]


class Unknown(StateKey[str, str]):
    """A key that is never registered."""

    name = "unknown"


class Worker(Plugin):
    """Handles an action and a notice."""

    keys = (Word, Words)

    def __init__(self) -> None:
        self.told: list[Any] = []

    @action("work")
    async def work(self, payload: int, ctx: Step) -> None:
        """Write it down, and chain until nought."""
        ctx.update(Words, str(payload))
        if payload:
            ctx.schedule("work", payload - 1, phase="step_start")

    @notice("tell")
    async def tell(self, payload: Any) -> None:
        """Take note."""
        self.told.append(payload)


async def stored_state(runtime: Runtime) -> dict[str, Any]:
    """The state of thread `t`, as the store has it."""
    stored = await runtime.store.load("t")
    assert stored is not None
    return {name: msgspec.json.decode(value) for name, value in stored.state.items()}


def hooked(phase: str, hook: Any, label: str = "Hooked") -> Plugin:
    """A plugin with one hook."""
    return type(label, (Plugin,), {phase: hook})()


@pytest.mark.parametrize("what", ["action", "notice"])
async def test_unknown_action_or_notice_refuses_command(scripted: Scripted, what: str) -> None:
    """Row 1."""

    async def hook(self: Plugin, ctx: Step) -> None:
        ctx.update(Word, "half")
        if what == "action":
            ctx.schedule("nobody", 1, phase="step_start")
        else:
            ctx.notify("nobody", 1)

    runtime = Runtime([Agent("agent", model=scripted(), plugins=[Worker(), hooked("step_start", hook)])])
    result = await runtime.run("agent", "go", thread="t", check=False)
    assert isinstance(result.termination, Failed)
    assert f"no plugin handles the {what} 'nobody'" in result.termination.message
    assert await stored_state(runtime) == {}


async def test_unknown_action_of_tool_refuses_command(
    scripted: Scripted,
) -> None:
    """Row 1."""

    @tool
    async def act(ctx: ToolContext) -> str:
        """Ask for what nobody does."""
        ctx.update(Word, "half")
        ctx.schedule("nobody", 1, phase="step_start")
        return "never"

    runtime = Runtime([Agent("agent", model=scripted(call("act"), "ok"), tools=[act], plugins=[Worker()])])
    assert (await runtime.run("agent", "go", thread="t")).text == "ok"
    assert "no plugin handles the action 'nobody'" in reply_text((await replies_on(runtime, "t"))[0])
    assert await stored_state(runtime) == {}


async def test_malformed_payload_is_set_aside(scripted: Scripted) -> None:
    """Row 2."""

    async def hook(self: Plugin, ctx: Step) -> None:
        ctx.schedule("work", "not a number", phase="step_start")
        ctx.schedule("work", 0, phase="step_start")

    runtime = Runtime([Agent("agent", model=scripted("ok"), plugins=[Worker(), hooked("run_start", hook)])])
    result = await runtime.run("agent", "go", thread="t")
    assert result.text == "ok"
    (noted,) = await events_of(runtime, "t", ErrorRaised)
    assert "action 'work'" in noted.message
    assert await stored_state(runtime) == {"words": ["0"]}


async def test_chained_actions_run_up_to_sixteen_rounds(scripted: Scripted) -> None:
    """Row 3: the reference reports the number of rounds, the last of them empty; here rounds are not reported, and
    only their bound shows."""
    for chain, expected in ((14, "ok"), (15, ""), (40, "")):

        async def hook(self: Plugin, ctx: Step, chain: int = chain) -> None:
            ctx.schedule("work", chain, phase="step_start")

        turns = ["ok"] if expected else []
        runtime = Runtime([Agent("agent", model=scripted(*turns), plugins=[Worker(), hooked("run_start", hook)])])
        result = await runtime.run("agent", "go", thread="t", check=False)
        assert result.text == expected
        if expected:
            assert (await stored_state(runtime))["words"] == [str(n) for n in range(chain, -1, -1)]
        else:
            assert isinstance(result.termination, Failed)
            assert "more than 16 rounds" in result.termination.message


@pytest.mark.parametrize("phase", ["before_inference", "before_tool", "after_tool", "step_end"])
async def test_two_writers_of_key_follow_one_rule_in_every_phase(scripted: Scripted, phase: str) -> None:
    """Row 4: the reference fails the run in before_inference, before_tool and after_tool; here the later hook runs
    again on the fresh snapshot, in every phase."""
    seen: list[str] = []

    async def first(self: Plugin, ctx: Any) -> None:
        ctx.update(Word, "first")

    async def second(self: Plugin, ctx: Any) -> None:
        seen.append(ctx.state[Word])
        ctx.update(Word, ctx.state[Word] + " second")

    plugins = [Worker(), hooked(phase, first, "First"), hooked(phase, second, "Second")]
    agent = Agent("agent", model=scripted(call("act"), "done"), tools=[spying(Spy(), "act")], plugins=plugins)
    runtime = Runtime([agent])
    result = await runtime.run("agent", "go", thread="t")
    assert result.termination == NaturalEnd()
    assert seen[:2] == ["", "first"]
    assert (await stored_state(runtime))["word"] == "first second"


async def test_rerun_hook_sees_earlier_writes(scripted: Scripted) -> None:
    """Row 5."""

    def writer(name: str) -> Any:
        async def hook(self: Plugin, ctx: Step) -> None:
            seen.append((name, ctx.state[Word]))
            ctx.update(Word, f"{ctx.state[Word]}{name}")

        return hook

    seen: list[tuple[str, str]] = []
    plugins = [Worker(), *[hooked("run_start", writer(name), name.upper()) for name in "abc"]]
    runtime = Runtime([Agent("agent", model=scripted("ok"), plugins=plugins)])
    await runtime.run("agent", "go", thread="t")
    assert seen == [("a", ""), ("b", ""), ("c", ""), ("b", "a"), ("c", "ab")]
    assert (await stored_state(runtime))["word"] == "abc"


async def test_notices_of_rerun_hook_go_out_once(scripted: Scripted) -> None:
    """Row 6."""

    async def first(self: Plugin, ctx: Step) -> None:
        ctx.update(Word, "a")
        ctx.notify("tell", "first")

    async def second(self: Plugin, ctx: Step) -> None:
        ctx.update(Word, "b")
        ctx.notify("tell", f"second after {ctx.state[Word]!r}")

    worker = Worker()
    plugins = [worker, hooked("run_start", first, "First"), hooked("run_start", second, "Second")]
    await Runtime([Agent("agent", model=scripted("ok"), plugins=plugins)]).run("agent", "go")
    assert worker.told == ["first", "second after 'a'"]


async def test_unregistered_key_refuses_whole_command(scripted: Scripted) -> None:
    """Row 7: the reference merges an unregistered key as an exclusive one; here it is refused where it is
    written."""

    async def hook(self: Plugin, ctx: Step) -> None:
        ctx.update(Word, "half")
        ctx.update(Unknown, "x")

    runtime = Runtime([Agent("agent", model=scripted(), plugins=[Worker(), hooked("run_start", hook)])])
    result = await runtime.run("agent", "go", thread="t", check=False)
    assert isinstance(result.termination, Failed)
    assert "'unknown' isn't registered" in result.termination.message
    assert await stored_state(runtime) == {}


async def test_writes_of_leaving_plugin_are_committed(scripted: Scripted) -> None:
    """Row 8: the reference uninstalls a plugin in a commit of its own; here a plugin is deactivated by a
    handoff, and what it writes then goes the way of every write."""

    async def leave(self: Plugin, ctx: Step) -> None:
        ctx.update(Word, "goodbye")

    agents = [
        Agent("a", model=scripted(call("handoff_to_b")), handoffs=["b"], plugins=[hooked("deactivate", leave)]),
        Agent("b", model=scripted("ok")),
    ]
    runtime = Runtime(agents, keys=[Word])
    await runtime.run("a", "go", thread="t")
    assert await stored_state(runtime) == {"word": "goodbye"}
    assert [e.changes for e in await events_of(runtime, "t", StateDelta)] == [{"word": "goodbye"}]


async def test_hooks_without_changes_commit_nothing(scripted: Scripted) -> None:
    """Row 9."""

    class Counting(MemoryStore):
        commits = 0

        async def commit(self, commit: Commit) -> Committed:
            self.commits += 1
            assert commit.log or commit.runs or commit.calls
            return await super().commit(commit)

    async def nothing(self: Plugin, ctx: Any) -> None:
        return None

    def commits_with(*phases: str) -> Any:
        plugin = type("Idle", (Plugin,), dict.fromkeys(phases, nothing))()
        model = scripted(call("act"), "ok")
        return Counting(), Agent("agent", model=model, tools=[spying(Spy(), "act")], plugins=[plugin])

    counts: list[int] = []
    for phases in ((), ("step_start",), ("step_start", "before_inference")):
        store, agent = commits_with(*phases)
        await Runtime([agent], store=store).run("agent", "go", thread="t")
        assert not [e for e in await store.events("t") if isinstance(e, StateDelta)]
        counts.append(store.commits)
    assert counts[1] == counts[2]


async def test_invalid_seed_changes_nothing(scripted: Scripted) -> None:
    """Row 10."""
    runtime = Runtime([Agent("agent", model=scripted())], keys=[Word, Words])
    with pytest.raises(StateError):
        await runtime.run("agent", "go", thread="t", state={Word: "fine", Words: "not a list"})
    assert await runtime.store.load("t") is None
    assert await runtime.runs.list() == []


async def test_keys_of_inactive_plugins_are_present(scripted: Scripted) -> None:
    """Row 11."""

    @tool
    async def say(ctx: ToolContext) -> str:
        """Say the word, and change it."""
        ctx.update(Word, "changed")
        return ctx.state[Word]

    agents = [
        Agent("plain", model=scripted(call("say"), "ok"), tools=[say]),
        Agent("equipped", model=scripted(), plugins=[Worker()]),
    ]
    runtime = Runtime(agents)
    await runtime.run("plain", "go", thread="t", state={Word: "hello"})
    assert reply_text((await replies_on(runtime, "t"))[0]) == "hello"
    assert await stored_state(runtime) == {"word": "changed"}


async def test_answer_in_last_step_is_natural_end(scripted: Scripted) -> None:
    """Row 12: the reference lets max_rounds beat the natural end of a plain answer; here an answer is an
    answer."""
    runtime = Runtime([Agent("agent", model=scripted("done"), limits=Limits(steps=1))])
    result = await runtime.run("agent", "go", thread="t")
    assert (result.text, result.termination) == ("done", NaturalEnd())
    assert len(await events_of(runtime, "t", StepEnd)) == 1


async def test_wall_time_counts_first_model_call(scripted: Scripted, fake_clock: FakeClock) -> None:
    """Row 13."""

    async def slowly(request: Any) -> Any:
        await fake_clock.advance(11)
        return call("act")

    spy = Spy()
    agent = Agent("agent", model=FunctionModel(slowly), tools=[spying(spy, "act")], stop=[WallTime(10)])
    runtime = Runtime([agent], clock=fake_clock)
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert isinstance(result.termination, Stopped)
    assert (result.termination.policy, spy.ran, result.steps) == ("wall_time", [], 1)


async def test_run_continues_exactly_at_budget(scripted: Scripted, fake_clock: FakeClock) -> None:
    """Row 14."""

    async def exactly(request: Any) -> Any:
        if len(request.messages) > 1:
            return "done"
        await fake_clock.advance(10)
        return Turn(calls=[call("act")], usage=Usage(input_tokens=60, output_tokens=40))

    stop = [WallTime(10), TokenBudget(100)]
    agent = Agent("agent", model=FunctionModel(exactly), tools=[spying(Spy(), "act")], stop=stop)
    result = await soon(Runtime([agent], clock=fake_clock).run("agent", "go"))
    assert result.termination == NaturalEnd()


def test_bad_pattern_is_refused_by_runtime(scripted: Scripted) -> None:
    """Row 15: the reference stops the run at its first answer; here the mistake is told where it was made."""
    with pytest.raises(ConfigurationError, match="content_match: bad pattern"):
        Runtime([Agent("agent", model=scripted(), stop=[ContentMatch("(")])])


@pytest.mark.parametrize("by", ["policy", "hook"])
async def test_stop_after_answer_runs_no_tools(scripted: Scripted, by: str) -> None:
    """Row 16: the reference drops the answer; here it is kept, and its calls are closed."""

    async def stop(self: Plugin, ctx: Any) -> None:
        ctx.end_run("seen enough")

    spy = Spy()
    agent = Agent(
        "agent",
        model=scripted(Turn(text="so", calls=[call("act"), call("act")])),
        tools=[spying(spy, "act")],
        plugins=[hooked("after_inference", stop)] if by == "hook" else [],
        stop=[StopOnTool("act")] if by == "policy" else [],
    )
    runtime = Runtime([agent])
    result = await runtime.run("agent", "go", thread="t")
    expected = Stopped("stop_on_tool", "act") if by == "policy" else EndRequested("seen enough")
    assert (result.termination, result.text, spy.ran) == (expected, "so", [])
    assert [c.outcome for c in await runtime.runs.calls(result.run_id)] == ["cancelled", "cancelled"]
    await assert_settled(runtime, "t")


async def test_model_error_runs_end_hooks(scripted: Scripted) -> None:
    """Row 17: the reference ends the stream after run_start without run_finish; here every activation finishes."""
    ended: list[Any] = []

    async def end(self: Plugin, ctx: RunEnd) -> None:
        ended.append((ctx.status, ctx.termination))

    plugin = hooked("run_end", end)
    runtime = Runtime([Agent("agent", model=scripted(ModelError("gone")), plugins=[plugin])])
    result = await runtime.run("agent", "go", thread="t", check=False)
    types = [e.type for e in await log_of(runtime, "t")]
    assert (types[0], types[-2:]) == ("run_start", ["step_end", "run_finish"])
    assert ended == [("done", Failed("ModelError", "gone"))]
    (finish,) = await events_of(runtime, "t", RunFinish)
    assert finish.termination == result.termination == Failed("ModelError", "gone")


async def test_run_cancelled_before_first_step_has_no_steps(scripted: Scripted) -> None:
    """Row 18."""

    async def cancel(self: Plugin, ctx: Step) -> None:
        await runtime.cancel(ctx.run.run_id, "never mind")

    runtime = Runtime([Agent("agent", model=scripted(), plugins=[hooked("run_start", cancel)])])
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert (result.termination, result.steps) == (Cancelled("never mind"), 0)
    assert not await events_of(runtime, "t", StepStart)
    await assert_settled(runtime, "t")


async def test_caller_cancelled_before_first_commit_leaves_nothing(scripted: Scripted) -> None:
    """Row 18."""
    runtime = Runtime([Agent("agent", model=scripted())])
    task = asyncio.create_task(runtime.run("agent", "go", thread="t"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await runtime.store.load("t") is None
