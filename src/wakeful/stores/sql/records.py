"""Reading records that belong to no thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from ...types.records import ApiKey, MemoryNote, Record
from ..codec.reader import Reader
from ..conditions import record_kind
from ..memories import MAX_SCANNED, owner_of, rank_notes
from .base import Row, SqlBase

__all__ = ["SqlRecords"]

R = TypeVar("R", bound=Record)


class SqlRecords(SqlBase):
    """The records of one tenant."""

    async def record(self, kind: type[R], record_id: str) -> R | None:
        """A record that belongs to no thread; None if there is none."""
        sql = "SELECT id, payload FROM records WHERE tenant = ? AND kind = ? AND id = ?"
        for row in await self._query(sql, self._tenant, record_kind(kind), record_id):
            return self._read(kind, row)
        return None

    async def records(
        self, kind: type[R], *, before: str | None = None, prefix: str = "", limit: int = 100
    ) -> list[R]:
        """Records of a kind older than the record `before`, newest first. Unreadable ones are left out.

        With a `prefix`, those whose ids begin so: the primary key finds them.
        """
        sql = "SELECT id, payload FROM records WHERE tenant = ? AND kind = ?"
        args = [self._tenant, name := record_kind(kind)]
        if before is not None:
            sql += " AND (at, id) < (SELECT at, id FROM records WHERE tenant = ? AND kind = ? AND id = ?)"
            args += [self._tenant, name, before]

        if prefix:
            sql += " AND id >= ? AND id < ?"
            args += [prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)]

        async def read(row: Row) -> R:
            return self._read(kind, row)

        return await self._listed(f"{sql} ORDER BY at DESC, id DESC", args, limit, read)

    async def find_memories(self, prefix: str, words: Sequence[str], *, limit: int = 20) -> list[MemoryNote]:
        """The notes of an id's prefix with words that begin so, the best match first."""
        if not words:
            return []
        if self._packer.has_codec:  # The index would hold the texts in the clear.
            return rank_notes(await self.records(MemoryNote, prefix=prefix, limit=MAX_SCANNED), words, limit)

        async def read(row: Row) -> MemoryNote:
            return self._read(MemoryNote, row)

        sql, args = self._memory_query(owner_of(self._tenant, prefix), words)
        return await self._listed(sql, (self._tenant, record_kind(MemoryNote), *args), limit, read)

    def _memory_query(self, owner: str, words: Sequence[str]) -> tuple[str, Sequence[Any]]:
        """The query of the index in the words of a database, after tenant and kind."""
        raise NotImplementedError

    async def find_record(self, kind: type[ApiKey], record_id: str) -> tuple[str, ApiKey] | None:
        """The tenant of an API key and the key, of any tenant; None if there is none."""
        sql = f"SELECT tenant, id, payload FROM records WHERE kind = '{record_kind(kind)}' AND id = ?"
        for tenant, *row in await self._query(sql, record_id):
            return tenant, self._read(kind, row)
        return None

    def _read(self, kind: type[R], row: Sequence[Any]) -> R:
        read = Reader(self._packer, {}, "table records", of_thread=False)
        return read.json(row[1], kind, f"{record_kind(kind)} {row[0]}")
