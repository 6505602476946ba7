"""Typed output with its repairs, and answers that were cut off at the output limit."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct

from wakeful import (
    Agent,
    ConfigurationError,
    Limits,
    Message,
    Runtime,
    TokenBudget,
    Turn,
    Usage,
    WindowPolicy,
    call,
    tool,
)
from wakeful.context import count_tokens
from wakeful.errors import NoOutput, OutputRejected, RunFailed
from wakeful.models import CallDeltaChunk, CallStartChunk, ModelFacts, StopChunk, TextChunk
from wakeful.plugins import HookContext
from wakeful.stores import Commit, Committed, MemoryStore
from wakeful.types.runs import Failed, NaturalEnd, Stopped

from .helpers import Scripted, Spy, assert_settled, assert_valid_history, outcomes, soon, spying


class City(Struct):
    """A city."""

    name: str
    people: int


ROME = '{"name": "Rome", "people": 2700000}'


async def run(runtime: Runtime, text: str = "go") -> Any:
    """Run on thread `t`, and check that it is at rest."""
    result = await soon(runtime.run("agent", text, thread="t", check=False))
    await assert_settled(runtime, "t")
    return result


# -- typed output --------------------------------------------------------------------------------------------


async def test_final_answer_is_read_as_output_type(scripted: Scripted) -> None:
    model = scripted(call("act"), ROME)
    result = await run(Runtime([Agent("agent", model=model, output=City, tools=[spying(Spy(), "act")])]))
    assert result.output == City("Rome", 2_700_000)
    assert model.requests[0].output is not None
    assert model.requests[0].output.schema["properties"].keys() == {"name", "people"}


async def test_invalid_output_is_repaired(scripted: Scripted) -> None:
    model = scripted("Rome!", '{"name": "Rome"}', ROME)
    runtime = Runtime([Agent("agent", model=model, output=City)])
    result = await run(runtime)
    assert (result.output, result.steps) == (City("Rome", 2_700_000), 3)
    hints = [m for m in await runtime.threads.messages("t") if m.visibility == "internal"]
    assert len(hints) == 2
    assert "people" in hints[1].text
    assert hints[1] in model.requests[2].messages


async def test_output_repairs_are_limited(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted("a", "b", "c"), output=City, limits=Limits(repairs=2))])
    result = await run(runtime)
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "OutputInvalid"
    assert result.text == "c"
    with pytest.raises(RunFailed, match="OutputInvalid"):
        _ = result.output


async def test_zero_repairs_means_none(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted("a"), output=City, limits=Limits(repairs=0))])
    assert isinstance((await run(runtime)).termination, Failed)


async def test_repairs_stay_within_limits(scripted: Scripted) -> None:
    expensive = Turn(text="Rome!", usage=Usage(input_tokens=500))
    runtime = Runtime([Agent("agent", model=scripted(expensive), output=City, stop=[TokenBudget(100)])])
    assert isinstance((await run(runtime)).termination, Stopped)


async def test_str_output_accepts_every_answer(scripted: Scripted) -> None:
    result = await run(Runtime([Agent("agent", model=scripted("plain"), output=str)]))
    assert (result.text, result.output, result.termination) == ("plain", "plain", NaturalEnd())


async def test_answer_at_limit_is_no_output(scripted: Scripted) -> None:
    expensive = Turn(text="half", calls=(call("act"),), usage=Usage(input_tokens=500))
    tools = [spying(Spy(), "act")]
    agent = Agent("agent", model=scripted(expensive), output=str, stop=[TokenBudget(100)], tools=tools)
    result = await run(Runtime([agent]))
    assert result.text == "half"
    with pytest.raises(NoOutput, match=r"stopped by token_budget: .*; its last answer is in \.text"):
        _ = result.output


async def test_output_is_read_after_suspension(scripted: Scripted) -> None:
    tools = [spying(Spy(), "ask", approval=True)]
    runtime = Runtime([Agent("agent", model=scripted(call("ask"), "no", ROME), output=City, tools=tools)])
    result = await runtime.run("agent", "go", thread="t")
    with pytest.raises(NoOutput, match="it is waiting"):
        _ = result.output
    result = await runtime.resume(result.run_id, result.tickets[0].approve())
    assert result.output == City("Rome", 2_700_000)


# -- cut off -------------------------------------------------------------------------------------------------


def cut(text: str) -> Turn:
    """An answer that hit its output limit."""
    return Turn(text=text, stop="max_tokens")


async def test_truncated_answer_is_continued(scripted: Scripted) -> None:
    model = scripted(cut("once upon"), cut(" a time"), " the end")
    runtime = Runtime([Agent("agent", model=model)])
    result = await run(runtime)
    assert (result.text, result.termination, result.steps) == ("once upon a time the end", NaturalEnd(), 1)
    messages = await runtime.threads.messages("t")
    assert [m.text for m in messages] == ["go", "once upon a time the end"]
    assert_valid_history(messages)
    *before, prompt = model.requests[2].messages
    assert [m.text for m in before] == ["go", "once upon a time"]
    assert "Go on exactly where it stopped" in prompt.text
    assert prompt.visibility == "internal"


async def test_usage_of_continued_answer_is_summed(scripted: Scripted) -> None:
    pieces = Turn(text="a", stop="max_tokens", usage=Usage(10, 5)), Turn(text="b", usage=Usage(10, 5))
    runtime = Runtime([Agent("agent", model=scripted(*pieces))])
    result = await run(runtime)
    assert (result.text, result.usage) == ("ab", Usage(20, 10))


async def test_truncated_typed_output_is_read_as_whole(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted(cut(ROME[:9]), ROME[9:]), output=City)])
    assert (await run(runtime)).output == City("Rome", 2_700_000)


async def test_continuation_stays_within_budget(scripted: Scripted) -> None:
    half = Turn(text="half", stop="max_tokens", usage=Usage(input_tokens=500))
    runtime = Runtime([Agent("agent", model=scripted(half), stop=[TokenBudget(100)])])
    result = await run(runtime)
    assert isinstance(result.termination, Stopped)
    assert result.text == "half"


async def test_answer_is_continued_in_last_step(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted(cut("a"), "b"), limits=Limits(steps=1))])
    result = await run(runtime)
    assert (result.text, result.termination) == ("ab", NaturalEnd())


async def test_long_continued_answer_fits_the_window(scripted: Scripted) -> None:
    facts = {"scripted": ModelFacts(context_window=1_000, max_output=400)}
    model = scripted(*["word " * 200] * 2, cut("more " * 200), "end")
    runtime = Runtime([Agent("agent", model=model, window=WindowPolicy(compaction=None))], facts=facts)
    await run(runtime)
    await run(runtime)
    result = await run(runtime)
    assert result.text == "more " * 200 + "end"
    assert count_tokens(model.requests[-1].messages) <= 600
    assert model.requests[-1].messages[-2].text == "more " * 200


async def test_continuations_are_limited_and_answer_is_marked(
    scripted: Scripted,
) -> None:
    runtime = Runtime([Agent("agent", model=scripted(cut("a"), cut("b"), "c"), limits=Limits(continuations=1))])
    result = await run(runtime)
    assert (result.text, result.termination) == ("ab", NaturalEnd(truncated=True))
    assert (result.truncated, result.error) == (True, None)
    assert not (await run(runtime)).truncated


async def test_truncated_call_is_dropped_and_requested_again(scripted: Scripted) -> None:
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
    answer = (await runtime.threads.messages("t"))[1]
    assert (answer.text, [c.arguments for c in answer.calls]) == ("I will", [{"x": 1}])


async def test_model_is_asked_for_less_when_nothing_can_be_kept(scripted: Scripted) -> None:
    half = Turn(chunks=[CallStartChunk(0, "act"), CallDeltaChunk(0, '{"x": 1'), StopChunk("max_tokens")])
    model = scripted(half, "done")
    result = await run(Runtime([Agent("agent", model=model, tools=[spying(Spy(), "act")])]))
    assert result.text == "done"
    assert "Answer again, shorter" in model.requests[1].messages[-1].text


async def test_repeatedly_truncated_call_fails_run(scripted: Scripted) -> None:
    half = Turn(chunks=[CallStartChunk(0, "act"), CallDeltaChunk(0, '{"x": 1'), StopChunk("max_tokens")])
    agent = Agent(
        "agent", model=scripted(half, half), tools=[spying(Spy(), "act")], limits=Limits(continuations=1)
    )
    runtime = Runtime([agent])
    result = await run(runtime)
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "AnswerTruncated"
    assert await outcomes(runtime, result.run_id) == {}


async def test_complete_calls_of_truncated_answer_run(scripted: Scripted) -> None:
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


async def test_broken_call_with_other_stop_is_reported_to_model(scripted: Scripted) -> None:
    spy = Spy()
    answer = Turn(chunks=[CallStartChunk(0, "act"), CallDeltaChunk(0, '{"x":'), StopChunk("end_turn")])
    runtime = Runtime([Agent("agent", model=scripted(answer, "sorry"), tools=[spying(spy, "act")])])
    result = await run(runtime)
    assert (result.text, spy.ran) == ("sorry", [])
    assert await outcomes(runtime, result.run_id) == {"act": "error"}


# -- validators ------------------------------------------------------------------------------------------------


def is_inhabited(output: City, ctx: HookContext) -> None:
    if output.people == 0:
        raise OutputRejected(f"nobody lives in {output.name}; name another city")


async def test_rejected_output_goes_back_to_the_model(scripted: Scripted) -> None:
    model = scripted('{"name": "Pripyat", "people": 0}', '{"name": "Rome", "people": 2700000}')
    runtime = Runtime([Agent("agent", model=model, output=City, validators=[is_inhabited])])
    result = await runtime.run("agent", "go")
    assert (result.output, result.steps) == (City("Rome", 2_700_000), 2)
    said = model.requests[1].messages[-1]
    assert said.text == "That answer was rejected: nobody lives in Pripyat; name another city\nAnswer again."
    assert said.visibility == "internal"


async def test_rejections_are_bounded_by_the_repairs(scripted: Scripted) -> None:
    model = scripted(*['{"name": "Pripyat", "people": 0}'] * 2)
    agent = Agent("agent", model=model, output=City, validators=[is_inhabited], limits=Limits(repairs=1))
    result = await Runtime([agent]).run("agent", "go", check=False)
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "OutputRejected"


async def test_text_is_validated_by_async_functions_in_order(scripted: Scripted) -> None:
    seen: list[tuple[str, str]] = []

    async def first(output: str, ctx: HookContext[str]) -> None:
        seen.append((output, ctx.deps))
        if output == "short":
            raise OutputRejected("say more")

    async def second(output: str, ctx: HookContext) -> None:
        seen.append(("second", output))

    model = scripted("short", "long enough")
    runtime = Runtime([Agent("agent", model=model, validators=[first, second])], deps="the deps")
    assert (await runtime.run("agent", "go")).output == "long enough"
    assert seen == [("short", "the deps"), ("long enough", "the deps"), ("second", "long enough")]


async def test_calls_and_misfits_are_not_validated(scripted: Scripted) -> None:
    seen: list[City] = []

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    model = scripted(call("look"), "no JSON", '{"name": "Rome", "people": 1}')
    agent = Agent(
        "agent", model=model, output=City, tools=[look], validators=[lambda city, ctx: seen.append(city)]
    )
    assert (await Runtime([agent]).run("agent", "go")).steps == 3
    assert seen == [City("Rome", 1)]


async def test_rejection_is_committed_with_its_answer(scripted: Scripted) -> None:
    """So a committed answer is never judged twice, whichever process continues the run."""
    commits: list[list[str]] = []

    class Watched(MemoryStore):
        async def commit(self, commit: Commit) -> Committed:
            commits.append([entry.role for entry in commit.log if isinstance(entry, Message)])
            return await super().commit(commit)

    model = scripted('{"name": "Pripyat", "people": 0}', ROME)
    await run(Runtime([Agent("agent", model=model, output=City, validators=[is_inhabited])], store=Watched()))
    assert ["assistant", "user"] in commits


async def test_failing_validator_ends_the_run(scripted: Scripted) -> None:
    def broken(output: str, ctx: HookContext) -> None:
        raise ValueError("oops")

    result = await Runtime([Agent("agent", model=scripted("hi"), validators=[broken])]).run(
        "agent", "go", check=False
    )
    assert isinstance(result.termination, Failed)
    assert (result.termination.error, "validator 'broken'" in result.termination.text) == ("HookFailed", True)


def test_wrong_validators_are_refused(scripted: Scripted) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Runtime([Agent("agent", model=scripted(), validators=[lambda output: None, 3])])  # pyright: ignore
    assert "is called with the output and a context" in refused.value.problems[0]
    assert refused.value.problems[1].startswith("agent 'agent': validators has 3")
