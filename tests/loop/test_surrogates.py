"""A model that cuts a character in two: deltas, what is kept on the way and the message all say the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from wakeful import Agent, FunctionModel, ModelRequest, RetryPolicy, Runtime, SqliteStore, tool
from wakeful.errors import StreamBroken
from wakeful.models import CallDeltaChunk, CallStartChunk, Chunk, ReasoningChunk, StopChunk, TextChunk
from wakeful.types.codec import encode
from wakeful.types.content import Thinking
from wakeful.types.events import AnyEvent, ReasoningDelta, TextDelta, ToolCallDelta

HIGH, LOW, FACE, LOST = "\ud83d", "\ude00", "\U0001f600", "\ufffd"


def streaming(*turns: Sequence[Chunk | Exception]) -> FunctionModel:
    left = list(turns)

    async def answer(request: ModelRequest) -> AsyncIterator[Chunk]:
        for chunk in left.pop(0):
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    return FunctionModel(answer)


async def seen(runtime: Runtime) -> list[AnyEvent]:
    events = [event async for event in runtime.stream("agent", "go", thread="t")]
    for event in events:
        encode(event)  # What can't be written to a line of JSON is of no use to any reader.
    return events


def joined(events: list[AnyEvent], kind: type[TextDelta] | type[ReasoningDelta] | type[ToolCallDelta]) -> str:
    text = ""
    for event in events:
        if isinstance(event, kind):
            assert event.offset == len(text)
            text += event.delta
    return text


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        (["ab" + HIGH, LOW + "cd"], f"ab{FACE}cd"),
        ([HIGH, LOW], FACE),
        (["ab" + HIGH], f"ab{LOST}"),
        ([HIGH], LOST),
        (["ab" + HIGH, "cd"], f"ab{LOST}cd"),
        (["ab" + HIGH, HIGH, LOW], f"ab{LOST}{FACE}"),
        (["ab", LOW + "é"], f"ab{LOST}é"),
    ],
)
async def test_surrogate_half_waits_for_its_pair(tmp_path: Path, pieces: list[str], whole: str) -> None:
    turn = [*map(ReasoningChunk, pieces), *map(TextChunk, pieces), StopChunk("end_turn")]
    async with Runtime(
        [Agent("agent", model=streaming(turn))], store=SqliteStore(tmp_path / "wakeful.db")
    ) as runtime:
        events = await seen(runtime)
        assert (joined(events, TextDelta), joined(events, ReasoningDelta)) == (whole, whole)
        message = (await runtime.threads.messages("t"))[-1]
        assert message.text == whole
        assert [part.text for part in message.content if isinstance(part, Thinking)] == [whole]


async def test_surrogate_half_in_arguments_waits_for_its_pair(tmp_path: Path) -> None:
    given: list[str] = []

    @tool(effect="pure")
    def note(text: str) -> str:
        given.append(text)
        return "noted"

    pieces = ['{"text": "a' + HIGH, LOW + 'b"}']
    turn = [CallStartChunk(0, "note"), *[CallDeltaChunk(0, piece) for piece in pieces], StopChunk("tool_use")]
    model = streaming(turn, [TextChunk("done"), StopChunk("end_turn")])
    store = SqliteStore(tmp_path / "wakeful.db")
    async with Runtime([Agent("agent", model=model, tools=[note])], store=store) as runtime:
        events = await seen(runtime)
    assert given == [f"a{FACE}b"]
    assert joined(events, ToolCallDelta) == f'{{"text": "a{FACE}b"}}'


async def test_surrogate_half_before_break_is_dropped(tmp_path: Path) -> None:
    model = streaming(
        [TextChunk("ab" + HIGH), StreamBroken("connection lost")],
        [TextChunk(f"{FACE}cd"), StopChunk("end_turn")],
    )
    store = SqliteStore(tmp_path / "wakeful.db")
    async with Runtime([Agent("agent", model=model, retry=RetryPolicy(backoff=0))], store=store) as runtime:
        events = await seen(runtime)
        assert joined(events, TextDelta) == f"ab{FACE}cd"
        assert (await runtime.threads.messages("t"))[-1].text == f"ab{FACE}cd"


async def test_lone_surrogate_in_tool_name_is_replaced(tmp_path: Path) -> None:
    turn = [CallStartChunk(0, "n" + HIGH, "id" + LOW), StopChunk("tool_use")]
    model = streaming(turn, [TextChunk("sorry"), StopChunk("end_turn")])
    async with Runtime([Agent("agent", model=model)], store=SqliteStore(tmp_path / "wakeful.db")) as runtime:
        await seen(runtime)
        assert [call.name for call in (await runtime.threads.messages("t"))[1].calls] == [f"n{LOST}"]
