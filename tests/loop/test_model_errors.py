"""The model fails or streams nonsense: the run ends with an outcome, or continues by its policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from wakeful import Agent, Image, ModelError, Plugin, RetryPolicy, Runtime, ScriptedModel, Turn, Usage, call
from wakeful.models import (
    CallChunk,
    CallDeltaChunk,
    CallStartChunk,
    PartChunk,
    ReasoningChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from wakeful.plugins import AfterInference
from wakeful.testing import Recorder
from wakeful.types import ConsecutiveErrors
from wakeful.types.events import ErrorRaised, InferenceComplete, RunFinish, StepEnd, StepStart, StreamReset
from wakeful.types.runs import Failed, NaturalEnd, Stopped

from .helpers import Scripted, Spy, assert_settled, events_of, replies_on, reply_text, soon, spying

BUSY = ModelError("overloaded", transient=True)
AT_ONCE = RetryPolicy(backoff=0)


async def run(runtime: Runtime) -> Any:
    """Run on thread `t`."""
    return await soon(runtime.run("agent", "go", thread="t", check=False))


# -- failing -------------------------------------------------------------------------------------------------


async def test_model_error_ends_run_with_outcome_and_finish(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted(ModelError("no such deployment")))])
    result = await run(runtime)
    assert (result.status, result.text) == ("done", "")
    assert result.termination == Failed("ModelError", "no such deployment")
    (finish,) = await events_of(runtime, "t", RunFinish)
    assert (finish.status, finish.termination) == ("done", result.termination)
    assert len(await events_of(runtime, "t", StepEnd)) == 1
    await assert_settled(runtime, "t")


async def test_last_answer_and_usage_are_kept(scripted: Scripted) -> None:
    spent = Usage(input_tokens=3, output_tokens=2)
    first = Turn(text="Let me look.", calls=[call("act")], usage=spent)
    runtime = Runtime([Agent("agent", model=scripted(first, ModelError("gone")), tools=[spying(Spy(), "act")])])
    result = await run(runtime)
    assert isinstance(result.termination, Failed)
    assert (result.text, result.usage, result.steps) == ("Let me look.", spent, 2)
    assert [reply_text(r) for r in await replies_on(runtime, "t")] == ["act 0"]
    await assert_settled(runtime, "t")


async def test_thread_is_usable_after_failed_run(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted(ModelError("gone"), "back"))])
    await run(runtime)
    assert (await run(runtime)).text == "back"
    await assert_settled(runtime, "t")


async def test_unexpected_exception_names_model(scripted: Scripted) -> None:
    model = scripted(OSError("no route"), name="acme-1")
    runtime = Runtime([Agent("agent", model=model, expose_errors=True)])
    result = await run(runtime)
    assert result.termination == Failed("ModelError", "model 'acme-1' failed: OSError: no route")


async def test_transient_error_ends_run_without_retries(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted(BUSY), retry=RetryPolicy(retries=0))])
    assert (await run(runtime)).termination == Failed("ModelError", "overloaded")


async def test_consecutive_errors_policy_retries_in_same_step(scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted(BUSY, BUSY, "finally"), stop=[ConsecutiveErrors(3)], retry=AT_ONCE)
    runtime = Runtime([agent])
    result = await run(runtime)
    assert (result.text, result.termination, result.steps) == ("finally", NaturalEnd(), 1)
    noted = await events_of(runtime, "t", ErrorRaised)
    assert [(e.error, e.message, e.source) for e in noted] == [("ModelError", "overloaded", "model")] * 2
    assert len(await events_of(runtime, "t", StepStart)) == 1
    await assert_settled(runtime, "t")


async def test_consecutive_errors_policy_stops_at_limit(scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted(BUSY, BUSY, BUSY), stop=[ConsecutiveErrors(3)], retry=AT_ONCE)
    runtime = Runtime([agent])
    result = await run(runtime)
    assert isinstance(result.termination, Stopped)
    assert result.termination.policy == "consecutive_errors"
    assert "overloaded" in result.termination.detail
    await assert_settled(runtime, "t")


async def test_answer_resets_error_count(scripted: Scripted) -> None:
    turns = [BUSY, call("act"), BUSY, call("act", x=1), BUSY, "done"]
    agent = Agent("agent", model=scripted(*turns), tools=[spying(Spy(), "act")], stop=[ConsecutiveErrors(2)])
    assert (await run(Runtime([agent], retry=AT_ONCE))).text == "done"


async def test_permanent_error_is_not_retried(scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted(ModelError("bad key")), stop=[ConsecutiveErrors(3)], retry=AT_ONCE)
    assert isinstance((await run(Runtime([agent]))).termination, Failed)


async def test_hooks_see_every_failure(scripted: Scripted) -> None:
    heard: list[tuple[str, bool]] = []

    class Listener(Plugin):
        async def after_inference(self, ctx: AfterInference) -> None:
            heard.append((str(ctx.error), ctx.answer is None))

    model = scripted(BUSY, OSError("no route"))
    await run(
        Runtime([Agent("agent", model=model, stop=[ConsecutiveErrors(5)], plugins=[Listener()])], retry=AT_ONCE)
    )
    assert heard == [("overloaded", True), ("model 'scripted' failed: OSError: no route", True)]


async def test_failed_stream_is_reset_for_readers(scripted: Scripted) -> None:
    class Breaks:
        name, live = "breaks", False

        def __init__(self) -> None:
            self.asked = 0

        async def stream(self, request: Any) -> Any:
            self.asked += 1
            yield ReasoningChunk("half a")
            if self.asked == 1:
                raise BUSY
            yield TextChunk("thought")
            yield StopChunk("end_turn")

    runtime = Runtime([Agent("agent", model=Breaks())], retry=AT_ONCE)
    recorder = await Recorder().record(runtime.stream("agent", "go", thread="t"))
    kinds = [t for t in recorder.types if t in ("reasoning_delta", "stream_reset", "inference_complete")]
    assert kinds == ["reasoning_delta", "stream_reset", "reasoning_delta", "inference_complete"]
    assert recorder.one(StreamReset).reason == "overloaded"
    assert [m.text for m in await runtime.threads.messages("t")] == ["go", "thought"]


# -- nonsense ------------------------------------------------------------------------------------------------


def streamed(*chunks: Any) -> Turn:
    """A turn that streams exactly this."""
    return Turn(chunks=chunks)


@pytest.mark.parametrize(
    ("chunks", "says"),
    [
        (["a string"], "no chunk"),
        ([None], "no chunk"),
        ([TextChunk("hello"), {"type": "text"}], "no chunk"),
        ([CallDeltaChunk(0, "{}")], "never began"),
        ([CallStartChunk(0, "act"), CallDeltaChunk(1, "{}")], "never began"),
        ([CallStartChunk(0, "act"), CallStartChunk(0, "act")], "two tool calls"),
        ([TextChunk(5)], "failed"),  # type: ignore[arg-type]
        ([TextChunk(None)], "failed"),  # type: ignore[arg-type]
        ([TextChunk(b"bytes")], "failed"),  # type: ignore[arg-type]
        ([TextChunk(["list"])], "failed"),  # type: ignore[arg-type]
        ([ReasoningChunk(b"bytes")], "failed"),  # type: ignore[arg-type]
        ([CallStartChunk(0, "act"), CallDeltaChunk(0, None)], "failed"),  # type: ignore[arg-type]
        ([CallStartChunk(0, "act"), CallDeltaChunk(0, b"{}")], "failed"),  # type: ignore[arg-type]
        # What is kept must be read again, or the thread, the run and every list of runs are lost.
        ([PartChunk(5)], "isn't one: 5"),  # type: ignore[arg-type]
        ([PartChunk(Image("a.png"))], "isn't one: Image: Expected `object`, got `str`"),  # type: ignore[arg-type]
        ([UsageChunk(Usage(input_tokens=7, cost=0.002))], "half a dollar is 500_000"),  # type: ignore[arg-type]
        ([UsageChunk(Usage(output_tokens="7"))], "whole numbers"),  # type: ignore[arg-type]
        ([UsageChunk(None)], "the model said None"),  # type: ignore[arg-type]
    ],
)
async def test_malformed_stream_is_model_error(scripted: Scripted, chunks: Sequence[Any], says: str) -> None:
    spy = Spy()
    model = scripted(streamed(*chunks, StopChunk("end_turn")), "better")
    runtime = Runtime([Agent("agent", model=model, tools=[spying(spy, "act")])])
    result = await run(runtime)
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "ModelError"
    assert says in result.termination.message
    assert spy.ran == []
    assert [m.role for m in await runtime.threads.messages("t")] == ["user"]
    await assert_settled(runtime, "t")
    assert (await run(runtime)).text == "better"


@pytest.mark.parametrize("reason", [None, 5, "a new one"])
async def test_unknown_stop_reason_is_harmless(tmp_path: Path, reason: Any) -> None:
    model = ScriptedModel([streamed(TextChunk("hello"), StopChunk(reason))])
    async with Runtime([Agent("agent", model=model)], store=tmp_path / "a.db") as runtime:
        assert (await run(runtime)).text == "hello"
        kept = [event async for event in runtime.events("t", follow=False)]
    (complete,) = [event for event in kept if isinstance(event, InferenceComplete)]
    assert complete.stop == "unknown"


BAD_ARGUMENTS = [
    ('{"x": ', "not valid JSON"),
    ("{'x': 1}", "not valid JSON"),
    ("[1]", "must be an object"),
    ("null", "must be an object"),
    ('"x"', "must be an object"),
    ("[" * 5000, "not valid JSON"),
    ('{"x": "' + "\\ud800" + '"}', ""),
]


@pytest.mark.parametrize(("text", "says"), BAD_ARGUMENTS, ids=[str(n) for n in range(len(BAD_ARGUMENTS))])
async def test_non_object_arguments_are_reported_to_model(scripted: Scripted, text: str, says: str) -> None:
    spy = Spy()
    bad = streamed(CallStartChunk(0, "act"), CallDeltaChunk(0, text), StopChunk("tool_use"))
    runtime = Runtime([Agent("agent", model=scripted(bad, "sorry"), tools=[spying(spy, "act")])])
    result = await run(runtime)
    assert (result.text, result.termination, spy.ran) == ("sorry", NaturalEnd(), [])
    (reply,) = await replies_on(runtime, "t")
    assert reply.error == "invalid_arguments"
    assert says in reply_text(reply)
    await assert_settled(runtime, "t")


@pytest.mark.parametrize("arguments", [None, [1], "x", {"x": "\ud800"}, {"x": object()}, {"\udc00": 1}])
async def test_unencodable_arguments_are_reported_to_model(scripted: Scripted, arguments: Any) -> None:
    spy = Spy()
    bad = streamed(CallChunk("act", arguments), StopChunk("tool_use"))
    runtime = Runtime([Agent("agent", model=scripted(bad, "sorry"), tools=[spying(spy, "act")])])
    result = await run(runtime)
    assert (result.text, spy.ran) == ("sorry", [])
    (reply,) = await replies_on(runtime, "t")
    assert reply.error == "invalid_arguments"
    await assert_settled(runtime, "t")


async def test_call_without_arguments_has_empty_object(scripted: Scripted) -> None:
    spy = Spy()
    calls = [CallStartChunk(0, "act"), CallStartChunk(1, "act"), CallDeltaChunk(1, " ")]
    turn = streamed(*calls, StopChunk("tool_use"))
    runtime = Runtime([Agent("agent", model=scripted(turn, "done"), tools=[spying(spy, "act")])])
    await run(runtime)
    assert spy.ran == ["act", "act"]


async def test_stream_without_stop_is_an_answer(scripted: Scripted) -> None:
    spy = Spy()
    turns = [streamed(TextChunk("hm "), CallChunk("act", {})), streamed(TextChunk("do"), TextChunk("ne"))]
    runtime = Runtime([Agent("agent", model=scripted(*turns), tools=[spying(spy, "act")])])
    result = await run(runtime)
    assert (result.text, result.termination, spy.ran) == ("done", NaturalEnd(), ["act"])
    assert [e.stop for e in await events_of(runtime, "t", InferenceComplete)] == ["unknown", "unknown"]
    await assert_settled(runtime, "t")


@pytest.mark.parametrize("chunks", [[], [StopChunk("end_turn")], [TextChunk(""), StopChunk("end_turn")]])
async def test_empty_answer_ends_run_without_message(scripted: Scripted, chunks: Sequence[Any]) -> None:
    runtime = Runtime([Agent("agent", model=scripted(streamed(*chunks)))])
    result = await run(runtime)
    assert (result.text, result.termination) == ("", NaturalEnd())
    assert [m.role for m in await runtime.threads.messages("t")] == ["user"]
    await assert_settled(runtime, "t")


async def test_last_answer_is_same_in_result_and_record(scripted: Scripted) -> None:
    turns = [streamed(TextChunk("I look."), CallChunk("act", {})), streamed(StopChunk("end_turn"))]
    runtime = Runtime([Agent("agent", model=scripted(*turns), tools=[spying(Spy(), "act")])])
    result = await run(runtime)
    assert result.text == "I look."
    assert await runtime.wait(result.run_id) == result


async def test_lone_surrogates_become_replacement_character(scripted: Scripted) -> None:
    turn = streamed(ReasoningChunk("\udc00 hm"), TextChunk("a\ud800b "), TextChunk("\ud83d"), TextChunk("\ude00"))
    runtime = Runtime([Agent("agent", model=scripted(turn))])
    result = await run(runtime)
    assert result.text == "a\ufffdb \U0001f600"
    await assert_settled(runtime, "t")


async def test_unknown_tool_error_lists_known_tools(
    scripted: Scripted,
) -> None:
    usage = [UsageChunk(Usage(input_tokens=1)), UsageChunk(Usage(input_tokens=5, output_tokens=2))]
    turn = streamed(*usage, CallChunk("nope", {}), StopChunk("tool_use"))
    runtime = Runtime([Agent("agent", model=scripted(turn, "ok"), tools=[spying(Spy(), "act")])])
    result = await run(runtime)
    assert result.usage == Usage(input_tokens=5, output_tokens=2)
    (reply,) = await replies_on(runtime, "t")
    assert reply.error == "not_found"
    assert "available: act" in reply_text(reply)
    await assert_settled(runtime, "t")
