"""Actions and notices: durable work for a phase, and messages that go out after the commit."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct

from loop.helpers import Scripted, Spy, assert_settled, events_of, spying
from wakeful import Agent, ConfigurationError, MemoryStore, Plugin, Runtime, StateKey, ToolContext, call, tool
from wakeful.plugins import PHASES, ActionQueue, HookContext, RunEnd, Step, action, notice
from wakeful.types.events import ErrorRaised, RunFinish
from wakeful.types.runs import EndRequested, Failed, NaturalEnd


class Job(Struct):
    """A typed payload."""

    name: str
    times: int = 1


class Done(StateKey[list[str], str]):
    """The names of the actions that were done."""

    name, scope, merge = "done", "thread", "commutative"
    default: list[str] = []

    def apply(self, value: list[str], update: str) -> list[str]:
        if update == "bad":
            raise ValueError("bad is not allowed")
        return [*value, update]


class Works(Plugin):
    """Handles jobs."""

    keys = (Done,)

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.told: list[Any] = []
        self.failed: list[Any] = []

    @action("job")
    async def job(self, payload: Job, ctx: HookContext) -> None:
        """Do it, and chain if it has more to do."""
        self.seen.append((payload, ctx.step, list(ctx.state[Done])))
        ctx.update(Done, payload.name)
        if payload.times > 1:
            ctx.schedule("job", Job(payload.name, payload.times - 1), phase="step_start")

    @action("fail")
    async def fail(self, payload: Any, ctx: HookContext) -> None:
        """Fail after writing."""
        ctx.update(Done, "half")
        raise RuntimeError(f"no {payload}")

    @action("end")
    async def end(self, payload: str, ctx: HookContext) -> None:
        """End the run."""
        ctx.end_run(payload)

    @notice("tell")
    async def tell(self, payload: Any) -> None:
        """Take note, or fail."""
        if payload == "fail":
            raise RuntimeError("deaf")
        self.told.append(payload)

    async def run_end(self, ctx: RunEnd) -> None:
        self.failed = [(a.name, a.error) for a in ctx.state[ActionQueue].failed]


def at(phase: str, step: int, what: Any) -> Plugin:
    """A plugin that does something in a phase of a step."""

    async def hook(self: Plugin, ctx: Any) -> None:
        if ctx.step == step:
            what(ctx)

    return type("At", (Plugin,), {phase: hook})()


async def stored(runtime: Runtime) -> bytes | None:
    """The actions done on thread `t`, as the store has them."""
    view = await runtime.store.load("t")
    assert view is not None
    return view.state.get("done")


def jobs(*names: str, phase: str = "step_start") -> Any:
    """Something that schedules jobs."""

    def schedule(ctx: Any) -> None:
        for name in names:
            ctx.schedule("job", Job(name), phase=phase)

    return schedule


# -- actions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [p for p in PHASES if p not in ("gate_tool", "run_start")])
async def test_action_runs_in_its_phase_without_hooks(scripted: Scripted, phase: str) -> None:
    works = Works()
    plugins = [works, at("run_start", 0, jobs("a", "b", phase=phase))]
    agent = Agent("agent", model=scripted(call("act"), "ok"), tools=[spying(Spy(), "act")], plugins=plugins)
    runtime = Runtime([agent])
    result = await runtime.run("agent", "go", thread="t")
    assert result.termination == NaturalEnd()
    assert await stored(runtime) == b'["a","b"]'
    assert [payload.name for payload, _, _ in works.seen] == ["a", "b"]


async def test_action_sees_writes_of_earlier_actions(scripted: Scripted) -> None:
    works = Works()
    plugins = [works, at("run_start", 0, jobs("a", "b", "c"))]
    await Runtime([Agent("agent", model=scripted("ok"), plugins=plugins)]).run("agent", "go")
    assert [seen for _, _, seen in works.seen] == [[], ["a"], ["a", "b"]]


async def test_action_of_tool_runs_at_next_step(scripted: Scripted) -> None:
    @tool
    async def plan(ctx: ToolContext) -> str:
        """Plan a job."""
        ctx.schedule("job", Job("planned"), phase="step_start")
        return "planned"

    works = Works()
    await Runtime([Agent("agent", model=scripted(call("plan"), "ok"), tools=[plan], plugins=[works])]).run(
        "agent", "go"
    )
    assert [(payload.name, step) for payload, step, _ in works.seen] == [("planned", 2)]


async def test_action_chains_within_its_phase(scripted: Scripted) -> None:
    works = Works()
    chain = at("run_start", 0, lambda ctx: ctx.schedule("job", Job("x", 3), phase="step_start"))
    runtime = Runtime([Agent("agent", model=scripted("ok"), plugins=[works, chain])])
    await runtime.run("agent", "go", thread="t")
    assert [step for _, step, _ in works.seen] == [1, 1, 1]
    assert await stored(runtime) == b'["x","x","x"]'


async def test_actions_survive_suspension_and_restart(scripted: Scripted) -> None:
    works, store = Works(), MemoryStore()
    agent = Agent(
        "agent",
        model=scripted(call("ask"), "ok"),
        tools=[spying(Spy(), "ask", approval=True)],
        plugins=[works, at("run_start", 0, jobs("later", phase="step_end"))],
    )
    result = await Runtime([agent], store=store).run("agent", "go", thread="t")
    assert works.seen == []
    fresh = Runtime([agent], store=store)
    await fresh.resume(result.run_id, result.tickets[0].approve())
    assert [payload.name for payload, _, _ in works.seen] == ["later"]


async def test_failed_action_is_set_aside_and_rolled_back(scripted: Scripted) -> None:
    works = Works()

    def both(ctx: Any) -> None:
        ctx.schedule("fail", "luck", phase="step_start")
        ctx.schedule("job", Job("fine"), phase="step_start")

    runtime = Runtime(
        [Agent("agent", model=scripted("ok"), plugins=[works, at("run_start", 0, both)], expose_errors=True)]
    )
    result = await runtime.run("agent", "go", thread="t")
    assert result.termination == NaturalEnd()
    assert await stored(runtime) == b'["fine"]'
    assert works.failed == [("fail", "RuntimeError: no luck")]
    (noted,) = await events_of(runtime, "t", ErrorRaised)
    assert (noted.message, noted.source) == ("action 'fail': RuntimeError: no luck", "step_start")
    await assert_settled(runtime, "t")


async def test_run_continues_when_all_actions_fail(scripted: Scripted) -> None:
    works = Works()

    def many(ctx: Any) -> None:
        for number in range(5):
            ctx.schedule("fail", f"{number}" * 30_000, phase="step_start")

    runtime = Runtime(
        [Agent("agent", model=scripted("ok"), plugins=[works, at("run_start", 0, many)], expose_errors=True)]
    )
    result = await runtime.run("agent", "go", thread="t")
    assert result.termination == NaturalEnd()
    assert [name for name, _ in works.failed] == ["fail"]
    assert "4444" in works.failed[0][1]
    assert len(await events_of(runtime, "t", ErrorRaised)) == 5


async def test_failed_action_with_lone_surrogate_is_set_aside(scripted: Scripted) -> None:
    works = Works()

    class Half(Plugin):
        @action("half")
        async def half(self, payload: Any, ctx: HookContext) -> None:
            raise RuntimeError("\ud83d")

    hook = at("run_start", 0, lambda ctx: ctx.schedule("half", None, phase="step_start"))
    runtime = Runtime([Agent("agent", model=scripted("ok"), plugins=[works, Half(), hook], expose_errors=True)])
    assert (await runtime.run("agent", "go", thread="t")).termination == NaturalEnd()
    assert works.failed == [("half", "RuntimeError: \ufffd")]


async def test_action_with_failing_reducer_is_set_aside(scripted: Scripted) -> None:
    works = Works()
    runtime = Runtime(
        [Agent("agent", model=scripted("ok"), plugins=[works, at("run_start", 0, jobs("bad", "good"))])]
    )
    result = await runtime.run("agent", "go", thread="t")
    assert result.termination == NaturalEnd()
    assert await stored(runtime) == b'["good"]'
    assert [name for name, _ in works.failed] == ["job"]
    (detail,) = await runtime.runs.errors(result.run_id)
    assert detail.reference in works.failed[0][1]
    assert "bad is not allowed" in detail.text


async def test_invalid_payload_is_set_aside(scripted: Scripted) -> None:
    works = Works()
    wrong = at("run_start", 0, lambda ctx: ctx.schedule("job", {"name": 5}, phase="step_start"))
    runtime = Runtime([Agent("agent", model=scripted("ok"), plugins=[works, wrong])])
    assert (await runtime.run("agent", "go", thread="t")).text == "ok"
    assert [name for name, _ in works.failed] == ["job"]
    assert works.seen == []


async def test_action_may_end_run(scripted: Scripted) -> None:
    ends = at("run_start", 0, lambda ctx: ctx.schedule("end", "enough", phase="step_start"))
    result = await Runtime([Agent("agent", model=scripted(), plugins=[Works(), ends])]).run("agent", "go")
    assert result.termination == EndRequested("enough")


@pytest.mark.parametrize("phase", ["gate_tool", "nope", "activate"])
async def test_action_for_passive_phase_is_refused(scripted: Scripted, phase: str) -> None:
    plugins = [Works(), at("run_start", 0, jobs("a", phase=phase))]
    result = await Runtime([Agent("agent", model=scripted(), plugins=plugins)]).run("agent", "go", check=False)
    assert isinstance(result.termination, Failed)
    assert "not a phase that acts" in result.termination.message


async def test_action_without_handler_is_set_aside(scripted: Scripted) -> None:
    store = MemoryStore()
    tools = [spying(Spy(), "ask", approval=True)]
    model = scripted(call("ask"), "ok")
    plugins = [Works(), at("run_start", 0, jobs("a", phase="step_end"))]
    result = await Runtime([Agent("agent", model=model, tools=tools, plugins=plugins)], store=store).run(
        "agent", "go", thread="t"
    )
    bare = Runtime([Agent("agent", model=model, tools=tools)], store=store)
    result = await bare.resume(result.run_id, result.tickets[0].approve())
    assert result.text == "ok"
    (noted,) = await events_of(bare, "t", ErrorRaised)
    assert "no plugin handles it any more" in noted.message


def test_two_handlers_for_one_name_are_refused(scripted: Scripted) -> None:
    class Rival(Plugin):
        @action("job")
        async def job(self, payload: Any, ctx: HookContext) -> None:
            """Also this."""

    with pytest.raises(ConfigurationError, match="action 'job' has two handlers: plugins 'Works' and 'Rival'"):
        Runtime([Agent("agent", model=scripted(), plugins=[Works(), Rival()])])


# -- notices -------------------------------------------------------------------------------------------------


async def test_notice_is_sent_after_its_commit(scripted: Scripted) -> None:
    heads: list[bool] = []

    class Listener(Plugin):
        @notice("wrote")
        async def wrote(self, payload: str) -> None:
            """Look whether it is in the store."""
            heads.append(await stored(runtime) == b'["' + payload.encode() + b'"]')

    def write(ctx: Any) -> None:
        ctx.update(Done, "x")
        ctx.notify("wrote", "x")

    plugins = [Works(), Listener(), at("run_start", 0, write)]
    runtime = Runtime([Agent("agent", model=scripted("ok"), plugins=plugins)])
    await runtime.run("agent", "go", thread="t")
    assert heads == [True]


async def test_notices_are_sent_once_in_order(scripted: Scripted) -> None:
    @tool
    async def act(ctx: ToolContext) -> str:
        """Tell from a tool."""
        ctx.notify("tell", {"from": "tool"})
        return "ok"

    works = Works()
    first = at("run_start", 0, lambda ctx: (ctx.notify("tell", 1), ctx.notify("tell", 2)))
    agent = Agent("agent", model=scripted(call("act"), "ok"), tools=[act], plugins=[works, first])
    await Runtime([agent]).run("agent", "go")
    assert works.told == [1, 2, {"from": "tool"}]


async def test_notice_of_failed_tool_is_not_sent(scripted: Scripted) -> None:
    @tool
    async def act(ctx: ToolContext) -> str:
        """Tell, then fail."""
        ctx.notify("tell", "never")
        raise ValueError("no")

    works = Works()
    await Runtime([Agent("agent", model=scripted(call("act"), "ok"), tools=[act], plugins=[works])]).run(
        "agent", "go"
    )
    assert works.told == []


@pytest.mark.parametrize("phase", ["run_start", "step_end", "run_end"])
async def test_failed_notice_handler_does_not_stop_others(scripted: Scripted, phase: str) -> None:
    def tell(ctx: Any) -> None:
        for payload in ("one", "fail", "two"):
            ctx.notify("tell", payload)

    works = Works()
    step = 0 if phase == "run_start" else 1
    runtime = Runtime(
        [Agent("agent", model=scripted("ok"), plugins=[works, at(phase, step, tell)], expose_errors=True)]
    )
    result = await runtime.run("agent", "go", thread="t")
    assert result.termination == NaturalEnd()
    assert works.told == ["one", "two"]
    (noted,) = await events_of(runtime, "t", ErrorRaised)
    assert (noted.error, noted.message, noted.source) == ("RuntimeError", "deaf", "notice 'tell'")
    (finish,) = await events_of(runtime, "t", RunFinish)
    assert finish.seq > noted.seq
    await assert_settled(runtime, "t")


async def test_notice_handler_cannot_write(scripted: Scripted) -> None:
    class Wants(Plugin):
        @notice("tell")
        async def tell(self, payload: Any) -> None:
            """Only the payload."""
            seen.append(payload)

        async def run_start(self, ctx: Step) -> None:
            ctx.notify("tell", [1])

    seen: list[Any] = []
    await Runtime([Agent("agent", model=scripted("ok"), plugins=[Wants()])]).run("agent", "go")
    assert seen == [[1]]


async def test_unencodable_payload_is_refused(scripted: Scripted) -> None:
    odd = at("run_start", 0, lambda ctx: ctx.notify("tell", object()))
    result = await Runtime([Agent("agent", model=scripted(), plugins=[Works(), odd])]).run(
        "agent", "go", check=False
    )
    assert isinstance(result.termination, Failed)
    assert "the payload for 'tell' can't be encoded as JSON" in result.termination.message
