"""Reading relays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..relays import Relay, RelayStatus
from .base import Row, SqlBase

__all__ = ["SqlRelays"]

_ROWS = "SELECT r.thread, r.id, r.payload FROM relays r"


class SqlRelays(SqlBase):
    """The relays of one tenant."""

    async def relay(self, relay_id: str) -> Relay | None:
        """A relay; None if there is none."""
        rows = await self._query(f"{_ROWS} WHERE r.tenant = ? AND r.id = ?", self._tenant, relay_id)
        return await self._relay(rows[0]) if rows else None

    async def relays(
        self,
        *,
        thread_id: str | None = None,
        run_id: str | None = None,
        kind: str | None = None,
        status: RelayStatus | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Sequence[Relay]:
        """Relays after the relay `after`, oldest first. Unreadable ones are left out of the tenant's list."""
        sql, args = f"{_ROWS} WHERE r.tenant = ?", list[Any]([self._tenant])
        if thread_id is not None:
            sql += " AND r.thread = (SELECT no FROM threads WHERE tenant = ? AND id = ?)"
            args += [self._tenant, thread_id]
        for column, value in (
            ("r.run =", run_id),
            ("r.kind =", kind),
            ("r.status =", status),
            ("r.id >", after),
        ):
            if value is not None:
                sql += f" AND {column} ?"
                args.append(value)
        sql += " ORDER BY r.id"
        if thread_id is None and run_id is None:
            return await self._listed(sql, args, limit, self._relay)
        if limit is not None:
            sql, args = f"{sql} LIMIT ?", [*args, limit]
        return [await self._relay(row) for row in await self._query(sql, *args)]

    async def due_relays(self, kind: str, now: int, *, limit: int = 100) -> Sequence[Relay]:
        """Live relays of a kind that are due, have entries to deliver, and no live owner.

        An owner has the relay until its time is over, or until its lease as a worker is.
        """
        sql = f"""{_ROWS} JOIN threads t ON t.no = r.thread
                  WHERE r.tenant = ? AND r.status = 'live' AND r.due_at <= ? AND r.kind = ?
                  AND (r.until <= ? OR EXISTS (
                      SELECT 1 FROM workers w WHERE w.id = r.owner AND w.until <= NOW_MS))
                  AND t.head > r.cursor ORDER BY r.due_at, r.id"""
        return await self._listed(sql, [self._tenant, now, kind, now], limit, self._relay)

    async def _relay(self, row: Row) -> Relay:
        return await self._one(row[0], row[2], Relay, f"relay {row[1]}")
