"""Hooks that raise: the run ends with the plugin and the phase named, and nothing is left running."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wakeful import Agent, Plugin, Runtime, StateKey, call, tool
from wakeful.errors import HookFailed
from wakeful.plugins import PHASES, HookContext, Step, action, notice
from wakeful.types.codec import encode
from wakeful.types.events import ErrorRaised, RunFinish
from wakeful.types.runs import Failed, NaturalEnd

from .helpers import Hold, Scripted, Spy, assert_settled, events_of, holding, outcomes, replies_on, soon, spying

# How many model calls a run makes before its plugin fails in that phase.
ASKED = {"run_start": 0, "step_start": 0, "before_inference": 0}


def failing(phase: str, label: str = "Bad", error: BaseException | None = None) -> Plugin:
    """A plugin whose hook for that phase raises."""

    async def hook(self: Plugin, ctx: Any) -> None:
        raise error or ValueError("out of luck")

    return type(label, (Plugin,), {phase: hook})()


@pytest.mark.parametrize("phase", [p for p in PHASES if p != "run_end"])
async def test_failing_hook_ends_run_and_is_named(scripted: Scripted, phase: str) -> None:
    spy = Spy()
    turns = [call("act")] * ASKED.get(phase, 1)
    tools, plugins = [spying(spy, "act")], [failing(phase)]
    agent = Agent("agent", model=scripted(*turns), tools=tools, plugins=plugins, expose_errors=True)
    runtime = Runtime([agent])
    result = await soon(runtime.run("agent", "go", thread="t", check=False))
    says = f"plugin 'Bad' failed in {phase}: ValueError: out of luck"
    assert (result.status, result.termination) == ("done", Failed("HookFailed", says))
    assert spy.ran == (["act"] if phase in ("after_tool", "step_end") else [])
    (finish,) = await events_of(runtime, "t", RunFinish)
    assert finish.termination == result.termination
    await assert_settled(runtime, "t")


async def test_failing_run_end_hook_keeps_outcome(scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted("done"), plugins=[failing("run_end")], expose_errors=True)
    runtime = Runtime([agent])
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert (result.text, result.termination) == ("done", NaturalEnd())
    (noted,) = await events_of(runtime, "t", ErrorRaised)
    assert (noted.error, noted.source) == ("HookFailed", "run_end")
    assert "plugin 'Bad' failed in run_end: ValueError: out of luck" in noted.message
    await assert_settled(runtime, "t")


# -- cancellations of what a plugin waits for ------------------------------------------------------------------

STRAY = "CancelledError: an awaited task was cancelled, and nobody cancelled the run"


class Idle(Plugin):
    async def step_start(self, ctx: Step) -> None:
        await asyncio.sleep(0)


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside_another"])
async def test_cancelled_wait_in_hook_names_plugin(scripted: Scripted, others: int) -> None:
    plugins = [*[Idle()] * others, failing("step_start", error=asyncio.CancelledError())]
    runtime = Runtime([Agent("agent", model=scripted(), plugins=plugins)])
    result = await soon(runtime.run("agent", "go", thread="t", check=False))
    assert result.termination == Failed("HookFailed", f"plugin 'Bad' failed in step_start: {STRAY}")
    await assert_settled(runtime, "t")


async def test_cancelled_wait_in_run_end_hook_keeps_outcome(
    scripted: Scripted,
) -> None:
    plugin = failing("run_end", error=asyncio.CancelledError())
    runtime = Runtime([Agent("agent", model=scripted("done"), plugins=[plugin])])
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert (result.text, result.termination) == ("done", NaturalEnd())
    (noted,) = await events_of(runtime, "t", ErrorRaised)
    assert (noted.source, noted.message) == ("run_end", f"plugin 'Bad' failed in run_end: {STRAY}")
    await assert_settled(runtime, "t")


async def test_cancelled_wait_in_action_or_notice_is_noted(
    scripted: Scripted,
) -> None:
    class Odd(Plugin):
        async def step_start(self, ctx: Step) -> None:
            ctx.schedule("wait", 1, phase="step_start")
            ctx.notify("told", 1)

        @action("wait")
        async def wait(self, payload: int, ctx: HookContext) -> None:
            raise asyncio.CancelledError

        @notice("told")
        async def told(self, payload: int) -> None:
            raise asyncio.CancelledError

    runtime = Runtime([Agent("agent", model=scripted("done"), plugins=[Odd()])])
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert (result.text, result.termination) == ("done", NaturalEnd())
    noted = {event.source: event.message for event in await events_of(runtime, "t", ErrorRaised)}
    assert noted == {"step_start": f"action 'wait': {STRAY}", "notice 'told'": STRAY.partition(": ")[2]}
    await assert_settled(runtime, "t")


@pytest.mark.parametrize("phase", ["activate", "deactivate"])
async def test_failing_plugin_switch_names_plugin(scripted: Scripted, phase: str) -> None:
    turns = [] if phase == "activate" else [call("handoff_to_other")]
    first = Agent("agent", model=scripted(*turns), handoffs=["other"], plugins=[failing(phase)])
    other = Agent("other", model=scripted())
    result = await soon(Runtime([first, other]).run("agent", "go", check=False))
    assert isinstance(result.termination, Failed)
    assert f"plugin 'Bad' failed in {phase}" in result.termination.message


@pytest.mark.parametrize("phase", [p for p in PHASES if p != "gate_tool"])
async def test_other_hooks_of_phase_finish_first(scripted: Scripted, phase: str) -> None:
    ended: list[str] = []

    async def slowly(self: Plugin, ctx: Any) -> None:
        try:
            for _ in range(5):
                await asyncio.sleep(0)
        finally:
            ended.append("slow")

    plugins = [failing(phase), type("Slow", (Plugin,), {phase: slowly})()]
    turns = {"run_end": ["done"]}.get(phase, [call("act")] * ASKED.get(phase, 1))
    agent = Agent("agent", model=scripted(*turns), tools=[spying(Spy(), "act")], plugins=plugins)
    runtime = Runtime([agent])
    await soon(runtime.run("agent", "go", thread="t", check=False))
    assert ended == ["slow"]


async def test_first_error_in_registration_order_is_reported(scripted: Scripted) -> None:
    async def later(self: Plugin, ctx: Any) -> None:
        await asyncio.sleep(0)
        raise ValueError("slow but first")

    plugins = [type("First", (Plugin,), {"step_start": later})(), failing("step_start", "Second")]
    result = await Runtime([Agent("agent", model=scripted(), plugins=plugins)]).run("agent", "go", check=False)
    assert isinstance(result.termination, Failed)
    assert "plugin 'First'" in result.termination.message


async def test_nothing_of_failed_phase_is_applied(scripted: Scripted) -> None:
    class Mark(StateKey[str, str]):
        """A mark."""

        name, scope = "mark", "thread"

    class Marks(Plugin):
        keys = (Mark,)

        async def step_start(self, ctx: Step) -> None:
            ctx.update(Mark, "made")

    runtime = Runtime([Agent("agent", model=scripted(), plugins=[Marks(), failing("step_start")])])
    await runtime.run("agent", "go", thread="t", check=False)
    stored = await runtime.store.load("t")
    assert stored is not None
    assert stored.state == {}


async def test_failing_hook_stops_running_calls(scripted: Scripted) -> None:
    hold = Hold()
    model = scripted([call("quick"), call("wait")], "hello")
    tools = [spying(Spy(), "quick"), holding(hold, effect="pure")]

    class Once(Plugin):
        failed = False

        async def after_tool(self, ctx: Any) -> None:
            await hold.reached.wait()
            if not self.failed:
                self.failed = True
                raise ValueError("no more")

    runtime = Runtime([Agent("agent", model=model, tools=tools, plugins=[Once()])])
    result = await soon(runtime.run("agent", "go", thread="t", check=False))
    assert isinstance(result.termination, Failed)
    assert await outcomes(runtime, result.run_id) == {"quick": "ok", "wait": "cancelled"}
    await assert_settled(runtime, "t")
    assert (await soon(runtime.run("agent", "again", thread="t"))).text == "hello"


@pytest.mark.parametrize("phase", ["step_start", "run_end"])
async def test_lone_surrogate_in_error_is_encodable(scripted: Scripted, phase: str) -> None:
    async def hook(self: Plugin, ctx: Any) -> None:
        raise ValueError("a \ud83d")

    plugin = type("Odd", (Plugin,), {phase: hook})()
    model = scripted(*["hello"] * (phase == "run_end"))
    runtime = Runtime([Agent("agent", model=model, plugins=[plugin], expose_errors=True)])
    events = [event async for event in runtime.stream("agent", "go", thread="t", check=False)]
    assert b"a \xef\xbf\xbd" in b"".join(map(encode, events))


@pytest.mark.parametrize("phase", ["run_start", "step_start", "after_inference", "after_tool", "step_end"])
async def test_failing_reducer_of_hook_names_plugin(scripted: Scripted, phase: str) -> None:
    async def hook(self: Plugin, ctx: Any) -> None:
        ctx.update(Picky, 1)

    plugin = type("Writer", (Plugin,), {phase: hook, "keys": (Picky,)})()
    turns = [call("act")] * ASKED.get(phase, 1)
    runtime = Runtime([Agent("agent", model=scripted(*turns), tools=[spying(Spy(), "act")], plugins=[plugin])])
    result = await soon(runtime.run("agent", "go", thread="t", check=False))
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "HookFailed"
    failed = "state key 'picky': its reducer failed: ValueError: unexpected error"
    assert f"plugin 'Writer' failed in {phase}: StateError: {failed}" in result.termination.message
    await assert_settled(runtime, "t")


class Picky(StateKey[int, int]):
    """Takes nothing."""

    name, default = "picky", 0

    def apply(self, value: int, update: int) -> int:
        raise ValueError("never")


async def test_failing_reducer_at_run_end_is_noted(scripted: Scripted) -> None:
    async def hook(self: Plugin, ctx: Any) -> None:
        ctx.update(Picky, 1)

    plugin = type("Writer", (Plugin,), {"run_end": hook, "keys": (Picky,)})()
    runtime = Runtime([Agent("agent", model=scripted("done"), plugins=[plugin])])
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert (result.text, result.termination) == ("done", NaturalEnd())
    (noted,) = await events_of(runtime, "t", ErrorRaised)
    assert "plugin 'Writer' failed in run_end" in noted.message
    await assert_settled(runtime, "t")


async def test_failing_approval_rule_names_tool(scripted: Scripted) -> None:
    def rule(arguments: dict[str, Any]) -> bool:
        raise KeyError("amount")

    agent = Agent("agent", model=scripted(call("pay")), tools=[spying(Spy(), "pay", approval=rule)])
    runtime = Runtime([agent])
    result = await runtime.run("agent", "go", thread="t", check=False)
    assert isinstance(result.termination, Failed)
    assert "approval rule of tool 'pay' failed: KeyError: unexpected error" in result.termination.message
    await assert_settled(runtime, "t")


async def test_cause_of_failed_hook_is_chained() -> None:
    from wakeful.agents import Hook
    from wakeful.loop.hooks import run_hooks
    from wakeful.plugins import Catalog, HookContext
    from wakeful.state import Snapshot

    from .views import ME

    plugin = failing("step_start")
    hook = Hook("Bad", plugin.step_start, None)
    with pytest.raises(HookFailed) as caught:
        await run_hooks(
            "step_start",
            [hook],
            lambda h: HookContext(ME, 1, Snapshot({}), None, Catalog((), ()), None),
            lambda command: None,
        )
    assert isinstance(caught.value.__cause__, ValueError)


async def test_requested_calls_are_closed_when_gate_fails(scripted: Scripted) -> None:
    spy = Spy()
    calls = [call("a"), call("b"), call("c")]
    tools = [spying(spy, name) for name in "abc"]

    class Third(Plugin):
        async def gate_tool(self, ctx: Any) -> None:
            if ctx.call.name == "c":
                raise ValueError("no idea")

    runtime = Runtime([Agent("agent", model=scripted(calls), tools=tools, plugins=[Third()])])
    result = await runtime.run("agent", "go", thread="t", check=False)
    assert spy.ran == []
    assert await outcomes(runtime, result.run_id) == dict.fromkeys("abc", "cancelled")
    assert [r.error for r in await replies_on(runtime, "t")] == ["cancelled"] * 3
    await assert_settled(runtime, "t")


@tool
async def noop() -> str:
    """Nothing."""
    return "ok"


@pytest.mark.parametrize("answer", ["yes", True, 1])
async def test_invalid_gate_answer_error_lists_valid_ones(scripted: Scripted, answer: Any) -> None:
    class Vague(Plugin):
        async def gate_tool(self, ctx: Any) -> Any:
            return answer

    result = await Runtime([Agent("agent", model=scripted(call("noop")), tools=[noop], plugins=[Vague()])]).run(
        "agent", "go", check=False
    )
    assert isinstance(result.termination, Failed)
    assert "gate of plugin 'Vague'" in result.termination.message
    assert "return None to allow" in result.termination.message
