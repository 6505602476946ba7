"""Gates: who wins, when they are asked again, and what an answered question means."""

from __future__ import annotations

from typing import Any

import pytest

from loop.helpers import (
    Scripted,
    Spy,
    assert_settled,
    events_of,
    outcomes,
    replies_on,
    reply_text,
    spying,
)
from wakeful import Agent, Plugin, Runtime, StateKey, ToolContext, call, tool
from wakeful.errors import InvalidDecision
from wakeful.plugins import BeforeTool, GateAnswer, GateTool
from wakeful.types.events import ToolCallSuspended
from wakeful.types.runs import Blocked, Failed, NaturalEnd


class Gate(Plugin):
    """Answers what the test says, for calls of that tool."""

    def __init__(self, name: str, answer: Any, tool: str | None = None) -> None:
        self.name = name  # type: ignore[misc]
        self.answer = answer
        self.tool = tool
        self.asked = 0

    async def gate_tool(self, ctx: GateTool) -> GateAnswer:
        if self.tool not in (None, ctx.call.name):
            return None
        self.asked += 1
        return self.answer(ctx)


BLOCK: Any = lambda ctx: ctx.block("no")  # noqa: E731
SUSPEND: Any = lambda ctx: ctx.suspend("Sure?")  # noqa: E731
SUPPLY: Any = lambda ctx: ctx.supply("given")  # noqa: E731
ALLOW: Any = lambda ctx: None  # noqa: E731


def gated(
    scripted: Scripted, spy: Spy, *answers: Any, turns: Any = (), **options: Any
) -> tuple[Runtime, list[Gate]]:
    """A runtime with one gate for each answer."""
    gates = [Gate(f"gate{n}", answer) for n, answer in enumerate(answers)]
    tools = [spying(spy, "act", **options)]
    model = scripted(*(turns or [call("act"), "done"]))
    return Runtime([Agent("agent", model=model, tools=tools, plugins=gates)]), gates


# -- who wins ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([ALLOW, ALLOW], "runs"),
        ([SUPPLY, ALLOW], "given"),
        ([SUPPLY, SUSPEND], "asks"),
        ([SUSPEND, SUPPLY], "asks"),
        ([SUSPEND, BLOCK], "no"),
        ([BLOCK, SUSPEND], "no"),
        ([SUPPLY, BLOCK, SUSPEND], "no"),
    ],
)
async def test_block_beats_suspend_beats_supply(scripted: Scripted, answers: Any, expected: str) -> None:
    spy = Spy()
    turns = [call("act"), *([] if expected == "asks" else ["done"])]
    runtime, gates = gated(scripted, spy, *answers, turns=turns)
    result = await runtime.run("agent", "go", thread="t")
    assert [gate.asked for gate in gates] == [1] * len(gates)
    if expected == "asks":
        assert [t.message for t in result.tickets] == ["Sure?"]
        return
    (reply,) = await replies_on(runtime, "t")
    assert {"runs": "act 0", "given": "given", "no": "act was refused: no"}[expected] == reply_text(reply)
    assert spy.ran == (["act"] if expected == "runs" else [])
    await assert_settled(runtime, "t")


async def test_first_of_equal_gate_answers_counts(scripted: Scripted) -> None:
    answers = [lambda ctx: ctx.supply("first"), lambda ctx: ctx.supply("second")]
    runtime, _ = gated(scripted, Spy(), *answers)
    await runtime.run("agent", "go", thread="t")
    assert reply_text((await replies_on(runtime, "t"))[0]) == "first"


async def test_blocked_call_is_reported_and_run_continues(scripted: Scripted) -> None:
    runtime, _ = gated(scripted, Spy(), BLOCK)
    result = await runtime.run("agent", "go", thread="t")
    assert (result.text, result.termination) == ("done", NaturalEnd())
    assert await outcomes(runtime, result.run_id) == {"act": "blocked"}
    assert (await replies_on(runtime, "t"))[0].error == "denied"


async def test_block_may_end_run_and_siblings_keep_results(scripted: Scripted) -> None:
    spy = Spy()
    gate = Gate("strict", lambda ctx: ctx.block("never", ends_run=True), "bad")
    tools = [spying(spy, name) for name in ("good", "bad", "later")]
    calls = [call("good"), call("bad"), call("later")]
    runtime = Runtime([Agent("agent", model=scripted(calls), tools=tools, plugins=[gate], sequential=True)])
    result = await runtime.run("agent", "go", thread="t")
    assert result.termination == Blocked("never")
    assert await outcomes(runtime, result.run_id) == {"good": "ok", "bad": "blocked", "later": "cancelled"}
    assert spy.ran == ["good"]
    await assert_settled(runtime, "t")


async def test_supplied_result_replaces_tool_call(scripted: Scripted) -> None:
    spy = Spy()
    runtime, _ = gated(scripted, spy, lambda ctx: ctx.supply({"cached": ctx.arguments}))
    result = await runtime.run("agent", "go", thread="t")
    assert spy.ran == []
    assert reply_text((await replies_on(runtime, "t"))[0]) == '{"cached":{}}'
    assert await outcomes(runtime, result.run_id) == {"act": "ok"}


async def test_gate_changes_to_arguments_are_local(scripted: Scripted) -> None:
    heard: list[str] = []

    @tool
    async def say(word: str) -> str:
        """Say it."""
        heard.append(word)
        return word

    class Meddler(Plugin):
        name = "meddler"

        async def gate_tool(self, ctx: GateTool) -> None:
            ctx.arguments["word"] = "gate"

        async def before_tool(self, ctx: BeforeTool) -> None:
            ctx.arguments["word"] = "hook"

    model = scripted(call("say", word="mine"), "done")
    await Runtime([Agent("agent", model=model, tools=[say], plugins=[Meddler()])]).run("agent", "go")
    assert heard == ["mine"]


async def test_unencodable_supplied_result_is_plugin_error(scripted: Scripted) -> None:
    runtime, _ = gated(scripted, Spy(), lambda ctx: ctx.supply(object()), turns=[call("act")])
    result = await runtime.run("agent", "go", thread="t", check=False)
    assert isinstance(result.termination, Failed)
    assert "gate of plugin 'gate0' supplied a bad result" in result.termination.message
    await assert_settled(runtime, "t")


async def test_gate_cannot_write_state(scripted: Scripted) -> None:
    class Word(StateKey[str, str]):
        """A key."""

        name = "word"

    class Writes(Plugin):
        keys = (Word,)

        async def gate_tool(self, ctx: GateTool) -> GateAnswer:
            ctx.update(Word, "x")
            return None

    agent = Agent("agent", model=scripted(call("act")), tools=[spying(Spy(), "act")], plugins=[Writes()])
    result = await Runtime([agent]).run("agent", "go", check=False)
    assert isinstance(result.termination, Failed)
    assert "write in before_tool" in result.termination.message


async def test_invalid_arguments_never_reach_gate(scripted: Scripted) -> None:
    runtime, (gate,) = gated(scripted, Spy(), ALLOW, turns=[call("act", x="many"), "done"])
    await runtime.run("agent", "go")
    assert gate.asked == 0


# -- questions -----------------------------------------------------------------------------------------------


async def test_answered_question_is_not_asked_again(scripted: Scripted) -> None:
    spy = Spy()
    runtime, (gate,) = gated(scripted, spy, SUSPEND)
    result = await runtime.run("agent", "go", thread="t")
    assert result.tickets[0].asked_by == "gate0"
    result = await runtime.resume(result.run_id, result.tickets[0].approve())
    assert (result.status, spy.ran, gate.asked) == ("done", ["act"], 2)


async def test_gate_may_ask_again(scripted: Scripted) -> None:
    spy = Spy()
    runtime, (gate,) = gated(
        scripted, spy, lambda ctx: None if len(ctx.call.decisions) >= 2 else ctx.suspend("Really?", again=True)
    )
    result = await runtime.run("agent", "go", thread="t")
    first = result.tickets[0]
    result = await runtime.resume(result.run_id, first.approve())
    assert result.status == "waiting"
    assert result.tickets[0].id != first.id
    result = await runtime.resume(result.run_id, result.tickets[0].approve())
    assert (result.status, spy.ran, gate.asked) == ("done", ["act"], 3)
    assert len(await events_of(runtime, "t", ToolCallSuspended)) == 2


async def test_each_gate_asks_its_own_question(scripted: Scripted) -> None:
    spy = Spy()
    runtime, _ = gated(
        scripted, spy, lambda ctx: ctx.suspend("Boss?"), lambda ctx: ctx.suspend("Legal?"), approval=True
    )
    result = await runtime.run("agent", "go", thread="t")
    asked: list[tuple[str, str]] = []
    while result.tickets:
        asked.append((result.tickets[0].asked_by, result.tickets[0].message))
        result = await runtime.resume(result.run_id, result.tickets[0].approve())
    assert asked == [("gate0", "Boss?"), ("gate1", "Legal?"), ("approval", "May act run?")]
    assert spy.ran == ["act"]


async def test_answer_applies_to_its_call_only(scripted: Scripted) -> None:
    spy = Spy()
    runtime, _ = gated(scripted, spy, SUSPEND, turns=[[call("act", x=1), call("act", x=2)], "done"])
    result = await runtime.run("agent", "go", thread="t")
    one, two = result.tickets
    result = await runtime.resume(result.run_id, one.approve())
    assert (spy.ran, [t.id for t in result.tickets]) == (["act"], [two.id])
    result = await runtime.resume(result.run_id, two.approve())
    assert spy.ran == ["act", "act"]


async def test_gate_sees_latest_answer(scripted: Scripted) -> None:
    seen: list[Any] = []

    def answer(ctx: GateTool) -> GateAnswer:
        seen.append(None if ctx.decision is None else ctx.decision.value)
        return ctx.suspend("Which?")

    runtime, _ = gated(scripted, Spy(), answer)
    result = await runtime.run("agent", "go", thread="t")
    await runtime.resume(result.run_id, result.tickets[0].answer({"limit": 5}))
    assert seen == [None, {"limit": 5}]


async def test_gate_sets_accepted_answers(scripted: Scripted) -> None:
    schema = {"type": "object"}
    runtime, _ = gated(scripted, Spy(), lambda ctx: ctx.suspend("Fill in", schema=schema, accepts=("result",)))
    result = await runtime.run("agent", "go", thread="t")
    (ticket,) = result.tickets
    assert (ticket.accepts, ticket.schema) == (("result",), schema)
    with pytest.raises(InvalidDecision):
        await runtime.resume(result.run_id, ticket.edit({"x": 1}))
    await runtime.resume(result.run_id, ticket.answer({"filled": "in"}))
    assert reply_text((await replies_on(runtime, "t"))[0]) == '{"filled":"in"}'


async def test_block_counts_after_approval(scripted: Scripted) -> None:
    spy = Spy()
    state: dict[str, bool] = {}
    runtime, _ = gated(scripted, spy, SUSPEND, lambda ctx: ctx.block("frozen") if state else None)
    result = await runtime.run("agent", "go", thread="t")
    state["frozen"] = True
    result = await runtime.resume(result.run_id, result.tickets[0].approve())
    assert spy.ran == []
    assert reply_text((await replies_on(runtime, "t"))[0]) == "act was refused: frozen"


# -- asked again ---------------------------------------------------------------------------------------------


class Budget(StateKey[int, int]):
    """The remaining budget."""

    name, default, merge = "budget", 10, "commutative"

    def apply(self, value: int, update: int) -> int:
        return value + update


@tool
async def spend(n: int, ctx: ToolContext) -> str:
    """Spend so much."""
    ctx.update(Budget, -n)
    return f"spent {n}"


@tool
async def earn(n: int, ctx: ToolContext) -> str:
    """Earn so much."""
    ctx.update(Budget, n)
    return f"earned {n}"


class Thrifty(Plugin):
    """Refuses what can't be paid."""

    keys = (Budget,)

    async def gate_tool(self, ctx: GateTool) -> GateAnswer:
        short = ctx.call.name == "spend" and ctx.arguments["n"] > ctx.state[Budget]
        return ctx.block(f"only {ctx.state[Budget]} left") if short else None


async def spent(scripted: Scripted, *calls: Any, **options: Any) -> list[str]:
    """The results of these calls in the request, in order."""
    runtime = Runtime(
        [Agent("agent", model=scripted(list(calls), "ok"), tools=[spend, earn], plugins=[Thrifty()], **options)]
    )
    await runtime.run("agent", "go", thread="t")
    told = {r.call_id: reply_text(r) for r in await replies_on(runtime, "t")}
    return [told[c.id] for c in (await runtime.threads.messages("t"))[1].calls]


async def test_blocking_gate_is_asked_again_after_earlier_call(scripted: Scripted) -> None:
    assert await spent(scripted, call("earn", n=5), call("spend", n=12)) == ["earned 5", "spent 12"]


async def test_call_after_regated_call_does_not_wait(scripted: Scripted) -> None:
    calls = [call("earn", n=5), call("spend", n=12), call("spend", n=9)]
    assert await spent(scripted, *calls) == ["earned 5", "spend was refused: only 6 left", "spent 9"]


async def test_sequential_gates_see_all_earlier_results(scripted: Scripted) -> None:
    calls = [call("spend", n=12), call("earn", n=5), call("spend", n=12), call("spend", n=4)]
    assert await spent(scripted, *calls, sequential=True) == [
        "spend was refused: only 10 left",
        "earned 5",
        "spent 12",
        "spend was refused: only 3 left",
    ]


async def test_final_block_is_not_asked_again(scripted: Scripted) -> None:
    calls = [call("earn", n=1), call("spend", n=99)]
    assert await spent(scripted, *calls) == ["earned 1", "spend was refused: only 11 left"]
