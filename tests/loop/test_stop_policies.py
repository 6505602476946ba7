"""Limits and stop policies: each one fires where it should, keeps the last answer and closes the calls."""

from __future__ import annotations

from typing import Any

import pytest

from wakeful import (
    Agent,
    ConfigurationError,
    CostBudget,
    Limits,
    Runtime,
    StopOnTool,
    TokenBudget,
    Turn,
    Usage,
    WallTime,
    call,
    tool,
)
from wakeful.dispatch import RunResult
from wakeful.testing import FakeClock
from wakeful.types import ConsecutiveErrors, ContentMatch, LoopDetection
from wakeful.types.runs import NaturalEnd, Stopped

from .helpers import Scripted, Spy, assert_settled, outcomes, replies_on, soon, spying


def turn(text: str = "", *, tokens: int = 0, cost: int = 0, x: int = 0) -> Turn:
    """An answer that asks for `act` and cost so much."""
    return Turn(text=text, calls=[call("act", x=x)], usage=Usage(input_tokens=tokens, cost=cost))


class Stops:
    """An agent with policies, and the termination of its run."""

    def __init__(
        self, model: Any, *stop: Any, limits: Limits | None = None, clock: FakeClock | None = None
    ) -> None:
        self.spy = Spy()
        self.clock = clock or FakeClock()
        tools = [spying(self.spy, "act"), spying(self.spy, "other"), self._later()]
        agent = Agent("agent", model=model, tools=tools, stop=stop, limits=limits or Limits())
        self.runtime = Runtime([agent], clock=self.clock)

    def _later(self) -> Any:
        @tool
        async def later(seconds: float) -> str:
            """Take time."""
            await self.clock.advance(seconds)
            return "later"

        return later

    async def run(self) -> RunResult:
        """Run on thread `t`, and check that the thread is at rest."""
        result = await soon(self.runtime.run("agent", "go", thread="t"))
        await assert_settled(self.runtime, "t")
        return result


def policy(result: RunResult) -> str | None:
    """The policy that ended the run, if one did."""
    return result.termination.policy if isinstance(result.termination, Stopped) else None


# -- each policy ---------------------------------------------------------------------------------------------


async def test_max_steps_stops_before_unread_calls(scripted: Scripted) -> None:
    stops = Stops(scripted(turn("one"), turn("two")), limits=Limits(steps=2))
    result = await stops.run()
    assert (policy(result), result.steps, result.text) == ("max_steps", 2, "two")
    assert stops.spy.ran == ["act"]
    assert [c.outcome for c in await stops.runtime.runs.calls(result.run_id)] == ["ok", "cancelled"]


async def test_answer_at_limit_is_natural_end(scripted: Scripted) -> None:
    stops = Stops(scripted(turn(), "done"), limits=Limits(steps=2))
    assert (await stops.run()).termination == NaturalEnd()


@pytest.mark.parametrize(("tokens", "expected"), [(50, None), (51, "token_budget")])
async def test_token_budget_stops_run(scripted: Scripted, tokens: int, expected: str | None) -> None:
    turns = [turn("one", tokens=50), turn("two", tokens=tokens)]
    stops = Stops(scripted(*turns, *([] if expected else ["done"])), TokenBudget(100))
    result = await stops.run()
    assert policy(result) == expected
    assert result.text == ("two" if expected else "done")
    assert stops.spy.ran == ["act"] * (1 if expected else 2)


@pytest.mark.parametrize(("cost", "expected"), [(50, None), (51, "cost_budget")])
async def test_cost_budget_stops_run(scripted: Scripted, cost: int, expected: str | None) -> None:
    turns = [turn("one", cost=50), turn("two", cost=cost)]
    stops = Stops(scripted(*turns, *([] if expected else ["done"])), CostBudget(100))
    result = await stops.run()
    assert policy(result) == expected
    assert result.usage.cost == 50 + cost


@pytest.mark.parametrize(("seconds", "expected"), [(10.0, None), (10.001, "wall_time")])
async def test_wall_time_stops_run(scripted: Scripted, seconds: float, expected: str | None) -> None:
    turns = [call("later", seconds=seconds), *([] if expected else ["done"])]
    stops = Stops(scripted(*turns), WallTime(10))
    result = await stops.run()
    assert policy(result) == expected
    assert await outcomes(stops.runtime, result.run_id) == {"later": "ok"}


async def test_wall_time_counts_waiting_time(scripted: Scripted, fake_clock: FakeClock) -> None:
    tools = [spying(Spy(), "ask", approval=True)]
    agent = Agent("agent", model=scripted(call("ask")), tools=tools, stop=[WallTime(3600)])
    runtime = Runtime([agent], clock=fake_clock)
    result = await runtime.run("agent", "go", thread="t")
    await fake_clock.advance(86_400)
    result = await runtime.resume(result.run_id, result.tickets[0].approve())
    assert policy(result) == "wall_time"
    await assert_settled(runtime, "t")


async def test_stop_on_tool_runs_no_calls(scripted: Scripted) -> None:
    model = scripted(Turn(text="so be it", calls=[call("act"), call("other")]))
    stops = Stops(model, StopOnTool("other"))
    result = await stops.run()
    assert result.termination == Stopped("stop_on_tool", "other")
    assert result.text == "so be it"
    assert stops.spy.ran == []
    assert [r.error for r in await replies_on(stops.runtime, "t")] == ["cancelled", "cancelled"]


async def test_stop_on_other_tool_lets_run_continue(scripted: Scripted) -> None:
    stops = Stops(scripted(turn(), "done"), StopOnTool("other"))
    assert (await stops.run()).termination == NaturalEnd()


async def test_content_match_stops_on_answers_text(scripted: Scripted) -> None:
    stops = Stops(scripted(turn("going on"), turn("FINAL answer: 4")), ContentMatch(r"FINAL\s+answer"))
    result = await stops.run()
    assert result.termination == Stopped("content_match", r"FINAL\s+answer")
    assert result.text == "FINAL answer: 4"
    assert stops.spy.ran == ["act"]


async def test_loop_detection_stops_when_text_and_calls_repeat(scripted: Scripted) -> None:
    stops = Stops(scripted(turn("hm"), turn("hm"), turn("hm")), LoopDetection(3))
    result = await stops.run()
    assert policy(result) == "loop_detection"
    assert stops.spy.ran == ["act", "act"]


async def test_loop_detection_sees_difference_in_text_or_arguments(scripted: Scripted) -> None:
    turns = [turn("hm"), turn("hm", x=1), turn("hm"), turn("well"), turn("hm"), "done"]
    stops = Stops(scripted(*turns), LoopDetection(2))
    assert (await stops.run()).termination == NaturalEnd()


async def test_loop_detection_survives_suspension(scripted: Scripted) -> None:
    tools = [spying(Spy(), "ask", approval=True)]
    agent = Agent("agent", model=scripted(call("ask"), call("ask")), tools=tools, stop=[LoopDetection(2)])
    runtime = Runtime([agent])
    result = await runtime.run("agent", "go")
    result = await runtime.resume(result.run_id, result.tickets[0].approve())
    assert policy(result) == "loop_detection"


async def test_tree_call_limit_is_exact(scripted: Scripted) -> None:
    two = [call("act"), call("act")]
    stops = Stops(scripted(two, two, call("act"), call("act")), limits=Limits(tree_calls=5))
    result = await stops.run()
    assert policy(result) == "tree_calls"
    assert stops.spy.ran == ["act"] * 5


async def test_first_firing_policy_is_named(scripted: Scripted) -> None:
    stops = Stops(scripted(turn("stop", tokens=9)), ContentMatch("stop"), TokenBudget(5), StopOnTool("act"))
    assert policy(await stops.run()) == "content_match"


async def test_policies_count_each_run_separately(scripted: Scripted) -> None:
    turns = [turn(tokens=60), "one", turn(tokens=60), "two"]
    stops = Stops(scripted(*turns), TokenBudget(100), limits=Limits(steps=2))
    assert (await stops.run()).termination == NaturalEnd()
    assert (await stops.run()).termination == NaturalEnd()


async def test_policy_firing_on_final_answer_is_ignored(scripted: Scripted) -> None:
    answer = Turn(text="FINAL", usage=Usage(input_tokens=500))
    stops = Stops(scripted(answer), TokenBudget(100), ContentMatch("FINAL"))
    assert (await stops.run()).termination == NaturalEnd()


# -- construction --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "says"),
    [
        (ContentMatch("(unclosed"), "content_match: bad pattern"),
        (LoopDetection(1), "loop_detection: 1 is too small"),
        (TokenBudget(0), "token_budget: 0 is too small"),
        (CostBudget(-1), "cost_budget: -1 is too small"),
        (WallTime(0), "wall_time: 0 is too small"),
        (WallTime(float("nan")), "wall_time: nan is no number"),
        (ConsecutiveErrors(0), "consecutive_errors: 0 is too small"),
    ],
)
def test_invalid_policy_is_refused_by_runtime(scripted: Scripted, stop: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Runtime([Agent("agent", model=scripted(), stop=[stop])])


@pytest.mark.parametrize("name", ["steps", "parallel", "depth", "tree_calls"])
def test_zero_limit_is_refused(scripted: Scripted, name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"limits\.{name} must be at least 1"):
        Runtime([Agent("agent", model=scripted(), limits=Limits(**{name: 0}))])
