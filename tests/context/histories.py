"""Hypothesis strategies for histories, including invalid ones."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import force_setattr

from wakeful import Document, Image, Message, Text
from wakeful.types import Base64
from wakeful.types.content import Content, Thinking, ToolCall, ToolReply
from wakeful.types.ids import new_id

__all__ = ["histories", "windows"]

texts = st.one_of(
    st.sampled_from(["yes", "Ωμέγα und 漢字 " * 9, '{"a": [1, 2, 3]}']),
    st.integers(1, 1200).map(lambda size: ("lorem ipsum " * 100)[:size]),
)
media = st.sampled_from([Image(Base64("image/png", "AAAA")), Document(Base64("text/plain", "QUJD" * 50))])
windows = st.integers(1000, 12_000)


def message(role: str, *content: Content, internal: bool = False) -> Message:
    return Message(new_id(), role, tuple(content), 1, visibility="internal" if internal else "all")  # type: ignore[arg-type]


@st.composite
def users(draw: st.DrawFn) -> list[Message]:
    """A user message, perhaps with an image, or an internal one of the loop."""
    parts: list[Content] = [Text(draw(texts))]
    if draw(st.integers(0, 5)) == 0:
        parts.append(draw(media))
    return [message("user", *parts, internal=draw(st.integers(0, 3)) == 0)]


@st.composite
def steps(draw: st.DrawFn) -> list[Message]:
    """An answer with calls and results: in any order, some missing, some without a call."""
    calls = [ToolCall(new_id(), "look", {"at": draw(texts)}) for _ in range(draw(st.integers(1, 3)))]
    said: list[Content] = [Thinking("Hm.", "signed")] if draw(st.booleans()) else []
    found = [message("assistant", *said, *calls)]
    replied = draw(st.permutations(calls))
    if draw(st.integers(0, 4)) == 0:
        replied = replied[1:]
    for call in replied:
        if draw(st.integers(0, 6)) == 0:
            found.append(message("user", Text("A hint in between."), internal=True))
        found.append(message("tool", ToolReply(call.id, "look", (Text(draw(texts) * draw(st.integers(1, 6))),))))
    if draw(st.integers(0, 8)) == 0:
        found.append(message("tool", ToolReply(new_id(), "look", (Text("of no call"),))))
    return found


answers = texts.map(lambda text: [message("assistant", Text(text))])


@st.composite
def histories(draw: st.DrawFn, *, summaries: bool = True) -> list[Message]:
    """The messages of a log, with gaps in `seq`, and summaries of any earlier span."""
    found = [m for part in draw(st.lists(st.one_of(users(), answers, steps()), max_size=24)) for m in part]
    seq = 0
    for place, one in enumerate(found):
        seq += draw(st.integers(1, 3))
        if summaries and place > 2 and draw(st.integers(0, 6)) == 0:
            first, last = sorted([draw(st.integers(1, seq - 1)), draw(st.integers(1, seq - 1))])
            one = found[place] = Message(
                new_id(), "user", (Text("A summary."),), 1, visibility="internal", covers=(first, last)
            )
        force_setattr(one, "seq", seq)
    return found
