"""Messages: their text, and copies with other content."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from wakeful import Message
from wakeful.errors import InvalidInput, UsageError
from wakeful.types.content import Citation, Image, Text, Thinking, ToolCall, ToolReply, Url

PICTURE = Image(Url("https://there.example/a.png"))
CALL = ToolCall("c1", "look", {"at": "sky"})
THOUGHT = Thinking("hm")


def answer(*content: Any) -> Message:
    return Message("m", "assistant", content, seq=7)


def result(*content: Any) -> Message:
    reply = ToolReply("c1", "look", content, data=msgspec.Raw(b'{"sky": "blue"}'), metadata={"n": 1})
    return Message("m", "tool", (reply,))


def test_text_of_tool_message_is_that_of_result() -> None:
    assert result(Text("bl"), PICTURE, Text("ue")).text == "blue"
    assert answer(Text("bl"), CALL, Text("ue")).text == "blue"


@pytest.mark.parametrize(
    ("content", "after"),
    [
        ((Text("old"),), (Text("new"),)),
        ((THOUGHT, Text("ol"), Text("d"), CALL), (THOUGHT, Text("new"), CALL)),
        ((THOUGHT, CALL), (THOUGHT, Text("new"), CALL)),
        ((Text("old"), Citation("url", 0, 3)), (Text("new"),)),
        ((PICTURE,), (PICTURE, Text("new"))),
    ],
)
def test_with_text_keeps_other_parts(content: Any, after: Any) -> None:
    copy = answer(*content).with_text("new")
    assert copy == answer(*after)
    assert copy.text == "new"


def test_with_same_text_is_same_message() -> None:
    for message in (answer(Text("old"), Citation("url", 0, 3)), result(Text("blue"))):
        assert message.with_text(message.text) is message


def test_with_text_drops_empty_text() -> None:
    assert answer(Text("old"), CALL).with_text("").content == (CALL,)


def test_with_text_of_tool_message_changes_result() -> None:
    copy = result(Text("blue"), PICTURE).with_text("[masked]")
    assert copy.reply is not None
    assert copy.reply.content == (Text("[masked]"), PICTURE)
    assert (copy.reply.metadata, copy.reply.data) == ({"n": 1}, msgspec.UNSET)


def test_with_parts_replaces_content() -> None:
    assert answer(Text("old"), CALL).with_parts(["new", CALL]).content == (Text("new"), CALL)
    copy = result(Text("blue")).with_parts([PICTURE])
    assert copy.reply is not None
    assert (copy.reply.call_id, copy.reply.content) == ("c1", (PICTURE,))


def test_wrong_content_of_copy_is_refused() -> None:
    with pytest.raises(UsageError, match="the text of a message is a text, not 5"):
        answer(Text("old")).with_text(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="the content of a message has a part that is neither text nor content"):
        answer(Text("old")).with_parts([5])  # type: ignore[list-item]
