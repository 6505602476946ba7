"""A kill during compaction loses nothing, and the summary is written again."""

from __future__ import annotations

import asyncio

import pytest

from wakeful.context import fold
from wakeful.events import Compacted
from wakeful.stores import Store
from wakeful.testing import CrashSite, crash_matrix

from .lab import CrashLab
from .talk import TURNS, talk

FACTS = [f"fact-{turn}" for turn in range(TURNS)]


async def remembered(site: CrashSite, store: Store) -> None:
    """Check that every turn is in the log once, and that the last answer and the summary have all facts."""
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


def test_kill_during_compaction_loses_nothing(lab: CrashLab) -> None:
    lab.hold("summary")
    first = lab.start(talk)
    lab.reached("summary")
    lab.kill(first)
    lab.let_go("summary")
    lab.finish(lab.start(talk))

    async def check() -> None:
        async with lab.store() as store:
            await remembered(lab.site, store)

    asyncio.run(check())
    assert lab.problems() == []


@pytest.mark.long
def test_conversation_survives_kill_at_every_commit() -> None:
    report = crash_matrix(talk, check=remembered)
    assert report.kills > 20
