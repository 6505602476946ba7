"""An answer pieced together from what comes over the bus and from the checkpoints: no gap, nothing twice."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from wakeful.runtime.partial_answer import PartialAnswer
from wakeful.stores import Chunk
from wakeful.types.events import Event, MessageAdded, StreamReset, TextDelta
from wakeful.types.messages import Message
from wakeful.types.runs import Identity

RUN = Identity("r1", "t1", "agent", "r1")


def piece(offset: int, text: str, *, attempt: int = 0, message: str = "m1", seq: int = 1) -> TextDelta:
    return TextDelta(RUN, seq, 0, message, attempt, offset, text)


def chunk(offset: int, text: str, *, attempt: int = 0, message: str = "m1") -> Chunk:
    return Chunk(message, attempt, offset, "text", text)


def shown(events: Iterable[Event]) -> list[object]:
    return [(e.offset, e.delta) if isinstance(e, TextDelta) else e.type for e in events]


def partial() -> PartialAnswer:
    made = PartialAnswer()
    made.run = RUN
    return made


class Screen:
    """The text on the screen of a reader of these events."""

    def __init__(self) -> None:
        self.text = ""

    def show(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, StreamReset):
                self.text = ""
            elif isinstance(event, TextDelta):
                assert event.offset == len(self.text)
                assert event.delta
                self.text += event.delta


@given(st.data())
def test_lost_deltas_are_filled_from_checkpoint(data: st.DataObject) -> None:
    reader, screen = partial(), Screen()
    for attempt in range(data.draw(st.integers(1, 3))):
        words = data.draw(st.lists(st.text("abc", min_size=1, max_size=3), max_size=12))
        text, kept, sent = "".join(words), 0, 0
        for word in words:
            if data.draw(st.booleans()):
                screen.show(reader.take(piece(sent, word, attempt=attempt)))
            sent += len(word)
            if data.draw(st.booleans()):
                kept = sent
            if kept and data.draw(st.booleans()):
                screen.show(reader.grown([chunk(0, text[:kept], attempt=attempt)], 1, 0))
            if reader._answer == ("m1", attempt):
                assert text.startswith(screen.text)
        if words:
            screen.show(reader.grown([chunk(0, text, attempt=attempt)], 1, 0))
            assert screen.text == text


def test_early_delta_waits_for_checkpoint() -> None:
    reader = partial()
    assert shown(reader.take(piece(4, "two "))) == []
    assert shown(reader.take(piece(8, "three"))) == []
    assert reader.waits
    assert shown(reader.grown([chunk(0, "one t")], 1, 0)) == [(0, "one t"), (5, "wo "), (8, "three")]
    assert not reader.waits


def test_deltas_of_withdrawn_attempt_are_dropped() -> None:
    reader = partial()
    assert shown(reader.take(piece(0, "old "))) == [(0, "old ")]
    assert shown(reader.take(piece(0, "new ", attempt=1))) == ["stream_reset", (0, "new ")]
    assert shown(reader.take(piece(4, "older"))) == []
    assert shown(reader.grown([chunk(0, "old older")], 1, 0)) == []


def test_reset_is_shown_once() -> None:
    reader = partial()
    reset = StreamReset(RUN, 1, 0, "m1", 0, "try again")
    assert shown(reader.take(piece(0, "old "))) == [(0, "old ")]
    assert shown(reader.withdraw(reset)) == ["stream_reset"]
    assert shown(reader.withdraw(reset)) == []
    assert shown(reader.take(piece(0, "new ", attempt=1))) == [(0, "new ")]


def test_next_answer_does_not_withdraw_one_before() -> None:
    reader = partial()
    assert shown(reader.take(piece(0, "one"))) == [(0, "one")]
    reader.committed(MessageAdded(RUN, 2, 0, Message("m1", "assistant", (), 0)))
    assert shown(reader.take(piece(0, "two", message="m2", seq=2))) == [(0, "two")]
    assert shown(reader.grown([chunk(0, "two and", message="m2")], 2, 0)) == [(3, " and")]


def test_takeover_replaces_partial_answer() -> None:
    reader = partial()
    assert shown(reader.take(piece(0, "one", message="m9"))) == [(0, "one")]
    assert shown(reader.take(piece(0, "uno", message="m1", seq=2))) == ["stream_reset", (0, "uno")]
    assert shown(reader.take(piece(3, " more", message="m9"))) == []
