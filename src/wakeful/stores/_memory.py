"""A store in memory: the same commit and the same rules, for tests and for programs that need no more.

It is log-structured: a commit is checked and appended to its thread's journal, and whoever reads first pays for
sorting the journal into messages, events, runs and calls. A run that nobody looks at costs an append.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from time import time_ns
from typing import Any, Literal, cast

from msgspec.structs import force_setattr, replace

from ..errors import Conflict, InboxFull, InboxMoved, Repeated, StaleFence
from ..types.codec import encode
from ..types.events import Event
from ..types.ids import now_ms
from ..types.messages import Message
from ..types.runs import Call, RunRecord, RunStatus, TaskRecord, TaskStatus
from ..types.tickets import Decision, Ticket, TicketStatus
from . import _memory_dispatches as dispatches
from . import _memory_upkeep as upkeep
from ._claiming import Asked
from ._journal import RunIndex, Thread, behind
from ._memory_upkeep import Everything, Tenant
from ._pending import Standing, check_pending
from ._protocol import (
    LEASE_MS,
    About,
    ChildPolicy,
    Chunk,
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
    ThreadView,
)
from ._relays import Relay, RelayStatus, check_revision, wanted
from ._rules import MAX_PENDING, writes

__all__ = ["MemoryLease", "MemoryStore"]


class MemoryStore:
    """Threads, runs and everything else, kept in this process for as long as the object lives. The handle sees
    what belongs to `tenant`."""

    durable = False

    def __init__(self, *, tenant: str = "default") -> None:
        self._open(Everything(), tenant)

    def _open(self, everything: Everything, tenant: str) -> None:
        self._all = everything
        self._mine: Tenant = everything.tenant(tenant)
        self._threads = self._mine.threads
        self._thread_of = self._mine.thread_of_run

    # -- writing ---------------------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> Committed:
        """Write the commit, or nothing of it."""
        thread, fence = self._threads.get(commit.thread_id), commit.fence
        changes = bool(commit.log or commit.runs) or writes(commit)
        if fence is None:
            self._check_free(commit, thread, changes)
        elif thread is None or thread.claim != fence.token or thread.epoch != fence.epoch:
            raise StaleFence(
                f"thread {commit.thread_id!r} is no longer owned by this writer "
                f"(epoch {fence.epoch}, now {thread.epoch if thread else 0})"
            )
        if commit.inbox_head is not None and commit.inbox_head != (thread.inbox_head if thread else 0):
            raise InboxMoved(f"thread {commit.thread_id!r} has new items in its inbox")
        others = commit.inbox or commit.relays or commit.pending or commit.seen or commit.about is not None
        if others or commit.request is not None:
            self._check_others(commit)
        # From here on nothing can fail.
        if thread is None:
            thread = self._make_for(commit, changes)
            if thread is None:
                self._deliver(commit.inbox)
                return Committed(0, 0, 0, 0)
        if commit.claim is not None:
            self._claim(thread, commit.claim, commit)
        if changes:
            thread.version += 1
            thread.head += len(commit.log)
            thread.journal += (commit, time_ns())
            for record in commit.runs:
                known = thread.open
                if known is not None and record.identity is known.identity and record.status != "done":
                    thread.open = record
                else:
                    self._put_run(thread, record)
            if commit.tickets or commit.decisions or commit.taken or commit.request is not None:
                self._note(commit, thread)
        if commit.release:
            thread.claim = None
        if others:
            self._put_others(commit, thread)
        if thread.claim is None and (changes or commit.release or commit.pending):
            thread.touched = now = now_ms()
            dispatches.settle(self._all.dispatches, thread, commit, now)
        return Committed(thread.version, thread.head, thread.epoch, thread.inbox_head)

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

    def _check_free(self, commit: Commit, thread: Thread | None, changes: bool) -> None:
        if not (changes or commit.claim is not None or commit.release):
            return
        claim, version = (None, 0) if thread is None else (thread.claim, thread.version)
        if claim is not None and (commit.claim is None or self._all.alive(claim)):
            raise Conflict(f"thread {commit.thread_id!r} is owned by another writer")
        if commit.version != version:
            raise Conflict(f"thread {commit.thread_id!r} is at version {version}, not {commit.version}")

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
            if len(waiting) > MAX_PENDING:
                raise InboxFull(
                    f"the inbox of thread {item.thread_id!r} has {MAX_PENDING:,} pending items; try again later"
                )

    def _make_for(self, commit: Commit, changes: bool) -> Thread | None:
        """The thread that the commit begins, unless it is about others only."""
        own = changes or commit.claim is not None or commit.about is not None or commit.relays
        if not own and all(item.thread_id != commit.thread_id for item in commit.inbox):
            return None
        parent = commit.identity.parent_thread_id if commit.identity is not None else None
        return self._all.new_thread(self._mine, commit.thread_id, parent)

    def _claim(self, thread: Thread, worker: str, commit: Commit) -> None:
        thread.touched = now = now_ms()
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
                parent = item.lineage.parent_thread_id if item.lineage is not None else None
                thread = self._all.new_thread(self._mine, item.thread_id, parent)
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

    # -- the view --------------------------------------------------------------------------------------------

    async def load(self, thread_id: str) -> ThreadView | None:
        """The thread's view, or None if it doesn't exist."""
        thread = self._threads.get(thread_id)
        if thread is None:
            return None
        index, run = thread.index(), thread.open
        view = ThreadView(
            thread=self._record(thread),
            tasks=tuple([task for _, task in sorted(index.tasks.items()) if task.status == "running"]),
            inbox=tuple(thread.inbox.values()),
            state=dict(index.state),
        )
        if run is None:
            return view
        of_run, acting = index.runs[run.id], run.stage == "acting"
        return replace(
            view,
            run=run,
            run_state=dict(of_run.state),
            tickets=tuple(
                [t for _, t in sorted(index.tickets.items()) if t.run_id == run.id and t.status == "open"]
            ),
            calls=tuple([c for c in _in_order(of_run) if c.step == run.steps]) if acting else (),
            answer=of_run.answer,
        )

    def _record(self, thread: Thread) -> ThreadRecord:
        alive = thread.claim is not None and self._all.alive(thread.claim)
        record = thread.record(thread.claim if alive else None)
        entry = self._all.dispatches.get(thread)
        return record if entry is None or entry.dead_at is None else replace(record, dead=True)

    # -- the log ---------------------------------------------------------------------------------------------

    async def messages(
        self, thread_id: str, *, after: int = 0, limit: int | None = None, newest: int | None = None
    ) -> list[Message]:
        """The thread's messages, oldest first, from behind a sequence number; with `newest` the last so many."""
        found = self._read(thread_id, "messages", after, limit if newest is None else None)
        return found if newest is None else found[max(len(found) - newest, 0) :]

    async def events(self, thread_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """The thread's durable events, oldest first, from behind a sequence number."""
        return self._read(thread_id, "log", after, limit)

    def _read(self, thread_id: str, what: Literal["messages", "log"], after: int, limit: int | None) -> list[Any]:
        thread, found = self._threads.get(thread_id), list[Any]()
        if thread is None:
            return found
        for index, low, high in thread.chain():
            if high > after:
                found += behind(getattr(index, what), max(low, after), high)
        return found[:limit]

    async def head(self, thread_id: str) -> int:
        """The last number of the thread's log; 0 if there is none."""
        thread = self._threads.get(thread_id)
        return thread.head if thread else 0

    async def chunks(self, thread_id: str) -> list[Chunk]:
        """What is kept of an answer that is being streamed, in order."""
        thread = self._threads.get(thread_id)
        return [chunk for _, chunk in thread.index().chunks] if thread else []

    # -- runs and what hangs off them ------------------------------------------------------------------------

    def _run(self, run_id: str) -> RunIndex | None:
        thread = self._thread_of.get(run_id)
        return thread.index().runs.get(run_id) if thread else None

    async def run(self, run_id: str) -> RunRecord | None:
        """One run's record."""
        run = self._run(run_id)
        return run.record if run else None

    async def runs(
        self,
        *,
        thread_id: str | None = None,
        status: RunStatus | None = None,
        agent_id: str | None = None,
        root_run_id: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[RunRecord]:
        """Run records, newest first, older than the run `before`; with `root_run_id` those below that run."""
        thread = self._threads.get(thread_id) if thread_id is not None else None
        known = thread.index().runs if thread else self._thread_of if thread_id is None else ()
        if root_run_id is not None:
            below = self._mine.trees.get(root_run_id, ())
            known = [run_id for run_id in below if run_id in known]
        found: list[RunRecord] = []
        for run_id in sorted(known, reverse=True):
            if len(found) >= limit:
                break
            if before is not None and run_id >= before:
                continue
            record = self._thread_of[run_id].index().runs[run_id].record
            if status in (None, record.status) and agent_id in (None, record.agent_id):
                found.append(record)
        return found

    async def answer(self, run_id: str) -> Message | None:
        """The last answer of a run."""
        run = self._run(run_id)
        return run.answer if run else None

    async def calls(self, run_id: str) -> Sequence[Call]:
        """The whole ledger of a run, in order."""
        run = self._run(run_id)
        return _in_order(run) if run else []

    async def tickets(
        self,
        run_id: str | None = None,
        *,
        thread_id: str | None = None,
        status: TicketStatus | None = None,
        assignee: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Sequence[Ticket]:
        """Tickets, oldest first, from behind the ticket `after`; of one run, one thread, or of all."""
        found: list[Ticket] = []
        for ticket_id in sorted(self._mine.thread_of_ticket):
            if limit is not None and len(found) >= limit:
                break
            if after is not None and ticket_id <= after:
                continue
            thread = self._mine.thread_of_ticket[ticket_id]
            ticket = thread.index().tickets[ticket_id]
            wanted = run_id in (None, ticket.run_id) and thread_id in (None, thread.id)
            if wanted and status in (None, ticket.status) and assignee in (None, ticket.assignee):
                found.append(ticket)
        return found

    async def ticket(self, ticket_id: str) -> Ticket | None:
        """One ticket."""
        thread = self._mine.thread_of_ticket.get(ticket_id)
        return thread.index().tickets[ticket_id] if thread else None

    async def tasks(self, thread_id: str, *, status: TaskStatus | None = None) -> Sequence[TaskRecord]:
        """The tasks that a thread owns, oldest first."""
        thread = self._threads.get(thread_id)
        found = sorted(thread.index().tasks.items()) if thread else []
        return [task for _, task in found if status in (None, task.status)]

    async def decisions(self, ticket_id: str) -> Sequence[Decision]:
        """Who answered a ticket, and how, in order."""
        thread = self._mine.thread_of_ticket.get(ticket_id)
        found = [d for d in thread.index().decisions.values() if d.ticket_id == ticket_id] if thread else []
        return sorted(found, key=lambda decision: (decision.at, decision.id))

    async def decision(self, decision_id: str) -> Decision | None:
        """One decision."""
        thread = self._mine.thread_of_decision.get(decision_id)
        return thread.index().decisions.get(decision_id) if thread else None

    async def item(self, item_id: str) -> InboxItem | None:
        """An inbox item or a request, whatever became of it."""
        return self._mine.items.get(item_id)

    async def item_of_run(self, run_id: str) -> InboxItem | None:
        """The input that this run is of, if it had to wait its turn; the run may not be there yet."""
        return self._mine.items.get(self._mine.item_of_run.get(run_id, ""))

    # -- relays ----------------------------------------------------------------------------------------------

    async def relay(self, relay_id: str) -> Relay | None:
        """One relay."""
        return self._mine.relays.get(relay_id)

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
        """Relays, oldest first, from behind the relay `after`."""
        relays = [relay for relay in self._mine.relays.values() if after is None or relay.id > after]
        return wanted(relays, thread_id=thread_id, run_id=run_id, kind=kind, status=status)[:limit]

    async def due_relays(self, kind: str, now: int, *, limit: int = 100) -> Sequence[Relay]:
        """Live relays of that kind which are due, have something behind their cursor, and nobody delivers."""
        due = [
            relay
            for relay in await self.relays(kind=kind, status="live")
            if relay.due_at <= now and relay.until <= now and self._threads[relay.thread_id].head > relay.cursor
        ]
        return sorted(due, key=lambda relay: (relay.due_at, relay.id))[:limit]

    # -- threads ---------------------------------------------------------------------------------------------

    async def thread(self, thread_id: str) -> ThreadRecord | None:
        """One thread's record."""
        thread = self._threads.get(thread_id)
        return self._record(thread) if thread else None

    async def threads(self, *, before: str | None = None, limit: int = 100) -> list[ThreadRecord]:
        """Threads, newest first, older than the thread `before`; without those of delegated runs."""
        last = self._threads.get(before) if before is not None else None
        if before is not None and last is None:
            return []
        found: list[ThreadRecord] = []
        for thread in reversed(self._threads.values()):
            if len(found) >= limit:
                break
            if thread.parent is None and (last is None or thread.no < last.no):
                found.append(self._record(thread))
        return found

    async def counts(self) -> Mapping[str, int]:
        """How many there are: threads, messages, runs by status, open tickets, dispatches."""
        threads = self._threads.values()
        found = {
            "threads": len(threads),
            "messages": sum(len(thread.index().messages) for thread in threads),
            "tickets": len(await self.tickets(status="open")),
            "dispatches": sum(thread.tenant == self._mine.name for thread in self._all.dispatches),
        }
        for thread in threads:
            for run in thread.index().runs.values():
                found[run.record.status] = found.get(run.record.status, 0) + 1
        return found

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
        """Remove threads and everything of theirs; returns how many. Children are threads of delegated runs."""
        return upkeep.delete(self._all, self._mine, thread_id, children)

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


def _describe(thread: Thread, about: About) -> None:
    if about.title is not None:
        thread.title = about.title or None
    if about.metadata is not None:
        thread.metadata = encode(about.metadata)


def _in_order(run: RunIndex) -> list[Call]:
    return sorted(run.calls.values(), key=lambda call: (call.step, call.index))
