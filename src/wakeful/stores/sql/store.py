"""The reads that SQLite and Postgres share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Unpack, cast

from msgspec.structs import replace

from ...types.calls import Call
from ...types.inbox import InboxItem, Request, RequestItem
from ...types.messages import Message
from ...types.runs import RunRecord, TaskRecord, TaskStatus
from ...types.tickets import Decision, Ticket
from ..codec.reader import Reader, thread_of
from ..filters import RunFilters, TicketFilters, TicketOrder
from ..overview import Tally
from ..records import ChildPolicy, Pruned, Retention, ThreadRecord, ThreadView
from ..usage import UsageKey, UsageRow, usage_of_rows, usage_sql
from . import upkeep
from .base import RUN, Row
from .filters import Where, run_conditions, ticket_conditions
from .overview import SqlOverview
from .payloads import SqlPayloads
from .queue import SEEN, SqlDispatches
from .records import SqlRecords
from .relays import SqlRelays

__all__ = ["VIEWS", "SqlStore"]

_THREAD = """
SELECT 'thread', t.no, t.version, t.head, t.epoch, t.inbox_head, t.base_seq, t.created_at, t.updated_at,
    coalesce((SELECT w.id FROM workers w WHERE w.id = t.claim AND w.until > NOW_MS),
        CASE WHEN EXISTS (SELECT 1 FROM dispatches d WHERE d.thread = t.no AND d.dead_at IS NOT NULL) THEN '' END),
    t.id, o.id, l.id, l.agent, t.parent, b.id, t.title, t.metadata,
    CASE WHEN FALSE THEN t.metadata END, -- NULL, typed as in the other selects
    t.no, t.principal
FROM threads t LEFT JOIN runs o ON o.no = t.open_run LEFT JOIN runs l ON l.no = t.last_run
LEFT JOIN threads b ON b.no = t.base
"""

_NONE = ", NULL" * 6

# The rows of a view; column 19 is the number of their thread.
_VIEW = f"""
WITH t AS (SELECT no, open_run FROM threads WHERE tenant = ? AND id = ?),
r AS (SELECT runs.*, t.no AS home FROM runs JOIN t ON runs.no = t.open_run)
{_THREAD} WHERE t.no IN (SELECT no FROM t)
UNION ALL
SELECT 'run', r.no, r.step, NULL{_NONE}, r.id, r.status, NULL, NULL, NULL, NULL, NULL, r.payload, NULL, r.home,
    NULL
FROM r
UNION ALL
SELECT 'call', c.step, c.place, c.ref{_NONE}, c.id, c.name, NULL, NULL, NULL, NULL, NULL, c.arguments, c.payload,
    r.home, NULL
FROM r JOIN calls c ON c.run = r.no AND c.step = r.step WHERE r.acting = 1
UNION ALL
SELECT 'ticket', NULL, NULL, NULL{_NONE}, k.id{_NONE}, k.payload, NULL, r.home, NULL
FROM r JOIN tickets k ON k.run = r.no AND k.status = 'open'
UNION ALL
SELECT 'answer', l.seq, l.at, NULL{_NONE}{_NONE}, NULL, l.payload, NULL, r.home, NULL
FROM r JOIN log l ON l.thread = r.home AND l.seq = r.answer
UNION ALL
SELECT 'task', NULL, NULL, NULL{_NONE}, k.id{_NONE}, k.payload, NULL, t.no, NULL
FROM t JOIN tasks k ON k.thread = t.no AND k.status = 'running'
UNION ALL
SELECT 'item', i.position, i.revision, NULL{_NONE}, i.id{_NONE}, i.payload, NULL, t.no, NULL
FROM t JOIN inbox i ON i.thread = t.no AND i.status = 'pending'
UNION ALL
SELECT 'state', s.run, NULL, NULL{_NONE}, s.name{_NONE}, s.payload, NULL, t.no, NULL
FROM t JOIN state s ON s.thread = t.no AND (s.run = 0 OR s.run = t.open_run)
"""

# The same for several threads, for Postgres.
VIEWS = _VIEW.replace("id = ?)", "id = ANY (?))", 1)


class SqlStore(SqlDispatches, SqlRelays, SqlRecords, SqlPayloads, SqlOverview):
    """A store of one tenant, over queries and transactions that a database provides."""

    durable = True

    # -- the view --------------------------------------------------------------------------------------------

    async def load(self, thread_id: str) -> ThreadView | None:
        """The view of a thread; None if there is none."""
        rows = await self._view(thread_id)
        if not rows:
            return None
        return self._viewed(
            thread_id, rows, await self._blobs(rows[0][19], [p for row in rows for p in row[17:19]])
        )

    def _viewed(self, thread_id: str, rows: list[Row], blobs: dict[str, bytes]) -> ThreadView:
        """Build a view from its rows."""
        parts: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            parts[row[0]].append(row)
        read = Reader(self._packer, blobs, f"thread {thread_id!r}")
        run = next((read.run(thread_id, r[10], r[11], r[2], r[17]) for r in parts["run"]), None)
        answer = next((read.message(r[1], r[2], r[17]) for r in parts["answer"]), None)
        calls = [
            read.call(run.id if run else "", r[1], r[2], r[10], r[11], r[17], answer if r[3] else None, r[18])
            for r in sorted(parts["call"], key=lambda r: r[2])
        ]
        return ThreadView(
            thread=thread_of(parts["thread"][0], read),
            run=run,
            calls=tuple(calls),
            tickets=tuple([read.json(r[17], Ticket, f"ticket {r[10]}") for r in _by_id(parts["ticket"])]),
            answer=answer,
            tasks=tuple([read.json(r[17], TaskRecord, f"task {r[10]}") for r in _by_id(parts["task"])]),
            inbox=tuple([read.item(r[17], r[10], r[1], r[2]) for r in sorted(parts["item"], key=lambda r: r[1])]),
            state={r[10]: read.payload(r[17], f"state {r[10]}") for r in parts["state"] if not r[1]},
            run_state={r[10]: read.payload(r[17], f"state {r[10]}") for r in parts["state"] if r[1]},
        )

    async def _view(self, thread_id: str) -> list[Row]:
        """Query the rows of a view."""
        return await self._query(_VIEW, self._tenant, thread_id)

    # -- runs and what hangs off them ------------------------------------------------------------------------

    async def run(self, run_id: str) -> RunRecord | None:
        """The record of a run; None if there is none."""
        rows = await self._query(f"{RUN} WHERE r.tenant = ? AND r.id = ?", self._tenant, run_id)
        return await self._record(rows[0]) if rows else None

    async def runs(
        self, *, before: str | None = None, limit: int = 100, **filters: Unpack[RunFilters]
    ) -> list[RunRecord]:
        """Run records older than the run `before`, newest first; with `root_run_id` those below that run.

        Unreadable records are left out of lists over many threads."""
        where = run_conditions(self._tenant, filters)
        in_range = filters.get("since") is not None or filters.get("until") is not None
        if before is not None and in_range:
            last = "(SELECT created_at, id FROM runs WHERE tenant = ? AND id = ?)"
            where.add(f"(r.created_at, r.id) < {last}", self._tenant, before)
        elif before is not None:
            where.add("r.id < ?", before)
        order = "r.created_at DESC, r.id DESC" if in_range else "r.id DESC"
        sql = f"{RUN} WHERE {where.sql} ORDER BY {order}"
        if filters.get("thread_id") is None and filters.get("root_run_id") is None:
            return await self._listed(sql, where.args, limit, self._record)
        rows = await self._query(f"{sql} LIMIT ?", *where.args, limit)
        return [await self._record(row) for row in rows]

    async def count_runs(self, limit: int, **filters: Unpack[RunFilters]) -> Tally:
        """The number of runs, counted up to `limit`."""
        where = run_conditions(self._tenant, filters)
        return await self._count(f"FROM runs r WHERE {where.sql}", where.args, limit)

    async def _count(self, rows: str, args: list[Any], limit: int) -> Tally:
        sql = f"SELECT count(*) FROM (SELECT 1 {rows} LIMIT ?) AS c"
        found = (await self._query(sql, *args, limit + 1))[0][0]
        return Tally(min(found, limit), found > limit)

    async def answer(self, run_id: str) -> Message | None:
        """The last answer of a run; None if there is none."""
        sql = """SELECT l.thread, l.seq, l.at, l.payload FROM runs r
                 JOIN log l ON l.thread = r.thread AND l.seq = r.answer WHERE r.tenant = ? AND r.id = ?"""
        for thread, seq, at, payload in await self._query(sql, self._tenant, run_id):
            blobs, own = await self._blobs(thread, [payload]), (seq, at, payload)
            return await self._named(thread, blobs, lambda read, own=own: read.message(*own))
        return None

    async def calls(self, run_id: str) -> Sequence[Call]:
        """The whole ledger of a run, in order."""
        sql = """SELECT r.thread, c.step, c.place, c.id, c.name, c.ref, c.arguments, c.payload
                 FROM runs r JOIN calls c ON c.run = r.no
                 WHERE r.tenant = ? AND r.id = ? ORDER BY c.step, c.place"""
        rows = await self._query(sql, self._tenant, run_id)
        answers = await self._answers({(row[0], row[5]) for row in rows if row[5] is not None})
        calls: list[Call] = []
        for thread, *own in rows:

            def read(reader: Reader, thread: int = thread, own: list[Any] = own) -> Call:
                step, place, call_id, name, ref, arguments, payload = own
                answer = None if ref is None else reader.answer(ref, answers.get((thread, ref)))
                return reader.call(run_id, step, place, call_id, name, arguments, answer, payload)

            calls.append(await self._named(thread, await self._blobs(thread, own[-2:]), read))
        return calls

    async def tickets(
        self,
        run_id: str | None = None,
        *,
        order: TicketOrder = "created",
        after: tuple[int, str] | None = None,
        limit: int | None = None,
        **filters: Unpack[TicketFilters],
    ) -> Sequence[Ticket]:
        """Tickets of a run, a thread or the tenant after a position, in this order.

        Unreadable tickets are left out of the tenant's list."""
        where = ticket_conditions(self._tenant, run_id, filters)
        if order == "deadline" and after is not None:
            where.add("(k.due, k.id) > (?, ?)", *after)
        elif after is not None:
            where.add("k.id > ?", after[1])
        columns = "k.due, k.id" if order == "deadline" else "k.id"
        sql = f"SELECT k.thread, k.id, k.payload FROM tickets k WHERE {where.sql} ORDER BY {columns}"
        if run_id is None and filters.get("thread_id") is None:
            return await self._listed(sql, where.args, limit, self._ticket)
        if limit is not None:
            sql, where.args = f"{sql} LIMIT ?", [*where.args, limit]
        return [await self._ticket(row) for row in await self._query(sql, *where.args)]

    async def count_tickets(
        self, limit: int, run_id: str | None = None, **filters: Unpack[TicketFilters]
    ) -> Tally:
        """The number of tickets, counted up to `limit`."""
        where = ticket_conditions(self._tenant, run_id, filters)
        return await self._count(f"FROM tickets k WHERE {where.sql}", where.args, limit)

    async def _ticket(self, row: Row) -> Ticket:
        return await self._one(row[0], row[2], Ticket, f"ticket {row[1]}")

    async def ticket(self, ticket_id: str) -> Ticket | None:
        """A ticket; None if there is none."""
        sql = "SELECT thread, payload FROM tickets WHERE tenant = ? AND id = ?"
        for thread, payload in await self._query(sql, self._tenant, ticket_id):
            return await self._one(thread, payload, Ticket, f"ticket {ticket_id}")
        return None

    async def tasks(self, thread_id: str, *, status: TaskStatus | None = None) -> Sequence[TaskRecord]:
        """The tasks of a thread, oldest first."""
        sql = """SELECT k.thread, k.id, k.payload FROM threads t JOIN tasks k ON k.thread = t.no
                 WHERE t.tenant = ? AND t.id = ?"""
        args: list[Any] = [self._tenant, thread_id]
        if status is not None:
            sql, args = f"{sql} AND k.status = ?", [*args, status]
        rows = await self._query(f"{sql} ORDER BY k.id", *args)
        return [await self._one(row[0], row[2], TaskRecord, f"task {row[1]}") for row in rows]

    async def decisions(self, ticket_id: str) -> Sequence[Decision]:
        """The decisions on a ticket, oldest first."""
        sql = "SELECT thread, id, payload FROM decisions WHERE tenant = ? AND ticket = ? ORDER BY at, id"
        rows = await self._query(sql, self._tenant, ticket_id)
        return [await self._one(row[0], row[2], Decision, f"decision {row[1]}") for row in rows]

    async def decision(self, decision_id: str) -> Decision | None:
        """A decision; None if there is none."""
        sql = "SELECT thread, payload FROM decisions WHERE tenant = ? AND id = ?"
        for thread, payload in await self._query(sql, self._tenant, decision_id):
            return await self._one(thread, payload, Decision, f"decision {decision_id}")
        return None

    async def has_id(self, an_id: str) -> bool:
        """Whether a decision, an inbox item or a request has this id."""
        sql = """SELECT 1 FROM decisions WHERE tenant = ? AND id = ?
                 UNION ALL SELECT 1 FROM inbox WHERE tenant = ? AND id = ?"""
        return bool(await self._query(sql, self._tenant, an_id, self._tenant, an_id))

    async def item(self, item_id: str) -> InboxItem | None:
        """An inbox item or a used request id, in any status; None if there is none."""
        return await self._item("i.id = ?", item_id)

    async def item_of_run(self, run_id: str) -> InboxItem | None:
        """The input that starts this run, if it went through the inbox. The run may not exist yet."""
        return await self._item("i.kind = 'input' AND i.run = ?", run_id)

    async def _item(self, where: str, value: str) -> InboxItem | None:
        sql = f"""SELECT i.id, i.thread, t.id, i.position, i.status, i.taken_by, i.revision, i.digest, i.payload
                  FROM inbox i JOIN threads t ON t.no = i.thread WHERE i.tenant = ? AND {where}"""
        for item_id, thread, thread_id, *own, payload in await self._query(sql, self._tenant, value):
            position, status, taken_by, revision, digest = own
            item: InboxItem = RequestItem(id=item_id, thread_id=thread_id)
            if payload is not None:
                item = await self._one(thread, payload, cast(type[InboxItem], InboxItem), f"item {item_id}")
            changes = {"position": position, "status": status, "taken_by": taken_by, "revision": revision}
            return replace(item, digest=digest, **changes)
        return None

    # -- threads ---------------------------------------------------------------------------------------------

    async def thread(self, thread_id: str) -> ThreadRecord | None:
        """The record of a thread; None if there is none."""
        rows = await self._query(f"{_THREAD} WHERE t.tenant = ? AND t.id = ?", self._tenant, thread_id)
        return await self._thread(rows[0]) if rows else None

    async def threads(
        self,
        *,
        principal: str | None = None,
        agents: Collection[str] | None = None,
        base: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[ThreadRecord]:
        """Threads older than the thread `before`, newest first, without those of delegated runs.

        Unreadable threads are left out."""
        where = Where("t.tenant = ? AND t.parent IS NULL", self._tenant)
        where.add_equal("t.principal", principal)
        where.add_any("l.agent", agents)
        if base is not None:
            where.add("t.base = (SELECT o.no FROM threads o WHERE o.tenant = ? AND o.id = ?)", self._tenant, base)
        if before is not None:
            older = "(SELECT b.created_at, b.no FROM threads b WHERE b.tenant = ? AND b.id = ?)"
            where.add(f"(t.created_at, t.no) < {older}", self._tenant, before)
        sql = f"{_THREAD} WHERE {where.sql} ORDER BY t.created_at DESC, t.no DESC"
        return await self._listed(sql, where.args, limit, self._thread)

    async def _thread(self, row: Row) -> ThreadRecord:
        read = Reader(self._packer, await self._blobs(row[1], [row[17]]), f"thread {row[10]!r}")
        return thread_of(row, read)

    async def counts(self) -> Mapping[str, int]:
        """Counts of threads, messages, runs by status, open tickets and dispatches."""
        sql = f"""
        SELECT 'threads', count(*) FROM threads WHERE tenant = ?
        UNION ALL SELECT 'messages', count(*) FROM threads t JOIN log l ON l.thread = t.no AND l.kind = 'message'
            WHERE t.tenant = ?
        UNION ALL SELECT status, count(*) FROM runs WHERE tenant = ? GROUP BY status
        UNION ALL SELECT 'tickets', count(*) FROM tickets WHERE tenant = ? AND status = 'open'
        UNION ALL SELECT 'dispatches', count(*) FROM {SEEN} WHERE d.tenant = ?"""
        return dict(await self._query(sql, *[self._tenant] * 5))  # type: ignore[arg-type]

    async def usage(
        self, by: Sequence[UsageKey], *, since: int | None = None, until: int | None = None
    ) -> list[UsageRow]:
        """Sums over the usage log by these keys, in their order, from `since` on and before `until` in ms."""
        where, args = "tenant = ?", list[Any]([self._tenant])
        for condition, at in (("at >= ?", since), ("at < ?", until)):
            if at is not None:
                where += f" AND {condition}"
                args.append(at)
        return usage_of_rows(await self._query(usage_sql(by, where), *args), by)

    async def probe(self) -> None:
        """Write a trifle durably; raises `StoreError` if the store can't write now."""
        await self._transact(upkeep.probe)

    async def tenants(self) -> list[str]:
        """The tenants that have threads or records."""
        sql = "SELECT tenant FROM threads UNION SELECT tenant FROM records ORDER BY tenant"
        return [row[0] for row in await self._query(sql)]

    async def fork(self, thread_id: str, at: int, new_id: str, *, request: Request | None = None) -> ThreadRecord:
        """Make a thread that shares this one's log up to `at`, with the state it had there."""
        made = await self._transact(lambda: upkeep.fork(self._tenant, thread_id, at, new_id, request))
        forked = await self.thread(made)
        assert forked is not None  # noqa: S101  # It was made in the line above.
        return forked

    async def delete(self, thread_id: str, *, children: ChildPolicy = "reject") -> int:
        """Delete a thread, and by policy its children; returns the number. Owners of its tasks are told."""
        return await self._transact(lambda: upkeep.delete(self._packer, self._tenant, thread_id, children))

    async def prune(self, retention: Retention) -> Pruned:
        """Delete what is older than its retention."""
        return await self._transact(lambda: upkeep.prune(self._tenant, retention))

    async def would_prune(self, retention: Retention) -> Pruned:
        """The rows that `prune` would delete. Nothing is deleted."""
        try:
            return await self._transact(lambda: upkeep.prune_and_undo(self._tenant, retention))
        except upkeep.Undone as undone:
            return undone.pruned


def _by_id(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row[10])
