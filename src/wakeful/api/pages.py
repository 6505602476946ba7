"""Pages of lists: keyset cursors that belong to their filters."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from ..errors import UsageError

__all__ = ["MAX_PAGE", "Page", "PageQuery", "Paged", "check_limit", "cursor_of", "page_of", "position_of"]

T = TypeVar("T")

MAX_PAGE = 200


class Page(Struct, Generic[T], frozen=True):
    """A part of a list. `next` is the cursor of the following page; None after the last one."""

    items: tuple[T, ...]
    next: str | None = None


class Paged(Protocol):
    """A query of a list in pages."""

    @property
    def limit(self) -> int:
        """The number of items of a page."""
        ...

    @property
    def cursor(self) -> str | None:
        """The `next` of the page before."""
        ...


class PageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`limit` is the number of items of a page, 1 to 200; `cursor` is the `next` of the page before."""

    limit: int = 50
    cursor: str | None = None

    def __post_init__(self) -> None:
        check_limit(self)


def check_limit(query: Paged) -> None:
    """Raise `ValueError` for a page that is empty or too long."""
    if not 1 <= query.limit <= MAX_PAGE:
        raise ValueError(f"limit is from 1 to {MAX_PAGE}, not {query.limit}")


class _Cursor(Struct, array_like=True, forbid_unknown_fields=True):
    version: int
    filters: str
    key: str


def _digest(query: Paged) -> str:
    fields: dict[str, Any] = msgspec.to_builtins(query)
    for name in ("limit", "cursor"):
        fields.pop(name, None)
    return sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()[:8]


def position_of(query: Paged) -> str | None:
    """The key after which a page begins; None for the first page. The cursor has to be of the same filters."""
    if query.cursor is None:
        return None
    try:
        raw = urlsafe_b64decode(query.cursor.encode() + b"=" * (-len(query.cursor) % 4))
        found = msgspec.json.decode(raw, type=_Cursor)
    except (Base64Error, msgspec.DecodeError, ValueError):
        found = None
    if found is None or found.version != 1 or found.filters != _digest(query):
        raise UsageError("the cursor isn't of this list with these filters; begin again without a cursor")
    return found.key


def page_of(query: Paged, found: Sequence[T], key: str | Callable[[T], str]) -> Page[T]:
    """Make a page of up to `query.limit` items, of which one more was read; `key` is the attribute that they are
    ordered by, or a function that gives it."""
    items = tuple(found[: query.limit])
    if len(found) <= query.limit or not items:
        return Page(items)
    last = str(getattr(items[-1], key)) if isinstance(key, str) else key(items[-1])
    return Page(items, cursor_of(query, last))


def cursor_of(query: Paged, key: str) -> str:
    """The cursor of the page after a key."""
    cursor = _Cursor(1, _digest(query), key)
    return urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")
