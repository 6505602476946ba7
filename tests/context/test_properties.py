"""Properties for any log: requests are ordered, complete and fit, and folding loses nothing."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import force_setattr, replace

from wakeful import Agent, Compaction, Message, ModelRequest, Plugin, Runtime, Text, WindowPolicy
from wakeful.context import (
    Gauge,
    Room,
    choose_span,
    count_tokens,
    fold,
    newest_turn,
    pair_results,
    preview,
    truncate,
)
from wakeful.context.window import blocks_of, leading
from wakeful.plugins import BeforeInference
from wakeful.types.ids import new_id
from wakeful.types.runs import Failed

from .helpers import Reader, assert_acceptable
from .histories import histories, windows


def ids(messages: list[Message] | tuple[Message, ...]) -> list[str]:
    return [message.id for message in messages]


@given(histories())
def test_fold_is_idempotent(history: list[Message]) -> None:
    folded = fold(history)
    assert ids(fold(folded)) == ids(folded)


@given(histories())
def test_fold_hides_only_covered_messages(history: list[Message]) -> None:
    folded = fold(history)
    spans = [m.covers for m in folded if m.covers is not None and m.covers[1] < m.seq]
    for message in history:
        at = message.covers if message.covers is not None and message.covers[1] < message.seq else None
        if at is None:
            hidden = any(first <= message.seq <= last for first, last in spans)
        else:
            hidden = any(first <= at[0] and at[1] <= last for first, last in spans if (first, last) != at)
            hidden = hidden or not any(m is message for m in folded)
            assert at in spans or any(first <= at[0] and at[1] <= last for first, last in spans)
        assert hidden == (message.id not in ids(folded))


@given(histories())
def test_fold_keeps_the_order_of_the_log(history: list[Message]) -> None:
    places = [m.covers[0] if m.covers is not None and m.covers[1] < m.seq else m.seq for m in fold(history)]
    assert places == sorted(places)


@given(histories(), histories())
def test_token_counts_add_up(one: list[Message], other: list[Message]) -> None:
    assert count_tokens([*one, *other]) == count_tokens(one) + count_tokens(other)


@given(histories())
def test_pair_results_is_valid_and_idempotent(history: list[Message]) -> None:
    found = pair_results(fold(history))
    assert_acceptable(found)
    assert ids(pair_results(found)) == ids(found)
    said = {m.id for m in fold(history) if m.role != "tool"}
    assert said <= set(ids(found))


@given(histories(), st.integers(50, 4000), st.integers(1, 10))
def test_truncate_result_is_valid_and_fits(history: list[Message], most: int, recent: int) -> None:
    messages, gauge = pair_results(fold(history)), Gauge()
    found = truncate(messages, gauge.weigh, most, recent)
    assert_acceptable(found.messages)
    assert found.weight == count_tokens(found.messages)
    assert found.fits == (found.weight <= most)
    kept = [message_id for message_id in ids(found.messages) if message_id in ids(messages)]
    assert kept == [message_id for message_id in ids(messages) if message_id in kept]
    assert ids(messages)[: leading(messages)] == kept[: leading(messages)]
    newest = newest_turn(messages)
    assert newest is None or messages[newest].id in kept
    start, end = blocks_of(messages)[-1]
    assert set(ids(messages[start:end])) <= set(kept)


@given(histories(), st.integers(0, 4), st.integers(200, 4000), st.booleans())
def test_choose_span_keeps_calls_whole(history: list[Message], keep: int, most: int, whole: bool) -> None:
    folded, gauge = fold(history), Gauge()
    room = Room(2000, 1500, 250)
    part = choose_span(folded, gauge, room, keep=keep, most=most, tried=0, whole=whole)
    if part is None:
        return
    covered = set(ids(part.messages))
    newest = newest_turn(folded)
    assert newest is not None
    assert folded[newest].id not in covered
    assert not covered & set(ids(folded[len(folded) - keep :])) or keep == 0
    replied = {m.reply.call_id for m in part.messages if m.reply is not None}
    assert {call.id for m in part.messages for call in m.calls} <= replied
    summary = Message(new_id(), "user", (Text("S"),), 1, visibility="internal", covers=(part.first, part.last))
    after = fold([*folded, summary])
    assert [i for i in ids(after) if i != summary.id] == [i for i in ids(folded) if i not in covered]
    force_setattr(summary, "seq", 10_000)
    assert ids(fold([*history, summary])) == ids(after)
    assert_acceptable(pair_results(after))


@given(histories(summaries=False), st.integers(16, 500))
def test_preview_is_shorter_and_keeps_the_call(history: list[Message], tokens: int) -> None:
    for message in history:
        short = preview(message, tokens, readable=True)
        assert short.id == message.id
        if message.reply is None:
            assert short is message
        else:
            assert short.reply is not None
            assert short.reply.call_id == message.reply.call_id


class Showing(Plugin):
    """A plugin that replaces the conversation."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages

    async def before_inference(self, ctx: BeforeInference) -> None:
        # Its `seq` is the thread's; those of the others aren't.
        ctx.plan.replace_messages([*self._messages, replace(ctx.messages[-1], seq=0)])


@given(histories(), windows, st.booleans())
def test_requests_are_ordered_and_fit(history: list[Message], window: int, compacts: bool) -> None:
    """The model validates its requests; one that can't fit is never sent."""

    def answer(request: ModelRequest) -> Any:
        assert request.messages[-1].text.endswith("And now?")
        return "ok"

    model = Reader(answer, window)
    policy = WindowPolicy(compaction=Compaction() if compacts else None, min_recent=3)
    agent = Agent("a", model=model, plugins=[Showing(history)], window=policy)
    result = Runtime([agent]).run_sync("a", "And now?", check=False)
    if isinstance(ending := result.termination, Failed):
        assert ending.error == "ContextOverflow", ending
        least = pair_results(fold(history))
        assert count_tokens(least[: leading(least)]) > window * 3 // 4 - 100, ending.message
    else:
        assert result.text == "ok"
