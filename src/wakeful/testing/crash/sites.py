"""Stores of crash tests: a fresh one for each case, in a file or on a Postgres server."""

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

from msgspec import Struct

from ...errors import UsageError
from ...stores import open_store
from ...stores.postgres.driver import CONNECT_SECONDS, Address, explain_error
from ...types.ids import new_id
from .journal import KillPoint

__all__ = ["CrashSite", "Sites", "open_sites"]

T = TypeVar("T")


class CrashSite(Struct, frozen=True):
    """Where a scenario runs; it outlives the process.

    `store` is the path or URL to open a runtime on. `folder` is for files of the scenario's own, such as the
    ledger of a payment service.
    """

    store: str
    folder: Path


class Sites(Protocol):
    """Makes sites on one kind of store. `points` are the kill points that the store has."""

    kind: str
    points: tuple[KillPoint, ...]

    def new(self) -> AbstractContextManager[tuple[Path, CrashSite]]:
        """Make a fresh site: a context manager of the test's working folder and the site."""
        ...

    def expire_leases(self, site: CrashSite) -> None:
        """End the leases of the site's processes, all of which were killed, so that no test waits for them."""
        ...


@contextmanager
def open_sites(store: str) -> Generator[Sites]:
    """Open sites on `sqlite` or on the Postgres server at a URL; all of them are removed at the end."""
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
            folder = self._root / str(self._made)
        (folder / "files").mkdir(parents=True)
        return folder


class _SqliteSites:
    kind = "sqlite"
    points: tuple[KillPoint, ...] = ("before", "inside", "after")

    def __init__(self, root: Path) -> None:
        self._folders = _Folders(root)

    @contextmanager
    def new(self) -> Generator[tuple[Path, CrashSite]]:
        workdir = self._folders.make()
        yield workdir, CrashSite(str(workdir / "store.db"), workdir / "files")

    def expire_leases(self, site: CrashSite) -> None:
        """Do nothing: SQLite detects a dead process by its owner file."""


_TRUNCATE = """
DO $$ DECLARE names text; BEGIN
  PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid();
  SELECT string_agg(format('wakeful.%I', tablename), ', ') INTO names
    FROM pg_tables WHERE schemaname = 'wakeful' AND tablename <> 'meta';
  EXECUTE 'TRUNCATE ' || names || ' RESTART IDENTITY';
END $$"""


class _PostgresSites:
    """A database for each open site. Databases are truncated and reused: creating one takes far longer."""

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
        workdir = self._folders.make()
        try:
            name = self._free.pop()
        except IndexError:
            name = f"{self._prefix}_{workdir.name}"
            self._made.append(name)
            _run_in_thread(self._create(name))
        try:
            yield workdir, CrashSite(self._url_of(name), workdir / "files")
        finally:
            _run_in_thread(_execute(self._url_of(name), _TRUNCATE))
            self._free.append(name)

    def expire_leases(self, site: CrashSite) -> None:
        _run_in_thread(_execute(site.store, "DELETE FROM wakeful.workers"))

    def remove(self) -> None:
        """Drop all databases."""
        for name in self._made:
            _run_in_thread(_execute(self._url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))

    async def _create(self, name: str) -> None:
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
        raise explain_error(error, address.place) from error
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


def _run_in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own thread: the caller may be inside a running loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
