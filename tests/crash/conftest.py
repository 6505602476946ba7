"""Sites on both databases, and processes that are gone when the test is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from postgres_server import server
from wakeful.testing._crash_processes import Launchers
from wakeful.testing._crash_sites import open_sites

from .places import Place

DATABASES = ("sqlite", "postgres")


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> str:
    """What `crash_matrix` takes as its store."""
    return "sqlite" if request.param == "sqlite" else server().url()


@pytest.fixture
def place(database: str) -> Iterator[Place]:
    """A fresh site."""
    with open_sites(database) as sites, Launchers() as launchers, sites.new() as (folder, site):
        yield Place(sites, launchers, folder, site)
