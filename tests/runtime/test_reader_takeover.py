"""Readers who leave and come back while the workers of a run are killed in the middle of an answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest

from loop.helpers import soon
from wakeful import Agent, ModelRequest, Runtime, SqliteStore, tool
from wakeful.bus import MemoryBus
from wakeful.errors import StoreUnavailable
from wakeful.models import CallDeltaChunk, CallStartChunk, Chunk, ReasoningChunk, StopChunk, TextChunk
from wakeful.runtime import follower as following
from wakeful.stores import Commit, Committed
from wakeful.testing import FakeClock
from wakeful.types.events import AnyEvent, Delta, MessageAdded, RunFinish, RunStart, StreamReset, TextDelta


class Speaker:
    """A model that speaks when it is told to. What it says names its worker, so that no two texts are alike."""

    name, live = "speaker", False

    def __init__(self, clock: FakeClock, worker: int) -> None:
        self.worker = worker
        self._clock = clock
        self._script: asyncio.Queue[tuple[Chunk, bool]] = asyncio.Queue()
        self._words = 0
        self.said = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        if request.messages[-1].role == "tool":
            yield TextChunk("done")
            yield StopChunk("end_turn")
            return
        while True:
            chunk, is_saved = await self._script.get()
            if is_saved:
                await self._clock.advance(0.3)  # A checkpoint is due.
            yield chunk
            self.said += 1
            if isinstance(chunk, StopChunk):
                return

    def tell(self, chunk: Chunk, *, is_saved: bool) -> None:
        self._script.put_nowait((chunk, is_saved))

    def word(self) -> str:
        self._words += 1
        return f"w{self.worker}-{self._words} "


class Transcript:
    """The transcript of a reader that appends deltas or places them by their offset."""

    def __init__(self, *, places: bool) -> None:
        self.messages: list[str] = []
        self.partial: dict[tuple[type[Delta], str], str] = {}
        self.cursor = "0"
        self.resets = 0
        self._places = places
        self._started = self._streamed = 0

    def add(self, event: AnyEvent) -> None:
        self.cursor = event.cursor
        match event:
            case StreamReset():
                self.partial.clear()
                self.resets += 1
            case Delta():
                key = (type(event), getattr(event, "call_id", ""))
                before = self.partial.get(key, "")
                assert event.offset <= len(before), "there is a gap"
                self.partial[key] = (before[: event.offset] if self._places else before) + event.delta
                self._streamed = event.seq
            case RunStart():
                self._started = event.seq
            case MessageAdded(message=message):
                if message.role == "assistant":
                    # It replaces the deltas, which are a part of it if its own worker streamed them.
                    assert self._streamed < self._started or message.text.startswith(self.text)
                    self.partial.clear()
                self.messages.append(message.text)
            case _:
                pass

    @property
    def text(self) -> str:
        return self.partial.get((TextDelta, ""), "")


class Reader:
    """A reader with a task that reads, as long as it is connected."""

    def __init__(self, *, places: bool) -> None:
        self.seen = Transcript(places=places)
        self.runtime: Runtime | None = None
        self._task: asyncio.Task[None] | None = None

    def connect(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._task = asyncio.create_task(self._read(runtime))

    async def leave(self) -> None:
        task, self._task, self.runtime = self._task, None, None
        if task is not None and not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def finish(self) -> None:
        assert self._task is not None
        await soon(self._task)

    async def _read(self, runtime: Runtime) -> None:
        async with aclosing(runtime.events("t", after=self.seen.cursor)) as events:  # type: ignore[type-var]
            async for event in events:
                self.seen.add(event)
                if isinstance(event, RunFinish) and event.status == "done":
                    return


@tool(effect="pure")
def look(at: str) -> str:
    """Look at something."""
    return "blue"


class MortalStore(SqliteStore):
    """A store of a worker that can be killed: nothing is written afterwards."""

    is_dead = False

    async def commit(self, commit: Commit) -> Committed:
        if self.is_dead:
            raise StoreUnavailable("the worker was killed")
        return await super().commit(commit)


class Cluster:
    """Workers that take a run over from each other, on one store and one bus."""

    def __init__(self, path: Path) -> None:
        self._path = path / "a.db"
        self._clock, self._bus = FakeClock(), MemoryBus()
        self._all: list[Runtime] = []
        self._work: list[asyncio.Task[Any]] = []
        self.worker, self.speaker = self._open(), Speaker(self._clock, 0)
        self.watcher = self.worker  # It never runs anything.

    def _open(self) -> Runtime:
        self.speaker = Speaker(self._clock, len(self._all))
        agent = Agent("agent", model=self.speaker, tools=[look])
        store = MortalStore(self._path, synchronous="NORMAL")
        self._all.append(Runtime([agent], store=store, bus=self._bus, clock=self._clock))
        return self._all[-1]

    def start(self) -> None:
        """Start the run, or let another worker take it over."""
        self.worker = self._open()
        self._work.append(asyncio.create_task(self.worker.run("agent", "go", thread="t", request_id="r")))

    async def kill(self) -> None:
        """Kill the worker: nothing it still does can be written."""
        store, lease = self.worker.store, self.worker._scope.shared.worker.state.lease
        assert isinstance(store, MortalStore)
        assert lease is not None
        store.is_dead = True
        await lease.close()

    async def done(self) -> str:
        return (await soon(self._work[-1])).text

    async def close(self) -> None:
        for task in self._work:
            task.cancel()
        await asyncio.wait(self._work)
        for runtime in self._all:
            await runtime.close(grace=0)


async def turns(number: int) -> None:
    """Let other tasks run for so many turns of the event loop."""
    for _ in range(number):
        await asyncio.sleep(0)


async def started(cluster: Cluster, runs: int) -> None:
    """Wait until the log has so many starts of the run."""
    async with asyncio.timeout(60):
        while True:
            log = [event async for event in cluster.watcher.events("t", follow=False)]
            if sum(isinstance(event, RunStart) for event in log) == runs:
                return
            await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLL", "POLL_IDLE", "POLL_WITH_BUS", "POLL_STREAM"):
        monkeypatch.setattr(following, name, 0.005)


@pytest.mark.parametrize("is_saved", [True, False], ids=["saved", "unsaved"])
async def test_takeover_cursor_gets_reset_before_deltas(tmp_path: Path, is_saved: bool) -> None:
    """The reader has half of an answer, sees the takeover's `run_start` and leaves before anything else comes."""
    cluster, screen = Cluster(tmp_path), Transcript(places=False)
    cluster.start()
    try:
        async with asyncio.timeout(60):
            async for event in cluster.worker.events("t"):
                screen.add(event)
                if event.type == "step_start":
                    cluster.speaker.tell(TextChunk("one "), is_saved=is_saved)
                    cluster.speaker.tell(TextChunk("two "), is_saved=False)
                if screen.text == "one two ":
                    break
            await cluster.kill()
            cluster.start()
            async for event in cluster.watcher.events("t", after=screen.cursor):
                screen.add(event)
                if isinstance(event, RunStart):
                    break
            assert screen.text == "one two "
            cluster.speaker.tell(TextChunk("three "), is_saved=True)
            async for event in cluster.worker.events("t", after=screen.cursor):
                screen.add(event)
                if screen.text.endswith("three "):
                    cluster.speaker.tell(StopChunk("end_turn"), is_saved=False)
                if isinstance(event, RunFinish):
                    break
        assert screen.messages == ["go", await cluster.done()]
        assert screen.messages[-1] == ("one three " if is_saved else "three ")
        assert screen.resets == 1
    finally:
        await cluster.close()


async def check_reconnects(seed: int, path: Path) -> None:
    chance = random.Random(seed)
    cluster = Cluster(path)
    cluster.start()
    stays = [Reader(places=False), Reader(places=True)]
    roams = [Reader(places=False), Reader(places=True)]
    calls = 0

    def say() -> None:
        nonlocal calls
        speaker, is_saved = cluster.speaker, chance.random() < 0.4
        kind = chance.choices(["text", "reasoning", "call"], [8, 1, 0.5])[0]
        if kind == "text":
            speaker.tell(TextChunk(speaker.word()), is_saved=is_saved)
        elif kind == "reasoning":
            speaker.tell(ReasoningChunk(speaker.word()), is_saved=is_saved)
        else:
            calls += 1
            speaker.tell(CallStartChunk(calls, "look"), is_saved=is_saved)
            speaker.tell(CallDeltaChunk(calls, '{"at": "'), is_saved=is_saved)

    try:
        for reader in stays:
            reader.connect(cluster.watcher)
        kills = chance.randint(1, 3)
        for kill in range(kills + 1):
            await started(cluster, kill + 1)
            for _ in range(chance.randint(0, 8)):
                say()
                await turns(chance.randint(0, 40))
                for reader in roams:
                    if reader.runtime is not None and chance.random() < 0.4:
                        await reader.leave()
                    if reader.runtime is None and chance.random() < 0.7:
                        reader.connect(chance.choice([cluster.worker, cluster.watcher]))
            if kill < kills:
                for reader in roams:
                    if reader.runtime is cluster.worker:
                        await reader.leave()
                await cluster.kill()
                cluster.start()
        cluster.speaker.tell(TextChunk("end"), is_saved=True)
        cluster.speaker.tell(StopChunk("end_turn"), is_saved=False)
        for reader in roams:
            if reader.runtime is None:
                reader.connect(chance.choice([cluster.worker, cluster.watcher]))
        await cluster.done()
        messages = [message.text for message in await cluster.watcher.threads.messages("t")]
        for reader in [*stays, *roams]:
            await reader.finish()
            assert reader.seen.messages == messages
            assert reader.seen.partial == {}
    finally:
        for reader in [*stays, *roams]:
            await reader.leave()
        await cluster.close()


@pytest.mark.parametrize("seed", range(12))
async def test_reconnecting_reader_ends_like_one_that_stayed(seed: int, tmp_path: Path) -> None:
    await check_reconnects(seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12, 300))
async def test_reconnecting_reader_ends_like_one_that_stayed_long(seed: int, tmp_path: Path) -> None:
    await check_reconnects(seed, tmp_path)
