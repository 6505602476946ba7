"""Long threads on every store: a turn reads the window that the model is shown, and no older messages."""

from __future__ import annotations

from typing import Any

import msgspec
from store_suite import StoreFactory

from context.helpers import Reader, facts_in
from context.seeding import Reads, seed
from wakeful import Agent, Message, Runtime, WindowPolicy

WORDS = "These are some words of a long conversation. " * 2


async def reads_of_turns(
    open_store: StoreFactory, count: int, turns: int = 1, **window: Any
) -> tuple[list[tuple[int, int]], Reader, list[Message]]:
    """The counts of each turn at the end of a thread, the model, and the newest messages."""
    async with open_store() as store:
        await seed(store, count, WORDS)
        reads, model = Reads(store), Reader(lambda request: "ok", window=4000)
        runtime = Runtime([Agent("a", model=model, window=WindowPolicy(**window))], store=store)
        counts: list[tuple[int, int]] = []
        for _ in range(turns):
            (await runtime.run("a", "And now?", thread="t")).raise_for_failure()
            counts.append(reads.take())
        newest = await store.messages("t", newest=10)
        await runtime.close()
        return counts, model, newest


async def test_turn_on_long_thread_reads_its_window(open_store: StoreFactory) -> None:
    (counts,), model, _ = await reads_of_turns(open_store, 3000, compaction=None)
    shown = model.requests[0].messages
    assert "fact-2999" in facts_in(model.requests[0])
    assert 50 < len(shown) < counts[0] < 2 * len(shown)
    assert counts[1] < 2 * len(msgspec.json.encode(shown)) + 10_000
    (fewer,), _, _ = await reads_of_turns(open_store, 1500, compaction=None)
    assert fewer[0] == counts[0]


async def test_next_turns_on_long_thread_read_nothing(open_store: StoreFactory) -> None:
    counts, model, _ = await reads_of_turns(open_store, 1000, turns=5, compaction=None)
    assert [rows for rows, _ in counts[1:]] == [0, 0, 0, 0]
    assert facts_in(model.requests[-1]) <= facts_in(model.requests[0])
    assert [len(request.messages) for request in model.requests[1:]] == [
        len(model.requests[0].messages) + 2 * turn for turn in range(1, 5)
    ]


async def test_long_thread_without_summary_is_summarised_once(open_store: StoreFactory) -> None:
    """The summary of the window covers what is before it, too: no turn reads that again."""
    counts, model, newest = await reads_of_turns(open_store, 2000, turns=2)
    (summary,) = [message for message in newest if message.covers is not None]
    assert summary.covers is not None
    assert summary.covers[0] == 1
    assert len(model.summaries) == 1
    assert counts[1][0] == 0
    assert "<conversation-summary>" in model.requests[-1].messages[0].text


async def test_messages_between_numbers_are_read(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await seed(store, 20, "x", "base")
        seqs = [message.seq for message in await store.messages("base")]
        await store.fork("base", seqs[9], "f")
        await seed(store, 10, "y", "f")
        log = [message.seq for message in await store.messages("f")]
        assert log[:10] == seqs[:10]

        async def read(**options: int) -> list[int]:
            return [message.seq for message in await store.messages("f", **options)]

        assert await read(before=log[12]) == log[:12]
        assert await read(before=log[12], newest=4) == log[8:12]
        assert await read(before=log[5], newest=3) == log[2:5]
        assert await read(before=log[5], limit=2) == log[:2]
        assert await read(before=log[12], after=log[7], newest=9) == log[8:12]
        assert await read(before=1) == []
