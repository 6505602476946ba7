"""A store in memory: the same commit and the same rules, for tests and for programs that need no more.

It is log-structured: a commit is checked and appended to its thread, and whoever reads first pays for sorting that
into messages, events, runs and calls. A run that nobody looks at costs an append.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

from msgspec.structs import force_setattr, replace

from ..errors import Conflict, InboxMoved, Repeated, StaleFence, StoreError
from ..types.codec import cleaned, encode
from ..types.ids import now_ms
from ..types.runs import RunRecord
from . import _memory_dispatches as dispatches
from . import _memory_upkeep as upkeep
from ._claiming import Asked
from ._journal import Thread
from ._memory_reading import MemoryReading
from ._memory_upkeep import Everything
from ._pending import Standing, check_pending
from ._protocol import (
    LEASE_MS,
    About,
    ChildPolicy,
    Claims,
    Commit,
    Committed,
    Dispatch,
    Due,
    InboxItem,
    Pruned,
    Renewals,
    Retention,
    ThreadRecord,
)
from ._relays import check_revision
from ._rules import makes_thread, no_room, not_idle, room_for, writes

__all__ = ["MemoryLease", "MemoryStore"]


class MemoryStore(MemoryReading):
    """Threads, runs and everything else, kept in this process for as long as the object lives. The handle sees
    what belongs to `tenant`."""

    durable = False

    def __init__(self, *, tenant: str = "default") -> None:
        self._open(Everything(), tenant)

    # -- writing ---------------------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> Committed:
        """Write the commit, or nothing of it."""
        thread, fence = self._threads.get(commit.thread_id), commit.fence
        if fence is None or thread is None or commit.more:
            written = self._commit_any(commit, thread)
            return replace(written, then=self._then(commit.then)) if commit.then else written
        if thread.claim != fence.token or thread.epoch != fence.epoch:
            raise _stale(commit, thread)
        if commit.inbox_head is not None and commit.inbox_head != thread.inbox_head:
            raise _moved(commit)
        if commit.log or commit.runs or commit.calls:
            self._append(commit, thread)
        else:
            thread.touched = now_ms()
        if commit.release:
            thread.claim = None
            dispatches.settle(self._all.dispatches, thread, commit)
        return Committed(thread.version, thread.head, thread.epoch, thread.inbox_head)

    def _then(self, commits: Iterable[Commit]) -> tuple[Committed | None, ...]:
        """Write what comes with a commit, as far as it isn't refused."""
        found: list[Committed | None] = []
        for commit in commits:
            try:
                found.append(self._commit_any(commit, self._threads.get(commit.thread_id)))
            except StoreError:
                found.append(None)
        return tuple(found)

    def _commit_any(self, commit: Commit, thread: Thread | None) -> Committed:
        """Write a commit that may have anything in it."""
        fence, changes = commit.fence, bool(commit.log) or writes(commit)
        if fence is None:
            if changes or commit.claim is not None or commit.release:
                self._check_free(commit, thread)
        elif thread is None or thread.claim != fence.token or thread.epoch != fence.epoch:
            raise _stale(commit, thread)
        if commit.inbox_head is not None and commit.inbox_head != (thread.inbox_head if thread else 0):
            raise _moved(commit)
        if commit.idle:
            self._check_idle(commit, thread)
        others = commit.inbox or commit.relays or commit.pending or commit.seen or commit.about is not None
        if others or commit.request is not None:
            self._check_others(commit)
        # From here on nothing can fail.
        now = now_ms()
        if thread is None:
            if not changes and not _begins(commit):
                self._deliver(commit.inbox)
                return Committed(0, 0, 0, 0)
            parent = commit.identity.parent_thread_id if commit.identity is not None else None
            thread = self._all.new_thread(self._mine, commit.thread_id, parent, now)
        if commit.claim is not None:
            self._claim(thread, commit.claim, commit, now)
        if changes:
            self._append(commit, thread)
            if commit.tickets or commit.decisions or commit.taken or commit.request is not None:
                self._note(commit, thread)
        if commit.release:
            thread.claim = None
        if others:
            self._put_others(commit, thread)
        if thread.claim is None and (changes or commit.release or commit.pending):
            thread.touched = now
            dispatches.settle(self._all.dispatches, thread, commit)
        return Committed(thread.version, thread.head, thread.epoch, thread.inbox_head)

    def _append(self, commit: Commit, thread: Thread) -> None:
        """Give a commit to its thread, and put what others are checked against where it is looked up."""
        for record in commit.runs:
            known = thread.open
            if known is not None and record.identity is known.identity and record.status != "done":
                thread.open = record
            else:
                self._put_run(thread, record)
        thread.append(commit)

    def _check_others(self, commit: Commit) -> None:
        """Refuse what few commits have: a request that was made, and changes besides the thread's own."""
        if commit.request is not None and (item := self._mine.items.get(commit.request)) is not None:
            raise Repeated(f"request {commit.request!r} was made before", item.taken_by)
        for relay in commit.relays:
            stored = self._mine.relays.get(relay.id)
            check_revision(relay, None if stored is None else stored.revision)
        if commit.pending or commit.seen:
            check_pending(commit, self._standing)
        if commit.inbox:
            self._check_room(commit)

    def _put_others(self, commit: Commit, thread: Thread) -> None:
        if commit.about is not None:
            _describe(thread, commit.about)
        for relay in commit.relays:
            self._mine.relays[relay.id] = relay
        if commit.inbox:
            self._deliver(commit.inbox)
        if commit.pending:
            self._change_pending(commit, thread)

    def _check_free(self, commit: Commit, thread: Thread | None) -> None:
        claim, version = (None, 0) if thread is None else (thread.claim, thread.version)
        if claim is not None and (commit.claim is None or self._all.alive(claim)):
            raise Conflict(f"thread {commit.thread_id!r} is owned by another writer")
        if commit.version != version:
            raise Conflict(f"thread {commit.thread_id!r} is at version {version}, not {commit.version}")

    def _check_idle(self, commit: Commit, thread: Thread | None) -> None:
        busy = thread is not None and (thread.claim is not None or thread.open is not None)
        if busy or any(item.id in self._mine.items for item in commit.inbox):
            raise not_idle(commit)

    def _check_room(self, commit: Commit) -> None:
        pending: dict[str, set[str]] = {}
        for item in commit.inbox:
            if item.id in self._mine.items:
                continue
            thread = self._threads.get(item.thread_id)
            waiting = pending.setdefault(item.thread_id, set(thread.inbox) if thread else set())
            if item.thread_id == commit.thread_id:
                waiting.difference_update(commit.taken)
            waiting.add(item.id)
            if len(waiting) > room_for(item):
                raise no_room(item.thread_id)

    def _claim(self, thread: Thread, worker: str, commit: Commit, now: int) -> None:
        thread.touched = now
        lost = thread.claim is not None
        thread.claim = worker
        thread.epoch += 1
        until, workers = now + commit.lease, self._all.workers
        if workers.get(worker, 0) < until:
            workers[worker] = until
        dispatches.hold(self._all.dispatches, thread, commit.runs[-1] if commit.runs else None, now, lost)

    def _note(self, commit: Commit, thread: Thread) -> None:
        """Where its tickets and decisions are, what it took in, and that its request was made."""
        for ticket in commit.tickets:
            self._mine.thread_of_ticket[ticket.id] = thread
        for decision in commit.decisions:
            self._mine.thread_of_decision.setdefault(decision.id, thread)
        if commit.taken:
            self._take(commit, thread)
        if commit.request is not None:
            run_id = commit.identity.run_id if commit.identity is not None else None
            self._mine.items[commit.request] = InboxItem(
                id=commit.request, thread_id=thread.id, kind=cast(Any, "request"), status="taken", taken_by=run_id
            )

    def _put_run(self, thread: Thread, record: RunRecord) -> None:
        run_id = record.identity.run_id
        thread.runs[run_id] = record
        if run_id not in self._thread_of:
            self._thread_of[run_id] = thread
            thread.last_run_id = run_id
            if (root := record.identity.root_run_id) != run_id:
                self._mine.trees.setdefault(root, []).append(run_id)
        if record.status != "done":
            thread.open = record
        elif thread.open is not None and thread.open.identity.run_id == run_id:
            thread.open = None

    def _take(self, commit: Commit, thread: Thread) -> None:
        run_id = commit.identity.run_id if commit.identity is not None else None
        for item_id in commit.taken:
            item = self._mine.items.get(item_id)
            if item is not None and item.thread_id == thread.id:
                thread.inbox.pop(item_id, None)
                self._mine.items[item_id] = replace(item, status="taken", taken_by=run_id)

    def _deliver(self, items: Iterable[InboxItem]) -> None:
        for item in items:
            if item.id in self._mine.items:
                continue
            thread = self._threads.get(item.thread_id)
            if thread is None:
                if not makes_thread(item):
                    continue
                parent = item.lineage.parent_thread_id if item.lineage is not None else None
                thread = self._all.new_thread(self._mine, item.thread_id, parent, now_ms())
            thread.inbox_head += 1
            force_setattr(item, "position", thread.inbox_head)
            force_setattr(item, "revision", 0)
            thread.inbox[item.id] = self._mine.items[item.id] = item
            if item.run_id is not None and item.kind == "input":
                self._mine.item_of_run[item.run_id] = item.id
            if thread.claim is None:
                dispatches.arrive(self._all.dispatches, thread, item)

    def _standing(self, item_id: str) -> Standing | None:
        item = self._mine.items.get(item_id)
        return None if item is None else (item.thread_id, item.status, item.revision)

    def _change_pending(self, commit: Commit, thread: Thread) -> None:
        for item in commit.pending:
            thread.inbox[item.id] = self._mine.items[item.id] = item
        kept = [item for item in thread.inbox.values() if item.status == "pending"]
        thread.inbox = {item.id: item for item in sorted(kept, key=lambda item: item.position)}
        thread.inbox_head += 1

    # -- dispatches ------------------------------------------------------------------------------------------

    async def due(self, *, limit: int = 100) -> list[Due]:
        """Dispatches of all tenants that nobody alive has claimed: the first due first, then those of later."""
        return dispatches.due(self._all.dispatches, self._all.alive)[:limit]

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
        """Take up to `limit` dispatches of these agents, of all tenants, that are due and that nobody alive has
        claimed: in turns between the tenants, for each the lowest priority and the longest due first."""
        asked = Asked(
            worker_id=worker_id,
            agents=agents,
            limit=limit,
            lease=lease,
            now=now,
            per_tenant=per_tenant,
            per_agent=per_agent or {},
        )
        return dispatches.claim(self._all.dispatches, self._all.turns, self._all.workers, asked)

    async def dispatches(
        self, *, dead: bool | None = None, after: str | None = None, limit: int = 100
    ) -> list[Dispatch]:
        """Dispatches by their thread's id, from behind the thread `after`; with `dead` only dead letters, or only
        others."""
        mine = [
            dispatches.seen(thread, entry, self._all.alive)
            for thread, entry in self._all.dispatches.items()
            if thread.tenant == self._mine.name and thread.id > (after or "")
        ]
        found = [one for one in mine if dead is None or dead == (one.dead_at is not None)]
        return sorted(found, key=lambda one: one.thread_id)[:limit]

    async def revive(self, thread_id: str) -> bool:
        """Make a dead letter due again, with all its attempts; False if it was none."""
        thread = self._threads.get(thread_id)
        return thread is not None and dispatches.revive(self._all.dispatches, thread)

    async def queued(self, limit: int) -> int:
        """How many dispatches of the tenant wait for a worker, counted up to `limit`."""
        return dispatches.queued(self._all.dispatches, self._mine.name, limit)

    async def claims(self, worker_id: str) -> list[tuple[str, str, int]]:
        """The threads that a worker has claimed, of all tenants: tenant, thread, and its inbox's head."""
        # Whatever is claimed has a dispatch.
        return [(t.tenant, t.id, t.inbox_head) for t in self._all.dispatches if t.claim == worker_id]

    async def fork(self, thread_id: str, at: int, new_id: str) -> ThreadRecord:
        """A new thread that begins with this one's log up to `at`, and its state as it was there."""
        return self._record(upkeep.fork(self._all, self._mine, thread_id, at, new_id))

    async def delete(self, thread_id: str, *, children: ChildPolicy = "reject") -> int:
        """Remove threads and everything of theirs; returns how many. Children are threads of delegated runs. The
        owner of what ran on the thread is told."""
        told = upkeep.told_of(self._mine, thread_id)
        self._check_room(Commit(thread_id, inbox=told))
        removed = upkeep.delete(self._all, self._mine, thread_id, children)
        self._deliver(told)
        return removed

    async def prune(self, retention: Retention) -> Pruned:
        """Remove what is older than it has to be kept."""
        return upkeep.prune(self._all, self._mine, retention)

    # -- handles ---------------------------------------------------------------------------------------------

    def keep(self, worker_id: str, lease: int = LEASE_MS) -> MemoryLease:
        """Keep the claims of this worker alive until the lease is closed."""
        return MemoryLease(self._all, worker_id)

    async def tenants(self) -> list[str]:
        """The tenants that have threads in this store."""
        return self._all.names()

    def tenant(self, name: str) -> MemoryStore:
        """A handle on the same store for another tenant."""
        other = type(self).__new__(type(self))
        other._open(self._all, name)
        return other

    async def close(self) -> None:
        """Nothing is held open."""


class MemoryLease:
    """A worker's sign of life. It lives in the process that it would speak for, and so needs no renewal."""

    def __init__(self, everything: Everything, worker_id: str) -> None:
        self.renewals = Renewals()
        self._workers = everything.workers
        self._worker_id = worker_id
        self._workers[worker_id] = float("inf")

    def beat(self) -> None:
        """The event loop is alive."""

    async def close(self) -> None:
        """Give the lease up: claims of this worker count no more."""
        self._workers.pop(self._worker_id, None)


def _begins(commit: Commit) -> bool:
    """Whether a commit without changes begins its thread, and isn't about others only."""
    own = commit.claim is not None or commit.about is not None or bool(commit.relays)
    return own or any(item.thread_id == commit.thread_id and makes_thread(item) for item in commit.inbox)


def _stale(commit: Commit, thread: Thread | None) -> StaleFence:
    epoch, now = commit.fence.epoch if commit.fence else 0, thread.epoch if thread else 0
    return StaleFence(f"thread {commit.thread_id!r} is no longer owned by this writer (epoch {epoch}, now {now})")


def _moved(commit: Commit) -> InboxMoved:
    return InboxMoved(f"thread {commit.thread_id!r} has new items in its inbox")


def _describe(thread: Thread, about: About) -> None:
    if about.title is not None:
        thread.title = about.title or None
    if about.metadata is not None:
        thread.metadata = encode(cleaned(about.metadata))
