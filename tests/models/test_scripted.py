"""Models that play a script or ask a function."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from wakeful import Agent, FunctionModel, ModelRequest, Runtime, ScriptedModel, Turn, Usage, call, tool
from wakeful.errors import ModelError, ScriptError
from wakeful.models import (
    CallChunk,
    CallDeltaChunk,
    CallStartChunk,
    Chunk,
    Model,
    PartChunk,
    ReasoningChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from wakeful.testing import Recorder
from wakeful.types.content import Image, Text, Thinking, Url
from wakeful.types.events import InferenceComplete, ReasoningDelta, TextDelta
from wakeful.types.messages import user_message
from wakeful.types.runs import Failed


def request(text: str = "hello") -> ModelRequest:
    return ModelRequest("Be brief.", [user_message(text)])


async def chunks(model: Model, text: str = "hello") -> list[Chunk]:
    return [chunk async for chunk in model.stream(request(text))]


# -- turns ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        ("hi", [TextChunk("hi"), StopChunk("end_turn")]),
        ("", [StopChunk("end_turn")]),
        ("hi \ud800", [TextChunk("hi \ufffd"), StopChunk("end_turn")]),
        (call("look", at="sky"), [CallChunk("look", {"at": "sky"}), StopChunk("tool_use")]),
        (
            [call("look"), call("wait", seconds=1)],
            [CallChunk("look", {}), CallChunk("wait", {"seconds": 1}), StopChunk("tool_use")],
        ),
        (Turn(), [UsageChunk(Usage()), StopChunk("end_turn")]),
        (
            Turn(text=["he", "", "llo"], thinking="hm", usage=Usage(3, 4)),
            [
                ReasoningChunk("hm"),
                TextChunk("he"),
                TextChunk("llo"),
                UsageChunk(Usage(3, 4)),
                StopChunk("end_turn"),
            ],
        ),
        (
            Turn(text="let me see", calls=[call("look")]),
            [TextChunk("let me see"), CallChunk("look", {}), UsageChunk(Usage()), StopChunk("tool_use")],
        ),
        (Turn(text="cut", stop="max_tokens"), [TextChunk("cut"), UsageChunk(Usage()), StopChunk("max_tokens")]),
        (Turn(text="unseen", chunks=[TextChunk("a")]), [TextChunk("a")]),
        (Turn(chunks=[]), []),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_each_form_of_a_turn_is_streamed_as_chunks(turn: Any, expected: list[Chunk]) -> None:
    assert await chunks(ScriptedModel([turn])) == expected


async def test_turns_are_played_in_order() -> None:
    model = ScriptedModel(turn for turn in ("one", "two"))
    assert [(await chunks(model))[0] for _ in range(2)] == [TextChunk("one"), TextChunk("two")]


async def test_an_exception_is_raised_and_used_up() -> None:
    model = ScriptedModel([ModelError("overloaded", transient=True), "fine"])
    with pytest.raises(ModelError, match="overloaded") as raised:
        await chunks(model)
    assert raised.value.transient
    assert (await chunks(model))[0] == TextChunk("fine")


def test_a_call_may_have_any_arguments_but_its_name_by_position() -> None:
    assert call("look", name="moon").arguments == {"name": "moon"}


# -- the script's end ----------------------------------------------------------------------------------------


async def test_asking_for_more_than_the_script_has_is_an_error() -> None:
    model = ScriptedModel(["one"], name="clerk")
    await chunks(model)
    with pytest.raises(ScriptError, match="clerk: the script has 1 turns and was asked for one more"):
        await chunks(model)
    assert len(model.requests) == 1


async def test_turns_that_were_not_used_are_an_error_when_verified() -> None:
    model = ScriptedModel(["one", call("two"), "three"], name="clerk")
    await chunks(model)
    assert model.unused == 2
    with pytest.raises(ScriptError, match=r"clerk: 2 of 3 turns were not used; the next is .*two"):
        model.verify()


async def test_a_script_that_was_played_to_its_end_verifies() -> None:
    model = ScriptedModel(["one"])
    await chunks(model)
    model.verify()
    ScriptedModel([]).verify()


async def test_a_run_that_outlasts_its_script_fails_with_that_error() -> None:
    async with Runtime([Agent("a", model=ScriptedModel([]))]) as runtime:
        result = await runtime.run("a", "go")
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "ScriptError"


# -- what it was asked ---------------------------------------------------------------------------------------


@tool
async def look(at: str) -> str:
    """Look at something."""
    return f"{at} seen"


async def test_requests_hold_what_the_model_was_asked_when_it_was_asked(scripted: Any) -> None:
    model = scripted(call("look", at="sky"), "blue")
    agent = Agent("a", model=model, instructions="Be brief.", tools=[look])
    async with Runtime([agent]) as runtime:
        await runtime.run("a", "what colour?")
    first, second = model.requests
    assert first.system == "Be brief."
    assert [spec.name for spec in first.tools] == ["look"]
    assert [m.role for m in first.messages] == ["user"]
    assert [m.role for m in second.messages] == ["user", "assistant", "tool"]
    assert second.messages[0].text == "what colour?"


# -- what a turn becomes -------------------------------------------------------------------------------------


async def test_a_turn_in_full_becomes_a_message_deltas_and_usage(scripted: Any) -> None:
    turn = Turn(thinking="hm", text=["he", "llo"], usage=Usage(input_tokens=3, output_tokens=4))
    async with Runtime([Agent("a", model=scripted(turn))]) as runtime:
        seen = await Recorder().record(runtime.stream("a", "go", thread="t1"))
        answer = (await runtime.messages("t1"))[-1]
    assert answer.content == (Thinking("hm"), Text("hello"))
    assert seen.one(ReasoningDelta).delta == "hm"
    assert [(d.offset, d.delta) for d in seen.of(TextDelta)] == [(0, "he"), (2, "llo")]
    assert (seen.text, seen.one(InferenceComplete).usage.total_tokens) == ("hello", 7)


async def test_chunks_can_spell_out_what_a_vendor_would_stream(scripted: Any) -> None:
    raw = [
        CallStartChunk(0, "look", "vendor-1"),
        CallDeltaChunk(0, '{"at":'),
        CallDeltaChunk(0, '"sky"}'),
        PartChunk(Image(Url("http://x"))),
        StopChunk("tool_use"),
    ]
    async with Runtime([Agent("a", model=scripted(Turn(chunks=raw), "blue"), tools=[look])]) as runtime:
        await runtime.run("a", "go", thread="t1")
        messages = await runtime.messages("t1")
    (wanted,) = messages[1].calls
    assert (wanted.name, wanted.arguments, wanted.vendor_id) == ("look", {"at": "sky"}, "vendor-1")
    assert Image(Url("http://x")) in messages[1].content
    assert messages[2].reply is not None
    assert messages[2].reply.content == (Text("sky seen"),)


# -- functions -----------------------------------------------------------------------------------------------


def echo(asked: ModelRequest) -> str:
    return asked.messages[-1].text.upper()


async def echo_later(asked: ModelRequest) -> str:
    return echo(asked)


async def echo_in_pieces(asked: ModelRequest) -> AsyncIterator[Chunk]:
    for letter in echo(asked):
        yield TextChunk(letter)
    yield StopChunk("end_turn")


@pytest.mark.parametrize("function", [echo, echo_later, echo_in_pieces])
async def test_a_function_sync_async_or_streaming_is_a_model(function: Any) -> None:
    async with Runtime([Agent("a", model=FunctionModel(function))]) as runtime:
        assert (await runtime.run("a", "hello")).text == "HELLO"


async def test_a_function_may_return_any_turn() -> None:
    def decide(asked: ModelRequest) -> Any:
        return [call("look", at="sky")] if len(asked.messages) == 1 else Turn(text="done", thinking="hm")

    async with Runtime([Agent("a", model=FunctionModel(decide), tools=[look])]) as runtime:
        assert (await runtime.run("a", "go")).text == "done"


@pytest.mark.parametrize("how", ["returned", "raised"])
async def test_a_functions_error_ends_the_run(how: str) -> None:
    def fail(_: ModelRequest) -> Any:
        if how == "raised":
            raise ModelError("out of order")
        return ModelError("out of order")

    async with Runtime([Agent("a", model=FunctionModel(fail))]) as runtime:
        result = await runtime.run("a", "go")
    assert result.termination == Failed("ModelError", "out of order")


def test_models_without_a_network_say_so() -> None:
    assert not ScriptedModel([]).live
    assert not FunctionModel(echo).live
    assert (ScriptedModel([]).name, FunctionModel(echo).name) == ("scripted", "function")
    assert FunctionModel(echo, name="parrot").name == "parrot"


@pytest.mark.parametrize("turn", [None, 5, [5], ["a text", call("act")]])
async def test_an_answer_that_is_none_says_what_a_model_answers_with(turn: Any) -> None:
    for model in (FunctionModel(lambda request: turn), ScriptedModel([turn])):
        result = await Runtime([Agent("agent", model=model)]).run("agent", "Go")
        assert "ScriptError: a model answers with a text, a call(...), a list of calls, " in (result.error or "")
        assert "Turn(text=..., calls=[...])" in (result.error or "")
        assert repr(turn)[:80] in (result.error or "")
