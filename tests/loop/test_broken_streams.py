"""Broken answers are continued, by the table in docs/failover.md."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wakeful import Agent, RetryPolicy, Runtime, Text, Usage
from wakeful.errors import ContentFiltered, ModelOverloaded, StreamBroken
from wakeful.models import (
    CallChunk,
    CallDeltaChunk,
    CallStartChunk,
    ReasoningChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from wakeful.testing import Recorder
from wakeful.types.content import Thinking
from wakeful.types.events import ErrorRaised, InferenceComplete, StreamReset, TextDelta, ToolCallCancel
from wakeful.types.runs import Failed, NaturalEnd

from .faults import AT_ONCE, Streams, goes_on, shown
from .helpers import Spy, assert_settled, events_of, soon, spying

CUT = StreamBroken("connection lost")
STOP = StopChunk("end_turn")


async def run(model: Streams, *tools: Any, **options: Any) -> tuple[Any, Recorder, Runtime]:
    """Run an agent on thread `t`, and record what is shown."""
    runtime = Runtime([Agent("agent", model=model, tools=tools, **options)], retry=AT_ONCE)
    recorder = await soon(Recorder().record(runtime.stream("agent", "go", thread="t", check=False)))
    await assert_settled(runtime, "t")
    (record,) = await runtime.runs.list(thread="t")
    return record.outcome.termination, recorder, runtime  # type: ignore[union-attr]


# -- the table -----------------------------------------------------------------------------------------------


async def test_broken_text_is_continued_as_one_message() -> None:
    model = Streams([TextChunk("Hello "), TextChunk("wor"), CUT], [TextChunk("ld."), STOP])
    ending, recorder, runtime = await run(model)
    assert ending == NaturalEnd()
    _, answer = await runtime.threads.messages("t")
    assert answer.content == (Text("Hello world."),)
    before = goes_on(model.requests[1])
    assert before is not None
    assert before.role == "assistant"
    assert before.text == "Hello wor"
    assert not recorder.of(StreamReset)
    assert [(d.attempt, d.offset, d.delta) for d in recorder.of(TextDelta)] == [
        (0, 0, "Hello "),
        (0, 6, "wor"),
        (0, 9, "ld."),
    ]
    assert len(await events_of(runtime, "t", InferenceComplete)) == 1


async def test_request_is_repeated_when_stream_breaks_before_text() -> None:
    model = Streams([CUT], [TextChunk("Hello."), STOP])
    ending, recorder, _ = await run(model)
    assert ending == NaturalEnd()
    assert model.requests[0] == model.requests[1]
    assert not recorder.of(StreamReset)


async def test_open_call_is_dropped_and_text_continued() -> None:
    spy = Spy()
    half = [TextChunk("Let me "), CallStartChunk(0, "act"), CallDeltaChunk(0, '{"x": '), CUT]
    rest = [TextChunk("look."), CallStartChunk(0, "act"), CallDeltaChunk(0, '{"x": 2}'), StopChunk("tool_use")]
    ending, recorder, runtime = await run(Streams(half, rest, [STOP]), spying(spy, "act"))
    assert (ending, spy.ran) == (NaturalEnd(), ["act"])
    assert recorder.one(ToolCallCancel).name == "act"
    answer = (await runtime.threads.messages("t"))[1]
    assert answer.content[0] == Text("Let me look.")
    assert [c.arguments for c in answer.calls] == [{"x": 2}]


async def test_complete_call_runs_without_second_request() -> None:
    # Edge case 39.
    spy = Spy()
    usage = UsageChunk(Usage(input_tokens=3))
    model = Streams([usage, TextChunk("Look: "), CallChunk("act", {"x": 1}), CUT], [TextChunk("done"), STOP])
    ending, recorder, runtime = await run(model, spying(spy, "act"))
    assert (ending, spy.ran, len(model.requests)) == (NaturalEnd(), ["act"], 2)
    assert [m.role for m in model.requests[1].messages] == ["user", "assistant", "tool"]
    first = (await events_of(runtime, "t", InferenceComplete))[0]
    assert (first.stop, first.usage) == ("tool_use", Usage(input_tokens=3))
    assert recorder.one(ErrorRaised).error == "StreamBroken"


async def test_open_call_beside_complete_one_is_dropped() -> None:
    spy = Spy()
    calls = [CallStartChunk(0, "act"), CallDeltaChunk(0, '{"x": 1}'), CallStartChunk(1, "other"), CUT]
    model = Streams(calls, [TextChunk("done"), STOP])
    ending, recorder, _ = await run(model, spying(spy, "act"), spying(spy, "other"))
    assert (ending, spy.ran) == (NaturalEnd(), ["act"])
    assert recorder.one(ToolCallCancel).name == "other"
    assert [m.role for m in model.requests[1].messages] == ["user", "assistant", "tool", "user"]
    assert "was not made: other" in model.requests[1].messages[-1].text


async def test_answer_with_stop_is_complete() -> None:
    model = Streams([TextChunk("Hello."), STOP, CUT])
    ending, _, runtime = await run(model)
    assert ending == NaturalEnd()
    assert (await runtime.threads.messages("t"))[1].text == "Hello."


async def test_signed_reasoning_is_kept_without_unfinished_block() -> None:
    signed = [ReasoningChunk("one "), ReasoningChunk("two"), ReasoningChunk(signature="s")]
    model = Streams([*signed, TextChunk("Hel"), ReasoningChunk("half a th"), CUT], [TextChunk("lo."), STOP])
    _, recorder, runtime = await run(model)
    assert (await runtime.threads.messages("t"))[1].content == (Thinking("one two", "s"), Text("Hello."))
    before = goes_on(model.requests[1])
    assert before is not None
    assert before.content == (Thinking("one two", "s"), Text("Hel"))
    # What readers saw of the half thought counts no more: they begin again with what does.
    recorder.one(StreamReset)
    assert shown(recorder.events) == "Hello."


async def test_reasoning_alone_is_not_continued() -> None:
    signed = [ReasoningChunk("hm"), ReasoningChunk(signature="s")]
    model = Streams([*signed, CUT], [*signed, TextChunk("Hello."), STOP])
    _, recorder, runtime = await run(model)
    assert goes_on(model.requests[1]) is None
    assert (await runtime.threads.messages("t"))[1].content == (Thinking("hm", "s"), Text("Hello."))
    recorder.one(StreamReset)


async def test_reasoning_alone_is_not_kept_as_answer() -> None:
    signed = [ReasoningChunk("hm"), ReasoningChunk(signature="s"), CUT]
    ending, recorder, runtime = await run(Streams(signed, signed, signed))
    assert ending == Failed("StreamBroken", "connection lost")
    assert [m.text for m in await runtime.threads.messages("t")] == ["go"]
    assert await events_of(runtime, "t", InferenceComplete) == []
    assert len(recorder.of(StreamReset)) == 3


async def test_reasoning_before_continuation_does_not_split_text() -> None:
    model = Streams([TextChunk("Hel"), CUT], [ReasoningChunk("where was I"), TextChunk("lo."), STOP])
    _, _, runtime = await run(model)
    assert (await runtime.threads.messages("t"))[1].content == (Thinking("where was I"), Text("Hello."))


async def test_typed_output_starts_over() -> None:
    model = Streams([TextChunk("[1, "), CUT], [TextChunk("[1, 2]"), STOP])
    ending, recorder, runtime = await run(model, output=list[int])
    assert ending == NaturalEnd()
    assert goes_on(model.requests[1]) is None
    assert (await runtime.threads.messages("t"))[1].text == "[1, 2]"
    assert shown(recorder.events) == "[1, 2]"


async def test_usage_of_all_requests_is_summed() -> None:
    def used(tokens: int) -> UsageChunk:
        return UsageChunk(Usage(input_tokens=tokens, output_tokens=1))

    model = Streams([used(10), TextChunk("a"), CUT], [CUT], [used(11), TextChunk("b"), CUT], [used(12), STOP])
    _, _, runtime = await run(model)
    (run_,) = await runtime.runs.list(thread="t")
    assert run_.usage == Usage(input_tokens=33, output_tokens=3)
    (complete,) = await events_of(runtime, "t", InferenceComplete)
    assert complete.usage == run_.usage


async def test_continuation_keeps_hooks_tools_and_settings() -> None:
    model = Streams([TextChunk("a"), CUT], [TextChunk("b"), STOP])
    await run(model, spying(Spy(), "act"), instructions="Be brief.")
    first, second = model.requests
    assert (second.system, second.tools, second.settings) == (first.system, first.tools, first.settings)


# -- retries exhausted ---------------------------------------------------------------------------------------


async def test_run_fails_after_stream_retries_and_keeps_text() -> None:
    cuts = [[TextChunk(f"{n} "), CUT] for n in range(3)]
    ending, recorder, runtime = await run(Streams(*cuts))
    assert isinstance(ending, Failed)
    assert ending.error == "StreamBroken"
    assert "connection lost" in ending.message
    assert [m.text for m in await runtime.threads.messages("t")] == ["go", "0 1 2 "]
    assert [error.retry_at is None for error in recorder.of(ErrorRaised)] == [False, False, True]
    (complete,) = await events_of(runtime, "t", InferenceComplete)
    assert complete.stop == "unknown"


async def test_failed_run_is_retried_from_kept_text() -> None:
    model = Streams(*[[TextChunk(f"{n} "), CUT] for n in range(3)], [TextChunk("3"), STOP])
    _, _, runtime = await run(model)
    (failed,) = await runtime.runs.list(thread="t")
    result = await soon(runtime.runs.retry(failed.id))
    assert (result.termination, result.text) == (NaturalEnd(), "3")
    before = goes_on(model.requests[3])
    assert before is not None
    assert before.text == "0 1 2 "


async def test_permanent_error_ends_run_without_text() -> None:
    model = Streams([TextChunk("Hello "), ContentFiltered("not that")])
    ending, _, runtime = await run(model)
    assert ending == Failed("ContentFiltered", "not that")
    assert [m.text for m in await runtime.threads.messages("t")] == ["go"]


async def test_broken_streams_and_failed_requests_count_apart() -> None:
    busy = ModelOverloaded("busy")
    model = Streams([TextChunk("a"), CUT], [busy], [busy], [TextChunk("b"), CUT], [busy], [TextChunk("c"), STOP])
    ending, _, runtime = await run(model)
    assert ending == NaturalEnd()
    assert (await runtime.threads.messages("t"))[1].text == "abc"


@pytest.mark.parametrize("retries", [0, 1])
async def test_stream_retries_is_configurable(retries: int) -> None:
    model = Streams([TextChunk("a"), CUT], [TextChunk("b"), CUT], [TextChunk("c"), STOP])
    ending, _, _ = await run(model, retry=RetryPolicy(backoff=0, stream_retries=retries))
    assert isinstance(ending, Failed)
    assert len(model.requests) == retries + 1


async def test_streams_are_closed_one_by_one() -> None:
    model = Streams([TextChunk("a"), CUT], [TextChunk("b"), STOP])
    await run(model)
    await asyncio.sleep(0)
    assert model.closed == 2
