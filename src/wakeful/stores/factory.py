"""Open a store from a path, a URL or an object."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError
from .memory import MemoryStore
from .protocol import Store

__all__ = ["open_store", "replace_store"]


class _Replacement:
    """A store that takes the place of every store which is named by a path or a URL."""

    def __init__(self, given: str | None) -> None:
        self.given = given
        self.store: Store | None = None


_replacement: ContextVar[_Replacement | None] = ContextVar("replacement", default=None)


@contextmanager
def replace_store(given: str | None) -> Generator[Callable[[Store], bool]]:
    """Open this store in place of every store that is named by a path or a URL meanwhile; None for memory.

    Yields a function that says whether a store is the one that was opened.
    """
    replacement = _Replacement(given)
    token = _replacement.set(replacement)
    try:
        yield lambda store: store is replacement.store
    finally:
        _replacement.reset(token)


def open_store(given: Store | str | Path | None, *, create: bool = True) -> Store:
    """The store for an object, a file's path, a database's URL, or None for memory.

    Without `create`, the first use of a database without the tables of a store is refused.
    """
    if given is None:
        return MemoryStore()
    if not isinstance(given, str | Path):
        return _checked(given)
    if (replacement := _replacement.get()) is None:
        return _open_named(given, create=create)
    if replacement.store is None:
        url = replacement.given
        replacement.store = MemoryStore() if url is None else _open_named(url, create=create)
    return replacement.store


def _open_named(given: str | Path, *, create: bool) -> Store:
    scheme, separator, rest = str(given).partition("://")
    if not separator or isinstance(given, Path):
        before, colon, _ = str(given).partition(":")
        if colon and isinstance(given, str) and before in _SCHEMES:
            raise ConfigurationError(
                f"a store that begins with '{before}:' is neither an address nor a path; write postgres://user@host/"
                "database, or a file's path, such as app.db"
            )
        from .sqlite import SqliteStore

        return SqliteStore(_named(str(given)))
    if scheme == "sqlite":
        from .sqlite import SqliteStore

        return SqliteStore(_named(rest))
    if scheme in ("postgres", "postgresql"):
        from .postgres import PostgresStore

        return PostgresStore(str(given), create=create)
    raise ConfigurationError(
        f"a store is a file's path, such as app.db, or postgres://..., not a {scheme!r} address; "
        "for anything else give a Store object"
    )


_SCHEMES = ("file", "sqlite", "postgres", "postgresql")


def _named(path: str) -> Path:
    if not path.strip():
        raise ConfigurationError("a store's path is empty; give a file's path, such as app.db, or None for memory")
    if path.startswith("~/"):
        raise ConfigurationError(
            f"{path!r:.80}: no ~ is expanded here; give the whole path, such as Path({path!r:.80}).expanduser()"
        )
    return Path(path)


def _checked(store: Any) -> Store:
    if not hasattr(store, "commit") or not hasattr(store, "load"):
        raise ConfigurationError(f"store must be a Store, a path or a URL, not {store!r:.80}")
    return store
