"""Checkpoints keep all pieces of an answer, each once, with and without readers."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from wakeful.bus import LocalBus
from wakeful.loop import Answer
from wakeful.models import CallDeltaChunk, CallStartChunk, ReasoningChunk, TextChunk
from wakeful.stores import Chunk
from wakeful.testing import FakeClock
from wakeful.types.content import Text, Thinking, ToolCall
from wakeful.types.runs import Identity

PIECES = st.lists(
    st.one_of(
        st.tuples(st.just("text"), st.text("ab é", min_size=1, max_size=4)),
        st.tuples(st.just("thought"), st.text("xy", min_size=1, max_size=4)),
        st.tuples(st.just("call"), st.just("look")),
        st.tuples(st.just("arguments"), st.sampled_from(['{"a"', ":1", "}", '{"b":2}'])),
        st.tuples(st.sampled_from(["save", "save", "break off", "begin anew"]), st.just("")),
    ),
    max_size=20,
)


def streamed(pieces: Sequence[tuple[str, str]]) -> tuple[Answer, list[Chunk]]:
    """The answer that these pieces make, and what was kept of it on the way."""
    answer = Answer(Identity("r", "t", "a", "r"), 0, LocalBus().hold("t"), FakeClock())
    kept, calls = list[Chunk](), 0
    for kind, text in pieces:
        match kind:
            case "text":
                answer.add(TextChunk(text))
            case "thought":
                answer.add(ReasoningChunk(text))
            case "call":
                answer.add(CallStartChunk(calls, text, None))
                calls += 1
            case "arguments" if calls:
                answer.add(CallDeltaChunk(calls - 1, text))
            case "save":
                kept += answer.unsaved()
            case "break off" | "begin anew":
                calls = 0
                answer.break_off("the stream broke off", restart=kind == "begin anew")
    return answer, kept + answer.unsaved()


@given(PIECES)
def test_checkpoint_keeps_each_piece_once_in_order(pieces: list[tuple[str, str]]) -> None:
    _, kept = streamed(pieces)
    sizes: dict[tuple[int, str, str | None], int] = {}
    for chunk in kept:
        if chunk.kind != "part":
            place = (chunk.attempt, chunk.kind, chunk.call_id)
            assert chunk.offset == sizes.get(place, 0)
            sizes[place] = chunk.offset + len(chunk.delta)
    assert [chunk for chunk in kept if chunk.kind != "part" and not chunk.delta] == []


@given(PIECES)
def test_checkpoint_equals_answer(pieces: list[tuple[str, str]]) -> None:
    answer, kept = streamed(pieces)
    last = [chunk for chunk in kept if chunk.attempt == answer.attempt]

    def joined(kind: str, call_id: str | None = None) -> str:
        return "".join([chunk.delta for chunk in last if (chunk.kind, chunk.call_id) == (kind, call_id)])

    answer.stop = "end_turn"
    content = answer.content()
    assert joined("text") == "".join([part.text for part in content if isinstance(part, Text)])
    assert joined("reasoning") == "".join([part.text for part in content if isinstance(part, Thinking)])
    for call in [part for part in content if isinstance(part, ToolCall) and part.arguments]:
        assert joined("call", call.id) in ('{"b":2}', '{"a":1}')


def test_checkpoint_keeps_call_position_and_arguments() -> None:
    pieces = [("text", "Let me "), ("save", ""), ("text", "see."), ("call", "look"), ("arguments", '{"a"')]
    answer, kept = streamed([*pieces, ("save", ""), ("arguments", ":1}")])
    [call] = [part for part in answer.content() if isinstance(part, ToolCall)]
    assert [(chunk.kind, chunk.offset, chunk.delta, chunk.call_id) for chunk in kept if chunk.kind != "part"] == [
        ("text", 0, "Let me ", None),
        ("text", 7, "see.", None),
        ("call", 0, '{"a"', call.id),
        ("call", 4, ":1}", call.id),
    ]
    assert [(chunk.offset, chunk.call_id) for chunk in kept if chunk.kind == "part"] == [(11, call.id)]
