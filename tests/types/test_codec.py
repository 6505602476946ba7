"""The codec: round trips, and data of newer versions."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from type_strategies import json_values, texts, values_of

from wakeful.errors import InvalidInput
from wakeful.events import from_json
from wakeful.stores import ThreadRecord
from wakeful.types import codec
from wakeful.types.calls import Call
from wakeful.types.content import (
    Audio,
    Content,
    Document,
    Image,
    Part,
    Text,
    ToolReply,
    Unknown,
    Url,
    clean_text,
    text_of,
)
from wakeful.types.events import (
    AnyEvent,
    Event,
    InferenceComplete,
    MessageAdded,
    MessagesSnapshot,
    RunFinish,
    RunStart,
    ToolCallDone,
    UnknownEvent,
)
from wakeful.types.inbox import InboxItem, UnknownItem
from wakeful.types.limits import Limits, StopPolicy
from wakeful.types.messages import Message, Producer, user_message
from wakeful.types.requests import ModelSettings, OutputSpec, ToolSpec
from wakeful.types.runs import (
    Cancelled,
    Identity,
    NaturalEnd,
    Outcome,
    Principal,
    RunOptions,
    RunRecord,
    Stopped,
    TaskRecord,
    Termination,
    Usage,
    Waiting,
)
from wakeful.types.tickets import Decision, Ticket

EVENTS = get_args(AnyEvent)
RECORDS = (
    Message,
    Producer,
    RunRecord,
    RunOptions,
    Identity,
    Principal,
    Usage,
    Outcome,
    Waiting,
    Call,
    TaskRecord,
    Ticket,
    Decision,
    Limits,
    ModelSettings,
    ToolSpec,
    OutputSpec,
    *get_args(InboxItem),
    ThreadRecord,
)
UNION_MEMBERS = (*get_args(Content), *get_args(Termination), *get_args(StopPolicy), *get_args(InboxItem))

RUN = {"run_id": "r1", "thread_id": "t1", "agent_id": "a", "root_run_id": "r1"}
MESSAGE = {"id": "m1", "role": "assistant", "content": [{"type": "text", "text": "hello"}], "created_at": 7}


# There are many types, so each gets few examples.
SOME = settings(max_examples=max(settings().max_examples // 3, 10))
FEW = settings(max_examples=max(settings().max_examples // 5, 10))


def named(types: tuple[Any, ...]) -> Any:
    return pytest.mark.parametrize("type_", types, ids=lambda type_: type_.__name__)


def event(type_: str, **fields: Any) -> bytes:
    return msgspec.json.encode({"type": type_, "run": RUN, "seq": 5, "at": 9, **fields})


def with_block(block: dict[str, Any]) -> dict[str, Any]:
    return {**MESSAGE, "content": [*MESSAGE["content"], block]}


# -- round trips ---------------------------------------------------------------------------------------------


@named(RECORDS)
@SOME
@given(data=st.data())
def test_record_round_trips(type_: Any, data: st.DataObject) -> None:
    value = data.draw(values_of(type_))
    assert codec.decode(codec.encode(value), type_) == value


@named(EVENTS)
@SOME
@given(data=st.data())
def test_event_round_trips(type_: type[Event], data: st.DataObject) -> None:
    value = data.draw(values_of(type_))
    assert codec.decode_event(codec.encode(value)) == value


@named(UNION_MEMBERS)
@FEW
@given(data=st.data())
def test_union_members_decode_by_tag(type_: Any, data: st.DataObject) -> None:
    value = data.draw(values_of(type_))
    union = next(u for u in (Content, Termination, StopPolicy, InboxItem) if type_ in get_args(u))
    assert codec.decode(codec.encode(value), union) == value


@pytest.mark.parametrize("union", [Content, Termination, AnyEvent, StopPolicy, InboxItem])
def test_union_tags_are_distinct(union: Any) -> None:
    tags = [member.__struct_config__.tag for member in get_args(union)]
    assert len(set(tags)) == len(tags)


def test_event_type_is_its_json_tag() -> None:
    start = RunStart(msgspec.convert(RUN, Identity), 1, 2, "new")
    assert msgspec.json.decode(codec.encode(start))["type"] == start.type == "run_start"


def test_raw_result_keeps_its_text() -> None:
    reply = ToolReply("c1", "search", data=msgspec.Raw(b'{"hits":[1,2]}'))
    again = codec.decode(codec.encode(reply), ToolReply)
    assert bytes(again.data) == b'{"hits":[1,2]}'


@pytest.mark.parametrize("raw", [b"null", b"0", b'""', b"[]", b"false"])
def test_falsy_output_is_an_output(raw: bytes) -> None:
    outcome = Outcome(NaturalEnd(), msgspec.Raw(raw))
    assert bytes(codec.decode(codec.encode(outcome), Outcome).output) == raw


def test_default_fields_are_omitted() -> None:
    assert codec.encode(Usage()) == b"{}"
    assert codec.encode(Outcome(NaturalEnd())) == b'{"termination":{"type":"natural_end"}}'


# -- what a newer version wrote ------------------------------------------------------------------------------


def with_extras(value: Any, extra: Any) -> Any:
    """Add an unknown field to every object that accepts one."""
    match value:
        case dict():
            return {k: v if k in FREE else with_extras(v, extra) for k, v in value.items()} | {"later": extra}
        case list():
            return [with_extras(v, extra) for v in value]
        case _:
            return value


# Fields with free-form JSON, where an extra field would be part of the data.
FREE = {
    "agent",
    "arguments",
    "body",
    "changes",
    "claims",
    "content",
    "data",
    "edited",
    "extra",
    "headers",
    "input",
    "kept",
    "location",
    "metadata",
    "output",
    "parameters",
    "patch",
    "payload",
    "raw",
    "result",
    "schema",
    "scopes",
    "seed",
    "state",
    "tools",
    "value",
}


@named((*RECORDS, *EVENTS))
@FEW
@given(data=st.data(), extra=json_values)
def test_decode_ignores_unknown_fields(type_: Any, data: st.DataObject, extra: Any) -> None:
    value = data.draw(values_of(type_))
    newer = with_extras(msgspec.json.decode(codec.encode(value)), extra)
    assert codec.decode(msgspec.json.encode(newer), type_) == value


def test_unknown_block_keeps_its_position() -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "hologram", "size": 3}, {"type": "text", "text": "b"}]
    message = codec.decode(msgspec.json.encode({**MESSAGE, "content": blocks}), Message)
    assert message.content == (Text("a"), Unknown("hologram", blocks[1]), Text("b"))
    assert message.text == "ab"
    assert message.id == "m1"


@given(block=st.dictionaries(texts, json_values, max_size=3))
def test_unknown_block_is_kept_whole(block: dict[str, Any]) -> None:
    newer = {**block, "type": "hologram"}
    message = codec.decode(msgspec.json.encode(with_block(newer)), Message)
    assert message.content == (Text("hello"), Unknown("hologram", newer))


def test_unknown_block_round_trips() -> None:
    message = codec.decode(msgspec.json.encode(with_block({"type": "hologram", "size": 3})), Message)
    assert codec.decode(codec.encode(message), Message) == message


def test_unknown_block_decodes_inside_an_event() -> None:
    found = codec.decode_event(event("message", message=with_block({"type": "hologram"})))
    assert isinstance(found, MessageAdded)
    assert found.message.content == (Text("hello"), Unknown("hologram", {"type": "hologram"}))
    assert found.cursor == "5"


def test_unknown_block_decodes_in_one_of_many_messages() -> None:
    found = codec.decode_event(event("messages_snapshot", messages=[MESSAGE, with_block({"type": "hologram"})]))
    assert isinstance(found, MessagesSnapshot)
    assert [len(m.content) for m in found.messages] == [1, 2]


def test_unknown_part_decodes_beside_a_raw_result() -> None:
    reply = {
        "type": "tool_reply",
        "call_id": "c1",
        "name": "scan",
        "content": [{"type": "hologram"}, {"type": "text", "text": "found"}],
        "data": {"hits": [1]},
    }
    message = codec.decode(msgspec.json.encode(with_block(reply)), Message)
    found = message.reply
    assert found is not None
    assert found.content == (Unknown("hologram", {"type": "hologram"}), Text("found"))
    assert msgspec.json.decode(found.data) == {"hits": [1]}


@pytest.mark.parametrize("kind", [Image, Audio, Document])
def test_unknown_media_source_decodes(kind: Any) -> None:
    tag = kind.__struct_config__.tag
    block = {"type": tag, "source": {"type": "blob", "hash": "x"}}
    found = codec.decode(msgspec.json.encode(block), Content)
    assert found == kind(Unknown("blob", {"type": "blob", "hash": "x"}))


def test_unknown_termination_in_a_record_keeps_the_output() -> None:
    newer = {"termination": {"type": "evaporated", "why": "heat"}, "output": [1, 2]}
    outcome = codec.decode(msgspec.json.encode(newer), Outcome)
    assert outcome.termination == Unknown("evaporated", {"type": "evaporated", "why": "heat"})
    assert bytes(outcome.output) == b"[1,2]"


def test_unknown_termination_decodes_in_an_event() -> None:
    found = codec.decode_event(event("run_finish", status="done", termination={"type": "evaporated"}, steps=3))
    assert isinstance(found, RunFinish)
    assert found.termination == Unknown("evaporated", {"type": "evaporated"})
    assert found.steps == 3


def test_unknown_event_decodes() -> None:
    found = codec.decode_event(event("sunrise", colour="red"))
    assert isinstance(found, UnknownEvent)
    assert (found.kind, found.raw["colour"]) == ("sunrise", "red")
    assert (found.seq, found.at, found.thread_id) == (5, 9, "t1")
    assert codec.decode_event(codec.encode(found)) == found


def test_inbox_item_of_an_unknown_kind_is_read_as_unknown() -> None:
    newer = {"kind": "recall", "id": "i1", "thread_id": "t1", "position": 3, "scope": "all"}
    found = codec.decode_item(msgspec.json.encode(newer))
    assert found == UnknownItem(id="i1", thread_id="t1", position=3, raw=newer)
    assert found.wake == ""


def test_unknown_event_of_unknown_origin_decodes() -> None:
    found = codec.decode_event(event("sunrise", run={**RUN, "origin": "the moon"}))
    assert isinstance(found, UnknownEvent)
    assert found.run.origin == "unknown"
    assert found.raw["run"]["origin"] == "the moon"


def test_unknown_literal_decodes_as_unknown() -> None:
    assert codec.decode(b'{"reason":"full_moon","since":4}', Waiting) == Waiting("unknown", 4)
    identity = codec.decode(msgspec.json.encode({**RUN, "origin": "the moon"}), Identity)
    assert (identity.origin, identity.run_id) == ("unknown", "r1")
    done = codec.decode_event(event("inference_complete", model="m", message_id="m1", stop="tired"))
    assert isinstance(done, InferenceComplete)
    assert done.stop == "unknown"
    call = codec.decode_event(event("tool_call_done", call_id="c", name="n", outcome="paused", message_id="m1"))
    assert isinstance(call, ToolCallDone)
    assert call.outcome == "unknown"


def test_unknown_literal_decodes_in_an_optional_field() -> None:
    row = {"id": "c1", "run_id": "r1", "step": 1, "index": 0, "name": "pay", "arguments": {}, "outcome": "paused"}
    assert codec.decode(msgspec.json.encode(row), Call).outcome == "unknown"


def test_several_unknown_values_decode_together() -> None:
    record = {
        "identity": {**RUN, "origin": "the moon"},
        "agent_id": "a",
        "created_at": 1,
        "ending": {"type": "evaporated"},
        "waiting": {"reason": "full_moon", "since": 2},
        "usage": {"input_tokens": 3, "souls": 1},
        "later": True,
    }
    run = codec.decode(msgspec.json.encode(record), RunRecord)
    assert isinstance(run.ending, Unknown)
    assert (run.waiting, run.usage) == (Waiting("unknown", 2), Usage(input_tokens=3))
    assert run.identity.origin == "unknown"


@pytest.mark.parametrize(
    ("data", "type_"),
    [
        (b'{"id":"m1","role":"assistant"}', Message),
        (b'{"id":"m1","role":"oracle","content":[],"created_at":1}', Message),
        (b'{"id":"m1","role":"user","content":[{"text":"no kind"}],"created_at":1}', Message),
        (b'{"reason":5,"since":4}', Waiting),
        (b'{"input_tokens":"many"}', Usage),
    ],
)
def test_decode_refuses_invalid_data(data: bytes, type_: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        codec.decode(data, type_)


def test_decode_refuses_invalid_json() -> None:
    with pytest.raises(msgspec.DecodeError):
        codec.decode(b'{"input_tokens":', Usage)


# -- text ----------------------------------------------------------------------------------------------------

any_characters = st.text(st.characters(codec=None, exclude_categories=[]), max_size=20)


@given(any_characters)
def test_clean_text_is_encodable_and_idempotent(text: str) -> None:
    cleaned = clean_text(text)
    assert codec.decode(codec.encode(Text(cleaned)), Text).text == cleaned
    assert clean_text(cleaned) == cleaned


@given(texts)
def test_clean_text_keeps_encodable_text(text: str) -> None:
    assert clean_text(text) == text


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("\ud800", "\ufffd"),
        ("a\udc00b", "a\ufffdb"),
        ("😀\ud83d", "😀\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\0\ud800\0", "\0\ufffd\0"),
    ],
)
def test_clean_text_replaces_lone_surrogates(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned


def test_user_message_text_is_cleaned() -> None:
    assert user_message("hi \ud800").text == "hi \ufffd"


@given(st.lists(values_of(Part) | values_of(Text), max_size=4))
def test_message_text_joins_its_text_parts(parts: list[Any]) -> None:
    assert text_of(tuple(parts)) == "".join(part.text for part in parts if isinstance(part, Text))


def test_message_exposes_calls_and_reply() -> None:
    call = {"type": "tool_call", "id": "c1", "name": "search"}
    message = codec.decode(msgspec.json.encode(with_block(call)), Message)
    assert [c.id for c in message.calls] == ["c1"]
    assert message.reply is None
    told = user_message([Image(Url("http://x")), ToolReply("c1", "search")])
    assert told.reply == ToolReply("c1", "search")


# -- what can be added up ------------------------------------------------------------------------------------


@given(values_of(Usage), values_of(Usage))
def test_usage_adds_field_by_field(one: Usage, other: Usage) -> None:
    both = one + other
    for name in Usage.__struct_fields__:
        assert getattr(both, name) == getattr(one, name) + getattr(other, name)
    assert both.total_tokens == one.total_tokens + other.total_tokens


@given(values_of(ModelSettings), values_of(ModelSettings))
def test_settings_with_defaults_fill_unset_fields(own: ModelSettings, other: ModelSettings) -> None:
    merged = own.with_defaults(other)
    for name in ("temperature", "top_p", "max_tokens", "reasoning", "stop"):
        said = getattr(own, name)
        assert getattr(merged, name) == (getattr(other, name) if said in (None, ()) else said)
    assert merged.extra == {**other.extra, **own.extra}


# -- tickets -------------------------------------------------------------------------------------------------

TICKET = Ticket(
    id="k1", run_id="r1", thread_id="t1", call_id="c1", tool="pay", arguments={"to": "eve"}, asked_by="approval"
)


@pytest.mark.parametrize(
    ("decision", "verdict", "mode", "value"),
    [
        (TICKET.approve(), "approve", "proceed", None),
        (TICKET.deny("too much"), "deny", None, None),
        (TICKET.answer("blue"), "approve", None, "blue"),
        (TICKET.edit({"to": "bob"}), "approve", "arguments", {"to": "bob"}),
        (TICKET.result("paid"), "approve", "result", "paid"),
    ],
)
def test_ticket_makes_its_decisions(decision: Decision, verdict: str, mode: str | None, value: Any) -> None:
    assert (decision.ticket_id, decision.verdict, decision.mode, decision.value) == ("k1", verdict, mode, value)


def test_equal_decisions_have_different_ids() -> None:
    assert TICKET.approve().id != TICKET.approve().id


def test_call_runs_with_edited_arguments() -> None:
    call = Call("c1", "r1", 1, 0, "pay", {"to": "eve"})
    assert call.effective_arguments == {"to": "eve"}
    assert msgspec.structs.replace(call, edited={}).effective_arguments == {}


def test_terminations_of_different_kinds_are_unequal() -> None:
    assert codec.decode(codec.encode(Cancelled("x")), Termination) == Cancelled("x") != Stopped("x")


def test_event_json_is_one_line_and_read_back() -> None:
    for sent in (
        event("text_delta", message_id="m1", delta="a\nb é", attempt=0, offset=3),
        event("sunrise", colour="red"),
    ):
        found = from_json(sent)
        assert from_json(found.to_json()) == found
        assert from_json(found.to_json().encode()) == found
        assert found.to_json().splitlines() == [found.to_json()]


@pytest.mark.parametrize("data", ["", "{", "[]", '{"type": "text_delta"}', b"\xff", "[" * 100_000])
def test_json_of_no_event_is_refused(data: str | bytes) -> None:
    with pytest.raises(InvalidInput, match="this isn't the JSON of an event"):
        from_json(data)
