"""Scripted models and function models."""

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
async def test_script_turns_become_chunks(turn: Any, expected: list[Chunk]) -> None:
    assert await chunks(ScriptedModel([turn])) == expected


async def test_script_plays_turns_in_order() -> None:
    model = ScriptedModel(turn for turn in ("one", "two"))
    assert [(await chunks(model))[0] for _ in range(2)] == [TextChunk("one"), TextChunk("two")]


async def test_script_raises_an_exception_once() -> None:
    model = ScriptedModel([ModelError("overloaded", transient=True), "fine"])
    with pytest.raises(ModelError, match="overloaded") as raised:
        await chunks(model)
    assert raised.value.transient
    assert (await chunks(model))[0] == TextChunk("fine")


def test_script_call_accepts_any_arguments() -> None:
    assert call("look", name="moon").arguments == {"name": "moon"}


# -- the script's end ----------------------------------------------------------------------------------------


async def test_script_fails_beyond_its_last_turn() -> None:
    model = ScriptedModel(["one"], name="clerk")
    await chunks(model)
    with pytest.raises(ScriptError, match="clerk: the script has 1 turns and was asked for one more"):
        await chunks(model)
    assert len(model.requests) == 1


async def test_script_verify_fails_with_unused_turns() -> None:
    model = ScriptedModel(["one", call("two"), "three"], name="clerk")
    await chunks(model)
    assert model.unused == 2
    with pytest.raises(ScriptError, match=r"clerk: 2 of 3 turns were not used; the next is .*two"):
        model.verify()


async def test_script_verify_passes_at_the_end() -> None:
    model = ScriptedModel(["one"])
    await chunks(model)
    model.verify()
    ScriptedModel([]).verify()


async def test_run_fails_when_its_script_ends() -> None:
    async with Runtime([Agent("a", model=ScriptedModel([]))]) as runtime:
        result = await runtime.run("a", "go", check=False)
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "ScriptError"


# -- what it was asked ---------------------------------------------------------------------------------------


@tool
async def look(at: str) -> str:
    """Look at something."""
    return f"{at} seen"


async def test_script_records_requests_as_sent(scripted: Any) -> None:
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


async def test_full_turn_becomes_message_deltas_and_usage(scripted: Any) -> None:
    turn = Turn(thinking="hm", text=["he", "llo"], usage=Usage(input_tokens=3, output_tokens=4))
    async with Runtime([Agent("a", model=scripted(turn))]) as runtime:
        seen = await Recorder().record(runtime.stream("a", "go", thread="t1"))
        answer = (await runtime.threads.messages("t1"))[-1]
    assert answer.content == (Thinking("hm"), Text("hello"))
    assert seen.one(ReasoningDelta).delta == "hm"
    assert [(d.offset, d.delta) for d in seen.of(TextDelta)] == [(0, "he"), (2, "llo")]
    assert (seen.text, seen.one(InferenceComplete).usage.total_tokens) == ("hello", 7)


async def test_turn_may_spell_out_chunks(scripted: Any) -> None:
    raw = [
        CallStartChunk(0, "look", "vendor-1"),
        CallDeltaChunk(0, '{"at":'),
        CallDeltaChunk(0, '"sky"}'),
        PartChunk(Image(Url("http://x"))),
        StopChunk("tool_use"),
    ]
    async with Runtime([Agent("a", model=scripted(Turn(chunks=raw), "blue"), tools=[look])]) as runtime:
        await runtime.run("a", "go", thread="t1")
        messages = await runtime.threads.messages("t1")
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
async def test_function_model_accepts_sync_async_and_streams(function: Any) -> None:
    async with Runtime([Agent("a", model=FunctionModel(function))]) as runtime:
        assert (await runtime.run("a", "hello")).text == "HELLO"


async def test_function_model_may_return_any_turn() -> None:
    def decide(asked: ModelRequest) -> Any:
        return [call("look", at="sky")] if len(asked.messages) == 1 else Turn(text="done", thinking="hm")

    async with Runtime([Agent("a", model=FunctionModel(decide), tools=[look])]) as runtime:
        assert (await runtime.run("a", "go")).text == "done"


@pytest.mark.parametrize("how", ["returned", "raised"])
async def test_function_model_error_ends_the_run(how: str) -> None:
    def fail(_: ModelRequest) -> Any:
        if how == "raised":
            raise ModelError("out of order")
        return ModelError("out of order")

    async with Runtime([Agent("a", model=FunctionModel(fail))]) as runtime:
        result = await runtime.run("a", "go", check=False)
    assert result.termination == Failed("ModelError", "out of order")


def test_scripted_models_are_not_live() -> None:
    assert not ScriptedModel([]).live
    assert not FunctionModel(echo).live
    assert (ScriptedModel([]).name, FunctionModel(echo).name) == ("scripted", "function")
    assert FunctionModel(echo, name="parrot").name == "parrot"


@pytest.mark.parametrize("turn", [None, 5, [5], ["a text", call("act")]])
async def test_function_model_refuses_an_invalid_answer(turn: Any) -> None:
    for model in (FunctionModel(lambda request: turn), ScriptedModel([turn])):
        result = await Runtime([Agent("agent", model=model)]).run("agent", "Go", check=False)
        assert "ScriptError: a model answers with a text, a call(...), a list of calls, " in (result.error or "")
        assert "Turn(text=..., calls=[...])" in (result.error or "")
        assert repr(turn)[:80] in (result.error or "")
