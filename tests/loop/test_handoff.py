"""One agent hands the conversation to another: what goes over, who is told, and where it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from wakeful import (
    Agent,
    ConfigurationError,
    FunctionModel,
    Limits,
    MemoryStore,
    Plugin,
    Runtime,
    StateKey,
    ToolContext,
    call,
    tool,
)
from wakeful.plugins import Step
from wakeful.types.events import Handoff, RunFinish, StepStart
from wakeful.types.runs import Failed, NaturalEnd, Stopped

from .helpers import (
    Hold,
    Scripted,
    Spy,
    assert_settled,
    events_of,
    replies_on,
    reply_text,
    soon,
    spying,
)


async def test_handoff_uses_model_and_tools_of_new_agent(scripted: Scripted) -> None:
    spy = Spy()
    first, second = scripted(call("handoff_to_b", reason="knows better")), scripted(call("act"), "from b")
    agents = [
        Agent("a", model=first, instructions="I am a.", handoffs=["b"]),
        Agent("b", model=second, instructions="I am b.", tools=[spying(spy, "act")], description="the other"),
    ]
    runtime = Runtime(agents)
    result = await runtime.run("a", "go", thread="t")
    assert (result.text, result.agent_id, result.termination) == ("from b", "b", NaturalEnd())
    assert [request.system for request in (*first.requests, *second.requests)] == ["I am a.", "I am b.", "I am b."]
    assert [spec.name for spec in second.requests[0].tools] == ["act"]
    assert [m.role for m in second.requests[0].messages] == ["user", "assistant", "tool"]
    assert "the other" in first.requests[0].tools[0].description
    run = await runtime.runs.get(result.run_id)
    assert (run.identity.agent_id, run.agent_id, run.handoffs) == ("a", "b", 1)
    await assert_settled(runtime, "t")


async def test_handoff_log_names_both_agents(scripted: Scripted) -> None:
    agents = [
        Agent("a", model=scripted(call("handoff_to_b")), handoffs=["b"]),
        Agent("b", model=scripted("done")),
    ]
    runtime = Runtime(agents)
    await runtime.run("a", "go", thread="t")
    (handoff,) = await events_of(runtime, "t", Handoff)
    assert (handoff.from_agent, handoff.to_agent) == ("a", "b")
    assert [e.run.agent_id for e in await events_of(runtime, "t", StepStart)] == ["a", "b"]
    assert (await events_of(runtime, "t", RunFinish))[0].run.agent_id == "b"


async def test_handoff_cycle_is_stopped(scripted: Scripted) -> None:
    def hands_over(other: str) -> FunctionModel:
        return FunctionModel(lambda request: call(f"handoff_to_{other}"))

    limits = Limits(handoffs=3)
    agents = [
        Agent("ping", model=hands_over("pong"), handoffs=["pong"], limits=limits),
        Agent("pong", model=hands_over("ping"), handoffs=["ping"], limits=limits),
    ]
    runtime = Runtime(agents)
    result = await soon(runtime.run("ping", "go", thread="t"))
    assert result.termination == Stopped("max_handoffs", "more than 3 handoffs")
    assert [e.to_agent for e in await events_of(runtime, "t", Handoff)] == ["pong", "ping", "pong"]
    await assert_settled(runtime, "t")


async def test_handoff_waits_for_calls_beside_it(scripted: Scripted) -> None:
    spy = Spy()
    agents = [
        Agent(
            "a", model=scripted([call("handoff_to_b"), call("act")]), handoffs=["b"], tools=[spying(spy, "act")]
        ),
        Agent("b", model=scripted("done")),
    ]
    runtime = Runtime(agents)
    await runtime.run("a", "go", thread="t")
    assert spy.ran == ["act"]
    await assert_settled(runtime, "t")


async def test_first_of_two_handoffs_in_step_wins(scripted: Scripted) -> None:
    model = scripted([call("handoff_to_b"), call("handoff_to_c"), call("handoff_to_b")])
    agents = [
        Agent("a", model=model, handoffs=["b", "c"]),
        Agent("b", model=scripted("from b")),
        Agent("c", model=scripted()),
    ]
    runtime = Runtime(agents)
    result = await runtime.run("a", "go", thread="t")
    assert (result.text, result.agent_id) == ("from b", "b")
    assert [(reply_text(reply), reply.error) for reply in await replies_on(runtime, "t")] == [
        ("Handed over to b.", None),
        ("not handed over to c: b takes over after this step", "denied"),
        ("Handed over to b.", None),
    ]
    await assert_settled(runtime, "t")


async def test_tool_with_late_handoff_keeps_result_and_changes(scripted: Scripted) -> None:
    @tool
    async def escalate(ctx: ToolContext) -> str:
        """Hand over, and more."""
        ctx.update(Mood, "upset")
        ctx.handoff("c")
        return "escalated"

    @tool
    async def mood(ctx: ToolContext) -> str:
        """Say the mood."""
        return ctx.state[Mood]

    agents = [
        Agent("a", model=scripted([call("handoff_to_b"), call("escalate")]), handoffs=["b"], tools=[escalate]),
        Agent("b", model=scripted(call("mood"), "from b"), tools=[mood]),
        Agent("c", model=scripted()),
    ]
    runtime = Runtime(agents, keys=[Mood])
    assert (await runtime.run("a", "go", thread="t")).agent_id == "b"
    assert [reply_text(reply) for reply in await replies_on(runtime, "t")] == [
        "Handed over to b.",
        "escalated\n[c does not take over: b does, after this step]",
        "upset",
    ]


async def test_handoff_survives_suspension(scripted: Scripted) -> None:
    agents = [
        Agent(
            "a",
            model=scripted([call("handoff_to_b"), call("ask")]),
            handoffs=["b"],
            tools=[spying(Spy(), "ask", approval=True)],
        ),
        Agent("b", model=scripted("from b")),
    ]
    store = MemoryStore()
    result = await Runtime(agents, store=store).run("a", "go", thread="t")
    result = await Runtime(agents, store=store).resume(result.run_id, result.tickets[0].approve())
    assert (result.text, result.agent_id) == ("from b", "b")


async def test_new_agent_continues_after_suspension(scripted: Scripted) -> None:
    spy = Spy()
    agents = [
        Agent("a", model=scripted(call("handoff_to_b")), handoffs=["b"]),
        Agent("b", model=scripted(call("ask"), "from b"), tools=[spying(spy, "ask", approval=True)]),
    ]
    store = MemoryStore()
    result = await Runtime(agents, store=store).run("a", "go", thread="t")
    assert (result.agent_id, result.status) == ("b", "waiting")
    result = await Runtime(agents, store=store).resume(result.run_id, result.tickets[0].approve())
    assert (result.text, spy.ran) == ("from b", ["ask"])


@pytest.mark.parametrize(("shows", "shown"), [((2, None), 7), ((None, 2), 3)])
async def test_new_agent_window_limit_applies(
    scripted: Scripted, shows: tuple[int | None, int | None], shown: int
) -> None:
    first, second = [Limits(history=limit) for limit in shows]
    model = scripted("from b")
    agents = [
        Agent("a", model=scripted("hello", "again", call("handoff_to_b")), handoffs=["b"], limits=first),
        Agent("b", model=model, limits=second),
    ]
    async with Runtime(agents) as runtime:
        for prompt in ("hi", "hi again", "go"):
            await runtime.run("a", prompt, thread="t")
        (request,) = model.requests
        assert list(request.messages) == (await runtime.threads.messages("t"))[-shown - 1 : -1]


class Mood(StateKey[str, str]):
    """A mood of the run."""

    name, default = "mood", "calm"


class Shown(Plugin):
    """Notes when it is switched, and in what mood."""

    keys = (Mood,)
    log: list[str]

    def __init__(self, log: list[str]) -> None:
        self.log = log

    async def activate(self, ctx: Step) -> None:
        self.log.append(f"{self.label} on, {ctx.run.agent_id}, {ctx.state[Mood]}")
        ctx.update(Mood, f"set by {self.label}")

    async def deactivate(self, ctx: Step) -> None:
        self.log.append(f"{self.label} off, {ctx.state[Mood]}")


class Left(Shown):
    """A plugin of the agent that leaves."""


class Right(Shown):
    """A plugin of the agent that comes."""


class Both(Shown):
    """A plugin of both."""


async def test_plugins_of_both_agents_stay_active_on_handoff(scripted: Scripted) -> None:
    log: list[str] = []
    both = Both(log)
    agents = [
        Agent("a", model=scripted(call("handoff_to_b")), handoffs=["b"], plugins=[Left(log), both]),
        Agent("b", model=scripted("done"), plugins=[both, Right(log)]),
    ]
    runtime = Runtime(agents)
    await runtime.run("a", "go", thread="t")
    assert log == [
        "Left on, a, calm",
        "Both on, a, calm",
        "Both on, a, set by Left",  # Two writers of one key: the later hook ran again.
        "Left off, set by Both",
        "Right on, b, set by Both",
    ]


async def test_interrupted_plugin_switch_is_repeated(scripted: Scripted, tmp_path: Path) -> None:
    hold, told = Hold(), list[str]()

    class Desk(Plugin):
        keys = (Mood,)

        async def activate(self, ctx: Step) -> None:
            told.append(ctx.run.agent_id)
            await hold.here()
            ctx.update(Mood, "ready")

        async def step_start(self, ctx: Step) -> None:
            told.append(ctx.state[Mood])

    agents = [
        Agent("a", model=scripted(call("handoff_to_b")), handoffs=["b"]),
        Agent("b", model=scripted("done"), plugins=[Desk()]),
    ]
    first = Runtime(agents, store=tmp_path / "app.db")
    handle = await first.start("a", "go", thread="t")
    await soon(hold.reached.wait())
    await soon(first.close(grace=0))
    hold.released.set()
    async with Runtime(agents, store=tmp_path / "app.db") as second:
        result = await soon(second.wait(handle.run_id))
        assert (result.text, result.agent_id) == ("done", "b")
        assert told == ["b", "b", "ready"]
        assert len(await events_of(second, "t", Handoff)) == 1


async def test_agent_is_activated_once(scripted: Scripted) -> None:
    log: list[str] = []
    tools = [spying(Spy(), "ask", approval=True)]
    runtime = Runtime([Agent("a", model=scripted(call("ask"), "done", "again"), tools=tools, plugins=[Left(log)])])
    result = await runtime.run("a", "go", thread="t")
    await runtime.resume(result.run_id, result.tickets[0].approve())
    assert len(log) == 1
    await runtime.run("a", "go", thread="t")
    assert len(log) == 2


async def test_agent_is_activated_once_when_paused_at_start(
    scripted: Scripted,
) -> None:
    log, hold = list[str](), Hold()

    class Waits(Plugin):
        async def run_start(self, ctx: Step) -> None:
            await hold.here()

    async with Runtime([Agent("a", model=scripted("done"), plugins=[Left(log), Waits()])]) as runtime:
        handle = await runtime.start("a", "go", thread="t")
        await soon(hold.reached.wait())
        await soon(runtime.runs.pause(handle.run_id))
        hold.released.set()
        assert (await soon(handle.result())).status == "waiting"
        await soon(runtime.runs.unpause(handle.run_id))
        assert (await soon(handle.result())).text == "done"
    assert log == ["Left on, a, calm"]


async def test_run_state_is_kept_on_handoff(scripted: Scripted) -> None:
    @tool
    async def upset(ctx: ToolContext) -> str:
        """Change the mood."""
        ctx.update(Mood, "upset")
        ctx.handoff("b")
        return "so"

    @tool
    async def mood(ctx: ToolContext) -> str:
        """Say the mood."""
        return ctx.state[Mood]

    agents = [
        Agent("a", model=scripted(call("upset")), tools=[upset]),
        Agent("b", model=scripted(call("mood"), "done"), tools=[mood]),
    ]
    runtime = Runtime(agents, keys=[Mood])
    await runtime.run("a", "go", thread="t")
    assert reply_text((await replies_on(runtime, "t"))[-1]) == "upset"


async def test_limits_of_new_agent_apply(scripted: Scripted) -> None:
    agents = [
        Agent("a", model=scripted(call("handoff_to_b")), handoffs=["b"], limits=Limits(steps=9)),
        Agent("b", model=scripted(call("act")), tools=[spying(Spy(), "act")], limits=Limits(steps=2)),
    ]
    result = await Runtime(agents).run("a", "go")
    assert isinstance(result.termination, Stopped)
    assert (result.termination.policy, result.steps) == ("max_steps", 2)


async def test_hook_may_request_handoff_before_first_step(scripted: Scripted) -> None:
    class Router(Plugin):
        async def run_start(self, ctx: Step) -> None:
            if ctx.run.agent_id == "a":
                ctx.handoff("b")

    agents = [Agent("a", model=scripted(), plugins=[Router()]), Agent("b", model=scripted("from b"))]
    result = await Runtime(agents).run("a", "go")
    assert (result.text, result.steps) == ("from b", 1)


async def test_handoff_to_unknown_agent_is_refused(scripted: Scripted) -> None:
    class Lost(Plugin):
        async def run_start(self, ctx: Step) -> None:
            ctx.handoff("nobody")

    result = await Runtime([Agent("a", model=scripted(), plugins=[Lost()])]).run("a", "go", check=False)
    assert isinstance(result.termination, Failed)
    assert "unknown agent 'nobody'" in result.termination.message
    with pytest.raises(ConfigurationError, match="handoff 'nobody' is not an agent"):
        Runtime([Agent("a", model=scripted(), handoffs=["nobody"])])


async def test_next_run_begins_with_agent_it_names(scripted: Scripted) -> None:
    agents = [
        Agent("a", model=scripted(call("handoff_to_b"), "a again"), handoffs=["b"]),
        Agent("b", model=scripted("from b")),
    ]
    runtime = Runtime(agents)
    await runtime.run("a", "go", thread="t")
    assert (await runtime.run("a", "go", thread="t")).text == "a again"
