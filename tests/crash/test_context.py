"""A process is killed while a conversation is summarised: nothing is lost, and the summary is written again."""

from __future__ import annotations

import asyncio

import pytest

from wakeful.context import fold
from wakeful.events import Compacted
from wakeful.stores import Store
from wakeful.testing import CrashSite, crash_matrix

from .places import Place
from .talk import TURNS, talk

FACTS = [f"fact-{turn}" for turn in range(TURNS)]


async def remembered(site: CrashSite, store: Store) -> None:
    """Every turn is in the log once, the last answer knows all facts, and the summary can be read."""
    log = await store.messages("t")
    said = [message.text.partition(".")[0] for message in log if message.role == "user" and message.covers is None]
    answers = [message for message in log if message.role == "assistant"]
    assert said == FACTS
    assert answers[-1].text.split() == FACTS
    assert len(answers) == TURNS
    summaries = [message for message in log if message.covers is not None]
    done = [e for e in await store.events("t", limit=10_000) if isinstance(e, Compacted) and e.outcome == "done"]
    assert [message.id for message in summaries] == [event.message_id for event in done]
    assert summaries
    assert len(fold(log)) < len(log) - 2


def test_a_process_that_is_killed_while_it_summarises_loses_nothing(place: Place) -> None:
    place.hold("summary")
    first = place.start(talk)
    place.reached("summary")
    place.kill(first)
    place.let_go("summary")
    place.finish(place.start(talk))

    async def check() -> None:
        async with place.store() as store:
            await remembered(place.site, store)

    asyncio.run(check())
    assert place.problems() == []


@pytest.mark.long
def test_every_commit() -> None:
    report = crash_matrix(talk, check=remembered)
    assert report.kills > 20
