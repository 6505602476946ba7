"""The base of SQL stores: queries, scripts and decoding of rows, for one tenant."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from typing import Any, TypeVar

from ...errors import ConfigurationError, CorruptRow
from ...types.runs import RunRecord
from ..codec.packer import UNREADABLE, NoCodec, Packer, Sealed
from ..codec.reader import Reader
from ..conditions import checked_tenant

__all__ = ["RUN", "RUN_COLUMNS", "Row", "Script", "SqlBase", "checked_seconds"]

T = TypeVar("T")

Row = tuple[Any, ...]
Script = Generator[tuple[str, Sequence[Any]], list[Row], T]
"""Work in one transaction: yields statements, is sent their rows, and returns a result."""

# The columns of a run's record.
RUN_COLUMNS = "r.thread, (SELECT t.id FROM threads t WHERE t.no = r.thread), r.id, r.status, r.step, r.payload"
RUN = f"SELECT {RUN_COLUMNS} FROM runs r"


_log = logging.getLogger("wakeful")


def checked_seconds(seconds: Any, name: str) -> float:
    """Check an option that is a number of seconds."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise ConfigurationError(f"{name} is a number of seconds, not {seconds!r:.80}")
    return seconds


class SqlBase:
    """A store of one tenant, over queries and transactions that a database provides."""

    def __init__(self, tenant: str, packer: Packer) -> None:
        self._tenant = checked_tenant(tenant)
        self._packer = packer

    @property
    def tenant_name(self) -> str:
        """The tenant of this handle."""
        return self._tenant

    async def _query(self, sql: str, *args: Any) -> list[Row]:
        """Run a query."""
        raise NotImplementedError

    async def _transact(self, script: Callable[[], Script[T]]) -> T:
        """Run a script in one transaction. It may be started again after a conflict."""
        raise NotImplementedError

    async def _record(self, row: Row) -> RunRecord:
        """Decode a row of `RUN`."""
        thread, thread_id, run_id, status, step, payload = row
        read = Reader(self._packer, await self._blobs(thread, [payload]), f"thread {thread_id!r}")
        return read.run(thread_id, run_id, status, step, payload)

    async def _listed(
        self, sql: str, args: Sequence[Any], limit: int | None, read: Callable[[Row], Awaitable[T]]
    ) -> list[T]:
        """Decode the rows of a query over many threads, up to `limit`.

        Unreadable rows are left out with a warning. If no row can be read through the codec, the error is raised:
        the codec or its key is wrong.
        """
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
            wanted = limit + 2 * len(unread)  # Rows that are left out don't make a page shorter.
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
        """Decode something of a thread that is known by its number; an error names the thread."""
        try:
            return work(Reader(self._packer, blobs, ""))
        except CorruptRow:
            rows = await self._query("SELECT id FROM threads WHERE no = ?", thread)
            where = f"thread {rows[0][0]!r}" if rows else "a thread that is gone"
            return work(Reader(self._packer, blobs, where))

    async def _blobs(self, thread: int, payloads: Iterable[bytes | None]) -> dict[str, bytes]:
        """Load the blobs that payloads of a thread refer to."""
        wanted: set[str] = set()
        for payload in payloads:
            try:
                wanted.update(self._packer.digests(payload))
            except UNREADABLE:
                pass  # The reader of the row raises, and names it.
        found: dict[str, bytes] = {}
        for digest in sorted(wanted):
            sql = "SELECT payload FROM blobs WHERE thread = ? AND digest = ?"
            for (payload,) in await self._query(sql, thread, digest):
                found[digest] = payload
        return found


def _given(limit: int | None) -> Sequence[int]:
    return () if limit is None else (limit,)
