"""A typed output is shown while it is streamed, as far as it is there and fits its type."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from wakeful import Agent, Runtime
from wakeful.errors import StreamBroken
from wakeful.events import MessageAdded, PartialOutput, StreamReset, TextDelta
from wakeful.loop.inference.partial import PartialReader
from wakeful.models import Chunk, ModelRequest, StopChunk, TextChunk
from wakeful.plugins import Guardrail


class Place(Struct):
    name: str
    sea: Literal["warm", "cold"]
    depths: list[int]


class Streams:
    """A model that streams the characters of one text for each request; None after a text breaks the answer."""

    name = "acme:streams"
    live = False

    def __init__(self, *texts: str | None) -> None:
        self.texts = list(texts)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        for char in self.texts.pop(0) or "":
            yield TextChunk(char)
        if self.texts[:1] == [None]:
            self.texts.pop(0)
            raise StreamBroken("it broke")
        yield StopChunk("end_turn")


ANSWER = '{"name": "Ost\\u0073ee", "sea": "cold", "depths": [12, 459]}'


async def shown(model: Any, **fields: Any) -> list[Any]:
    async with Runtime([Agent("a", model=model, output=Place, **fields)]) as runtime:
        return [event async for event in runtime.stream("a", "Where?")]


async def test_partial_output_grows_until_it_is_whole() -> None:
    found = await shown(Streams(ANSWER))
    outputs = [event.output for event in found if isinstance(event, PartialOutput)]
    names = [{"name": "Ostsee"[:end]} for end in range(7)]
    cold = {"name": "Ostsee", "sea": "cold"}
    whole = json.loads(ANSWER)
    assert outputs == [{}, *names, cold, {**cold, "depths": []}, {**cold, "depths": [12]}, whole]


async def test_partial_output_comes_after_its_text() -> None:
    text = ""
    for event in await shown(Streams(ANSWER)):
        if isinstance(event, TextDelta):
            text += event.delta
        elif isinstance(event, PartialOutput):
            assert event.offset == len(text)


async def test_text_around_the_output_is_left_out() -> None:
    found = await shown(Streams(f"```json\n{ANSWER}\n```"))
    assert [event.output for event in found if isinstance(event, PartialOutput)][-1] == json.loads(ANSWER)


async def test_output_that_does_not_fit_is_not_shown() -> None:
    found = await shown(Streams('{"name": 7, "sea": "cold", "depths": []}', ANSWER))
    outputs = [event.output for event in found if isinstance(event, PartialOutput)]
    assert all(not isinstance(output.get("name"), int) for output in outputs)


async def test_partial_output_starts_over_with_a_reset() -> None:
    found = await shown(Streams('{"name": "Nord', None, ANSWER))
    at = next(place for place, event in enumerate(found) if isinstance(event, StreamReset))
    after = [event.output for event in found[at:] if isinstance(event, PartialOutput)]
    assert after[0] == {}
    assert after[-1] == json.loads(ANSWER)


async def test_withheld_answer_has_no_partial_output() -> None:
    found = await shown(Streams(ANSWER), guardrails=[Guardrail("all", output=lambda message, ctx: None)])
    assert any(isinstance(event, MessageAdded) for event in found)
    assert not any(isinstance(event, PartialOutput) for event in found)


def _grew(before: Any, after: Any) -> bool:
    """Whether a value has all of an earlier one."""
    if isinstance(before, dict):
        return isinstance(after, dict) and all(
            key in after and _grew(one, after[key]) for key, one in before.items()
        )
    if isinstance(before, list):
        return isinstance(after, list) and all(map(_grew, before, after[: len(before)]))
    return after.startswith(before) if isinstance(before, str) and isinstance(after, str) else before == after


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4), st.booleans(), st.integers(1, 5))
def test_any_output_grows_to_its_whole(value: dict[str, Any], ascii: bool, step: int) -> None:
    text, reader, last = json.dumps(value, ensure_ascii=ascii), PartialReader({"type": "object"}), {}
    for place in range(0, len(text), step):
        reader.add(text[place : place + step])
        if (output := reader.look()) is not None:
            assert _grew(last, output)
            last = output
    assert last == value
