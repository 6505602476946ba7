"""What is streamed of an answer is kept: for readers elsewhere, and for whoever takes the run over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from loop.helpers import soon
from wakeful import Agent, ModelRequest, Runtime, SqliteStore
from wakeful.models import StopChunk, TextChunk
from wakeful.testing import FakeClock
from wakeful.types.events import MessageAdded, StreamReset, TextDelta


class Dictation:
    """A model that says words, with time passing between them, and stops before one of them until it is let go."""

    name, live = "dictation", False

    def __init__(self, clock: FakeClock, *words: str, stop_at: int | None = None) -> None:
        self.clock, self.words, self.stop_at = clock, words, stop_at
        self.stopped, self.go = asyncio.Event(), asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        for place, word in enumerate(self.words):
            if place == self.stop_at:
                self.stopped.set()
                await self.go.wait()
            await self.clock.advance(0.3)
            yield TextChunk(word)
        yield StopChunk("end_turn")


def opened(path: Path, model: Any, clock: FakeClock) -> Runtime:
    return Runtime([Agent("agent", model=model)], store=SqliteStore(path, synchronous="NORMAL"), clock=clock)


async def test_a_reader_elsewhere_sees_an_answer_grow_and_then_the_answer(tmp_path: Path) -> None:
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
    assert await here._env.store.chunks("t") == []
    await there.close()
    await here.close()


async def test_an_answer_that_was_cut_off_begins_anew_as_the_same_message(tmp_path: Path) -> None:
    clock = FakeClock()
    model = Dictation(clock, "one ", "two ", stop_at=1)
    first = opened(tmp_path / "a.db", model, clock)
    work = asyncio.create_task(first.run("agent", "go", thread="t"))
    await soon(model.stopped.wait())
    (chunk,) = await first._env.store.chunks("t")
    assert (chunk.delta, chunk.attempt, chunk.offset) == ("one ", 0, 0)
    # Its owner dies: what it still does can't be written.
    await first._shared.keeper._lease.close()
    second = opened(tmp_path / "a.db", Dictation(clock, "eins ", "zwei"), clock)
    live: list[Any] = []

    async def read() -> None:
        async for event in second.events("t"):
            live.append(event)
            if isinstance(event, MessageAdded) and event.message.role == "assistant":
                return

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    (run,) = await second.list_runs()
    result = await soon(second.wait(run.id))
    await soon(reader)
    assert result.text == "eins zwei"
    kinds = [e for e in live if isinstance(e, StreamReset | TextDelta | MessageAdded)]
    answer = kinds[-1].message
    assert answer.id == chunk.message_id
    assert {e.attempt for e in kinds if isinstance(e, TextDelta)} <= {0, 1}
    assert any(isinstance(e, StreamReset) for e in kinds)
    model.go.set()
    assert (await soon(work)).text == "eins zwei"
    await first.close()
    await second.close()
