"""The overview queries of a database, each with a bounded cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack, cast

from ...types.inbox import DecisionItem, InboxItem
from ...types.runs import RunRecord, RunStatus, TaskRecord
from ...types.tickets import Decision, Ticket
from ..filters import TicketFilters, TicketOrder
from ..overview import (
    COUNTED,
    Backlog,
    DeadSeen,
    Mark,
    Overview,
    QueueSeen,
    RunSeen,
    Tally,
    TaskSeen,
    TicketSeen,
    WorkerSeen,
)
from .base import RUN_COLUMNS, Row, SqlBase

__all__ = ["SqlOverview"]

LANES = 100
_TEXT = 500

# Workers are few, so this table is scanned. With EXISTS, Postgres would scan the threads while it has no
# statistics.
WORKERS = """
SELECT w.id, w.started_at, w.until, CASE WHEN w.until > NOW_MS THEN 1 ELSE 0 END,
    (SELECT count(*) FROM threads t WHERE t.claim = w.id)
FROM (SELECT id, started_at, until FROM workers WHERE until > NOW_MS
    OR (SELECT 1 FROM threads t WHERE t.claim = workers.id LIMIT 1) = 1 ORDER BY started_at, id LIMIT ?) AS w
ORDER BY w.started_at, w.id
"""

_READY = "d.held = 0 AND d.dead_at IS NULL"
_OF = f"FROM dispatches d WHERE {_READY} AND d.tenant"
_LANE = f"""(SELECT d.due_at FROM dispatches d WHERE {_READY} AND d.tenant = l.tenant AND d.agent = l.agent
        ORDER BY d.priority, d.due_at LIMIT {COUNTED + 1}) AS c"""

# One index lookup for each lane, and its first dispatches. The next lane is the tenant's next agent, else the next
# tenant's first one: a comparison of both columns would have SQLite scan all that the tenant has.
QUEUES = f"""
WITH RECURSIVE lanes(n, tenant, agent) AS (
    SELECT 1, f.tenant, f.agent FROM (SELECT d.tenant, d.agent FROM dispatches d WHERE {_READY}
        ORDER BY d.tenant, d.agent LIMIT 1) AS f
    UNION ALL
    SELECT l.n + 1,
        CASE WHEN (SELECT min(d.agent) {_OF} = l.tenant AND d.agent > l.agent) IS NOT NULL THEN l.tenant
            ELSE (SELECT min(d.tenant) {_OF} > l.tenant) END,
        coalesce((SELECT min(d.agent) {_OF} = l.tenant AND d.agent > l.agent),
            (SELECT min(d.agent) {_OF} = (SELECT min(d.tenant) {_OF} > l.tenant)))
    FROM lanes l WHERE l.tenant IS NOT NULL AND l.n < {LANES}
)
SELECT l.tenant, l.agent, (SELECT count(*) FROM {_LANE} WHERE c.due_at <= NOW_MS),
    (SELECT count(*) FROM {_LANE}), (SELECT min(c.due_at) FROM {_LANE} WHERE c.due_at <= NOW_MS)
FROM lanes l WHERE l.tenant IS NOT NULL
"""


def _up_to(what: str, order: str) -> str:
    # In the order of the index: else Postgres may scan the table, hoping for an early end.
    return f"(SELECT count(*) FROM (SELECT 1 FROM {what} ORDER BY {order} LIMIT {COUNTED + 1}) AS c)"


COUNTS = f"""
SELECT NOW_MS, {_up_to("runs WHERE tenant = ? AND status = 'running'", "id DESC")},
    {_up_to("runs WHERE tenant = ? AND status = 'waiting'", "id DESC")},
    {_up_to("tickets WHERE tenant = ? AND status = 'open'", "id")},
    {_up_to("dispatches WHERE tenant = ? AND dead_at IS NOT NULL", "dead_at")}
"""

ALL_DEAD = f"""
SELECT NOW_MS, {_up_to("dispatches WHERE dead_at IS NOT NULL", "tenant, dead_at")}
"""

RUNS = f"""
SELECT {RUN_COLUMNS},
    (SELECT w.id FROM threads t JOIN workers w ON w.id = t.claim AND w.until > NOW_MS WHERE t.no = r.thread)
FROM runs r WHERE r.tenant = ? AND r.status = ? ORDER BY r.id DESC
"""

_THREADS = """SELECT thread FROM
    (SELECT thread FROM runs WHERE tenant = ? AND status = '{}' ORDER BY id DESC LIMIT ?) AS {}"""
TASKS = f"""
SELECT k.thread, k.id, k.payload
FROM ({_THREADS.format("running", "a")} UNION {_THREADS.format("waiting", "b")}) AS r
JOIN tasks k ON k.thread = r.thread AND k.status = 'running' ORDER BY k.id DESC
"""

LEFT = """
SELECT i.thread, i.id, i.payload, d.error
FROM (SELECT DISTINCT o.thread FROM (SELECT k.thread FROM tickets k WHERE k.tenant = ? AND k.status = 'open'
    ORDER BY k.id LIMIT ?) AS o) AS t
JOIN inbox i ON i.thread = t.thread AND i.status = 'pending' AND i.kind = 'decision'
LEFT JOIN dispatches d ON d.thread = i.thread ORDER BY i.position
"""

DEAD = """
SELECT t.id, r.id, d.agent, d.attempts, d.dead_at, d.error FROM dispatches d JOIN threads t ON t.no = d.thread
LEFT JOIN runs r ON r.no = t.open_run
WHERE d.tenant = ? AND d.dead_at IS NOT NULL ORDER BY d.dead_at DESC LIMIT ?
"""


_MARKED = "id, status, step, acting, thread"
_THREAD = "t.version, t.inbox_head, t.head, t.updated_at"
RUN_MARKS = f"""
SELECT r.id, r.status, r.step, r.acting, t.id, {_THREAD} FROM (
    SELECT * FROM (SELECT {_MARKED} FROM runs WHERE tenant = ? ORDER BY id DESC LIMIT ?) AS a
    UNION SELECT * FROM
        (SELECT {_MARKED} FROM runs WHERE tenant = ? AND status = 'running' ORDER BY id DESC LIMIT ?) AS b
    UNION SELECT * FROM
        (SELECT {_MARKED} FROM runs WHERE tenant = ? AND status = 'waiting' ORDER BY id DESC LIMIT ?) AS c
) AS r JOIN threads t ON t.no = r.thread
"""

THREAD_MARKS = f"""
SELECT t.id, {_THREAD} FROM threads t WHERE t.tenant = ? AND t.parent IS NULL
ORDER BY t.created_at DESC, t.no DESC LIMIT ?
"""

TICKET_MARKS = """
SELECT id, assignee FROM tickets WHERE tenant = ? AND status = 'open' ORDER BY id DESC LIMIT ?
"""


class SqlOverview(SqlBase):
    """Marks, and the overview of a database. A store in memory has no overview: no other process could ask."""

    async def tickets(
        self,
        run_id: str | None = None,
        *,
        order: TicketOrder = "created",
        after: tuple[int, str] | None = None,
        limit: int | None = None,
        **filters: Unpack[TicketFilters],
    ) -> Sequence[Ticket]:
        """Tickets, oldest first."""
        raise NotImplementedError

    async def marks(self, *, limit: int = 200) -> Sequence[Mark]:
        """The marks of open runs with their threads, of open tickets, and of the newest runs and threads."""
        given = (self._tenant, limit)
        threads: dict[str, Mark] = {}
        found: list[Mark] = []
        for run_id, status, step, acting, thread_id, *state in await self._query(RUN_MARKS, *given * 3):
            found.append(Mark("run", run_id, f"{status} {step} {acting}"))
            threads[thread_id] = Mark("thread", thread_id, repr(state))
        for thread_id, *state in await self._query(THREAD_MARKS, *given):
            threads[thread_id] = Mark("thread", thread_id, repr(state))
        tickets = await self._query(TICKET_MARKS, *given)
        found += [Mark("ticket", ticket_id, assignee or "") for ticket_id, assignee in tickets]
        return [*found, *threads.values()]

    async def overview(self, *, limit: int = 50) -> Overview:
        """The overview, with at most `limit` rows of each kind."""
        tenant = self._tenant
        ((at, *counts),) = await self._query(COUNTS, *[tenant] * 4)
        running, waiting, tickets, dead = [Tally(min(n, COUNTED), n > COUNTED) for n in counts]
        open_tickets = await self.tickets(status="open", limit=limit) if tickets.count else ()
        left = await self._left(limit) if tickets.count else {}
        return Overview(
            at=at,
            tenant=tenant,
            workers=await self.workers(limit=limit),
            queues=await self.queues(),
            running=running,
            waiting=waiting,
            tickets_open=tickets,
            dead_letters=dead,
            runs=(*await self._open_runs("running", limit), *await self._open_runs("waiting", limit)),
            tasks=await self._live_tasks(limit),
            tickets=tuple([_ticket(ticket, left.get(ticket.id)) for ticket in open_tickets]),
            dead=await self._dead(limit) if dead.count else (),
        )

    async def workers(self, *, limit: int = 50) -> tuple[WorkerSeen, ...]:
        """Workers with a lease, and workers without one that still have claims."""
        return tuple(
            [
                WorkerSeen(
                    id=worker_id, state="alive" if alive else "lost", started_at=since, until=until, claims=claims
                )
                for worker_id, since, until, alive, claims in await self._query(WORKERS, limit)
            ]
        )

    async def queues(self) -> tuple[QueueSeen, ...]:
        """Unclaimed dispatches of all tenants by tenant and agent, the first 100 of these."""
        return tuple(
            [
                QueueSeen(
                    tenant=tenant,
                    agent_id=agent,
                    waiting=min(waiting, COUNTED),
                    later=min(found, COUNTED) - min(waiting, COUNTED),
                    oldest_at=oldest,
                    more=found > COUNTED,
                )
                for tenant, agent, waiting, found, oldest in await self._query(QUEUES)
            ]
        )

    async def backlog(self) -> Backlog:
        """Dispatches of all tenants that wait for a worker, and the number of dead letters."""
        ((at, dead),) = await self._query(ALL_DEAD)
        return Backlog(at, await self.queues(), Tally(min(dead, COUNTED), dead > COUNTED))

    async def _open_runs(self, status: RunStatus, limit: int) -> list[RunSeen]:
        async def read(row: Row) -> RunSeen:
            return _run(await self._record(row[:6]), row[6])

        return await self._listed(RUNS, [self._tenant, status], limit, read)

    async def _live_tasks(self, limit: int) -> tuple[TaskSeen, ...]:
        async def read(row: Row) -> TaskSeen:
            return _task(await self._one(row[0], row[2], TaskRecord, f"task {row[1]}"))

        return tuple(await self._listed(TASKS, [self._tenant, limit, self._tenant, limit], limit, read))

    async def _left(self, limit: int) -> dict[str, tuple[Decision, str]]:
        """Answers to open tickets that no run has taken yet, and why, by ticket id."""

        async def read(row: Row) -> tuple[InboxItem, str]:
            return await self._one(row[0], row[2], cast(type[InboxItem], InboxItem), f"item {row[1]}"), row[
                3
            ] or ""

        items = await self._listed(LEFT, [self._tenant, limit], None, read)
        answers = [(item.decision, error) for item, error in items if isinstance(item, DecisionItem)]
        return {one.ticket_id: (one, error) for one, error in answers if one.verdict != "reassign"}

    async def _dead(self, limit: int) -> tuple[DeadSeen, ...]:
        return tuple(
            [
                DeadSeen(
                    thread_id=thread_id,
                    run_id=run_id,
                    agent_id=agent,
                    attempts=attempts,
                    dead_at=dead_at,
                    error=(error or "")[:_TEXT],
                )
                for thread_id, run_id, agent, attempts, dead_at, error in (
                    await self._query(DEAD, self._tenant, limit)
                )
            ]
        )


def _run(run: RunRecord, owner: str | None) -> RunSeen:
    waiting = run.waiting
    return RunSeen(
        id=run.id,
        thread_id=run.thread_id,
        agent_id=run.agent_id,
        status=run.status,
        stage=run.stage,
        steps=run.steps,
        tokens=run.usage.total_tokens,
        created_at=run.created_at,
        updated_at=run.updated_at,
        worker_id=owner,
        parent_run_id=run.identity.parent_run_id,
        reason=None if waiting is None else waiting.reason,
        until=None if waiting is None else waiting.until,
        cancelling=run.cancel is not None,
    )


def _task(task: TaskRecord) -> TaskSeen:
    return TaskSeen(
        id=task.id,
        name=task.name,
        thread_id=task.thread_id,
        run_id=task.run_id,
        agent_id=task.agent_id,
        target=task.target,
        background=task.background,
        remote=task.remote,
        created_at=task.created_at,
    )


def _ticket(ticket: Ticket, left: tuple[Decision, str] | None) -> TicketSeen:
    answer, problem = (None, "") if left is None else left
    return TicketSeen(
        id=ticket.id,
        thread_id=ticket.thread_id,
        run_id=ticket.run_id,
        tool=ticket.tool,
        message=ticket.message[:_TEXT],
        asked_by=ticket.asked_by,
        accepts=tuple(ticket.accepts),
        created_at=ticket.created_at,
        assignee=ticket.assignee,
        deadline=ticket.deadline,
        left=None if answer is None else answer.verdict,
        left_by=None if answer is None else answer.principal_id,
        problem=problem[:_TEXT],
    )
