"""Stores for crash tests: a fresh one for each case, in a file or on a Postgres server."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit, urlunsplit

from ..errors import UsageError
from ..stores import open_store
from ..stores._driver import CONNECT_SECONDS, Address, explained
from ..types.ids import new_id
from ._crash_child import CrashSite, KillPoint

__all__ = ["Sites", "apart", "open_sites"]

T = TypeVar("T")


class Sites(Protocol):
    """Makes sites of one kind of store."""

    kind: str
    points: tuple[KillPoint, ...]

    def new(self) -> AbstractContextManager[tuple[Path, CrashSite]]:
        """A fresh site, as a context manager: a folder for what the test writes down, and the site."""
        ...

    def bury(self, site: CrashSite) -> None:
        """All processes of the site were killed: nobody has to wait for their leases."""
        ...


@contextmanager
def open_sites(store: str) -> Generator[Sites]:
    """Sites on `sqlite`, or on the Postgres server at a URL; all of them are removed at the end."""
    with TemporaryDirectory(prefix="wakeful-crash-", ignore_cleanup_errors=True) as folder:
        if store == "sqlite":
            yield _SqliteSites(Path(folder))
        elif store.startswith(("postgres://", "postgresql://")):
            sites = _PostgresSites(Path(folder), store)
            try:
                yield sites
            finally:
                sites.remove()
        else:
            raise UsageError(f"a crash test's store is 'sqlite' or a postgres:// URL, not {store!r:.80}")


class _Folders:
    """A folder for each site."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = Lock()
        self._made = 0

    def make(self) -> Path:
        with self._lock:
            self._made += 1
            place = self._root / str(self._made)
        (place / "files").mkdir(parents=True)
        return place


class _SqliteSites:
    kind = "sqlite"
    points: tuple[KillPoint, ...] = ("before", "inside", "after")

    def __init__(self, root: Path) -> None:
        self._folders = _Folders(root)

    @contextmanager
    def new(self) -> Generator[tuple[Path, CrashSite]]:
        place = self._folders.make()
        yield place, CrashSite(str(place / "store.db"), place / "files")

    def bury(self, site: CrashSite) -> None:
        """A dead process is seen by its owner file."""


_EMPTY = """
DO $$ DECLARE names text; BEGIN
  PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid();
  SELECT string_agg(format('wakeful.%I', tablename), ', ') INTO names
    FROM pg_tables WHERE schemaname = 'wakeful' AND tablename <> 'meta';
  EXECUTE 'TRUNCATE ' || names || ' RESTART IDENTITY';
END $$"""


class _PostgresSites:
    """A database for each site that is in use. They are emptied and used again: making one takes far longer."""

    kind = "postgres"
    points: tuple[KillPoint, ...] = ("before", "inside", "between", "after")

    def __init__(self, root: Path, url: str) -> None:
        self._folders = _Folders(root)
        self._url = url
        self._prefix = f"wakeful_crash_{new_id()[-8:]}"
        self._made: list[str] = []
        self._free: list[str] = []

    @contextmanager
    def new(self) -> Generator[tuple[Path, CrashSite]]:
        place = self._folders.make()
        try:
            name = self._free.pop()
        except IndexError:
            name = f"{self._prefix}_{place.name}"
            self._made.append(name)
            apart(self._make(name))
        try:
            yield place, CrashSite(self._url_of(name), place / "files")
        finally:
            apart(_execute(self._url_of(name), _EMPTY))
            self._free.append(name)

    def bury(self, site: CrashSite) -> None:
        apart(_execute(site.store, "DELETE FROM wakeful.workers"))

    def remove(self) -> None:
        """Remove all databases."""
        for name in self._made:
            apart(_execute(self._url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))

    async def _make(self, name: str) -> None:
        await _execute(self._url, f"CREATE DATABASE {name}")
        store = open_store(self._url_of(name))
        try:
            await store.counts()
        finally:
            await store.close()

    def _url_of(self, database: str) -> str:
        return urlunsplit(urlsplit(self._url)._replace(path=f"/{database}"))


async def _execute(url: str, sql: str) -> None:
    address = Address(url, "wakeful")
    try:
        connection = await address.connect(None, CONNECT_SECONDS)
    except Exception as error:
        raise explained(error, address.place) from error
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


def apart(work: Coroutine[Any, Any, T]) -> T:
    """Run async work on a loop of its own, also where another one runs."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
