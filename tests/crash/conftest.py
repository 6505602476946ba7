"""Fixtures: sites on both databases, with processes that are killed after the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from postgres_server import server
from wakeful.testing.crash import Launchers, open_sites

from .lab import CrashLab

DATABASES = ("sqlite", "postgres")


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> str:
    """The `store` argument of `crash_matrix`."""
    return "sqlite" if request.param == "sqlite" else server().url()


@pytest.fixture
def lab(database: str) -> Iterator[CrashLab]:
    """A fresh site."""
    with open_sites(database) as sites, Launchers() as launchers, sites.new() as (folder, site):
        yield CrashLab(sites, launchers, folder, site)
