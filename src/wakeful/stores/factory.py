"""Open a store from a path, a URL or an object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import ConfigurationError
from .memory import MemoryStore
from .protocol import Store

__all__ = ["open_store"]


def open_store(given: Store | str | Path | None, *, create: bool = True) -> Store:
    """The store for an object, a file's path, a database's URL, or None for memory.

    Without `create`, the first use of a database without the tables of a store is refused.
    """
    if given is None:
        return MemoryStore()
    if not isinstance(given, str | Path):
        return _checked(given)
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
