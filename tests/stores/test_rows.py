"""Rows: what a commit has of the log and of runs is read back as it was, also from rows of older versions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import ValidationError

from wakeful.errors import CorruptRow
from wakeful.stores import Commit
from wakeful.stores.codec.entries import Entry, entries_of, event_of, followers_of, run_body, run_of
from wakeful.stores.codec.packer import Packer
from wakeful.types.codec import encode
from wakeful.types.content import Text, ToolCall, ToolReply
from wakeful.types.events import (
    Event,
    Handoff,
    InferenceComplete,
    MessageAdded,
    RunFinish,
    RunStart,
    StepEnd,
    StepStart,
    ToolCallDone,
    ToolCallReady,
)
from wakeful.types.messages import Message
from wakeful.types.runs import (
    BackendEnd,
    Cancelled,
    Identity,
    NaturalEnd,
    Outcome,
    Principal,
    RunRecord,
    Usage,
    Waiting,
)

RUN = Identity("run", "thread", "agent", "run")
PACKER = Packer(None)


def written(log: list[Message | Event]) -> list[Entry]:
    return entries_of(Commit("thread", RUN, log=log), PACKER, {})[0]


def read(rows: list[Entry]) -> list[Event]:
    """All that the rows have, as a store reads it."""
    messages = {row.number: row.payload for row in rows if row.kind == "message"}
    found: list[Event] = []
    for row in rows:
        entries = [(row.number, row.kind, row.at, row.ref, row.payload)]
        entries += followers_of(row.number, row.at, row.more) if row.more else []
        assert len(entries) == row.size
        for number, kind, at, ref, body in entries:
            answer = None if ref is None else messages[ref]
            found.append(event_of(kind, RUN, number, at, body, answer))
    return found


def as_read(log: list[Message | Event]) -> list[Event]:
    """The entries with their numbers."""
    found: list[Event] = []
    for number, entry in enumerate(log, 1):
        if isinstance(entry, Message):
            fields = {name: getattr(entry, name) for name in entry.__struct_fields__}
            entry = MessageAdded(RUN, number, entry.created_at, Message(**{**fields, "seq": number}))
        fields = {name: getattr(entry, name) for name in entry.__struct_fields__}
        found.append(type(entry)(**{**fields, "seq": number}))
    return found


# Few enough that events often name what is in their commit, and often something else.
names = st.sampled_from(["a", "b"])
times = st.integers(1, 5)
arguments = st.just({"n": 1})
parts = st.one_of(
    st.builds(Text, names),
    st.builds(ToolCall, names, names, arguments),
    st.builds(ToolReply, names, names, st.just((Text("said"),)), st.sampled_from([None, "failed"])),
)
messages = st.builds(
    Message, names, st.sampled_from(["assistant", "tool"]), st.lists(parts, max_size=3).map(tuple), times
)
who = (st.just(RUN), st.just(0), times)
usages = st.sampled_from([Usage(), Usage(input_tokens=3)])
stops = st.sampled_from(["end_turn", "tool_use"])
outcomes = st.sampled_from(["ok", "error"])
events = st.one_of(
    st.builds(StepStart, *who, times),
    st.builds(StepEnd, *who, times),
    st.builds(ToolCallReady, *who, names, names, arguments),
    st.builds(ToolCallDone, *who, names, names, outcomes, names, st.sampled_from([None, "failed"])),
    st.builds(
        InferenceComplete,
        *who,
        names,
        names,
        stops,
        usages,
        st.sampled_from([0, 7]),
        st.sampled_from(["", "Be brief."]),
    ),
    st.builds(Handoff, *who, names, names),
    st.builds(RunStart, *who, st.sampled_from(["new", "recover"]), st.sampled_from([(), ("model",)])),
    st.builds(
        RunFinish,
        *who,
        st.sampled_from(["done", "waiting"]),
        st.sampled_from([None, NaturalEnd(), Cancelled("enough")]),
        st.sampled_from([None, Waiting("user_input", 1)]),
        usages,
        times,
        st.sampled_from([None, BackendEnd("done")]),
    ),
)


def said(*parts: Any) -> Message:
    return Message("a", "tool", parts, 7)


def done(call_id: str, name: str) -> Event:
    return ToolCallDone(RUN, 0, 7, call_id, name, "ok", "a")


@given(st.lists(st.one_of(messages, events), min_size=1, max_size=8))
@example([said(ToolReply("c", "look")), done("c", "another")])
@example([said(ToolReply("c", "look")), done("another", "look")])
@example([said(ToolReply("c", "look"), ToolReply("d", "find")), done("d", "find"), done("c", "look")])
@example([said(ToolCall("c", "look", {})), InferenceComplete(RUN, 0, 7, "model", "c", "tool_use")])
@example([said(Text("")), InferenceComplete(RUN, 0, 7, "model", "a", "end_turn", Usage(input_tokens=1))])
def test_log_entries_are_read_back_exactly(log: list[Message | Event]) -> None:
    assert read(written(log)) == as_read(log)


ANSWER = Message("m-answer", "assistant", (Text("on it"), ToolCall("c-1", "look", {"at": "sky"})), 7)
RESULT = Message("m-result", "tool", (ToolReply("c-1", "look", (Text("blue"),)),), 8)
STEP: list[Message | Event] = [
    ANSWER,
    InferenceComplete(RUN, 0, 7, "model", "m-answer", "tool_use", Usage(input_tokens=3), 12),
    ToolCallReady(RUN, 0, 7, "c-1", "look", {"at": "sky"}),
    RESULT,
    ToolCallDone(RUN, 0, 8, "c-1", "look", "error", "m-result", "failed"),
    StepEnd(RUN, 0, 8, 1),
    RunFinish(RUN, 0, 8, "done", NaturalEnd(), steps=1),
    StepStart(RUN, 0, 9, 2),
]


def test_events_do_not_repeat_messages() -> None:
    rows = written(STEP)
    assert [row.kind for row in rows] == ["message", "message"]
    said = b"".join([row.more or b"" for row in rows])
    for word in (b"m-answer", b"m-result", b"c-1", b"look", b"sky", b"step_end", b"natural_end"):
        assert word not in said
    assert read(rows) == as_read(STEP)


def test_entries_of_earlier_versions_are_read() -> None:
    answer, result = written(STEP)
    answer.more = (
        b'[["inference_complete",0,null,{"model":"model","message_id":"m-answer","stop":"tool_use",'
        b'"usage":{"input_tokens":3},"duration_ms":12}],'
        b'["tool_call_ready",0,0,{"call_id":"c-1","name":"look"}]]'
    )
    result.more = (
        b'[["tool_call_done",0,null,{"call_id":"c-1","name":"look","outcome":"error","message_id":"m-result",'
        b'"error":"failed"}],["step_end",0,null,{"step":1}],'
        b'["run_finish",0,null,{"status":"done","termination":{"type":"natural_end"},"usage":{},"steps":1}],'
        b'["step_start",1,null,{"step":2}]]'
    )
    assert read([answer, result]) == as_read(STEP)


def test_unknown_outcome_is_read_as_unknown() -> None:
    event: Any = event_of("tool_call_done", RUN, 1, 7, b'"deferred"', written([RESULT])[0].payload)
    assert (event.outcome, event.call_id) == ("unknown", "c-1")


@pytest.mark.parametrize(
    ("kind", "words", "answer"),
    [
        ("inference_complete", b'["model","end_turn"]', None),
        ("tool_call_ready", b"0", ANSWER),
        ("tool_call_ready", b"9", ANSWER),
        ("tool_call_done", b'"ok"', ANSWER),
    ],
)
def test_event_with_foreign_message_is_refused(kind: str, words: bytes, answer: Message | None) -> None:
    payload = None if answer is None else written([answer])[0].payload
    with pytest.raises(CorruptRow, match="refers to"):
        event_of(kind, RUN, 1, 7, words, payload)


def test_unknown_event_kind_is_refused() -> None:
    with pytest.raises(CorruptRow, match="kind 99"):
        followers_of(1, 7, b"[[99,0,null,1]]")


def test_message_time_is_stored_in_its_row() -> None:
    (row,) = written([ANSWER])
    assert (row.at, b"created_at" in row.payload) == (7, False)
    row.payload = encode(ANSWER)  # As earlier versions wrote it.
    assert read([row]) == as_read([ANSWER])


some = st.sampled_from(["a", "b", None])
identities = st.builds(
    Identity,
    names,
    names,
    names,
    names,
    some,
    some,
    some,
    st.sampled_from(["user", "subagent"]),
    st.integers(0, 2),
)
runs = st.builds(
    RunRecord,
    identity=identities,
    agent_id=names,
    status=st.sampled_from(["created", "running", "waiting", "done"]),
    stage=st.sampled_from(["between", "acting"]),
    steps=st.integers(0, 2),
    usage=usages,
    outcome=st.sampled_from([None, Outcome(NaturalEnd())]),
    principal=st.sampled_from([None, Principal("ada")]),
    created_at=times,
)


@given(runs, st.booleans())
def test_run_is_read_back_exactly(run: RunRecord, earlier: bool) -> None:
    body = encode(run) if earlier else run_body(run)
    assert run_of(run.thread_id, run.id, run.status, run.steps, body) == run


def test_run_does_not_repeat_its_columns() -> None:
    identity = Identity("r-1", "t-1", "agent", "r-1")
    body = run_body(RunRecord(identity=identity, agent_id="agent", status="done", steps=41, created_at=7))
    assert not [word for word in (b"r-1", b"t-1", b"done", b"41") if word in body]


@pytest.mark.parametrize("body", [b"{}", b'{"identity":{}}', b'{"identity":{},"agent_id":"agent"}'])
def test_incomplete_run_is_refused(body: bytes) -> None:
    with pytest.raises(ValidationError):
        run_of("t-1", "r-1", "done", 1, body)
