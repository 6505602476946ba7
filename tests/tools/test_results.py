"""Results of tools, as models are shown them."""

from __future__ import annotations

import base64
import enum
from collections import Counter, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from wakeful import Agent, Plugin, Runtime, ToolResult, call, tool
from wakeful.errors import ToolError
from wakeful.plugins import GateAnswer, GateTool
from wakeful.tools import MAX_RESULT_BYTES, error_reply, reply_of
from wakeful.types import codec
from wakeful.types.content import Artifact, Audio, Base64, Document, Image, Part, Text, ToolReply, Url, Video

NOTE = 120  # A note about what was left out is shorter than this.


@dataclass
class Hit:
    title: str
    score: float


class Row(msgspec.Struct):
    id: int


class Person(BaseModel):
    name: str
    age: int = 3


class Colour(str, enum.Enum):  # noqa: UP042 (its `str()` is not its value)
    RED = "red"


class Celsius(float):
    pass


class Markup(str):
    pass


def reply(value: Any, limit: int = MAX_RESULT_BYTES) -> ToolReply:
    return reply_of(value, "c1", "look", limit)


def text_of(value: Any, limit: int = MAX_RESULT_BYTES) -> str:
    (part,) = reply(value, limit).content
    assert isinstance(part, Text)
    return part.text


def size_of(told: ToolReply) -> int:
    return len(codec.encode(told.content))


# -- plain values --------------------------------------------------------------------------------------------


def test_text_result_is_unchanged() -> None:
    assert reply("sunny") == ToolReply("c1", "look", (Text("sunny"),))
    assert text_of("") == ""
    assert text_of("a\0b") == "a\0b"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (1.5, "1.5"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ([], "[]"),
        ((), "[]"),
        ([1, "two"], '[1,"two"]'),
        (2**70, str(2**70)),
        (Hit("wakeful", 0.5), '{"title":"wakeful","score":0.5}'),
        ([Hit("a", 1.0)], '[{"title":"a","score":1.0}]'),
        (Row(7), '{"id":7}'),
        (Person(name="Ann"), '{"name":"Ann","age":3}'),
        ({"people": [Person(name="Ann")]}, '{"people":[{"name":"Ann","age":3}]}'),
        (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00Z"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Decimal("1.10"), '"1.10"'),
        (Counter("aab"), '{"a":2,"b":1}'),
        (Colour.RED, "red"),
        (Markup("<b>"), "<b>"),
        ([Markup("<b>"), Celsius(1.5)], '["<b>",1.5]'),
        (Celsius(21.0), "21.0"),
        (float("nan"), "null"),
        ({"a": "\ud800"}, '{"a":"\ufffd"}'),
        ({"\udc00": ["\ud83d\ude00"]}, '{"\ufffd":["😀"]}'),
    ],
    ids=repr,
)
def test_json_value_is_encoded(value: Any, told: str) -> None:
    assert text_of(value) == told


def endless() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [object(), {"a": {1, object()}}, {(1, 2): 3}, lambda: 1, deque([1]), (n for n in [1]), 1 + 2j, endless()],
    ids=lambda value: type(value).__name__,
)
def test_unencodable_value_error_names_valid_types(value: Any) -> None:
    with pytest.raises(
        ToolError, match=f"returned a value of type {type(value).__name__} that can't be shown as JSON"
    ):
        reply(value)


# -- bytes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_text_bytes_become_text(kind: Any) -> None:
    assert text_of(kind("grüezi".encode())) == "grüezi"


def test_binary_bytes_become_document() -> None:
    (part,) = reply(b"\xff\xfe\x00").content
    assert part == Document(Base64("application/octet-stream", base64.b64encode(b"\xff\xfe\x00").decode()))


@given(st.binary(max_size=64))
def test_any_bytes_result_can_be_stored(data: bytes) -> None:
    told = reply(data)
    assert codec.decode(codec.encode(told), ToolReply) == told


# -- content parts -------------------------------------------------------------------------------------------

PARTS: list[Part] = [
    Text("look:"),
    Image(Url("http://x/cat.png")),
    Audio(Base64("audio/wav", "AAAA")),
    Video(Url("http://x/cat.mp4")),
    Document(Url("http://x/cat.pdf"), "Cats"),
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_content_part_is_passed_on(part: Part) -> None:
    assert reply(part).content == (part,)


@pytest.mark.parametrize("kind", [list, tuple])
def test_list_of_content_parts_is_passed_on(kind: Any) -> None:
    assert reply(kind(PARTS)).content == tuple(PARTS)


def test_mixed_list_is_data() -> None:
    assert text_of([Text("a"), 1]) == '[{"type":"text","text":"a"},1]'


# -- results with more than one side -------------------------------------------------------------------------


def test_model_reads_message_and_application_data() -> None:
    told = reply(ToolResult(data={"n": 1}, message="one hit", metadata={"ms": 4}))
    assert told.content == (Text("one hit"),)
    assert bytes(told.data) == b'{"n":1}'
    assert told.metadata == {"ms": 4}
    assert told.error is None


def test_model_reads_data_without_message() -> None:
    told = reply(ToolResult(data=Person(name="Ann")))
    assert told.content == (Text('{"name":"Ann","age":3}'),)
    assert msgspec.json.decode(told.data) == {"name": "Ann", "age": 3}


def test_empty_result_is_empty_text() -> None:
    told = reply(ToolResult())
    assert told.content == (Text(""),)
    assert told.data is msgspec.UNSET


def test_artifacts_are_kept_but_not_shown() -> None:
    chart = Artifact({"bars": [1, 2]}, name="chart", media_type="application/json")
    told = reply(ToolResult(message="drawn", artifacts=[chart]))
    assert told.artifacts == (chart,)
    assert told.content == (Text("drawn"),)


def test_result_is_read_back_exactly() -> None:
    told = reply(
        ToolResult(
            data=[Hit("a", 1.0)],
            metadata={"at": datetime(2026, 1, 2, tzinfo=UTC), "who": Person(name="\ud800")},
            artifacts=[Artifact(Row(3)), Artifact((1, 2), id="x")],
        )
    )
    assert codec.decode(codec.encode(told), ToolReply) == told


@pytest.mark.parametrize(
    "result",
    [ToolResult(data=object()), ToolResult(metadata={"x": object()}), ToolResult(artifacts=[Artifact(object())])],
    ids=["data", "metadata", "artifacts"],
)
def test_unencodable_part_is_refused_anywhere(result: ToolResult) -> None:
    with pytest.raises(ToolError, match="can't be shown as JSON"):
        reply(result)


@pytest.mark.parametrize(
    ("artifacts", "says"),
    [
        ([Artifact("x", id=5)], "isn't what it says: Expected `str | null`, got `int`"),  # type: ignore[arg-type]
        ([Artifact("x", name=b"y", media_type=1)], "isn't what it says"),  # type: ignore[arg-type]
        ([5], r"a list of Artifact\(...\), not \[5\]"),
        (Artifact("x"), r"a list of Artifact\(...\), not Artifact"),
    ],
)
def test_unreadable_artifact_is_refused(artifacts: Any, says: str) -> None:
    with pytest.raises(ToolError, match=says):
        reply(ToolResult(message="drawn", artifacts=artifacts))


# -- size ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    ["x" * 50_000_000, "é" * 25_000_000, b"x" * 50_000_000, ["x" * 25_000_000] * 2, {"k": "😀" * 12_500_000}],
    ids=["text", "two bytes each", "bytes", "list", "four bytes each"],
)
def test_result_of_50_megabytes_is_cut_with_note(value: Any) -> None:
    told = text_of(value)
    assert len(told.encode()) <= MAX_RESULT_BYTES
    assert "\n[cut here: the result has 5" in told
    assert "the limit is 262,144" in told
    assert told[:1] in "xé[{"


def test_result_at_limit_is_not_cut() -> None:
    assert text_of("é" * 500, 1000) == "é" * 500
    assert "[cut here: the result has 1,002 bytes" in text_of("é" * 501, 1000)


@given(st.text(max_size=400), st.integers(1, 400))
def test_cut_never_splits_character_and_keeps_to_limit(text: str, limit: int) -> None:
    told = text_of(text, limit)
    if len(text.encode()) <= limit:
        assert told == text
    else:
        kept, note, _ = told.partition("\n[cut here")
        assert note
        assert text.startswith(kept)
        assert len(told.encode()) <= max(limit, NOTE)


@pytest.mark.parametrize(
    "value",
    [b"\xff" * 50_000_000, Image(Base64("image/png", "A" * 50_000_000))],
    ids=["bytes", "image"],
)
def test_too_large_media_is_omitted_with_note(value: Any) -> None:
    assert "left out: the limit is 262,144 bytes" in text_of(value)


def test_many_parts_keep_to_limit_together() -> None:
    told = reply([Text("x" * 200_000)] * 250)
    assert size_of(told) <= MAX_RESULT_BYTES + 3 * NOTE
    assert isinstance(told.content[0], Text)
    assert told.content[0].text == "x" * 200_000
    assert "more parts left out" in told.content[-1].text
    pictures = reply([Image(Base64("image/png", "A" * 200_000))] * 250)
    assert size_of(pictures) <= 2 * MAX_RESULT_BYTES


def test_data_over_limit_is_not_kept_beside_its_text() -> None:
    told = reply(ToolResult(data="x" * 2000, message="long"), 1000)
    assert told.content == (Text("long"),)
    assert told.data is msgspec.UNSET


def test_tool_may_have_its_own_limit() -> None:
    assert "the limit is 100" in text_of("x" * 200, 100)


# -- errors --------------------------------------------------------------------------------------------------


def test_error_result_has_its_kind() -> None:
    told = error_reply("c1", "look", "denied", "no \ud800")
    assert told == ToolReply("c1", "look", (Text("no \ufffd"),), "denied")


@pytest.mark.parametrize("kind", [None, 404, ""])
def test_invalid_error_kind_becomes_generic(kind: Any) -> None:
    assert error_reply("c1", "look", kind, "no").error == "failed"


def test_error_without_text_names_tool() -> None:
    assert error_reply("c1", "look", "failed", "").content == (Text("look failed and said nothing about it"),)


def test_error_is_cut_at_limit() -> None:
    told = error_reply("c1", "look", "failed", "x" * 50_000_000)
    assert size_of(told) <= MAX_RESULT_BYTES + NOTE


# -- in a run ------------------------------------------------------------------------------------------------


@tool(max_result_bytes=1000)
def report() -> str:
    """Say too much."""
    return "x" * 50_000_000


@tool
async def broken() -> Any:
    """Return what can't be shown."""
    return object()


@tool
async def raises() -> Any:
    """Fail with bytes that are no text."""
    raise ValueError("bad \udcff")


async def test_supplied_result_keeps_tool_limit(scripted: Any) -> None:
    @tool(max_result_bytes=1000, approval=lambda arguments: not arguments["known"])
    def look(known: bool) -> str:
        """Look."""
        return "seen"

    class Knows(Plugin):
        async def gate_tool(self, ctx: GateTool) -> GateAnswer:
            return ctx.supply("x" * 5000) if ctx.arguments["known"] else None

    model = scripted([call("look", known=True), call("look", known=False)], "done")
    async with Runtime([Agent("a", model=model, tools=[look], plugins=[Knows()])]) as runtime:
        result = await runtime.run("a", "go", thread="t1")
        await runtime.resume(result.run_id, result.tickets[0].result("y" * 5000))
        replies = [message.reply for message in await runtime.threads.messages("t1") if message.reply is not None]
    assert max(size_of(reply) for reply in replies) <= 1000 + NOTE


async def test_run_results_keep_tool_limit(scripted: Any) -> None:
    model = scripted([call("report"), call("broken"), call("raises")], "done")
    async with Runtime([Agent("a", model=model, tools=[report, broken, raises], expose_errors=True)]) as runtime:
        result = await runtime.run("a", "go", thread="t1")
        messages = await runtime.threads.messages("t1")
    replies = {m.reply.name: m.reply for m in messages if m.reply is not None}
    assert result.text == "done"
    assert size_of(replies["report"]) <= 1000 + NOTE
    assert replies["broken"].error == "failed"
    assert "returned a value of type object" in replies["broken"].content[0].text
    assert replies["raises"].content == (Text("ValueError: bad \ufffd"),)
    for message in messages:
        assert codec.decode(codec.encode(message), type(message)) == message


async def later() -> str:
    """Something to await."""
    return "later"


@pytest.mark.filterwarnings("error")
async def test_unawaited_coroutine_is_reported_and_closed(scripted: Any) -> None:
    made = [later()]

    @tool
    async def forget() -> Any:
        """Forget to await."""
        return made[0]

    runtime = Runtime([Agent("a", model=scripted(call("forget"), "ok"), tools=[forget])])
    await runtime.run("a", "go", thread="t")
    (reply,) = [m.reply for m in await runtime.threads.messages("t") if m.reply is not None]
    assert "the coroutine later, which nobody awaited" in reply.content[0].text
    assert made[0].cr_frame is None
