"""Readers who come late, leave early, follow, fall behind or ask for a snapshot."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from loop.helpers import Hold, Scripted, Spy, log_of, soon, spying, until, until_idle
from wakeful import Agent, FunctionModel, MemoryStore, Plugin, Retention, Runtime, ScriptedModel, StateKey, call
from wakeful.errors import UnknownAgent, UnknownThread
from wakeful.models import CallStartChunk, StopChunk, TextChunk
from wakeful.plugins import ContextMessage, Step
from wakeful.testing import Recorder
from wakeful.types.events import (
    Event,
    MessageAdded,
    MessagesSnapshot,
    StateSnapshot,
    TextDelta,
)

from .test_events import counting, record

# -- readers -------------------------------------------------------------------------------------------------


def slow(hold: Hold, *pieces: str) -> FunctionModel:
    """A model that streams one piece, waits, and streams the others."""

    async def answer(request: Any) -> Any:
        for number, piece in enumerate(pieces):
            if number == 1:
                await hold.here()
            yield TextChunk(piece)
        yield StopChunk("end_turn")

    return FunctionModel(answer)


async def test_leaving_stream_keeps_run_and_events_resume(scripted: Scripted) -> None:
    hold = Hold()
    runtime = Runtime([Agent("agent", model=slow(hold, "one ", "two ", "three"))])
    seen: list[Event] = []
    async with aclosing(runtime.stream("agent", "go", thread="t")) as stream:  # type: ignore[type-var]
        async for event in stream:
            seen.append(event)
            if isinstance(event, TextDelta):
                break
    durable = [e for e in seen if e.durable]
    rest: list[Event] = []

    async def pick_up() -> None:
        async with aclosing(runtime.events("t", after=seen[-1].cursor)) as events:  # type: ignore[type-var]
            async for event in events:
                rest.append(event)
                if event.type == "run_finish":
                    return

    reader = asyncio.create_task(pick_up())
    await asyncio.sleep(0)
    hold.released.set()
    await soon(reader)
    await until_idle(runtime)
    assert [*durable, *[e for e in rest if e.durable]] == await log_of(runtime, "t")
    late = [e for e in rest if isinstance(e, TextDelta)]
    assert [(e.offset, e.delta) for e in late] == [(4, "two "), (8, "three")]


async def test_reader_that_follows_sees_later_runs_and_each_event_once(scripted: Scripted) -> None:
    runtime = counting(scripted("one", call("act"), "two"))
    await runtime.run("agent", "go", thread="t")
    seen: list[Event] = []

    async def follow() -> None:
        async with aclosing(runtime.events("t")) as events:  # type: ignore[type-var]
            async for event in events:
                seen.append(event)
                if [e.type for e in seen].count("run_finish") == 2:
                    return

    reader = asyncio.create_task(follow())
    await until(lambda: seen)
    await runtime.run("agent", "go", thread="t")
    await soon(reader)
    assert [e for e in seen if e.durable] == await log_of(runtime, "t")


async def test_events_during_catch_up_are_seen_once(scripted: Scripted) -> None:
    runtime = counting(scripted("one", call("act"), "two"))
    await runtime.run("agent", "go", thread="t")
    seen: list[Event] = []
    async with aclosing(runtime.events("t")) as events:  # type: ignore[type-var]
        async for event in events:
            seen.append(event)
            if len(seen) == 2:
                await runtime.run("agent", "go", thread="t")
            if [e.type for e in seen].count("run_finish") == 2:
                break
        # Whatever waits for the reader still must be nothing that it has seen.
        left = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        assert not left.done()
        left.cancel()
        await asyncio.wait([left])
    assert [e for e in seen if e.durable] == await log_of(runtime, "t")


async def test_several_readers_see_same_events(scripted: Scripted) -> None:
    runtime = counting(scripted(call("act"), "done"))
    readers = [Recorder() for _ in range(3)]

    async def follow(recorder: Recorder) -> None:
        async with aclosing(runtime.events("t")) as events:  # type: ignore[type-var]
            async for event in events:
                recorder.events.append(event)
                if event.type == "run_finish":
                    return

    tasks = [asyncio.create_task(follow(recorder)) for recorder in readers]
    await asyncio.sleep(0)
    await record(runtime)
    await soon(asyncio.gather(*tasks))
    assert readers[0].types == readers[1].types == readers[2].types
    assert "text_delta" in readers[0].types


async def test_snapshot_cursor_continues_with_events(
    scripted: Scripted,
) -> None:
    class Notes(Plugin):
        async def run_start(self, ctx: Step) -> None:
            ctx.add_context(ContextMessage("note", "remember", keep="always"))

    runtime = counting(scripted(call("act"), "one", "two"), plugins=[Notes()])
    await runtime.run("agent", "go", thread="t")
    head = len(await log_of(runtime, "t"))
    seen: list[Event] = []

    async def follow() -> None:
        async with aclosing(runtime.events("t", snapshot=True)) as events:  # type: ignore[type-var]
            async for event in events:
                seen.append(event)
                if event.type == "run_finish":
                    return

    reader = asyncio.create_task(follow())
    await until(lambda: len(seen) == 2)
    messages, state = seen
    assert isinstance(messages, MessagesSnapshot)
    assert isinstance(state, StateSnapshot)
    assert list(messages.messages) == (await runtime.threads.messages("t"))
    assert state.state == {"count": 1}
    assert messages.seq == state.seq == head
    await runtime.run("agent", "again", thread="t")
    await soon(reader)
    assert [e for e in seen[2:] if e.durable] == (await log_of(runtime, "t"))[head:]


async def test_snapshot_shows_state_of_waiting_run_too(scripted: Scripted) -> None:
    class Mood(StateKey[str, str]):
        """Of the run."""

        name = "mood"

    class Moody(Plugin):
        keys = (Mood,)

        async def run_start(self, ctx: Step) -> None:
            ctx.update(Mood, "tense")
            ctx.add_context(ContextMessage("note", "ours, not the application's", keep="always"))

    tools = [spying(Spy(), "ask", approval=True)]
    runtime = Runtime([Agent("agent", model=scripted(call("ask")), tools=tools, plugins=[Moody()])])
    await runtime.run("agent", "go", thread="t")
    found = [e async for e in runtime.events("t", snapshot=True, follow=False)]
    assert isinstance(found[1], StateSnapshot)
    assert found[1].state == {"mood": "tense"}
    assert len(found) == 2


async def test_snapshot_of_unknown_thread_is_empty(scripted: Scripted) -> None:
    runtime = counting(scripted())
    assert [e async for e in runtime.events("nope", snapshot=True, follow=False)] == []


@pytest.mark.parametrize("how", ["stream", "events"])
async def test_reader_that_falls_far_behind_reads_on_from_log(how: str) -> None:
    hold = Hold()
    pieces = ["x"] * 9000

    async def answer(request: Any) -> Any:
        if len(request.messages) > 1:
            for piece in pieces:
                yield TextChunk(piece)
        else:
            yield TextChunk("so ")
            await hold.here()
            yield CallStartChunk(0, "act")
        yield StopChunk("end_turn")

    runtime = counting(FunctionModel(answer))
    seen: list[Event] = []

    async def read() -> None:
        source = runtime.stream("agent", "go", thread="t") if how == "stream" else runtime.events("t")
        async with aclosing(source) as events:  # type: ignore[type-var]
            async for event in events:
                seen.append(event)
                if event.type == "text_delta" and not hold.released.is_set():
                    hold.released.set()
                    await until(lambda: not runtime._scope.dispatch.active)
                if event.type == "run_finish":
                    return

    reader = asyncio.create_task(read())
    if how == "events":
        await asyncio.sleep(0)
        await runtime.run("agent", "go", thread="t")
    await soon(reader)
    await until_idle(runtime)
    log = await log_of(runtime, "t")
    assert [e for e in seen if e.durable] == log
    assert len([e for e in seen if not e.durable]) < 9000
    assert (await runtime.threads.messages("t"))[-1].text == "x" * 9000


async def test_stream_of_run_that_waits_its_turn_shows_that_run_only() -> None:
    hold = Hold()
    runtime = Runtime([Agent("agent", model=slow(hold, "one ", "more"))])
    first = asyncio.create_task(record(runtime, "first"))
    await soon(hold.reached.wait())
    second = asyncio.create_task(record(runtime, "second"))
    await asyncio.sleep(0)
    hold.released.set()
    one, two = await soon(asyncio.gather(first, second))
    assert len({e.run_id for e in one.events}) == len({e.run_id for e in two.events}) == 1
    assert one.events[0].run_id != two.events[0].run_id
    assert two.types[0] == "run_start"
    assert two.of(MessageAdded)[0].message.text == "second"
    assert two.types[-1] == "run_finish"


async def test_stream_raises_error_that_run_could_not_record(scripted: Scripted) -> None:
    runtime = counting(scripted())
    with pytest.raises(UnknownAgent):
        await anext(aiter(runtime.stream("nobody", "go")))


async def test_departed_readers_leave_no_subscription(scripted: Scripted) -> None:
    runtime = counting(scripted("done"))
    async with aclosing(runtime.events("t")) as events:  # type: ignore[type-var]
        reading = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
    await record(runtime)
    assert not runtime._scope.bus._channels


@pytest.mark.parametrize(
    "remove",
    [lambda r: r.threads.delete("t"), lambda r: r.threads.prune(Retention(threads_kept=0))],
    ids=["delete", "prune"],
)
async def test_reader_ends_when_thread_is_deleted(tmp_path: Path, remove: Any) -> None:
    def runtime(store: Any) -> Runtime:
        return Runtime([Agent("agent", model=ScriptedModel(["hi", "hi"]))], store=store)

    async with runtime(tmp_path / "a.db") as here, runtime(tmp_path / "a.db") as there, runtime(None) as alone:
        for runs, reads in ((here, here), (here, there), (alone, alone)):
            await runs.run("agent", "go", thread="t")
            recorder = Recorder()
            reader = asyncio.create_task(recorder.record(reads.events("t")))
            unborn = asyncio.create_task(Recorder().record(reads.events("unborn")))
            await until(lambda: recorder.types[-1:] == ["run_finish"])  # noqa: B023
            await remove(runs)
            await soon(reader)
            assert not unborn.done()
            unborn.cancel()


async def test_reader_sees_other_runtime_on_same_memory_store(scripted: Scripted) -> None:
    agent, store = Agent("agent", model=scripted("hi")), MemoryStore()
    here, there = Runtime([agent], store=store), Runtime([agent], store=store)
    recorder = Recorder()
    reader = asyncio.create_task(recorder.record(there.events("t")))
    await until(lambda: there._scope.bus.readers)
    await here.run("agent", "go", thread="t")
    await until(lambda: recorder.types[-1:] == ["run_finish"])
    reader.cancel()


async def test_page_after_deleted_thread_is_not_last(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted("hi", "hi"))])
    for thread in ("a", "b"):
        await runtime.run("agent", "go", thread=thread)
    assert [t.id for t in await runtime.threads.list(before="b")] == ["a"]
    assert await runtime.threads.list(before="a") == []
    await runtime.threads.delete("b")
    with pytest.raises(UnknownThread, match=r"'b'.*begin with the first one again"):
        await runtime.threads.list(before="b")
