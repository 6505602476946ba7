"""Typed output with its repairs, and answers that were cut off at the output limit."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from wakeful import Agent, Context, Limits, ModelFacts, Runtime, TokenBudget, Turn, Usage, call
from wakeful.context import count_tokens
from wakeful.models import CallDeltaChunk, CallStartChunk, StopChunk, TextChunk
from wakeful.types.runs import Failed, NaturalEnd, Stopped

from .helpers import Scripted, Spy, assert_settled, assert_valid_history, outcomes, soon, spying


class City(Struct):
    """A city."""

    name: str
    people: int


ROME = '{"name": "Rome", "people": 2700000}'


async def run(runtime: Runtime, text: str = "go") -> Any:
    """Run on thread `t`, and check that it is at rest."""
    result = await soon(runtime.run("agent", text, thread="t"))
    await assert_settled(runtime, "t")
    return result


# -- typed output --------------------------------------------------------------------------------------------


async def test_the_final_answer_is_read_as_the_output_type(scripted: Scripted) -> None:
    model = scripted(call("act"), ROME)
    result = await run(Runtime([Agent("agent", model=model, output=City, tools=[spying(Spy(), "act")])]))
    assert result.output == City("Rome", 2_700_000)
    assert model.requests[0].output is not None
    assert model.requests[0].output.schema["properties"].keys() == {"name", "people"}


async def test_an_answer_that_does_not_fit_is_repaired(scripted: Scripted) -> None:
    model = scripted("Rome!", '{"name": "Rome"}', ROME)
    runtime = Runtime([Agent("agent", model=model, output=City)])
    result = await run(runtime)
    assert (result.output, result.steps) == (City("Rome", 2_700_000), 3)
    hints = [m for m in await runtime.messages("t") if m.visibility == "internal"]
    assert len(hints) == 2
    assert "people" in hints[1].text
    assert hints[1] in model.requests[2].messages


async def test_repairs_are_limited_and_the_last_answer_is_kept(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted("a", "b", "c"), output=City, limits=Limits(repairs=2))])
    result = await run(runtime)
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "OutputInvalid"
    assert (result.text, result.output) == ("c", None)


async def test_no_repairs_means_none(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted("a"), output=City, limits=Limits(repairs=0))])
    assert isinstance((await run(runtime)).termination, Failed)


async def test_repairing_stays_within_the_limits(scripted: Scripted) -> None:
    expensive = Turn(text="Rome!", usage=Usage(input_tokens=500))
    runtime = Runtime([Agent("agent", model=scripted(expensive), output=City, stop=[TokenBudget(100)])])
    assert isinstance((await run(runtime)).termination, Stopped)


async def test_text_is_an_output_type_that_everything_fits(scripted: Scripted) -> None:
    result = await run(Runtime([Agent("agent", model=scripted("plain"), output=str)]))
    assert (result.text, result.output, result.termination) == ("plain", "plain", NaturalEnd())


async def test_an_answer_that_a_limit_ended_is_no_output(scripted: Scripted) -> None:
    expensive = Turn(text="half", calls=(call("act"),), usage=Usage(input_tokens=500))
    tools = [spying(Spy(), "act")]
    agent = Agent("agent", model=scripted(expensive), output=str, stop=[TokenBudget(100)], tools=tools)
    result = await run(Runtime([agent]))
    assert (result.text, result.output) == ("half", None)


async def test_the_output_is_read_after_a_suspension_too(scripted: Scripted) -> None:
    tools = [spying(Spy(), "ask", approval=True)]
    runtime = Runtime([Agent("agent", model=scripted(call("ask"), "no", ROME), output=City, tools=tools)])
    result = await runtime.run("agent", "go", thread="t")
    assert result.output is None
    result = await runtime.resume(result.run_id, result.tickets[0].approve())
    assert result.output == City("Rome", 2_700_000)


# -- cut off -------------------------------------------------------------------------------------------------


def cut(text: str) -> Turn:
    """An answer that hit its output limit."""
    return Turn(text=text, stop="max_tokens")


async def test_an_answer_that_was_cut_off_is_gone_on_with(scripted: Scripted) -> None:
    model = scripted(cut("once upon"), cut(" a time"), " the end")
    runtime = Runtime([Agent("agent", model=model)])
    result = await run(runtime)
    assert (result.text, result.termination, result.steps) == ("once upon a time the end", NaturalEnd(), 1)
    messages = await runtime.messages("t")
    assert [m.text for m in messages] == ["go", "once upon a time the end"]
    assert_valid_history(messages)
    *before, prompt = model.requests[2].messages
    assert [m.text for m in before] == ["go", "once upon a time"]
    assert "Go on exactly where it stopped" in prompt.text
    assert prompt.visibility == "internal"


async def test_what_every_piece_of_an_answer_cost_adds_up(scripted: Scripted) -> None:
    pieces = Turn(text="a", stop="max_tokens", usage=Usage(10, 5)), Turn(text="b", usage=Usage(10, 5))
    runtime = Runtime([Agent("agent", model=scripted(*pieces))])
    result = await run(runtime)
    assert (result.text, result.usage) == ("ab", Usage(20, 10))


async def test_typed_output_that_was_cut_off_is_read_as_a_whole(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted(cut(ROME[:9]), ROME[9:]), output=City)])
    assert (await run(runtime)).output == City("Rome", 2_700_000)


async def test_going_on_stays_within_the_budget_and_keeps_the_text(scripted: Scripted) -> None:
    half = Turn(text="half", stop="max_tokens", usage=Usage(input_tokens=500))
    runtime = Runtime([Agent("agent", model=scripted(half), stop=[TokenBudget(100)])])
    result = await run(runtime)
    assert isinstance(result.termination, Stopped)
    assert result.text == "half"


async def test_an_answer_goes_on_in_the_last_step_too(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted(cut("a"), "b"), limits=Limits(steps=1))])
    result = await run(runtime)
    assert (result.text, result.termination) == ("ab", NaturalEnd())


async def test_a_long_answer_in_pieces_is_made_to_fit_with_what_came_of_it(scripted: Scripted) -> None:
    facts = {"scripted": ModelFacts(context_window=1_000, max_output=400)}
    model = scripted(*["word " * 200] * 2, cut("more " * 200), "end")
    runtime = Runtime([Agent("agent", model=model, context=Context(compaction=None))], facts=facts)
    await run(runtime)
    await run(runtime)
    result = await run(runtime)
    assert result.text == "more " * 200 + "end"
    assert count_tokens(model.requests[-1].messages) <= 600
    assert model.requests[-1].messages[-2].text == "more " * 200


async def test_going_on_is_limited_and_the_end_is_natural_then_and_says_that_it_is_cut(
    scripted: Scripted,
) -> None:
    runtime = Runtime([Agent("agent", model=scripted(cut("a"), cut("b"), "c"), limits=Limits(continuations=1))])
    result = await run(runtime)
    assert (result.text, result.termination) == ("ab", NaturalEnd(truncated=True))
    assert (result.truncated, result.error) == (True, None)
    assert not (await run(runtime)).truncated


async def test_a_call_that_was_cut_off_is_dropped_and_asked_for_again(scripted: Scripted) -> None:
    spy = Spy()
    half = Turn(
        chunks=[
            TextChunk("I will"),
            CallStartChunk(0, "act"),
            CallDeltaChunk(0, '{"x": 1'),
            StopChunk("max_tokens"),
        ]
    )
    runtime = Runtime([Agent("agent", model=scripted(half, call("act", x=1), "done"), tools=[spying(spy, "act")])])
    result = await run(runtime)
    assert (result.text, spy.ran) == ("done", ["act"])
    answer = (await runtime.messages("t"))[1]
    assert (answer.text, [c.arguments for c in answer.calls]) == ("I will", [{"x": 1}])


async def test_where_nothing_can_be_kept_the_model_is_asked_for_less(scripted: Scripted) -> None:
    half = Turn(chunks=[CallStartChunk(0, "act"), CallDeltaChunk(0, '{"x": 1'), StopChunk("max_tokens")])
    model = scripted(half, "done")
    result = await run(Runtime([Agent("agent", model=model, tools=[spying(Spy(), "act")])]))
    assert result.text == "done"
    assert "Answer again, shorter" in model.requests[1].messages[-1].text


async def test_a_call_that_is_cut_off_again_and_again_fails_the_run(scripted: Scripted) -> None:
    half = Turn(chunks=[CallStartChunk(0, "act"), CallDeltaChunk(0, '{"x": 1'), StopChunk("max_tokens")])
    agent = Agent(
        "agent", model=scripted(half, half), tools=[spying(Spy(), "act")], limits=Limits(continuations=1)
    )
    runtime = Runtime([agent])
    result = await run(runtime)
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "AnswerTruncated"
    assert await outcomes(runtime, result.run_id) == {}


async def test_whole_calls_of_a_cut_off_answer_run_and_the_broken_one_is_dropped(scripted: Scripted) -> None:
    spy = Spy()
    answer = Turn(
        chunks=[
            CallStartChunk(0, "act"),
            CallDeltaChunk(0, '{"x": 1}'),
            CallStartChunk(1, "act"),
            CallDeltaChunk(1, '{"x":'),
            StopChunk("max_tokens"),
        ]
    )
    runtime = Runtime([Agent("agent", model=scripted(answer, "done"), tools=[spying(spy, "act")])])
    result = await run(runtime)
    assert (result.text, result.steps, spy.ran) == ("done", 2, ["act"])


async def test_a_broken_call_with_another_stop_is_told_to_the_model(scripted: Scripted) -> None:
    spy = Spy()
    answer = Turn(chunks=[CallStartChunk(0, "act"), CallDeltaChunk(0, '{"x":'), StopChunk("end_turn")])
    runtime = Runtime([Agent("agent", model=scripted(answer, "sorry"), tools=[spying(spy, "act")])])
    result = await run(runtime)
    assert (result.text, spy.ran) == ("sorry", [])
    assert await outcomes(runtime, result.run_id) == {"act": "error"}
