"""`Recorder`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from wakeful import Agent, Runtime, Turn, call, tool
from wakeful.testing import Recorder
from wakeful.types import Identity
from wakeful.types.events import AnyEvent, RunFinish, RunStart, StepStart, TextDelta


@tool
async def look() -> str:
    """Look."""
    return "seen"


async def recorded(model: Any) -> Recorder:
    async with Runtime([Agent("a", model=model, tools=[look])]) as runtime:
        return await Recorder().record(runtime.stream("a", "go", thread="t1"))


async def test_recorder_keeps_events_in_order(scripted: Any) -> None:
    seen = await recorded(scripted(call("look"), Turn(text=["he", "llo"])))
    assert seen.types[0] == "run_start"
    assert seen.types[-1] == "run_finish"
    assert seen.types == [event.type for event in seen.events]
    assert seen.text == "hello"
    assert [event.step for event in seen.of(StepStart)] == [1, 2]


async def test_recorder_returns_only_event_of_class(scripted: Any) -> None:
    seen = await recorded(scripted("hi"))
    assert seen.one(RunStart).trigger == "new"
    assert seen.one(RunFinish).status == "done"


async def test_recorder_one_fails_when_none_or_several(scripted: Any) -> None:
    seen = await recorded(scripted(Turn(text=["a", "b"])))
    with pytest.raises(AssertionError, match="expected one TextDelta event, found 2"):
        seen.one(TextDelta)
    with pytest.raises(AssertionError, match=r"expected one RunStart event, found 0 among \[\]"):
        Recorder().one(RunStart)


async def test_recorder_reads_several_streams(scripted: Any) -> None:
    seen = Recorder()
    async with Runtime([Agent("a", model=scripted("one", "two"))]) as runtime:
        for _ in range(2):
            assert await seen.record(runtime.stream("a", "go", thread="t1")) is seen
    assert seen.text == "onetwo"


async def test_recorder_keeps_events_when_stream_breaks() -> None:
    async def broken() -> AsyncIterator[AnyEvent]:
        yield RunStart(Identity("r1", "t1", "a", "r1"), 1, 0, "new")
        raise LookupError("gone")

    seen = Recorder()
    with pytest.raises(LookupError):
        await seen.record(broken())
    assert len(seen.events) == 1
