"""Readers who leave in the middle of an answer and come back with the cursor of the last event they saw."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from loop.helpers import soon
from wakeful import Agent, MemoryStore, ModelRequest, Runtime, SqliteStore, tool
from wakeful.models import CallDeltaChunk, CallStartChunk, Chunk, ReasoningChunk, StopChunk, TextChunk
from wakeful.testing import FakeClock
from wakeful.types.events import (
    AnyEvent,
    Delta,
    MessageAdded,
    ReasoningDelta,
    StreamReset,
    TextDelta,
    ToolCallDelta,
)

TEXT = [TextChunk(word) for word in ("one ", "two ", "thrée ", "four ", "five")]
MIXED = [
    ReasoningChunk("let "),
    ReasoningChunk("me"),
    TextChunk("He"),
    TextChunk("llo"),
    CallStartChunk(0, "look"),
    CallDeltaChunk(0, '{"at"'),
    CallDeltaChunk(0, ': "sky"}'),
]


class Spoken:
    """A model that says its first answer chunk by chunk, as it is told to, and then that it is done."""

    name, live = "spoken", False

    def __init__(self, clock: FakeClock, chunks: list[Any]) -> None:
        self.clock, self.chunks = clock, chunks
        self.allowed, self.said = asyncio.Semaphore(0), 0
        self.asked = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self.asked += 1
        if self.asked > 1:
            yield TextChunk("done")
            yield StopChunk("end_turn")
            return
        for chunk in self.chunks:
            await self.allowed.acquire()
            await self.clock.advance(0.3)  # A checkpoint is due.
            yield chunk
            self.said += 1
        await self.allowed.acquire()
        yield StopChunk("tool_use" if type(self.chunks[-1]) is CallDeltaChunk else "end_turn")

    async def say(self, number: int) -> None:
        """Say so many chunks more, until they are taken in."""
        until = self.said + number
        for _ in range(number):
            self.allowed.release()
        async with asyncio.timeout(120):
            while self.said < min(until, len(self.chunks)):
                await asyncio.sleep(0)


class Screen:
    """The text of an answer on the screen of a reader of these events."""

    def __init__(self) -> None:
        self.shown: dict[type[Delta], str] = {}
        self.resets = 0
        self.last: AnyEvent | None = None

    def show(self, event: AnyEvent) -> None:
        self.last = event
        if isinstance(event, StreamReset):
            self.shown.clear()
            self.resets += 1
        elif isinstance(event, Delta):
            before = self.shown.get(type(event), "")
            assert event.offset == len(before)
            self.shown[type(event)] = before + event.delta

    def has(self, chunks: list[Any]) -> bool:
        """Whether it shows what these chunks say."""
        return self.shown == {
            kind: text
            for kind, text in (
                (TextDelta, "".join(c.text for c in chunks if type(c) is TextChunk)),
                (ReasoningDelta, "".join(c.text for c in chunks if type(c) is ReasoningChunk)),
                (ToolCallDelta, "".join(c.json for c in chunks if type(c) is CallDeltaChunk)),
            )
            if text
        }


@tool(effect="pure")
def look(at: str) -> str:
    """Look at something."""
    return "blue"


@asynccontextmanager
async def places(where: str, path: Path, model: Spoken) -> AsyncIterator[tuple[Runtime, Runtime]]:
    """A runtime that runs, and one that reads: the same, or one on the same store."""
    stores = [MemoryStore()] if where == "memory" else [SqliteStore(path / "a.db", synchronous="NORMAL")]
    if where == "elsewhere":
        stores.append(SqliteStore(path / "a.db", synchronous="NORMAL"))
    runtimes = [Runtime([Agent("agent", model=model, tools=[look])], store=s, clock=model.clock) for s in stores]
    try:
        yield runtimes[0], runtimes[-1]
    finally:
        for runtime in reversed(runtimes):
            await runtime.close()


async def read(runtime: Runtime, screen: Screen, after: str, until: Any) -> None:
    """Read on until the screen is as it should be, or the answer is in the log."""
    async with asyncio.timeout(120), aclosing(runtime.events("t", after=after)) as events:  # type: ignore[type-var]
        async for event in events:
            screen.show(event)
            if until(event):
                return


WHERE = pytest.mark.parametrize("where", ["memory", "sqlite", "elsewhere"])


LEFT = [*[(TEXT, left) for left in range(1, len(TEXT))], *[(MIXED, left) for left in range(1, len(MIXED))]]


@WHERE
@pytest.mark.parametrize(("chunks", "left"), LEFT, ids=[f"{len(chunks)}-{left}" for chunks, left in LEFT])
async def test_reader_resumes_from_cursor_without_repeats(
    where: str, chunks: list[Any], left: int, tmp_path: Path
) -> None:
    model, screen = Spoken(FakeClock(), chunks), Screen()
    async with places(where, tmp_path, model) as (runs, reads):
        work = asyncio.create_task(runs.run("agent", "go", thread="t"))
        reading = asyncio.create_task(read(reads, screen, "0", lambda _: screen.has(chunks[:left])))
        while screen.last is None or screen.last.type != "step_start":
            await asyncio.sleep(0.001)
        await model.say(left)
        await soon(reading)
        cursor = screen.last.cursor
        await model.say(1)  # Nobody sees this at once.
        if left + 1 < len(chunks):
            await read(reads, screen, cursor, lambda _: screen.has(chunks[: left + 1]))
            cursor = screen.last.cursor
            await model.say(len(chunks) - left - 1)
        await read(reads, screen, cursor, lambda _: screen.has(chunks))
        assert screen.resets == 0 or chunks is MIXED
        await model.say(1)
        await soon(work)


async def test_reader_resumes_answer_in_another_process(tmp_path: Path) -> None:
    clock, screen = FakeClock(), Screen()
    model, again = Spoken(clock, TEXT), Spoken(clock, TEXT[3:])
    async with places("sqlite", tmp_path, model) as (first, _), places("sqlite", tmp_path, again) as (second, _):
        work = asyncio.create_task(first.run("agent", "go", thread="t"))
        await model.say(3)
        await read(first, screen, "0", lambda _: screen.has(TEXT[:3]))
        assert screen.last is not None
        await first._scope.shared.worker.state.lease.close()  # What its process still does can't be written.
        reading = asyncio.create_task(read(second, screen, screen.last.cursor, lambda _: screen.has(TEXT)))
        (run,) = await second.runs.list()
        waiting = asyncio.create_task(second.wait(run.id))
        await again.say(3)
        await soon(reading)
        assert (await soon(waiting)).text == "one two thrée four five"
        assert screen.resets == 1
        work.cancel()
        await asyncio.wait([work])


@WHERE
async def test_late_reader_sees_whole_answer(where: str, tmp_path: Path) -> None:
    model, screen = Spoken(FakeClock(), TEXT), Screen()
    async with places(where, tmp_path, model) as (runs, reads):
        work = asyncio.create_task(runs.run("agent", "go", thread="t"))
        await model.say(3)
        await read(reads, screen, "0", lambda _: screen.has(TEXT[:3]))
        await model.say(3)
        await soon(work)


@WHERE
async def test_returning_reader_gets_finished_answer_whole(where: str, tmp_path: Path) -> None:
    model, screen = Spoken(FakeClock(), TEXT), Screen()
    async with places(where, tmp_path, model) as (runs, reads):
        work = asyncio.create_task(runs.run("agent", "go", thread="t"))
        await model.say(2)
        await read(reads, screen, "0", lambda _: screen.has(TEXT[:2]))
        assert screen.last is not None
        await model.say(4)
        await soon(work)
        await read(reads, screen, screen.last.cursor, lambda event: isinstance(event, MessageAdded))
        assert isinstance(screen.last, MessageAdded)
        assert screen.last.message.text == "one two thrée four five"
        assert screen.resets == 0
