"""Stores by name: a path, a URL, or nothing for memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import ConfigurationError
from ._memory import MemoryStore
from ._store import Store

__all__ = ["open_store"]


def open_store(given: Store | str | Path | None) -> Store:
    """The store that a runtime is given: an object, a file's path, a database's URL, or None for memory."""
    if given is None:
        return MemoryStore()
    if not isinstance(given, str | Path):
        return _checked(given)
    scheme, separator, rest = str(given).partition("://")
    if not separator or isinstance(given, Path):
        from ._sqlite import SqliteStore

        return SqliteStore(_named(str(given)))
    if scheme == "sqlite":
        from ._sqlite import SqliteStore

        return SqliteStore(_named(rest))
    if scheme in ("postgres", "postgresql"):
        from ._postgres import PostgresStore

        return PostgresStore(str(given))
    raise ConfigurationError(
        f"a store is a file's path, such as app.db, or postgres://..., not a {scheme!r} address; "
        "for anything else give a Store object"
    )


def _named(path: str) -> Path:
    if not path.strip():
        raise ConfigurationError("a store's path is empty; give a file's path, such as app.db, or None for memory")
    return Path(path)


def _checked(store: Any) -> Store:
    if not hasattr(store, "commit") or not hasattr(store, "load"):
        raise ConfigurationError(f"store must be a Store, a path or a URL, not {store!r:.80}")
    return store
