"""Dispatches of a store in memory: claiming, listing and reviving them."""

from __future__ import annotations

from msgspec.structs import replace

from ...types.ids import now_ms
from ...types.runs import PRIORITY
from .. import dispatches
from ..dispatches import PROGRESS
from ..heads import DispatchRow, Head
from ..records import Claimed, Claims, Dispatch, Due
from ..turns import SUSPECT, Candidate, ClaimRequest, pick_in_turns
from .tables import Database, Thread

__all__ = ["claim_dispatches", "count_queued", "due_dispatches", "list_dispatches", "revive_dispatch"]


def claim_dispatches(database: Database, request: ClaimRequest) -> Claims:
    """Claim dispatches that are due and free."""
    clock = now_ms()
    due = clock if request.now is None else request.now
    _reap_dead_owners(database, clock)
    threads = {thread.head.no: thread for thread in database.active if _is_free(database, thread, request, clock)}
    rows = [(thread, row) for thread in threads.values() if (row := thread.head.dispatch) is not None]
    waits = [row.due_at - due for _, row in rows if row.due_at > due]
    ready = [_ready(thread, row) for thread, row in rows if row.due_at <= due]
    claimed: list[Claimed] = []
    if ready and request.limit > 0:
        database.extend_lease(request.worker_id, clock + request.lease)
        has_suspect = any(_holds_suspect(thread.head, request.worker_id) for thread in database.active)
        picked = pick_in_turns(ready, database.turns, _live_counts(database, clock), request, suspect=has_suspect)
        last = max(database.turns.values(), default=0)
        for place, one in enumerate(picked, 1):
            database.turns[one.tenant] = last + place
            claimed.append(_take(database, threads[one.thread], request.worker_id, clock))
    owners = {thread.head.claim for thread in database.active} - {None, request.worker_id}
    leases = [(worker, until) for worker, until in database.leases.items() if clock < until < float("inf")]
    waits += [round(until - clock) for worker, until in leases if worker in owners]
    return Claims(tuple(claimed), min(waits, default=None))


def _reap_dead_owners(database: Database, clock: int) -> None:
    """Make the dispatches of dead owners due again, each with an attempt more; too many make a dead letter."""
    for thread in list(database.active):
        head = thread.head
        if head.claim is None or database.leases.get(head.claim, 0) > clock:
            continue
        dispatch = head.dispatch or dispatches.make(head.open_run, clock)
        if not dispatch.held:
            continue
        dispatch = dispatches.reap(dispatch, _steps(head), clock)
        claim = head.claim if dispatch.dead_at is None else None
        database.put_head(thread, replace(head, claim=claim, dispatch=dispatch, inbox_head=head.inbox_head + 1))


def _is_free(database: Database, thread: Thread, request: ClaimRequest, clock: int) -> bool:
    """Whether a thread's dispatch may be claimed. An owner that renewed its lease keeps its thread."""
    head = thread.head
    dispatch = head.dispatch
    if dispatch is None or dispatch.held or dispatch.dead_at is not None:
        return False
    if head.claim is not None and database.leases.get(head.claim, 0) > clock:
        database.put_head(thread, replace(head, dispatch=replace(dispatch, held=True)))
        return False
    return request.can_run(dispatch.agent)


def _ready(thread: Thread, row: DispatchRow) -> Candidate:
    return Candidate(row.priority, row.due_at, thread.head.no, thread.tenant, row.agent, _is_suspect(row))


def _is_suspect(row: DispatchRow) -> bool:
    """Whether its run may have killed its workers. A failure with an error explains its attempts."""
    return row.attempts >= SUSPECT and not row.error


def _holds_suspect(head: Head, worker_id: str) -> bool:
    row = head.dispatch
    if head.claim != worker_id or row is None:
        return False
    return _is_suspect(row) and _steps(head) - row.mark < PROGRESS


def _steps(head: Head) -> int:
    return 0 if head.open_run is None else head.open_run.steps


def _live_counts(database: Database, clock: int) -> dict[tuple[str, str], int]:
    """The number of threads that live workers have claimed, by tenant and agent."""
    counts: dict[tuple[str, str], int] = {}
    for thread in database.active:
        head = thread.head
        if head.claim is not None and database.leases.get(head.claim, 0) > clock:
            key = thread.tenant, _shown(thread).agent
            counts[key] = counts.get(key, 0) + 1
    return counts


def _take(database: Database, thread: Thread, worker_id: str, clock: int) -> Claimed:
    head, row = thread.head, _shown(thread)
    held = replace(row, held=True, mark=_steps(head))
    taken = replace(head, claim=worker_id, epoch=head.epoch + 1, handed=head.version, dispatch=held)
    database.put_head(thread, taken)
    waited = max(clock - row.due_at, 0)
    is_takeover = head.claim is not None
    return Claimed(thread.tenant, head.id, row.agent, taken.epoch, row.due_at, waited, row.attempts, is_takeover)


def _shown(thread: Thread) -> DispatchRow:
    """A thread's dispatch; a claim without one shows the open run."""
    head = thread.head
    if head.dispatch is not None:
        return head.dispatch
    run = head.open_run
    agent, priority = ("", PRIORITY) if run is None else (run.agent, run.priority)
    return DispatchRow(agent, priority, thread.updated_at)


def due_dispatches(database: Database) -> list[Due]:
    """Dispatches of all tenants without a live owner, the first due first."""
    free = [t for t in database.active if t.head.claim is None or not database.is_alive(t.head.claim)]
    found = [
        (row.due_at, thread.head.no, thread, row) for thread in free if (row := _shown(thread)).dead_at is None
    ]
    found.sort(key=lambda one: one[:2])
    return [Due(thread.tenant, thread.id, row.agent, at) for at, _, thread, row in found]


def list_dispatches(database: Database, tenant: str) -> list[Dispatch]:
    """A tenant's dispatches by thread id."""
    threads = sorted([t for t in database.active if t.tenant == tenant], key=lambda thread: thread.id)
    return [_dispatch_of(database, thread) for thread in threads]


def _dispatch_of(database: Database, thread: Thread) -> Dispatch:
    row, head = _shown(thread), thread.head
    return Dispatch(
        thread_id=head.id,
        run_id=None if head.open_run is None else head.open_run.id,
        agent_id=row.agent,
        priority=row.priority,
        due_at=row.due_at,
        attempts=row.attempts,
        claimed_by=head.claim if head.claim is not None and database.is_alive(head.claim) else None,
        dead_at=row.dead_at,
        error=row.error or "",
    )


def revive_dispatch(database: Database, thread: Thread) -> bool:
    """Make a dead letter due again; False if it was none."""
    head = thread.head
    if head.dispatch is None or head.dispatch.dead_at is None:
        return False
    revived = dispatches.revive(head.dispatch, now_ms())
    database.put_head(thread, replace(head, dispatch=revived, inbox_head=head.inbox_head + 1))
    return True


def count_queued(database: Database, tenant: str) -> int:
    """The number of a tenant's dispatches that wait for a worker."""
    now = now_ms()
    rows = [thread.head.dispatch for thread in database.active if thread.tenant == tenant]
    return sum(row is not None and not row.held and row.dead_at is None and row.due_at <= now for row in rows)
