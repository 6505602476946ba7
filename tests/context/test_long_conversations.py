"""Conversations longer than the window: requests fit, and early facts are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wakeful import Agent, ModelRequest, Runtime, SqliteStore, WindowPolicy
from wakeful.events import Compacted

from .helpers import Reader, facts_in

WORDS = "These are a good many words, so that a conversation of such turns is a long one. " * 3


def known(request: ModelRequest) -> str:
    """The number of known facts, and whether the first one is among them."""
    return f"{'fact-0' in facts_in(request)} {WORDS}"


def agent(model: Any, **context: Any) -> Agent:
    return Agent("a", model=model, instructions="Remember everything.", window=WindowPolicy(**context))


async def events_of(runtime: Runtime, kind: type[Any], thread: str = "t") -> list[Any]:
    found, after = [], 0
    while page := await runtime.store.events(thread, after=after):
        found += [event for event in page if isinstance(event, kind)]
        after = page[-1].seq
    return found


async def test_three_hundred_turns_fit_and_keep_an_early_fact(tmp_path: Path) -> None:
    model = Reader(known)
    runtime = Runtime([agent(model)], store=SqliteStore(tmp_path / "a.db"))
    for turn in range(300):
        fact = "fact-0 is the code. " if turn == 0 else ""
        result = await runtime.run("a", f"{fact}Turn {turn}. {WORDS}", thread="t")
        result.raise_for_failure()
        assert result.text.startswith("True"), f"turn {turn}"
    assert max(len(request.messages) for request in model.requests) < 30
    log = await runtime.threads.messages("t")
    assert sum(message.covers is None for message in log) == 600
    done = await events_of(runtime, Compacted)
    assert {event.outcome for event in done} == {"done"}
    assert len(done) == len(model.summaries) < 100
    await runtime.close()


async def test_summarised_messages_are_not_read_again(tmp_path: Path) -> None:
    model = Reader(known)
    store = SqliteStore(tmp_path / "a.db")
    runtime = Runtime([agent(model)], store=store)
    for turn in range(40):
        await runtime.run("a", f"fact-{turn}. {WORDS}", thread="t")
    await runtime.close()
    read: list[int] = []

    class Counting(SqliteStore):
        async def messages(self, *args: Any, **options: Any) -> Any:
            found = await super().messages(*args, **options)
            read.append(len(found))
            return found

    again = Runtime([agent(Reader(known))], store=Counting(tmp_path / "a.db"))
    result = await again.run("a", "And?", thread="t")
    assert result.text.startswith("True")
    assert len(read) == 1
    assert read[0] < 30
    assert len(await again.threads.messages("t")) > 80
    await again.close()
