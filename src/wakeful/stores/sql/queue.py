"""Dispatches, as SQLite and Postgres share them: claiming, listing, reviving."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from secrets import token_hex

from ...types.inbox import Request
from ...types.runs import PRIORITY
from ..records import LEASE_MS, Claims, Dispatch, Due
from ..turns import ClaimRequest
from .base import Script, SqlBase
from .requests import put_request

__all__ = ["SEEN", "SqlDispatches"]

# Dispatches as they are listed: rows, and threads whose claim made no row. `tenant || ''` keeps SQLite from using
# the index on tenants: it finds the latter by their claims, which are few.
_ROWS = """SELECT t.no, t.tenant, t.id, t.claim, r.id AS run, d.agent, d.priority, d.due_at, d.attempts,
        d.dead_at, d.error
    FROM threads t JOIN dispatches d ON d.thread = t.no LEFT JOIN runs r ON r.no = t.open_run"""
_CLAIMS = f"""SELECT t.no, t.tenant || '' AS tenant, t.id, t.claim, r.id AS run, coalesce(r.agent, '') AS agent,
        coalesce(r.priority, {PRIORITY}) AS priority, t.updated_at AS due_at, 0 AS attempts,
        CAST(NULL AS bigint) AS dead_at, NULL AS error
    FROM threads t LEFT JOIN runs r ON r.no = t.open_run
    WHERE t.claim IS NOT NULL AND NOT EXISTS (SELECT 1 FROM dispatches h WHERE h.thread = t.no)"""
SEEN = f"({_ROWS} UNION ALL {_CLAIMS}) AS d"


class SqlDispatches(SqlBase):
    """The dispatches of a store."""

    async def _claim(self, request: ClaimRequest) -> Claims:
        """Claim dispatches in one transaction."""
        raise NotImplementedError

    async def secret(self) -> bytes:
        """A random key that the processes of a store share. It is made on first use."""

        def script() -> Script[bytes]:
            made = token_hex(32)
            yield "INSERT INTO meta (name, value) VALUES ('secret', ?) ON CONFLICT (name) DO NOTHING", (made,)
            ((value,),) = yield "SELECT value FROM meta WHERE name = 'secret'", ()
            return bytes.fromhex(value)

        return await self._transact(script)

    async def claim(
        self,
        worker_id: str,
        *,
        agents: Collection[str],
        limit: int,
        lease: int = LEASE_MS,
        now: int | None = None,
        per_tenant: int | None = None,
        per_agent: Mapping[str, int] | None = None,
    ) -> Claims:
        """Claim up to `limit` dispatches of these agents, of all tenants, that are due and have no live owner."""
        return await self._claim(
            ClaimRequest(
                worker_id=worker_id,
                agents=agents,
                limit=limit,
                lease=lease,
                now=now,
                per_tenant=per_tenant,
                per_agent=per_agent or {},
            )
        )

    async def due(self, *, limit: int = 100) -> list[Due]:
        """Dispatches of all tenants without a live owner, in the order in which they are due."""
        sql = f"""SELECT d.tenant, d.id, d.agent, d.due_at FROM {SEEN}
                  WHERE d.dead_at IS NULL AND (d.claim IS NULL
                  OR NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = d.claim AND w.until > NOW_MS))
                  ORDER BY d.due_at, d.no LIMIT ?"""
        return [Due(*row) for row in await self._query(sql, limit)]

    async def claims(self, worker_id: str) -> list[tuple[str, str, int]]:
        """The threads that a worker has claimed, of all tenants: tenant, thread id and inbox head."""
        rows = await self._query("SELECT tenant, id, inbox_head FROM threads WHERE claim = ?", worker_id)
        return [(tenant, thread_id, head) for tenant, thread_id, head in rows]

    async def dispatches(
        self,
        *,
        thread_id: str | None = None,
        dead: bool | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Dispatch]:
        """Dispatches of one thread, or of all after `after`; `dead` selects dead letters or the others."""
        which = {None: "", True: " AND d.dead_at IS NOT NULL", False: " AND d.dead_at IS NULL"}[dead]
        which += "" if thread_id is None else " AND d.id = ?"
        page = f"WHERE d.tenant = ? AND d.id > ?{which} ORDER BY d.id LIMIT ?"
        rows, claims = [f"SELECT * FROM (SELECT * FROM ({of}) AS d {page}) AS p" for of in (_ROWS, _CLAIMS)]
        sql = f"""SELECT d.id, d.run, d.agent, d.priority, d.due_at, d.attempts,
                  (SELECT w.id FROM workers w WHERE w.id = d.claim AND w.until > NOW_MS), d.dead_at, d.error
                  FROM ({rows} UNION ALL {claims}) AS d ORDER BY d.id LIMIT ?"""
        args = (self._tenant, after or "", *(() if thread_id is None else (thread_id,)), limit)
        return [
            Dispatch(
                thread_id=found_id,
                run_id=run_id,
                agent_id=agent,
                priority=priority,
                due_at=due_at,
                attempts=attempts,
                claimed_by=claimed_by,
                dead_at=dead_at,
                error=error or "",
            )
            for found_id, run_id, agent, priority, due_at, attempts, claimed_by, dead_at, error in (
                await self._query(sql, *args, *args, limit)
            )
        ]

    async def revive(self, thread_id: str, *, request: Request | None = None) -> bool:
        """Make a dead letter due again with all its attempts; False if there is none."""
        return await self._transact(lambda: _revive(self._tenant, thread_id, request))

    async def queued(self, limit: int) -> int:
        """The number of the tenant's dispatches that wait for a worker, counted up to `limit`."""
        sql = """SELECT count(*) FROM (SELECT 1 FROM dispatches
                 WHERE tenant = ? AND held = 0 AND dead_at IS NULL AND due_at <= NOW_MS LIMIT ?) AS waiting"""
        return (await self._query(sql, self._tenant, limit))[0][0]


def _revive(tenant: str, thread_id: str, request: Request | None) -> Script[bool]:
    rows = yield "SELECT no FROM threads WHERE tenant = ? AND id = ? FOR_UPDATE", (tenant, thread_id)
    for (thread,) in rows:
        revived = yield (
            """UPDATE dispatches SET dead_at = NULL, error = NULL, attempts = 0, held = 0, due_at = NOW_MS
               WHERE thread = ? AND dead_at IS NOT NULL RETURNING 1""",
            (thread,),
        )
        if revived:
            yield "UPDATE threads SET inbox_head = inbox_head + 1 WHERE no = ?", (thread,)
        if revived and request is not None:
            yield from put_request(tenant, thread, request)
        return bool(revived)
    return False
