"""The local model's choice between an answer and a call: its schema and its reader."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from wakeful.models import CallDeltaChunk, CallStartChunk, TextChunk
from wakeful.models.local.choice import ChoiceReader, choice_schema
from wakeful.types.requests import OutputSpec, ToolSpec

OUTPUT = OutputSpec("output", {"type": "object"})

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
# A model may write it with or without escapes and blanks.
styles = st.fixed_dictionaries({"ensure_ascii": st.booleans(), "indent": st.sampled_from([None, 0, 2])})


def read(output: OutputSpec | None, text: str, cuts: list[int]) -> tuple[str, str | None, str, bool]:
    reader, said, name, arguments = ChoiceReader(output), "", None, ""
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    for start, end in itertools.pairwise(places):
        for chunk in reader.read(text[start:end]):
            match chunk:
                case TextChunk(piece):
                    said += piece
                case CallStartChunk(_, called, _):
                    assert name is None
                    name = called
                case CallDeltaChunk(0, piece):
                    arguments += piece
                case other:
                    raise AssertionError(other)
    return said, name, arguments, reader.called


@given(texts, styles, st.lists(st.integers(0, 400), max_size=12))
def test_choice_reader_reads_text_cut_anywhere(text: str, style: dict[str, Any], cuts: list[int]) -> None:
    written = json.dumps({"answer": text}, **style)
    assert read(None, written, cuts) == (text, None, "", False)
    assert read(None, written, list(range(len(written)))) == (text, None, "", False)


@given(values, styles, st.lists(st.integers(0, 400), max_size=12))
def test_choice_reader_reads_typed_answers_cut_anywhere(
    value: Any, style: dict[str, Any], cuts: list[int]
) -> None:
    said, name, _, called = read(OUTPUT, json.dumps({"answer": value}, **style), cuts)
    assert json.loads(said) == value
    assert (name, called) == (None, False)


@given(texts, st.dictionaries(texts, values, max_size=3), styles, st.lists(st.integers(0, 400), max_size=12))
def test_choice_reader_reads_calls_cut_anywhere(
    tool: str, value: dict[str, Any], style: dict[str, Any], cuts: list[int]
) -> None:
    written = json.dumps({"call": tool, "arguments": value}, **style)
    said, name, arguments, called = read(None, written, cuts)
    assert (said, name, called) == ("", tool, True)
    assert json.loads(arguments) == value


@given(texts, st.integers(0, 200))
def test_choice_reader_yields_a_prefix_when_cut_off(text: str, kept: int) -> None:
    written = json.dumps({"answer": text}, ensure_ascii=True)[:kept]
    said, *_ = read(None, written, list(range(len(written))))
    assert text.startswith(said)


def test_choice_schema_rebases_references() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/N"}}, "$defs": {"N": {"type": "integer"}}}
    tools = [ToolSpec("first", "", schema), ToolSpec("second", "", schema)]
    choice = choice_schema(tools, OutputSpec("output", schema), "auto")
    assert choice is not None
    for place, key in enumerate(["answer", "arguments", "arguments"]):
        inner = choice["anyOf"][place]["properties"][key]
        assert inner["properties"]["a"]["$ref"] == f"#/anyOf/{place}/properties/{key}/$defs/N"
    required = choice_schema(tools, None, "required")
    assert required is not None
    assert [option["properties"]["call"]["const"] for option in required["anyOf"]] == ["first", "second"]
    assert choice_schema([], None, "auto") is None
