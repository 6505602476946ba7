"""Processes die while one agent works for another: no call runs twice, and every result arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from wakeful.testing import crash_matrix
from wakeful.testing._crash_processes import Launchers
from wakeful.testing._crash_sites import open_sites
from wakeful.types.runs import RunRecord

from . import family
from .places import Place, until
from .shop import Bank


@pytest.fixture
def place() -> Iterator[Place]:
    """A fresh site on SQLite."""
    with open_sites("sqlite") as sites, Launchers() as launchers, sites.new() as (folder, site):
        yield Place(sites, launchers, folder, site)


SCENARIOS = [family.ephemeral, family.durable, family.background, family.approved, family.approved_durable]
each = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)


@each
def test_a_process_may_die_behind_any_commit_of_a_family(scenario: Any) -> None:
    """Among them: between the task's commit and the child's first, and the child's last and its owner's."""
    report = crash_matrix(scenario, check=family.check, points=["after"], processes=2)
    assert report.kills >= 6


@pytest.mark.long
@each
def test_a_process_may_die_at_any_commit_of_a_family(scenario: Any) -> None:
    report = crash_matrix(scenario, check=family.check, processes=2)
    assert report.kills >= 18


@pytest.mark.parametrize(
    ("scenario", "check"),
    [(family.spend_tokens, family.within_tokens), (family.spend_calls, family.within_calls)],
    ids=["tokens", "calls"],
)
def test_a_trees_budget_survives_whoever_counts_it(scenario: Any, check: Any) -> None:
    crash_matrix(scenario, check=check, points=["after"], processes=2)


def test_the_time_of_a_tree_goes_on_while_nobody_runs_it(place: Place) -> None:
    place.kill(place.start(family.spend_time, (6, "after")))
    place.finish(place.start(family.spend_time))

    async def look() -> None:
        async with place.store() as store:
            await family.within_time(place.site, store)

    asyncio.run(look())


def runs_of(place: Place) -> dict[str, RunRecord]:
    async def read() -> dict[str, RunRecord]:
        async with place.store() as store:
            return {run.agent_id: run for run in await store.runs()}

    return asyncio.run(read())


def checked(place: Place) -> None:
    async def read() -> None:
        async with place.store() as store:
            await family.check(place.site, store)

    asyncio.run(read())
    assert place.problems() == []


def test_a_child_whose_tool_ran_is_resumed_and_says_that_nobody_knows(place: Place) -> None:
    place.hold("charge")
    first = place.start(family.ephemeral)
    place.reached("charge")
    before = runs_of(place)["worker"]
    place.kill(first)
    place.let_go("charge")
    place.finish(place.start(family.ephemeral))
    worker = runs_of(place)["worker"]
    assert worker.id == before.id  # Resumed, not begun again.
    assert len(Bank(place.folder).charges) == 1
    assert place.answer() == "worked: interrupted, seen"
    checked(place)


def test_a_durable_child_is_run_by_another_process_while_its_owners_is_gone(place: Place) -> None:
    place.hold("look")
    first = place.start(family.durable)
    place.reached("look")
    assert runs_of(place)["lead"].status == "waiting"
    place.kill(first)
    second = place.start(family.serve)
    until((place.folder / "serving").exists)
    place.reached("look")
    place.let_go("look")
    until(lambda: runs_of(place)["lead"].status == "done")
    (place.folder / "stop").touch()
    place.finish(second)
    assert place.answer() == "worked: charged, seen"
    checked(place)
