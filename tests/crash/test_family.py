"""Kills during delegation: no call runs twice, and every result arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from wakeful.testing import crash_matrix
from wakeful.testing.crash import Launchers, open_sites
from wakeful.types.runs import RunRecord

from . import family
from .lab import CrashLab, until
from .shop import Bank


@pytest.fixture
def lab() -> Iterator[CrashLab]:
    """A fresh site on SQLite."""
    with open_sites("sqlite") as sites, Launchers() as launchers, sites.new() as (folder, site):
        yield CrashLab(sites, launchers, folder, site)


SCENARIOS = [family.ephemeral, family.durable, family.background, family.approved, family.approved_durable]
each = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)


@each
def test_delegation_survives_kill_after_each_commit(scenario: Any) -> None:
    """The kills include those between the commits of the task and its child, and of the child and its owner."""
    report = crash_matrix(scenario, check=family.check, points=["after"], processes=2)
    assert report.kills >= 6


@pytest.mark.long
@each
def test_delegation_survives_kill_at_each_point(scenario: Any) -> None:
    report = crash_matrix(scenario, check=family.check, processes=2)
    assert report.kills >= 18


@pytest.mark.parametrize(
    ("scenario", "check"),
    [(family.spend_tokens, family.within_tokens), (family.spend_calls, family.within_calls)],
    ids=["tokens", "calls"],
)
def test_tree_budget_survives_kills(scenario: Any, check: Any) -> None:
    crash_matrix(scenario, check=check, points=["after"], processes=2)


def test_tree_time_limit_includes_downtime(lab: CrashLab) -> None:
    lab.kill(lab.start(family.spend_time, (6, "after")))
    lab.finish(lab.start(family.spend_time))

    async def look() -> None:
        async with lab.store() as store:
            await family.within_time(lab.site, store)

    asyncio.run(look())


def runs_of(lab: CrashLab) -> dict[str, RunRecord]:
    async def read() -> dict[str, RunRecord]:
        async with lab.store() as store:
            return {run.agent_id: run for run in await store.runs()}

    return asyncio.run(read())


def checked(lab: CrashLab) -> None:
    async def read() -> None:
        async with lab.store() as store:
            await family.check(lab.site, store)

    asyncio.run(read())
    assert lab.problems() == []


def test_resumed_child_reports_unknown_outcome_of_tool(lab: CrashLab) -> None:
    lab.hold("charge")
    first = lab.start(family.ephemeral)
    lab.reached("charge")
    before = runs_of(lab)["worker"]
    lab.kill(first)
    lab.let_go("charge")
    lab.finish(lab.start(family.ephemeral))
    worker = runs_of(lab)["worker"]
    assert worker.id == before.id  # Resumed, not restarted.
    assert len(Bank(lab.folder).charges) == 1
    assert lab.answer() == "worked: interrupted, seen"
    checked(lab)


def test_durable_child_runs_elsewhere_when_owner_is_dead(lab: CrashLab) -> None:
    lab.hold("look")
    first = lab.start(family.durable)
    lab.reached("look")
    assert runs_of(lab)["lead"].status == "waiting"
    lab.kill(first)
    second = lab.start(family.serve)
    until((lab.folder / "serving").exists)
    lab.reached("look")
    lab.let_go("look")
    until(lambda: runs_of(lab)["lead"].status == "done")
    (lab.folder / "stop").touch()
    lab.finish(second)
    assert lab.answer() == "worked: charged, seen"
    checked(lab)
