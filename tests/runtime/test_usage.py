"""`runtime.usage`: what every request to a model used, on every store, and the digests of requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from postgres_server import fresh_store
from wakeful import (
    Agent,
    Compaction,
    FunctionModel,
    MemoryStore,
    ModelRequest,
    ModelSettings,
    Plugin,
    RetryPolicy,
    Runtime,
    ScriptedModel,
    SqliteStore,
    Turn,
    Usage,
    UsageError,
    WindowPolicy,
    call,
    tool,
)
from wakeful.errors import ModelError, RateLimited
from wakeful.models import ModelFacts, StopChunk, TextChunk, UsageChunk, WebSearch
from wakeful.plugins import BeforeInference
from wakeful.stores import Store
from wakeful.testing import FakeClock
from wakeful.types.events import ErrorRaised, InferenceComplete

FACTS = {"house:small": ModelFacts(context_window=32_000, input_price=1_000_000, output_price=2_000_000)}


@tool
def look(at: str) -> str:
    """Look at something."""
    return f"a view of {at}"


@tool
def touch(at: str) -> str:
    """Touch something."""
    return f"{at} is warm"


@asynccontextmanager
async def open_store(kind: str, folder: Path) -> AsyncIterator[Store]:
    if kind == "postgres":
        async with fresh_store() as store:
            yield store
        return
    store = MemoryStore() if kind == "memory" else SqliteStore(folder / "a.db")
    try:
        yield store
    finally:
        await store.close()


def house(*turns: Any, name: str = "house:small") -> ScriptedModel:
    return ScriptedModel(list(turns), name=name)


def complete(events: list[Any]) -> list[InferenceComplete]:
    return [event for event in events if isinstance(event, InferenceComplete)]


async def logged(runtime: Runtime, thread: str) -> list[Any]:
    return [event async for event in runtime.events(thread, follow=False)]


# -- usage -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
async def test_usage_sums_answers_and_failures(kind: str, tmp_path: Path) -> None:
    used = Usage(100, 10, 40, 0, 4)
    model = house(
        Turn(calls=[call("look", at="sky")], usage=used),
        RateLimited("slow down"),
        Turn(text="Blue.", usage=used),
    )
    agents = [
        Agent("seer", model=model, tools=[look], retry=RetryPolicy(retries=1, backoff=0.0)),
        Agent("poet", model=house(Turn(text="Ode.", usage=used), name="house:other")),
    ]
    async with open_store(kind, tmp_path) as store, Runtime(agents, store=store, facts=FACTS) as runtime:
        result = await runtime.run("seer", "What colour?", thread="t")
        await runtime.run("poet", "Write.")
        await runtime.threads.delete("t")
        poet, seer = await runtime.usage(by=("agent", "model"))
        assert (seer.agent, seer.model, seer.day) == ("seer", "house:small", None)
        assert (seer.requests, seer.errors) == (3, 1)
        assert seer.usage == result.usage == Usage(200, 20, 80, 0, 8, 240)
        assert (poet.agent, poet.model, poet.requests, poet.usage.cost) == ("poet", "house:other", 1, 0)
        assert await runtime.tenant("other").usage() == []


async def test_usage_has_days_and_latency_of_requests() -> None:
    clock = FakeClock(round(datetime(2026, 3, 1, 23, 59, 59, tzinfo=UTC).timestamp() * 1000))
    waits = iter([0.25, 0.5, 2.0])

    class Slow:
        name = "house:small"
        live = False

        async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
            await clock.advance(next(waits))
            yield TextChunk("Hello.")
            yield UsageChunk(Usage(7, 3))
            yield StopChunk("end_turn")

    async with Runtime([Agent("a", model=Slow())], clock=clock) as runtime:
        for _ in range(3):
            await runtime.run("a", "Hi")
        first, second = await runtime.usage()
        assert (first.day, first.requests, first.latency_ms) == (date(2026, 3, 1), 2, 750)
        assert (first.p50_ms, first.p95_ms) == (250, 500)
        assert (second.day, second.requests, second.latency_ms) == (date(2026, 3, 2), 1, 2000)
        midnight = datetime(2026, 3, 2, tzinfo=UTC)
        assert await runtime.usage(until=midnight) == [first]
        assert await runtime.usage(since=midnight, until=midnight + timedelta(days=1)) == [second]


async def test_usage_counts_a_run_that_failed() -> None:
    model = house(ModelError("no such deployment"))
    async with Runtime([Agent("a", model=model)]) as runtime:
        await runtime.run("a", "Hi", check=False)
        (row,) = await runtime.usage(by=())
        assert (row.requests, row.errors, row.usage) == (1, 1, Usage())


async def test_usage_counts_summaries() -> None:
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> str:
        asked.append(request)
        return "Short." if request.settings.max_tokens else "word " * 200

    agent = Agent("a", model=FunctionModel(answer), window=WindowPolicy(max_tokens=600, compaction=Compaction()))
    async with Runtime([agent]) as runtime:
        for _ in range(6):
            await runtime.run("a", "Go on", thread="t")
        (row,) = await runtime.usage(by=())
        assert row.requests == len(asked) > 6


@pytest.mark.parametrize("by", ["agent", ("hour",), ("day", "day"), None])
async def test_usage_refuses_unknown_keys(by: Any) -> None:
    async with Runtime([Agent("a", model=house())]) as runtime:
        with pytest.raises(UsageError, match=r"^by is a tuple of agent, model, day, each once at most"):
            await runtime.usage(by=by)


# -- digests ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_step_records_request_digest_and_tools(kind: str, tmp_path: Path) -> None:
    turns = [Turn(calls=[call("look", at="sky")]), "Blue."]
    async with open_store(kind, tmp_path) as store:
        agent = Agent("a", model=house(*turns, *turns, *turns), tools=[look, touch], instructions="Be brief.")
        async with Runtime([agent], store=store) as runtime:
            for thread, text in (("one", "Colour?"), ("two", "Colour?"), ("three", "Shape?")):
                await runtime.run("a", text, thread=thread)
            one, two, three = [complete(await logged(runtime, name)) for name in ("one", "two", "three")]
    assert {event.tools for event in (*one, *two, *three)} == {("look", "touch")}
    assert all(len(event.request_digest) == 64 for event in (*one, *two, *three))
    assert one[0].request_digest == two[0].request_digest  # The same request on another thread.
    assert len({event.request_digest for event in (*one, *three)}) == 4


async def test_request_digest_covers_all_that_was_sent() -> None:
    async def first(*, text: str = "Hi", **options: Any) -> InferenceComplete:
        fields = {"tools": [look, touch], "instructions": "Be brief."} | options
        async with Runtime([Agent("a", model=house('{"x":1}'), **fields)]) as runtime:
            await runtime.run("a", text, thread="t", check=False)
            return complete(await logged(runtime, "t"))[0]

    given: list[dict[str, Any]] = [
        {},
        {"text": "Hi!"},
        {"tools": [look]},
        {"instructions": "Be long."},
        {"settings": ModelSettings(temperature=0.5)},
        {"output": dict[str, int]},
        {"server_tools": [WebSearch()]},
    ]
    digests = [(await first(**options)).request_digest for options in given]
    assert len(set(digests)) == len(digests)
    assert (await first()).request_digest == digests[0]


async def test_step_records_tools_that_a_hook_left() -> None:
    class Shape(Plugin):
        name = "shape"

        async def before_inference(self, ctx: BeforeInference) -> None:
            ctx.plan.exclude_tools("touch")

    agent = Agent("a", model=house("Hello."), tools=[look, touch], plugins=[Shape()])
    async with Runtime([agent]) as runtime:
        await runtime.run("a", "Hi", thread="t")
        assert [event.tools for event in complete(await logged(runtime, "t"))] == [("look",)]


async def test_failed_request_records_its_digest() -> None:
    model = house(RateLimited("slow down"), "Hello.")
    async with Runtime([Agent("a", model=model, retry=RetryPolicy(retries=1, backoff=0.0))]) as runtime:
        await runtime.run("a", "Hi", thread="t")
        events = await logged(runtime, "t")
    (failed,) = [event for event in events if isinstance(event, ErrorRaised)]
    assert failed.request_digest == complete(events)[0].request_digest != ""
