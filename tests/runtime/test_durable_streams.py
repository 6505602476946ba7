"""Streamed text is kept for readers elsewhere, and for a takeover."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from loop.helpers import soon
from wakeful import Agent, ModelRequest, Runtime, ScriptedModel, SqliteStore, Text, tool
from wakeful.models import CallDeltaChunk, CallStartChunk, ReasoningChunk, StopChunk, TextChunk
from wakeful.testing import FakeClock
from wakeful.types.content import Thinking, ToolCall
from wakeful.types.events import MessageAdded, StreamReset, TextDelta


class Dictation:
    """A model that says words, with time passing between them, and stops before one of them until it is let go."""

    name, live = "dictation", False

    def __init__(self, clock: FakeClock, *words: str, stop_at: int | None = None) -> None:
        self.clock, self.words, self.stop_at = clock, words, stop_at
        self.stopped, self.go = asyncio.Event(), asyncio.Event()
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        self.requests.append(request)
        for place, word in enumerate(self.words):
            if place == self.stop_at:
                self.stopped.set()
                await self.go.wait()
            await self.clock.advance(0.3)
            yield TextChunk(word)
        yield StopChunk("end_turn")


def opened(path: Path, model: Any, clock: FakeClock) -> Runtime:
    return Runtime([Agent("agent", model=model)], store=SqliteStore(path, synchronous="NORMAL"), clock=clock)


async def test_remote_reader_sees_answer_grow_and_complete(tmp_path: Path) -> None:
    clock = FakeClock()
    model = Dictation(clock, "one ", "two ", "three", stop_at=2)
    here, there = opened(tmp_path / "a.db", model, clock), opened(tmp_path / "a.db", model, clock)
    work = asyncio.create_task(here.run("agent", "go", thread="t"))
    await soon(model.stopped.wait())
    seen: list[Any] = []
    async for event in there.events("t"):
        if isinstance(event, TextDelta):
            seen.append((event.offset, event.delta))
            if len("".join(text for _, text in seen)) == len("one two "):
                model.go.set()
        elif isinstance(event, MessageAdded) and event.message.role == "assistant":
            seen.append(event.message.text)
            break
    assert seen[0][0] == 0
    assert "".join(part[1] for part in seen[:-1]) == "one two "
    assert seen[-1] == "one two three"
    await soon(work)
    assert await here.store.chunks("t") == []
    await there.close()
    await here.close()


async def cut_off(path: Path, model: Any, clock: FakeClock) -> tuple[Runtime, asyncio.Task[Any]]:
    """A run whose process dies while its answer is streamed: what it still does can't be written."""
    first = opened(path, model, clock)
    work = asyncio.create_task(first.run("agent", "go", thread="t"))
    await soon(model.stopped.wait())
    await first._scope.shared.worker.state.lease.close()
    return first, work


async def taken_over(second: Runtime) -> tuple[Any, list[Any]]:
    """The run's result in another process, and the live events there up to its answer."""
    live: list[Any] = []

    async def read() -> None:
        async for event in second.events("t"):
            live.append(event)
            if isinstance(event, MessageAdded) and event.message.role == "assistant":
                return

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    (run,) = await second.runs.list()
    result = await soon(second.wait(run.id))
    await soon(reader)
    return result, [e for e in live if isinstance(e, StreamReset | TextDelta | MessageAdded)]


async def test_broken_answer_continues_as_same_message(tmp_path: Path) -> None:
    clock = FakeClock()
    model = Dictation(clock, "one ", "two ", stop_at=1)
    first, work = await cut_off(tmp_path / "a.db", model, clock)
    (chunk,) = await first.store.chunks("t")
    assert (chunk.delta, chunk.attempt, chunk.offset) == ("one ", 0, 0)
    again = Dictation(clock, "and ", "two")
    second = opened(tmp_path / "a.db", again, clock)
    result, seen = await taken_over(second)
    assert result.text == "one and two"
    (request,) = again.requests
    assert [m.text for m in request.messages[:-1]] == ["go", "one "]
    assert request.messages[-1].visibility == "internal"
    assert seen[-1].message.id == chunk.message_id
    reset = next(place for place, e in enumerate(seen) if isinstance(e, StreamReset))
    shown = [e for e in seen[reset:] if isinstance(e, TextDelta)]
    assert {e.attempt for e in shown} == {1}
    assert "".join(e.delta for e in shown) == "one and two"
    assert [e.offset for e in shown] == [0, 4, 8]
    model.go.set()
    assert (await soon(work)).text == "one and two"
    await first.close()
    await second.close()


async def test_piece_at_output_limit_survives_takeover(tmp_path: Path) -> None:
    class Limited(Dictation):
        """Says a word, which reaches the limit; what it is asked for then never comes."""

        async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
            self.requests.append(request)
            if len(self.requests) == 2:
                self.stopped.set()
                await self.go.wait()
            yield TextChunk("one ")
            yield StopChunk("max_tokens")

    clock = FakeClock()
    model = Limited(clock)
    first, work = await cut_off(tmp_path / "a.db", model, clock)
    again = Dictation(clock, "and ", "two")
    second = opened(tmp_path / "a.db", again, clock)
    result, _ = await taken_over(second)
    assert result.text == "one and two"
    assert [m.text for m in await second.threads.messages("t")] == ["go", "one and two"]
    model.go.set()
    assert (await soon(work)).text == "one and two"
    await first.close()
    await second.close()
    third = opened(tmp_path / "a.db", again, clock)
    assert (await third.runs.result(result.run_id)).text == "one and two"
    await third.close()


class Orders:
    """A model that thinks, says something, asks for calls, and is stopped in the middle of the last one."""

    name, live = "orders", False

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.asked = clock, 0
        self.stopped, self.go = asyncio.Event(), asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        self.asked += 1
        yield ReasoningChunk("hm")
        yield ReasoningChunk(signature="signed")
        yield TextChunk("Both. ")
        yield CallStartChunk(0, "act", "v0")
        yield CallDeltaChunk(0, '{"x"')
        yield CallDeltaChunk(0, ": 1}")
        yield CallStartChunk(1, "act", "v1")
        await self.clock.advance(0.3)
        yield CallDeltaChunk(1, '{"x"')
        self.stopped.set()
        await self.go.wait()


async def test_broken_answer_with_complete_call_is_kept(tmp_path: Path) -> None:
    # Edge case 40.
    clock, ran = FakeClock(), list[int]()

    @tool
    async def act(x: int) -> str:
        """Act."""
        ran.append(x)
        return "done"

    def at(model: Any) -> Runtime:
        store = SqliteStore(tmp_path / "a.db", synchronous="NORMAL")
        return Runtime([Agent("agent", model=model, tools=[act])], store=store, clock=clock)

    orders = Orders(clock)
    first = at(orders)
    work = asyncio.create_task(first.run("agent", "go", thread="t"))
    await soon(orders.stopped.wait())
    await first._scope.shared.worker.state.lease.close()
    model = ScriptedModel(["That was it."])
    second = at(model)
    (run,) = await second.runs.list()
    result = await soon(second.wait(run.id))
    assert (result.text, ran) == ("That was it.", [1])
    (request,) = model.requests  # Only the one for the second step.
    answer = request.messages[1]
    thinking, text, wanted = answer.content
    assert (thinking, text) == (Thinking("hm", "signed"), Text("Both. "))
    assert isinstance(wanted, ToolCall)
    assert (wanted.name, wanted.arguments, wanted.vendor_id) == ("act", {"x": 1}, "v0")
    assert [m.role for m in request.messages] == ["user", "assistant", "tool", "user"]
    assert "was not made: act" in request.messages[-1].text
    orders.go.set()
    await soon(work)
    await first.close()
    await second.close()
