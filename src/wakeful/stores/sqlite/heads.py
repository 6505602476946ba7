"""Facts for `decide`, loaded inside the write transaction; heads of threads are cached between transactions."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from ..heads import FOREIGN, DispatchRow, Facts, Head, ItemRow, NeedFacts, RecordKey, RecordRow, RunRow
from ..records import Commit
from ..writes import GroupWrites

__all__ = ["HeadCache"]

# A cached head takes about a kilobyte.
MAX_HEADS = 10_000

_HEAD = """SELECT t.no, t.version, t.head, t.epoch, t.claim, t.handed, t.inbox_head, t.wakes,
        t.last_run, coalesce(l.agent, ''), t.parent, r.no, r.id, r.agent, r.priority, r.step, r.status,
        d.thread, d.agent, d.priority, d.due_at, d.attempts, d.held, d.mark, d.dead_at, d.error
    FROM threads t LEFT JOIN runs r ON r.no = t.open_run LEFT JOIN runs l ON l.no = t.last_run
    LEFT JOIN dispatches d ON d.thread = t.no WHERE t.tenant = ? AND t.id = ?"""
_PENDING = """SELECT id, status, revision, position, taken_by, wake, at, priority, agent, digest FROM inbox
    WHERE thread = ? AND status = 'pending' ORDER BY position"""
_ITEM = """SELECT t.id, i.status, i.revision, i.position, i.taken_by, i.wake, i.at, i.priority, i.agent, i.digest
    FROM inbox i JOIN threads t ON t.no = i.thread WHERE i.tenant = ? AND i.id = ?"""
_RUN = "SELECT no, id, agent, priority, step, status FROM runs WHERE tenant = ? AND id = ?"
_RELAY = "SELECT revision FROM relays WHERE tenant = ? AND id = ?"
_RECORD = """SELECT revision, digest FROM records WHERE tenant = ?1 AND kind = ?2 AND id = ?3
    UNION ALL SELECT ?4, '' FROM records WHERE ?2 = 'key' AND kind = 'key' AND id = ?3 AND tenant <> ?1"""


class HeadCache:
    """The heads that the last transaction of a connection left.

    They are exact as long as nobody else wrote to the file (`data_version`) and nothing else was written on this
    connection (`total_changes`). `is_alive` tells whether a worker is alive.
    """

    def __init__(self, db: sqlite3.Connection, is_alive: Callable[[str], bool]) -> None:
        self._db = db
        self._cursor = db.cursor()
        self._execute = self._cursor.execute
        self._is_alive = is_alive
        self._heads: dict[tuple[str, str], Head] = {}
        self._leases: dict[str, int] = {}
        self._next_thread = 0
        self._next_run = 0
        self._seen = (-1, -1)

    def validate(self) -> None:
        """Drop the cache if another connection wrote since the last transaction. Inside a write transaction."""
        version = self._execute("PRAGMA data_version").fetchone()[0]
        if self._seen != (version, self._db.total_changes):
            self.clear()
            self._seen = (version, self._db.total_changes)
            rows: list[tuple[str, int]] = self._execute("SELECT name, seq FROM sqlite_sequence").fetchall()
            last = dict(rows)
            self._next_thread, self._next_run = last.get("threads", 0) + 1, last.get("runs", 0) + 1

    def clear(self) -> None:
        """Drop the cache, as after a rollback."""
        self._heads.clear()
        self._leases.clear()
        self._seen = (-1, -1)

    def close(self) -> None:
        """Close the cursor."""
        self._cursor.close()

    def facts_for(self, tenant: str, commit: Commit) -> Facts:
        """The facts that most commits need."""
        heads = {commit.thread_id: self._head(tenant, commit.thread_id)}
        return Facts(heads, leases=self._leases, next_thread=self._next_thread, next_run=self._next_run)

    def load(self, tenant: str, facts: Facts, needs: NeedFacts) -> Facts:
        """These facts with those that are needed."""
        heads = {thread_id: self._head(tenant, thread_id) for thread_id in needs.threads}
        items = {item_id: self._row(_ITEM, tenant, item_id, ItemRow) for item_id in needs.items}
        runs = {run_id: self._row(_RUN, tenant, run_id, RunRow) for run_id in needs.runs}
        relays = {relay_id: self._row(_RELAY, tenant, relay_id, int) for relay_id in needs.relays}
        records = {key: self._record(tenant, key) for key in needs.records}
        alive = {worker_id: self._is_alive(worker_id) for worker_id in needs.workers}
        return Facts(
            {**facts.heads, **heads},
            {**facts.items, **items},
            {**facts.runs, **runs},
            {**facts.relays, **relays},
            {**facts.records, **records},
            {**facts.alive, **alive},
            facts.leases,
            facts.next_thread,
            facts.next_run,
        )

    def keep(self, tenant: str, group: GroupWrites) -> None:
        """Cache the heads that a group left. Inside the transaction, after its statements."""
        if len(self._heads) > MAX_HEADS:
            self._heads.clear()
        for writes in group.writes:
            for thread_id in writes.heads:
                self._heads[tenant, thread_id] = group.facts.heads[thread_id]
            if writes.lease is not None:
                self._leases[writes.lease.worker_id] = writes.lease.until
        self._next_thread, self._next_run = group.facts.next_thread, group.facts.next_run
        self._seen = (self._seen[0], self._db.total_changes)

    def _row(self, sql: str, tenant: str, row_id: str, kind: Callable[..., Any]) -> Any:
        row = self._execute(sql, (tenant, row_id)).fetchone()
        return None if row is None else kind(*row)

    def _record(self, tenant: str, key: RecordKey) -> RecordRow | None:
        row = self._execute(_RECORD, (tenant, *key, FOREIGN)).fetchone()
        return None if row is None else RecordRow(*row)

    def _head(self, tenant: str, thread_id: str) -> Head:
        head = self._heads.get((tenant, thread_id))
        if head is None:
            head = self._read_head(tenant, thread_id)
            if head.no:
                self._heads[tenant, thread_id] = head
        return head

    def _read_head(self, tenant: str, thread_id: str) -> Head:
        row = self._execute(_HEAD, (tenant, thread_id)).fetchone()
        if row is None:
            return Head(thread_id)
        last_run, last_agent, parent = row[8:11]
        run = None if row[11] is None else RunRow(*row[11:17])
        dispatch = None
        if row[17] is not None:
            agent, priority, due_at, attempts, held, *rest = row[18:]
            dispatch = DispatchRow(agent, priority, due_at, attempts, bool(held), *rest)
        no, inbox_head = row[0], row[6]
        pending = {r[0]: ItemRow(thread_id, *r[1:]) for r in self._execute(_PENDING, (no,))} if inbox_head else {}
        return Head(
            thread_id,
            *row[:8],
            open_run=run,
            last_run=last_run,
            last_agent=last_agent,
            dispatch=dispatch,
            pending=pending,
            parent=parent,
        )
