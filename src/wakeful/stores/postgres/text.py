"""Text and queries in the dialect of Postgres, which has no NUL in texts and numbers its parameters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..sql.base import Row

__all__ = ["NOW_MS", "escape", "fetch", "postgres_text", "unescape", "unescape_rows"]

NOW_MS = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"

_ESCAPE = "\x10"
_WORDS = {"NOW_MS": NOW_MS, "FOR_UPDATE": "FOR UPDATE", "IF_FREE": "SKIP LOCKED", "instr(": "strpos("}
_texts: dict[str, str] = {}


def escape(text: str) -> str:
    """The text with every NUL escaped. Raises `UnicodeEncodeError` for a text with lone surrogates."""
    if not text.isascii():
        text.encode()
    if "\0" in text or _ESCAPE in text:
        return text.replace(_ESCAPE, _ESCAPE * 2).replace("\0", f"{_ESCAPE}0")
    return text


def unescape(text: str) -> str:
    """The text that `escape` was given."""
    if _ESCAPE not in text:
        return text
    return re.sub(f"{_ESCAPE}(.)", lambda found: "\0" if found[1] == "0" else _ESCAPE, text)


def unescape_rows(rows: list[Row]) -> list[Row]:
    """The rows with all of their texts unescaped. Changes the list."""
    for number, row in enumerate(rows):
        for value in row:
            if type(value) is str and _ESCAPE in value:
                rows[number] = tuple([unescape(v) if type(v) is str else v for v in row])
                break
    return rows


def postgres_text(sql: str) -> str:
    """A query of the shared SQL, in the words of Postgres."""
    found = _texts.get(sql)
    if found is None:
        first, *rest = sql.split("?")
        found = first + "".join([f"${n}{part}" for n, part in enumerate(rest, 1)])
        for word, meaning in _WORDS.items():
            found = found.replace(word, meaning)
        _texts[sql] = found
    return found


async def fetch(connection: Any, sql: str, args: Sequence[Any], timeout: float | None = None) -> list[Row]:
    """The rows of a query of the shared SQL."""
    given = [escape(arg) if type(arg) is str else arg for arg in args]
    return unescape_rows(await connection.fetch(postgres_text(sql), *given, timeout=timeout))
