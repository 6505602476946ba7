"""What every part of a store in tables is made of: queries and scripts of one tenant, and reading a row back."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from typing import Any, TypeVar

from ..errors import ConfigurationError, CorruptRow
from ..types.runs import RunRecord
from ._packing import UNREADABLE, NoCodec, Packer, Sealed
from ._reader import Reader
from ._rules import checked_tenant

__all__ = ["RUN", "RUN_COLUMNS", "Row", "Script", "SqlBase", "checked_seconds"]

T = TypeVar("T")

Row = tuple[Any, ...]
Script = Generator[tuple[str, Sequence[Any]], list[Row], T]
"""Work inside one transaction: yields statements, is sent their rows, and returns what came of it."""

# What a run's record is made of.
RUN_COLUMNS = "r.thread, (SELECT t.id FROM threads t WHERE t.no = r.thread), r.id, r.status, r.step, r.payload"
RUN = f"SELECT {RUN_COLUMNS} FROM runs r"


_log = logging.getLogger("wakeful")


def checked_seconds(seconds: Any, name: str) -> float:
    """How long a store is to wait, if that is a time."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise ConfigurationError(f"{name} is a number of seconds, not {seconds!r:.80}")
    return seconds


class SqlBase:
    """A store of one tenant, in terms of queries and transactions."""

    def __init__(self, tenant: str, packer: Packer) -> None:
        self._tenant = checked_tenant(tenant)
        self._packer = packer

    @property
    def tenant_name(self) -> str:
        """Whose rows the handle sees."""
        return self._tenant

    async def _query(self, sql: str, *args: Any) -> list[Row]:
        """The rows of one query."""
        raise NotImplementedError

    async def _transact(self, script: Callable[[], Script[T]]) -> T:
        """Run a script in one transaction, all of it or nothing; from its beginning again, if need be."""
        raise NotImplementedError

    async def _record(self, row: Row) -> RunRecord:
        """The run that a row of `RUN` is."""
        thread, thread_id, run_id, status, step, payload = row
        read = Reader(self._packer, await self._blobs(thread, [payload]), f"thread {thread_id!r}")
        return read.run(thread_id, run_id, status, step, payload)

    async def _listed(
        self, sql: str, args: Sequence[Any], limit: int | None, read: Callable[[Row], Awaitable[T]]
    ) -> list[T]:
        """What a query over many threads finds, up to `limit` that can be read. What can't be is left out, with a
        warning that names it, and no other thread's row is out of reach for it. Where a codec can't read any, it
        is the codec, and no row."""
        wanted = limit
        while True:
            rows = await self._query(sql if wanted is None else f"{sql} LIMIT ?", *args, *_given(wanted))
            found: list[T] = []
            unread: list[CorruptRow] = []
            for row in rows:
                try:
                    found.append(await read(row))
                except CorruptRow as error:
                    if isinstance(error.__cause__, NoCodec):
                        raise
                    unread.append(error)
            if not unread or limit is None or wanted is None or len(found) >= limit or len(rows) < wanted:
                break
            wanted = limit + 2 * len(unread)  # What is left out doesn't end a page before its time.
        if unread and not found and isinstance(unread[0].__cause__, Sealed):
            raise unread[0]
        for error in unread:
            if self._packer.is_news(str(error)):
                _log.warning("left out of a list: %s", error)
        return found[:limit]

    async def _one(self, thread: int, payload: bytes, kind: type[T], name: str) -> T:
        blobs = await self._blobs(thread, [payload])
        return await self._named(thread, blobs, lambda read: read.json(payload, kind, name))

    async def _named(self, thread: int, blobs: dict[str, bytes], work: Callable[[Reader], T]) -> T:
        """What is read of a thread that is known by its number; if it can't be, the error says which that is."""
        try:
            return work(Reader(self._packer, blobs, ""))
        except CorruptRow:
            rows = await self._query("SELECT id FROM threads WHERE no = ?", thread)
            where = f"thread {rows[0][0]!r}" if rows else "a thread that is gone"
            return work(Reader(self._packer, blobs, where))

    async def _blobs(self, thread: int, payloads: Iterable[bytes | None]) -> dict[str, bytes]:
        """The blobs that these payloads of a thread refer to."""
        wanted: set[str] = set()
        for payload in payloads:
            try:
                wanted.update(self._packer.digests(payload))
            except UNREADABLE:
                pass  # Whoever reads it says which row it is.
        found: dict[str, bytes] = {}
        for digest in sorted(wanted):
            sql = "SELECT payload FROM blobs WHERE thread = ? AND digest = ?"
            for (payload,) in await self._query(sql, thread, digest):
                found[digest] = payload
        return found


def _given(limit: int | None) -> Sequence[int]:
    return () if limit is None else (limit,)
