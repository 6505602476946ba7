"""A run and the runs below it: budgets, depth, failure, cancellation and events of the whole tree."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wakeful import (
    Agent,
    CostBudget,
    FunctionModel,
    Limits,
    Runtime,
    ScriptedModel,
    TokenBudget,
    ToolContext,
    Turn,
    Usage,
    WallTime,
    call,
    tool,
)
from wakeful.testing import FakeClock, Recorder
from wakeful.types.events import RunFinish, RunStart, TextDelta
from wakeful.types.runs import Cancelled, Failed, NaturalEnd, Stopped

from .helpers import (
    Hold,
    Scripted,
    Spy,
    assert_cancelled,
    assert_settled,
    holding,
    outcomes,
    replies_on,
    reply_text,
    soon,
    spying,
    until,
)

ASK = call("agent_run_child", prompt="do it")


def used(tokens: int, **turn: Any) -> Turn:
    """An answer that used so many tokens, and cost as much."""
    return Turn(usage=Usage(input_tokens=tokens, cost=tokens), **turn)


def family(parent: ScriptedModel, child: ScriptedModel, *tools: Any, **options: Any) -> Runtime:
    """A runtime with an agent `agent` that delegates to `child`, which has the tools."""
    clock = options.pop("clock", None)
    agents = [
        Agent("agent", model=parent, delegates=["child"], **options),
        Agent("child", model=child, tools=tools),
    ]
    return Runtime(agents, clock=clock)


# -- what comes back -----------------------------------------------------------------------------------------


async def test_delegate_answer_is_call_result(scripted: Scripted) -> None:
    model = scripted("the answer")
    runtime = family(scripted(ASK, "done"), model)
    result = await runtime.run("agent", "go", thread="t")
    assert result.text == "done"
    (reply,) = await replies_on(runtime, "t")
    assert reply_text(reply) == "the answer"
    assert [m.text for m in model.requests[0].messages] == ["do it"]
    child = await runtime.runs.get(reply.metadata["child_run_id"])
    assert (child.identity.parent_run_id, child.identity.root_run_id) == (result.run_id, result.run_id)
    assert (child.identity.depth, child.identity.origin, child.thread_id) == (1, "subagent", child.id)
    assert child.identity.parent_call_id == reply.call_id
    await assert_settled(runtime, "t")
    await assert_settled(runtime, child.thread_id)


async def test_failed_delegate_is_error_result(scripted: Scripted) -> None:
    runtime = family(scripted(ASK, "I will do it myself"), scripted(OSError("no route")))
    result = await runtime.run("agent", "go", thread="t")
    assert result.termination == NaturalEnd()
    (reply,) = await replies_on(runtime, "t")
    assert reply.error == "failed"
    assert "child did not complete (failed)" in reply_text(reply)
    assert "OSError: unexpected error, reference " in reply_text(reply)


async def test_waiting_delegate_suspends_parent(
    scripted: Scripted,
) -> None:
    spy = Spy()
    runtime = family(scripted(ASK, "done"), scripted(call("pay"), "paid"), spying(spy, "pay", approval=True))
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert result.status == "waiting"
    (ticket,) = result.tickets
    assert (ticket.tool, ticket.run_id != result.run_id, spy.ran) == ("pay", True, [])
    result = await soon(runtime.resume(result.run_id, ticket.approve()))
    assert (result.text, result.status, spy.ran) == ("done", "done", ["pay"])
    (reply,) = await replies_on(runtime, "t")
    assert reply_text(reply) == "paid"
    await assert_settled(runtime, "t")
    await assert_settled(runtime, ticket.thread_id)


async def test_delegates_run_in_parallel(scripted: Scripted) -> None:
    runtime = family(scripted([ASK, ASK, ASK], "done"), scripted("one", "two", "three"))
    result = await runtime.run("agent", "go", thread="t")
    assert sorted(reply_text(r) for r in await replies_on(runtime, "t")) == ["one", "three", "two"]
    assert result.text == "done"


# -- budgets -------------------------------------------------------------------------------------------------


async def test_result_includes_tree_usage(scripted: Scripted) -> None:
    runtime = family(scripted(used(10, calls=[ASK]), used(1, text="done")), scripted(used(100, text="x")))
    result = await runtime.run("agent", "go")
    assert (result.usage.input_tokens, result.usage.cost) == (111, 111)
    run = await runtime.runs.get(result.run_id)
    assert (run.usage.input_tokens, run.descendants.input_tokens) == (11, 100)


@pytest.mark.parametrize("policy", [TokenBudget(100, tree=True), CostBudget(100, tree=True)])
async def test_tree_budget_counts_delegates(scripted: Scripted, policy: Any) -> None:
    runtime = family(scripted(used(10, calls=[ASK])), scripted(used(100, text="x")), stop=[policy])
    result = await runtime.run("agent", "go", thread="t")
    assert isinstance(result.termination, Stopped)
    assert result.steps == 1


async def test_run_budget_ignores_delegates(scripted: Scripted) -> None:
    parent = scripted(used(10, calls=[ASK]), used(1, text="done"))
    runtime = family(parent, scripted(used(100, text="x")), stop=[TokenBudget(100), CostBudget(100)])
    assert (await runtime.run("agent", "go")).termination == NaturalEnd()


async def test_tree_budget_limits_delegates(scripted: Scripted) -> None:
    spy = Spy()
    child = scripted(used(60, calls=[call("act")]), used(60, calls=[call("act")]))
    runtime = family(
        scripted(used(10, calls=[ASK])), child, spying(spy, "act"), stop=[TokenBudget(100, tree=True)]
    )
    result = await runtime.run("agent", "go", thread="t")
    assert isinstance(result.termination, Stopped)
    assert result.termination.policy == "token_budget"
    assert spy.ran == ["act"]
    (reply,) = await replies_on(runtime, "t")
    assert "token_budget" in reply_text(reply)
    await assert_settled(runtime, "t")


async def test_root_call_limit_limits_delegates(scripted: Scripted) -> None:
    spy = Spy()
    child = scripted([call("act")] * 2, [call("act")] * 2)
    runtime = family(scripted(ASK), child, spying(spy, "act"), limits=Limits(tree_calls=3))
    result = await runtime.run("agent", "go", thread="t")
    assert isinstance(result.termination, Stopped)
    assert result.termination.policy == "tree_calls"
    assert spy.ran == ["act", "act"]


async def test_tree_wall_time_limits_delegates(scripted: Scripted, fake_clock: FakeClock) -> None:
    @tool
    async def nap() -> str:
        """Take a minute."""
        await fake_clock.advance(60)
        return "slept"

    child = scripted(call("nap"), call("nap"))
    runtime = family(scripted(ASK), child, nap, stop=[WallTime(90, tree=True)], clock=fake_clock)
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert isinstance(result.termination, Stopped)
    assert result.termination.policy == "wall_time"
    assert "wall_time" in reply_text((await replies_on(runtime, "t"))[0])


async def test_tree_count_survives_suspension(scripted: Scripted) -> None:
    spy = Spy()
    parent = scripted([ASK, call("pay")], call("pay"))
    agents = [
        Agent(
            "agent",
            model=parent,
            delegates=["child"],
            tools=[spying(spy, "pay", approval=True)],
            limits=Limits(tree_calls=4),
        ),
        Agent("child", model=scripted([call("act")] * 2, "done"), tools=[spying(spy, "act")]),
    ]
    runtime = Runtime(agents)
    result = await runtime.run("agent", "go", thread="t")
    fresh = Runtime(agents, store=runtime.store)
    result = await fresh.resume(result.run_id, result.tickets[0].approve())
    assert isinstance(result.termination, Stopped)
    assert result.termination.policy == "tree_calls"
    assert spy.ran == ["act", "act", "pay"]


# -- depth ---------------------------------------------------------------------------------------------------


async def test_mutual_delegation_ends_at_depth_limit(scripted: Scripted) -> None:
    def delegating(other: str) -> FunctionModel:
        ask = call(f"agent_run_{other}", prompt="you do it")
        return FunctionModel(lambda request: ask if len(request.messages) == 1 else "as you say")

    limits = Limits(depth=4)
    agents = [
        Agent("ping", model=delegating("pong"), delegates=["pong"], limits=limits),
        Agent("pong", model=delegating("ping"), delegates=["ping"], limits=limits),
    ]
    runtime = Runtime(agents)
    result = await soon(runtime.run("ping", "go", thread="t"))
    assert result.termination == NaturalEnd()
    runs = await runtime.runs.list()
    assert sorted(r.identity.depth for r in runs) == [0, 1, 2, 3, 4]
    deepest = max(runs, key=lambda r: r.identity.depth)
    (reply,) = await replies_on(runtime, deepest.thread_id)
    assert reply.error == "failed"
    assert "nested 4 deep and the limit is 4" in reply_text(reply)
    for run in runs:
        await assert_settled(runtime, run.thread_id)


async def test_root_depth_limit_applies_to_whole_tree(scripted: Scripted) -> None:
    agents = [
        Agent(
            "a", model=scripted(call("agent_run_b", prompt="go"), "ok"), delegates=["b"], limits=Limits(depth=1)
        ),
        Agent("b", model=scripted(call("agent_run_c", prompt="go"), "alone"), delegates=["c"]),
        Agent("c", model=scripted()),
    ]
    runtime = Runtime(agents)
    assert (await runtime.run("a", "go")).text == "ok"
    assert sorted(r.identity.depth for r in await runtime.runs.list()) == [0, 1]


# -- cancellation --------------------------------------------------------------------------------------------


async def below(runtime: Runtime, hold: Hold, besides: int = 0) -> tuple[asyncio.Task[Any], str, list[str]]:
    """Run until a child's tool waits; the caller's task, the root's id, and the children's threads."""
    task = asyncio.create_task(runtime.run("agent", "go", thread="t"))
    await until(lambda: hold.times == 1 + besides)
    runs = await runtime.runs.list()
    (root,) = [r.id for r in runs if not r.identity.depth]
    return task, root, [r.thread_id for r in runs if r.identity.depth]


@pytest.mark.parametrize("besides", [0, 1], ids=["alone", "with a sibling"])
async def test_cancel_of_root_reaches_tools_of_children(scripted: Scripted, besides: int) -> None:
    hold = Hold()
    parent = scripted([ASK] * (1 + besides), "hello again")
    runtime = family(parent, scripted(*[call("wait")] * (1 + besides)), holding(hold, effect="pure"))
    task, root, threads = await below(runtime, hold, besides)
    assert await soon(runtime.cancel(root, "enough")) is True
    assert (await soon(task)).termination == Cancelled("enough")
    await assert_cancelled(runtime, "t", "enough")
    assert len(threads) == 1 + besides
    for thread in threads:
        child = await assert_cancelled(runtime, thread)
        assert await outcomes(runtime, child.id) == {"wait": "cancelled"}
    assert (await soon(runtime.run("agent", "hello?", thread="t"))).text == "hello again"


async def test_cancelled_caller_reaches_children(scripted: Scripted) -> None:
    hold = Hold()
    runtime = family(scripted(ASK, "hello again"), scripted(call("wait")), holding(hold))
    task, _, threads = await below(runtime, hold)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    await assert_cancelled(runtime, "t", "the caller was cancelled")
    await assert_cancelled(runtime, threads[0])
    assert (await soon(runtime.run("agent", "hello?", thread="t"))).text == "hello again"


@pytest.mark.parametrize("besides", [0, 1], ids=["alone", "with a sibling"])
async def test_cancel_of_child_is_reported_to_parent_only(scripted: Scripted, besides: int) -> None:
    hold = Hold()
    runtime = family(
        scripted([ASK] * (1 + besides), "without it then"),
        scripted(*[call("wait")] * (1 + besides), *["fine"] * besides),
        holding(hold, effect="pure"),
    )
    task, _, threads = await below(runtime, hold, besides)
    assert await soon(runtime.cancel(threads[0], "not you")) is True
    hold.released.set()
    result = await soon(task)
    assert (result.text, result.termination) == ("without it then", NaturalEnd())
    told = [reply_text(r) for r in await replies_on(runtime, "t")]
    assert sum("cancelled: not you" in text for text in told) == 1
    await assert_cancelled(runtime, threads[0], "not you")
    await assert_settled(runtime, "t")


@pytest.mark.parametrize("by", ["request", "caller"])
async def test_stuck_tool_of_child_is_abandoned_and_tree_ends(
    scripted: Scripted, fake_clock: FakeClock, by: str
) -> None:
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

    runtime = family(scripted(ASK, "hello again"), scripted(call("stubborn")), stubborn, clock=fake_clock)

    async def caller() -> Any:
        try:
            return await runtime.run("agent", "go", thread="t")
        finally:
            me = asyncio.current_task()
            assert me is not None
            marks.append(me.cancelling())

    marks: list[int] = []
    task = asyncio.create_task(caller())
    try:
        await until(lambda: hold.times == 1)
        (root,) = [r.id for r in await runtime.runs.list() if not r.identity.depth]
        cancelling = asyncio.create_task(runtime.cancel(root)) if by == "request" else None
        if by == "caller":
            task.cancel()
        await fake_clock.advance(0)
        await fake_clock.advance(5)
        await fake_clock.advance(5)
        if cancelling is not None:
            assert await soon(cancelling) is True
            assert isinstance((await soon(task)).termination, Cancelled)
        else:
            with pytest.raises(asyncio.CancelledError):
                await soon(task)
        assert marks == [0 if by == "request" else 1]
        await assert_cancelled(runtime, "t")
        assert (await soon(runtime.run("agent", "hello?", thread="t"))).text == "hello again"
    finally:
        hold.released.set()
    await until(lambda: runtime.workers.abandoned == 0 and not runtime._scope.dispatch.active)
    for run in await runtime.runs.list():
        await assert_settled(runtime, run.thread_id)


async def test_usage_of_stopped_child_counts(scripted: Scripted, fake_clock: FakeClock) -> None:
    hold = Hold()

    @tool(timeout=10)
    async def ask(ctx: ToolContext) -> str:
        """Ask the child, but not for long."""
        return (await ctx.run_agent("child", "do it")).text

    agents = [
        Agent("agent", model=scripted(used(1, calls=[call("ask")]), used(1, text="done")), tools=[ask]),
        Agent("child", model=scripted(used(100, calls=[call("wait")])), tools=[holding(hold)]),
    ]
    runtime = Runtime(agents, clock=fake_clock)
    task = asyncio.create_task(runtime.run("agent", "go", thread="t"))
    await soon(hold.reached.wait())
    await fake_clock.advance(10)
    result = await soon(task)
    assert result.text == "done"
    assert result.usage.input_tokens == 102


# -- events --------------------------------------------------------------------------------------------------


async def test_child_events_reach_parent_stream_with_lineage(scripted: Scripted) -> None:
    runtime = family(scripted(ASK, "done"), scripted("the answer"))
    recorder = await Recorder().record(runtime.stream("agent", "go", thread="t"))
    starts = recorder.of(RunStart)
    assert [(e.run.agent_id, e.run.depth) for e in starts] == [("agent", 0), ("child", 1)]
    assert starts[1].run.parent_run_id == starts[0].run.run_id
    assert starts[1].run.root_run_id == starts[0].run.run_id
    assert starts[1].run.parent_thread_id == "t"
    assert [e.delta for e in recorder.of(TextDelta) if e.run.depth == 1] == ["the answer"]
    finishes = [(e.run.depth, e.status) for e in recorder.of(RunFinish)]
    assert finishes == [(1, "done"), (0, "done")]


async def test_child_events_are_not_in_parent_log(scripted: Scripted) -> None:
    runtime = family(scripted(ASK, "done"), scripted("the answer"))
    await runtime.run("agent", "go", thread="t")
    assert {e.run.depth async for e in runtime.events("t", follow=False)} == {0}


async def test_failed_child_of_failed_parent_leaves_everything_closed(scripted: Scripted) -> None:
    runtime = family(scripted(ASK, OSError("also gone")), scripted(OSError("gone")))
    result = await runtime.run("agent", "go", thread="t", check=False)
    assert isinstance(result.termination, Failed)
    for run in await runtime.runs.list():
        await assert_settled(runtime, run.thread_id)
