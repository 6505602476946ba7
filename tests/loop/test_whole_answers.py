"""Models that don't stream: a coroutine that returns all chunks of its answer at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from wakeful import Agent, ModelRequest, Pool, RetryPolicy, Runtime, Usage, tool
from wakeful.errors import ModelError, ModelUnavailable
from wakeful.models import CallChunk, Chunk, StopChunk, TextChunk, UsageChunk, chunks_from
from wakeful.testing import FakeClock, Recorder
from wakeful.types.events import TextDelta
from wakeful.types.messages import user_message
from wakeful.types.runs import Failed, NaturalEnd

from .faults import AT_ONCE
from .helpers import assert_settled, soon


class Whole:
    """Answers with what a function of the number of the request returns or raises."""

    name = "whole"
    live = False

    def __init__(self, answer: Callable[[int], Any]) -> None:
        self.answer = answer
        self.asked = 0

    async def stream(self, request: ModelRequest) -> Any:
        self.asked += 1
        await asyncio.sleep(0)
        return self.answer(self.asked)


def said(text: str) -> list[Chunk]:
    return [TextChunk(text), UsageChunk(Usage(3, 2)), StopChunk("end_turn")]


async def test_model_returning_chunks_looks_like_streaming_one() -> None:
    @tool
    async def weather(city: str) -> str:
        """The weather."""
        return f"Sunny in {city}"

    model = Whole(lambda n: said("Sunny.") if n == 2 else [CallChunk("weather", {"city": "Rome"})])
    runtime = Runtime([Agent("agent", model=model, tools=[weather])])
    recorder = await Recorder().record(runtime.stream("agent", "go", thread="t"))
    assert [event.delta for event in recorder.of(TextDelta)] == ["Sunny."]
    (run,) = await runtime.runs.list()
    assert (run.outcome.termination, run.usage) == (NaturalEnd(), Usage(3, 2))  # type: ignore[union-attr]
    assert [m.role for m in await runtime.threads.messages("t")] == ["user", "assistant", "tool", "assistant"]
    await assert_settled(runtime, "t")


async def test_failing_whole_answer_is_retried() -> None:
    def answer(n: int) -> Any:
        if n == 1:
            raise ModelUnavailable("down")
        return said("back")

    runtime = Runtime([Agent("agent", model=Whole(answer), retry=AT_ONCE)])
    assert (await soon(runtime.run("agent", "go"))).text == "back"


@pytest.mark.parametrize(
    ("answer", "says"), [(None, "this one returned None"), ("text", "no chunk: 't'")], ids=str
)
async def test_whole_answer_must_be_list_of_chunks(answer: Any, says: str) -> None:
    runtime = Runtime([Agent("agent", model=Whole(lambda _: answer))])
    ended = (await soon(runtime.run("agent", "go", thread="t", check=False))).termination
    assert isinstance(ended, Failed)
    assert ended.error == "ModelError"
    assert says in ended.message
    await assert_settled(runtime, "t")


async def test_slow_whole_answer_is_interrupted() -> None:
    class Stuck(Whole):
        async def stream(self, request: ModelRequest) -> Any:
            await asyncio.Event().wait()

    clock = FakeClock()
    agent = Agent("agent", model=Stuck(said), retry=RetryPolicy(retries=0, idle_timeout=5))
    run = asyncio.create_task(Runtime([agent], clock=clock).run("agent", "go", check=False))
    for _ in range(10):
        await asyncio.sleep(0)
        await clock.advance(1)
    ended = (await soon(run)).termination
    assert ended == Failed("ModelTimeout", "model 'whole' sent nothing for 5 s")


async def test_pool_accepts_model_returning_chunks() -> None:
    pool = Pool([Whole(lambda _: said("pooled"))])
    runtime = Runtime([Agent("agent", model="pool")], models={"pool": pool})
    assert (await soon(runtime.run("agent", "go"))).text == "pooled"


async def test_chunks_are_read_from_either_kind_of_model() -> None:
    request = ModelRequest("", [user_message("go")])
    assert [chunk async for chunk in chunks_from(Whole(lambda _: said("all")), request)] == said("all")


async def streamed() -> Any:
    yield TextChunk("streamed")


def yielded() -> Any:
    yield TextChunk("yielded")


class Given:
    """Its `stream` isn't async, and returns what it was given."""

    name = "given"
    live = False

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def stream(self, request: ModelRequest) -> Any:
        return self.answer


@pytest.mark.parametrize(
    ("model", "returned"),
    [
        (Whole(lambda _: None), "None"),
        (Whole(lambda _: streamed()), "<async_generator object streamed"),
        (Given(said("list")), "[TextChunk("),
        (Given(yielded()), "<generator object yielded"),
    ],
)
async def test_stream_of_wrong_kind_is_refused_with_advice(model: Any, returned: str) -> None:
    must = "stream must be an async generator that yields chunks, or an async def that returns a list of them"
    result = await soon(Runtime([Agent("agent", model=model)]).run("agent", "go", check=False))
    assert isinstance(result.termination, Failed)
    assert f"{must}; this one returned {returned}" in result.termination.message
    with pytest.raises(ModelError, match=must):
        await anext(chunks_from(model, ModelRequest("", [user_message("go")])))
