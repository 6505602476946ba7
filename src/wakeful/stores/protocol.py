"""The store protocol: one way to write, and the reads that runs and readers need."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeVar, Unpack

from ..types.calls import Call
from ..types.events import Event
from ..types.inbox import InboxItem, Request
from ..types.messages import Message
from ..types.records import ApiKey, MemoryNote, Record
from ..types.runs import RunRecord, TaskRecord, TaskStatus
from ..types.tickets import Decision, Ticket
from .filters import RunFilters, TicketFilters, TicketOrder
from .overview import Mark, Tally
from .records import (
    LEASE_MS,
    ChildPolicy,
    Chunk,
    Claims,
    Commit,
    Committed,
    Dispatch,
    Due,
    Pruned,
    Records,
    Renewals,
    Retention,
    ThreadRecord,
    ThreadView,
)
from .relays import Relay, RelayStatus
from .usage import UsageKey, UsageRow

__all__ = ["Lease", "Store"]

R = TypeVar("R", bound=Record)


class Lease(Protocol):
    """A worker's lease. The worker's claims count as long as it is renewed."""

    renewals: Renewals
    """Counts of renewals so far."""

    def beat(self) -> None:
        """Note that the event loop is alive. Without a beat for half a lease the store stops renewing."""
        ...

    async def close(self) -> None:
        """End the lease: claims of this worker don't count any more."""
        ...


class Store(Protocol):
    """The source of truth. Everything a thread owns is written by `commit`, which is atomic.

    A handle belongs to one tenant and can't see others. Messages and events have their sequence number in `seq`.
    A refused commit writes nothing and raises `StaleFence`, `Conflict`, `InboxMoved`, `InboxFull` or
    `DuplicateRequest`. A cancellation of `commit` is delivered after the commit is written.
    """

    durable: bool

    @property
    def tenant_name(self) -> str:
        """The tenant of this handle."""
        ...

    async def commit(self, commit: Commit) -> Committed:
        """Write a commit, or nothing of it."""
        ...

    async def put(self, records: Records) -> None:
        """Write records that belong to no thread, or nothing of it. Raises `Conflict` by their revisions."""
        ...

    async def record(self, kind: type[R], record_id: str) -> R | None:
        """A record that belongs to no thread; None if there is none."""
        ...

    async def records(
        self, kind: type[R], *, before: str | None = None, prefix: str = "", limit: int = 100
    ) -> list[R]:
        """Records of a kind older than the record `before`, newest first; with a `prefix` those of such ids."""
        ...

    async def find_record(self, kind: type[ApiKey], record_id: str) -> tuple[str, ApiKey] | None:
        """The tenant of an API key and the key, of any tenant; None if there is none."""
        ...

    async def find_memories(self, prefix: str, words: Sequence[str], *, limit: int = 20) -> list[MemoryNote]:
        """The notes of an id's prefix with words that begin so, the best match first."""
        ...

    async def load(self, thread_id: str) -> ThreadView | None:
        """The view of a thread; None if there is none."""
        ...

    async def messages(
        self,
        thread_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        newest: int | None = None,
    ) -> list[Message]:
        """The messages of a thread between two sequence numbers, oldest first: the first `limit` or the `newest`.

        The rows it reads are in proportion to those it returns, not to the thread.
        """
        ...

    async def events(self, thread_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """The durable events of a thread after a sequence number, oldest first."""
        ...

    async def chunks(self, thread_id: str) -> list[Chunk]:
        """The chunks of the answer that is being streamed, in order."""
        ...

    async def head(self, thread_id: str) -> int:
        """The sequence number of the last log entry; 0 if there is none."""
        ...

    async def run(self, run_id: str) -> RunRecord | None:
        """The record of a run; None if there is none."""
        ...

    async def runs(
        self, *, before: str | None = None, limit: int = 100, **filters: Unpack[RunFilters]
    ) -> list[RunRecord]:
        """Run records older than the run `before`, newest first; with `root_run_id` those below that run."""
        ...

    async def count_runs(self, limit: int, **filters: Unpack[RunFilters]) -> Tally:
        """The number of runs, counted up to `limit`."""
        ...

    async def tasks(self, thread_id: str, *, status: TaskStatus | None = None) -> Sequence[TaskRecord]:
        """The tasks of a thread, oldest first."""
        ...

    async def answer(self, run_id: str) -> Message | None:
        """The last answer of a run; None if there is none."""
        ...

    async def calls(self, run_id: str) -> Sequence[Call]:
        """The whole ledger of a run, in order."""
        ...

    async def tickets(
        self,
        run_id: str | None = None,
        *,
        order: TicketOrder = "created",
        after: tuple[int, str] | None = None,
        limit: int | None = None,
        **filters: Unpack[TicketFilters],
    ) -> Sequence[Ticket]:
        """Tickets of a run, a thread or the tenant: oldest first, or by their deadlines.

        `after` is the position of a ticket: its `due_of` and its id.
        """
        ...

    async def count_tickets(
        self, limit: int, run_id: str | None = None, **filters: Unpack[TicketFilters]
    ) -> Tally:
        """The number of tickets, counted up to `limit`."""
        ...

    async def ticket(self, ticket_id: str) -> Ticket | None:
        """A ticket; None if there is none."""
        ...

    async def decisions(self, ticket_id: str) -> Sequence[Decision]:
        """The decisions on a ticket, oldest first."""
        ...

    async def decision(self, decision_id: str) -> Decision | None:
        """A decision; None if there is none."""
        ...

    async def has_id(self, an_id: str) -> bool:
        """Whether a decision, an inbox item or a request has this id."""
        ...

    async def item(self, item_id: str) -> InboxItem | None:
        """An inbox item or a used request id, in any status; None if there is none."""
        ...

    async def item_of_run(self, run_id: str) -> InboxItem | None:
        """The input that starts this run, if it went through the inbox. The run may not exist yet."""
        ...

    async def relay(self, relay_id: str) -> Relay | None:
        """A relay; None if there is none."""
        ...

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
        """Relays after the relay `after`, oldest first."""
        ...

    async def due_relays(self, kind: str, now: int, *, limit: int = 100) -> Sequence[Relay]:
        """Live relays of a kind that are due, have entries to deliver, and no live owner."""
        ...

    async def thread(self, thread_id: str) -> ThreadRecord | None:
        """The record of a thread; None if there is none."""
        ...

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

        `principal` is the id of the principal of the input that made them, `base` the thread they are forks of,
        `agents` those of their last run.
        """
        ...

    async def marks(self, *, limit: int = 200) -> Sequence[Mark]:
        """The marks of open runs with their threads, of open tickets, and of the newest runs and threads.

        At most `limit` of each; a bounded cost without payloads.
        """
        ...

    async def counts(self) -> Mapping[str, int]:
        """Counts of threads, messages, runs by status, open tickets and dispatches."""
        ...

    async def usage(
        self, by: Sequence[UsageKey], *, since: int | None = None, until: int | None = None
    ) -> list[UsageRow]:
        """Sums over the usage log by these keys, in their order, from `since` on and before `until` in ms."""
        ...

    async def fork(self, thread_id: str, at: int, new_id: str, *, request: Request | None = None) -> ThreadRecord:
        """Make a thread that shares this one's log up to `at`, with the state it had there.

        A repeated `request` returns the thread that the first one made. Raises `RequestReused` if its id was used
        for another one.
        """
        ...

    async def delete(self, thread_id: str, *, children: ChildPolicy = "reject") -> int:
        """Delete a thread, and by policy its children, the threads of its delegated runs; returns the number.

        The owner of a task that runs on the thread, or is about to, is told in the same transaction that it was
        cancelled. Raises `ThreadBusy` if a live worker owns the thread, `HasChildren` by the policy `reject`.
        """
        ...

    async def prune(self, retention: Retention) -> Pruned:
        """Delete what is older than its retention."""
        ...

    async def due(self, *, limit: int = 100) -> list[Due]:
        """Dispatches of all tenants without a live owner, in the order in which they are due."""
        ...

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
        """Claim up to `limit` dispatches of these agents, of all tenants, that are due and have no live owner.

        Tenants take turns; within a tenant the lowest priority and the longest due come first. `per_tenant` and
        `per_agent` limit the claims of all workers together. `now` replaces the store's clock. The death of an
        owner counts as an attempt of its dispatch; too many make a dead letter.
        """
        ...

    async def dispatches(
        self,
        *,
        thread_id: str | None = None,
        dead: bool | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Dispatch]:
        """Dispatches of one thread, or of all after `after`; `dead` selects dead letters or the others."""
        ...

    async def revive(self, thread_id: str, *, request: Request | None = None) -> bool:
        """Make a dead letter due again with all its attempts; False if there is none."""
        ...

    async def queued(self, limit: int) -> int:
        """The number of the tenant's dispatches that wait for a worker, counted up to `limit`."""
        ...

    async def claims(self, worker_id: str) -> list[tuple[str, str, int]]:
        """The threads that a worker has claimed, of all tenants: tenant, thread id and inbox head."""
        ...

    def keep(self, worker_id: str, lease: int = LEASE_MS) -> Lease:
        """Begin a worker's lease and renew it until it is closed."""
        ...

    async def probe(self) -> None:
        """Write a trifle durably; raises `StoreError` if the store can't write now."""
        ...

    async def tenants(self) -> list[str]:
        """The tenants that have threads or records."""
        ...

    def tenant(self, name: str) -> Store:
        """A handle on the same store for another tenant."""
        ...

    async def close(self) -> None:
        """Close the store and the handles of all tenants."""
        ...
