"""Forking, deleting and pruning threads of a store in memory."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ...errors import HasChildren, ThreadBusy, ThreadExists, UnknownThread
from ...types.ids import now_ms
from ...types.inbox import InboxItem, Request, RequestItem
from ...types.records import AuditEntry, MemoryNote, memory_prefix
from ..conditions import FOR_RUNS, no_place, refuse_fork
from ..heads import Head
from ..records import ChildPolicy, Pruned, Retention
from ..relays import Relay
from ..reports import last_words
from .tables import Database, Tenant, Thread

__all__ = ["delete_thread", "fork_thread", "prune_tenant", "reports_of"]

_DAY = 24 * 3600 * 1000


def fork_thread(
    database: Database, tenant: Tenant, thread_id: str, at: int, new_id: str, request: Request | None
) -> Thread:
    """Create a thread that shares the first `at` entries of another one, or find that of the same request."""
    if request is not None and (known := tenant.items.get(request.id)) is not None:
        made = tenant.threads[known.thread_id]
        if error := refuse_fork(request, known.digest, None if made.base is None else made.base.id, thread_id):
            raise error
        return made
    base = tenant.threads.get(thread_id)
    if base is None:
        raise UnknownThread(f"no thread {thread_id!r} in this store")
    if not 0 <= at <= base.head.log_head:
        raise no_place(thread_id, base.head.log_head, at)
    if new_id in tenant.threads:
        raise ThreadExists(f"thread {new_id!r} exists already; fork into another id")
    head = Head(new_id, database.next_thread, version=1, log_head=at, principal=base.principal, has_chunks=False)
    database.next_thread += 1
    new = tenant.threads[new_id] = Thread(tenant.name, head, now_ms())
    base.fork(new, at)
    if request is not None:
        tenant.put_request(new, request)
    return new


def reports_of(tenant: Tenant, thread_id: str) -> list[InboxItem]:
    """The reports to the owners of a thread's tasks, for its deletion."""
    thread = tenant.threads.get(thread_id)
    if thread is None:
        return []
    owner = tenant.threads.get(thread.head.parent or "")
    tasks = [] if owner is None else [task for task in owner.tasks.values() if task.status == "running"]
    return last_words(thread_id, thread.open_run, thread.inbox.values(), tasks)


def delete_thread(database: Database, tenant: Tenant, thread_id: str, children: ChildPolicy) -> int:
    """Delete a thread, and its children if the policy cascades; return how many threads."""
    thread = tenant.threads.get(thread_id)
    if thread is None:
        return 0
    kids = tenant.children(thread_id)
    gone = _tree(tenant, thread) if children == "cascade" else [thread]
    for one in gone:
        if _has_live_owner(database, one):
            raise ThreadBusy(f"thread {one.id!r} has a running run; cancel it or wait for it before you delete it")
    if kids and children == "reject":
        raise HasChildren(
            f"thread {thread_id!r} has {len(kids)} child threads of delegated runs; delete it with "
            'children="cascade" to remove them too, or children="detach" to keep them'
        )
    if children == "detach":
        for kid in kids:
            kid.head = replace(kid.head, parent=None)
    for one in gone:
        _remove(database, tenant, one)
    return len(gone)


def _has_live_owner(database: Database, thread: Thread) -> bool:
    claim = thread.head.claim
    return claim is not None and database.is_alive(claim)


def _tree(tenant: Tenant, thread: Thread) -> list[Thread]:
    """A thread and its descendants, these first."""
    return [*[one for kid in tenant.children(thread.id) for one in _tree(tenant, kid)], thread]


def _remove(database: Database, tenant: Tenant, thread: Thread) -> None:
    for other in tenant.threads.values():
        if other.base is thread:
            other.detach()
    for run_id in thread.runs:
        tenant.thread_of_run.pop(run_id, None)
        tenant.trees.pop(run_id, None)
    for ticket_id in thread.tickets:
        tenant.thread_of_ticket.pop(ticket_id, None)
    for decision_id in thread.decisions:
        tenant.thread_of_decision.pop(decision_id, None)
    for item_id in [item.id for item in tenant.items.values() if item.thread_id == thread.id]:
        tenant.item_of_run.pop(tenant.items.pop(item_id).run_id or "", None)
    tenant.relays = {k: relay for k, relay in tenant.relays.items() if relay.thread_id != thread.id}
    database.active.pop(thread, None)
    del tenant.threads[thread.id]
    prefix = memory_prefix("thread", thread.id)
    for key in [k for k, one in tenant.records.items() if isinstance(one, MemoryNote) and one.owner == prefix]:
        del tenant.records[key]


# -- retention -------------------------------------------------------------------------------------------------


def prune_tenant(database: Database, tenant: Tenant, retention: Retention) -> Pruned:
    """Remove rows that are older than the retention keeps them."""
    now = now_ms()
    chunks = events = runs = usage = audit = 0
    for thread in tenant.threads.values():
        if retention.chunks is not None:
            chunks += _prune_chunks(thread, now - retention.chunks)
        if retention.events is not None:
            events += _prune_events(thread, now - retention.events)
        runs += _prune_runs(tenant, thread, retention, now)
    threads = _prune_old_threads(database, tenant, retention, now)
    if retention.usage is not None:
        before, cut = len(tenant.usage), now - retention.usage
        tenant.usage = [one for one in tenant.usage if one.at >= cut]
        usage = before - len(tenant.usage)
    if retention.audit is not None:
        cut = now - retention.audit
        gone = [k for k, one in tenant.records.items() if isinstance(one, AuditEntry) and one.at < cut]
        for key in gone:
            del tenant.records[key]
        audit = len(gone)
    claims = {thread.head.claim for thread in tenant.threads.values()}
    for worker_id in [w for w, until in database.leases.items() if until < now - _DAY and w not in claims]:
        del database.leases[worker_id]
    return Pruned(chunks, events, runs, threads, usage, audit)


def _prune_old_threads(database: Database, tenant: Tenant, retention: Retention, now: int) -> int:
    threads = 0
    if retention.children is not None:
        cut = now - retention.children
        kids = [t for t in tenant.threads.values() if t.head.parent is not None and t.updated_at < cut]
        threads += _prune_threads(database, tenant, kids)
    if retention.threads is not None:
        cut = now - retention.threads
        threads += _prune_threads(database, tenant, [t for t in tenant.threads.values() if t.updated_at < cut])
    if retention.threads_kept is not None:
        roots = [thread for thread in tenant.threads.values() if thread.head.parent is None]
        roots.sort(key=lambda thread: thread.updated_at)
        surplus = max(len(roots) - retention.threads_kept, 0)
        threads += _prune_threads(database, tenant, roots[:surplus])
    return threads


def _prune_chunks(thread: Thread, cut: int) -> int:
    before = len(thread.chunks)
    thread.chunks = [chunk for chunk in thread.chunks if chunk[0] >= cut]
    return before - len(thread.chunks)


def _prune_events(thread: Thread, cut: int) -> int:
    for name, values in thread.state_log.items():
        # The last value before the cut is the value at the cut.
        old = sum(at < cut for _, at, _ in values)
        thread.state_log[name] = values[max(old - 1, 0) :]
    records = [run.record for run in thread.runs.values()]
    old_runs = [r.id for r in records if r.status == "done" and r.finished_at is not None and r.finished_at < cut]
    return thread.drop_events(old_runs) if old_runs else 0


def _prune_runs(tenant: Tenant, thread: Thread, retention: Retention, now: int) -> int:
    gone = _old_runs(thread, retention, now)
    for run_id in gone:
        thread.drop_run(run_id)
        tenant.thread_of_run.pop(run_id, None)
        tenant.relays = {k: r for k, r in tenant.relays.items() if r.run_id != run_id or _is_in_delivery(r)}
    if not gone:
        return 0
    for ticket_id in [k for k, at in tenant.thread_of_ticket.items() if at is thread and k not in thread.tickets]:
        del tenant.thread_of_ticket[ticket_id]
    for item in [i for i in tenant.items.values() if i.thread_id == thread.id and i.taken_by in gone]:
        if item.status != "pending":
            tenant.items[item.id] = _tombstone(item)
    return len(gone)


def _old_runs(thread: Thread, retention: Retention, now: int) -> list[str]:
    """The finished runs that are too old, or too many."""
    cut = None if retention.runs is None else now - retention.runs
    newest_first = [run.record for run in reversed(thread.runs.values())]
    done = [record for record in newest_first if record.status == "done"]
    gone = [r.id for r in done if cut is not None and r.finished_at is not None and r.finished_at < cut]
    if retention.runs_kept is not None:
        kept = [record for record in newest_first if record.id not in gone]
        gone += [record.id for record in kept[retention.runs_kept :] if record.status == "done"]
    return gone


def _tombstone(item: InboxItem) -> InboxItem:
    """The id of an item whose run was pruned: it still deduplicates."""
    return RequestItem(
        id=item.id,
        thread_id=item.thread_id,
        position=item.position,
        status=item.status,
        taken_by=item.taken_by,
        digest=item.digest,
    )


def _prune_threads(database: Database, tenant: Tenant, threads: Iterable[Thread]) -> int:
    removed = 0
    for thread in threads:
        if thread.id not in tenant.threads:
            continue
        above = tenant.threads.get(thread.head.parent or "")
        # An open run of the parent may still read the child's result.
        is_awaited = above is not None and above.head.open_run is not None
        if not is_awaited and all(_is_idle(database, tenant, one) for one in _tree(tenant, thread)):
            removed += delete_thread(database, tenant, thread.id, "cascade")
    return removed


def _is_idle(database: Database, tenant: Tenant, thread: Thread) -> bool:
    """Whether a thread has no run, no owner, no pending input, and no message in delivery."""
    if thread.head.open_run is not None or _has_live_owner(database, thread):
        return False
    if any(item.kind not in FOR_RUNS for item in thread.inbox.values()):
        return False
    return not any(relay.thread_id == thread.id and _is_in_delivery(relay) for relay in tenant.relays.values())


def _is_in_delivery(relay: Relay) -> bool:
    """Whether a relay carries a message that will still be delivered."""
    return relay.status == "live" and relay.cursor < 0
