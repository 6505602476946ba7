"""`kill -9` while a task runs: another process continues by its declared effect, and reports unknown outcomes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crash.lab import CrashLab, until
from postgres_server import server
from wakeful.testing.crash import Launchers, open_sites

from . import workshop


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest) -> Iterator[CrashLab]:
    database = "sqlite" if request.param == "sqlite" else server().url()
    with open_sites(database) as sites, Launchers() as launchers, sites.new() as (folder, site):
        yield CrashLab(sites, launchers, folder, site)


def killed(place: CrashLab, effect: str) -> str:
    """Kill a process while its task runs, let another one continue it, and return the model's last text."""
    scenario = getattr(workshop, effect)
    place.hold("work")
    first = place.start(scenario)
    place.reached("work")
    until(lambda: place.answer() != "Do it.")
    place.kill(first)
    place.let_go("work")
    place.finish(place.start(scenario))
    assert place.problems() == []
    return place.answer()


def keys(place: CrashLab) -> list[str]:
    done = place.folder / "done"
    return done.read_text().splitlines() if done.exists() else []


@pytest.mark.parametrize("effect", ["pure", "idempotent"])
def test_repeatable_task_reruns_with_same_key(site: CrashLab, effect: str) -> None:
    said = killed(site, effect)
    assert "worked in attempt 2" in said
    assert said.count('kind="begun"') == 1  # An event is told once, however often the task is begun.
    first, second = keys(site)
    assert first == second


def test_once_task_is_reported_unknown(site: CrashLab) -> None:
    said = killed(site, "once")
    assert 'name="the-work" function="work" kind="failed"' in said
    assert "task work was interrupted (its process ended) and its outcome is unknown" in said
    assert len(keys(site)) == 1


def test_restore_fails_orphaned_tasks(site: CrashLab) -> None:
    """A bare coroutine can't be continued: it is reported as lost, once and by its name."""
    said = killed(site, "bare")
    assert said.count("task lost: the process that ran it ended") == 1
    assert 'name="the-work"' in said
