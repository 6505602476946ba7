"""The tenants of a store in memory, who is alive, and what is due; forking, deleting and pruning."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import HasChildren, ThreadBusy, ThreadExists, UnknownThread
from ..types.ids import now_ms
from ._journal import Thread
from ._memory_dispatches import Entry
from ._protocol import ChildPolicy, InboxItem, Pruned, Retention
from ._relays import Relay
from ._reports import last_words
from ._rules import FOR_RUNS, no_place

__all__ = ["Everything", "Tenant", "delete", "fork", "prune", "told_of"]

_DAY = 24 * 3600 * 1000


class Tenant:
    """What one tenant has. `items` are the inboxes' items, whatever became of them, and the requests."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.threads: dict[str, Thread] = {}
        self.thread_of_run: dict[str, Thread] = {}
        self.thread_of_ticket: dict[str, Thread] = {}
        self.thread_of_decision: dict[str, Thread] = {}
        self.item_of_run: dict[str, str] = {}
        self.relays: dict[str, Relay] = {}
        self.items: dict[str, InboxItem] = {}
        # The runs below a run, by the root of their tree.
        self.trees: dict[str, list[str]] = {}

    def children(self, thread_id: str) -> list[Thread]:
        """The threads of runs that were delegated from this one."""
        return [thread for thread in self.threads.values() if thread.parent == thread_id]


class Everything:
    """What all handles on one store share: the tenants, the workers' leases, the dispatches."""

    def __init__(self) -> None:
        self._tenants: dict[str, Tenant] = {}
        self._last_no = 0
        self.workers: dict[str, float] = {}
        self.dispatches: dict[Thread, Entry] = {}
        self.turns: dict[str, int] = {}

    def names(self) -> list[str]:
        """The tenants that have threads."""
        return sorted(name for name, tenant in self._tenants.items() if tenant.threads)

    def tenant(self, name: str) -> Tenant:
        """What a tenant has."""
        return self._tenants.setdefault(name, Tenant(name))

    def alive(self, worker_id: str) -> bool:
        """Whether the worker has a lease."""
        return self.workers.get(worker_id, 0) > now_ms()

    def new_thread(self, tenant: Tenant, thread_id: str, parent: str | None, now: int) -> Thread:
        """A thread that is the newest of all."""
        self._last_no += 1
        thread = tenant.threads[thread_id] = Thread(self._last_no, tenant.name, thread_id, parent, now, now)
        return thread


def fork(everything: Everything, tenant: Tenant, thread_id: str, at: int, new_id: str) -> Thread:
    """A thread that has another's first `at` entries as its own, without a copy of them."""
    base = tenant.threads.get(thread_id)
    if base is None:
        raise UnknownThread(f"no thread {thread_id!r} in this store")
    if not 0 <= at <= base.head:
        raise no_place(thread_id, base.head, at)
    if new_id in tenant.threads:
        raise ThreadExists(f"thread {new_id!r} exists already; fork into another id")
    new = everything.new_thread(tenant, new_id, None, now_ms())
    base.fork(new, at)
    return new


def told_of(tenant: Tenant, thread_id: str) -> list[InboxItem]:
    """What the owners of a thread's tasks hear if it is deleted."""
    thread = tenant.threads.get(thread_id)
    if thread is None:
        return []
    owner = tenant.threads.get(thread.parent or "")
    tasks = [] if owner is None else [t for t in owner.index().tasks.values() if t.status == "running"]
    return last_words(thread_id, thread.open, thread.inbox.values(), tasks)


def delete(everything: Everything, tenant: Tenant, thread_id: str, children: ChildPolicy) -> int:
    """Remove a thread and everything of it, and its children if they go with it."""
    thread = tenant.threads.get(thread_id)
    if thread is None:
        return 0
    kids = tenant.children(thread_id)
    gone = _tree(tenant, thread) if children == "cascade" else [thread]
    for one in gone:
        if one.claim is not None and everything.alive(one.claim):
            raise ThreadBusy(f"thread {one.id!r} has a running run; cancel it or wait for it before you delete it")
    if kids and children == "reject":
        raise HasChildren(
            f"thread {thread_id!r} has {len(kids)} child threads of delegated runs; delete it with "
            'children="cascade" to remove them too, or children="detach" to keep them'
        )
    if children == "detach":
        for kid in kids:
            kid.parent = None
    for one in gone:
        _remove(everything, tenant, one)
    return len(gone)


def _tree(tenant: Tenant, thread: Thread) -> list[Thread]:
    """A thread and all below it, those first."""
    return [*[one for kid in tenant.children(thread.id) for one in _tree(tenant, kid)], thread]


def _remove(everything: Everything, tenant: Tenant, thread: Thread) -> None:
    for other in tenant.threads.values():
        if other.base is thread:
            other.settle_alone()
    index = thread.index()
    for run_id in index.runs:
        tenant.thread_of_run.pop(run_id, None)
        tenant.trees.pop(run_id, None)
    for ticket_id in index.tickets:
        tenant.thread_of_ticket.pop(ticket_id, None)
    for decision_id in index.decisions:
        tenant.thread_of_decision.pop(decision_id, None)
    for item_id in [item.id for item in tenant.items.values() if item.thread_id == thread.id]:
        tenant.item_of_run.pop(tenant.items.pop(item_id).run_id or "", None)
    tenant.relays = {k: relay for k, relay in tenant.relays.items() if relay.thread_id != thread.id}
    everything.dispatches.pop(thread, None)
    del tenant.threads[thread.id]


def prune(everything: Everything, tenant: Tenant, retention: Retention) -> Pruned:
    """Remove what is older than it has to be kept."""
    now = now_ms()
    chunks = events = runs = threads = 0
    for thread in tenant.threads.values():
        if retention.chunks is not None:
            chunks += _prune_chunks(thread, now - retention.chunks)
        if retention.events is not None:
            events += _prune_events(thread, now - retention.events)
        runs += _prune_runs(tenant, thread, retention, now)
    if retention.children is not None:
        cut = now - retention.children
        kids = [t for t in tenant.threads.values() if t.parent is not None and t.updated_at < cut]
        threads += _prune_threads(everything, tenant, kids)
    if retention.threads is not None:
        cut = now - retention.threads
        threads += _prune_threads(everything, tenant, [t for t in tenant.threads.values() if t.updated_at < cut])
    if retention.threads_kept is not None:
        roots = [thread for thread in tenant.threads.values() if thread.parent is None]
        roots.sort(key=lambda thread: thread.updated_at)
        kept = max(len(roots) - retention.threads_kept, 0)
        threads += _prune_threads(everything, tenant, roots[:kept])
    claims = {thread.claim for thread in tenant.threads.values()}
    for worker_id in [w for w, until in everything.workers.items() if until < now - _DAY and w not in claims]:
        del everything.workers[worker_id]
    return Pruned(chunks, events, runs, threads)


def _prune_chunks(thread: Thread, cut: int) -> int:
    index = thread.index()
    before = len(index.chunks)
    index.chunks = [chunk for chunk in index.chunks if chunk[0] >= cut]
    return before - len(index.chunks)


def _prune_events(thread: Thread, cut: int) -> int:
    index = thread.index()
    for name, values in index.state_log.items():
        # The last value from before the cut is what the key had at it.
        old = sum(at < cut for _, at, _ in values)
        index.state_log[name] = values[max(old - 1, 0) :]
    records = [run.record for run in index.runs.values()]
    old_runs = [r.id for r in records if r.status == "done" and r.finished_at is not None and r.finished_at < cut]
    return index.drop_events(old_runs) if old_runs else 0


def _prune_runs(tenant: Tenant, thread: Thread, retention: Retention, now: int) -> int:
    if retention.runs is None and retention.runs_kept is None:
        return 0
    index, gone = thread.index(), list[str]()
    cut = None if retention.runs is None else now - retention.runs
    newest_first = [run.record for run in reversed(index.runs.values())]
    by_age = [r.id for r in newest_first if cut is not None and r.finished_at is not None and r.finished_at < cut]
    kept = [record for record in newest_first if record.id not in by_age or record.status != "done"]
    gone = [record.id for record in newest_first if record.status == "done" and record.id in by_age]
    if retention.runs_kept is not None:
        gone += [record.id for record in kept[retention.runs_kept :] if record.status == "done"]
    for run_id in gone:
        index.drop_run(run_id)
        tenant.thread_of_run.pop(run_id, None)
        if thread.last_run_id == run_id:
            thread.last_run_id = None
        tenant.relays = {k: r for k, r in tenant.relays.items() if r.run_id != run_id or _on_its_way(r)}
    for ticket_id in [k for k, at in tenant.thread_of_ticket.items() if at is thread and k not in index.tickets]:
        del tenant.thread_of_ticket[ticket_id]
    for item in [i for i in tenant.items.values() if i.thread_id == thread.id and i.taken_by in gone]:
        if item.status != "pending":
            tenant.items[item.id] = _emptied(item)
    return len(gone)


def _emptied(item: InboxItem) -> InboxItem:
    """What is left of an item once the run that took it is gone: it can't come again."""
    return InboxItem(
        id=item.id,
        thread_id=item.thread_id,
        kind=item.kind,
        position=item.position,
        status=item.status,
        taken_by=item.taken_by,
    )


def _prune_threads(everything: Everything, tenant: Tenant, threads: Iterable[Thread]) -> int:
    removed = 0
    for thread in threads:
        if thread.id not in tenant.threads:
            continue
        above = tenant.threads.get(thread.parent) if thread.parent is not None else None
        asked = above is not None and above.open is not None  # It may still ask what came of the child.
        if not asked and all(_idle(everything, tenant, one) for one in _tree(tenant, thread)):
            removed += delete(everything, tenant, thread.id, "cascade")
    return removed


def _idle(everything: Everything, tenant: Tenant, thread: Thread) -> bool:
    """Whether nothing waits on the thread, and no message is on its way from it. What was for a run that was over
    when it came is for nobody."""
    alive = thread.claim is not None and everything.alive(thread.claim)
    if thread.open is not None or alive or any(item.kind not in FOR_RUNS for item in thread.inbox.values()):
        return False
    return not any(r.thread_id == thread.id and _on_its_way(r) for r in tenant.relays.values())


def _on_its_way(relay: Relay) -> bool:
    """Whether it is of a message that was not delivered yet, and will be."""
    return relay.status == "live" and relay.cursor < 0
