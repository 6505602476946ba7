"""Cursors of events."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from type_strategies import values_of

from wakeful.types.events import (
    AnyEvent,
    ArtifactAdded,
    Event,
    PartialOutput,
    ReasoningDelta,
    ReasoningEncrypted,
    ServerToolUpdate,
    TextDelta,
    ToolCallCancel,
    ToolCallDelta,
    ToolCallStart,
)

EVENTS: tuple[Any, ...] = get_args(AnyEvent)
DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta)
BETWEEN = (ReasoningEncrypted, ArtifactAdded, ServerToolUpdate, ToolCallStart, ToolCallCancel)
LIVE = {
    "activity_delta",
    "activity_snapshot",
    "messages_snapshot",
    "partial_output",
    "reasoning_delta",
    "reasoning_encrypted",
    "artifact",
    "server_tool",
    "state_snapshot",
    "stream_reset",
    "text_delta",
    "tool_call_cancel",
    "tool_call_delta",
    "tool_call_start",
    "tool_output",
    "tool_progress",
}


@settings(max_examples=5)
@given(values_of(TextDelta))
def test_text_cursor_has_seq_attempt_and_end_offset(delta: TextDelta) -> None:
    assert delta.cursor == f"{delta.seq}.{delta.attempt}.{delta.offset + len(delta.delta)}"


@pytest.mark.parametrize("type_", [ReasoningDelta, ToolCallDelta])
@settings(max_examples=5)
@given(data=st.data())
def test_cursor_of_other_deltas_has_no_offset(type_: Any, data: st.DataObject) -> None:
    delta = data.draw(values_of(type_))
    assert delta.cursor == f"{delta.seq}.{delta.attempt}.0"


@settings(max_examples=5)
@given(values_of(PartialOutput))
def test_cursor_of_a_partial_output_is_that_of_its_text(event: PartialOutput) -> None:
    assert event.cursor == f"{event.seq}.{event.attempt}.{event.offset}"


@pytest.mark.parametrize("type_", BETWEEN)
@settings(max_examples=5)
@given(data=st.data())
def test_stream_event_cursor_is_within_the_answer(type_: Any, data: st.DataObject) -> None:
    event: Event = data.draw(values_of(type_))
    assert event.cursor == f"{event.seq}.0.0"


@pytest.mark.parametrize(
    "type_", [e for e in EVENTS if e not in (PartialOutput, *DELTAS, *BETWEEN)], ids=lambda e: e.__name__
)
@settings(max_examples=5)
@given(data=st.data())
def test_event_cursor_is_its_seq(type_: Any, data: st.DataObject) -> None:
    event: Event = data.draw(values_of(type_))
    assert event.cursor == str(event.seq)


def test_only_live_events_are_not_durable() -> None:
    assert {e.__struct_config__.tag for e in EVENTS if not e.durable} == LIVE


@given(values_of(TextDelta))
def test_event_exposes_run_and_thread_ids(event: TextDelta) -> None:
    assert (event.run_id, event.thread_id) == (event.run.run_id, event.run.thread_id)
