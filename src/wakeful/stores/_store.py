"""The store's contract: one door to write through, and the reads that runs and readers need."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from ..types.events import Event
from ..types.messages import Message
from ..types.runs import (
    Call,
    RunRecord,
    RunStatus,
    TaskRecord,
    TaskStatus,
)
from ..types.tickets import Decision, Ticket, TicketStatus
from ._protocol import (
    LEASE_MS,
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
from ._relays import Relay, RelayStatus

__all__ = ["Lease", "Store"]


class Lease(Protocol):
    """A worker's sign of life. While it is kept, the worker's claims stand."""

    renewals: Renewals
    """What came of renewing it so far."""

    def beat(self) -> None:
        """The event loop is alive; without a beat for half a lease the store stops renewing."""
        ...

    async def close(self) -> None:
        """Give the lease up: claims of this worker count no more."""
        ...


class Store(Protocol):
    """The truth. Everything durable goes through `commit`, which is atomic and can't be interrupted.

    A store handle belongs to one tenant and sees nothing of others. What is read carries its sequence number in
    `seq`. `commit` raises `StaleFence`, `Conflict`, `InboxMoved` or `Repeated`, having written nothing.
    """

    durable: bool

    @property
    def tenant_name(self) -> str:
        """Whose rows the handle sees."""
        ...

    async def commit(self, commit: Commit) -> Committed:
        """Write the commit, or nothing of it."""
        ...

    async def load(self, thread_id: str) -> ThreadView | None:
        """The thread's view, or None if it doesn't exist."""
        ...

    async def messages(
        self, thread_id: str, *, after: int = 0, limit: int | None = None, newest: int | None = None
    ) -> list[Message]:
        """The thread's messages, oldest first, from behind a sequence number; with `newest` the last so many."""
        ...

    async def events(self, thread_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """The thread's durable events, oldest first, from behind a sequence number."""
        ...

    async def chunks(self, thread_id: str) -> list[Chunk]:
        """What is kept of an answer that is being streamed, in order."""
        ...

    async def head(self, thread_id: str) -> int:
        """The last number of the thread's log; 0 if there is none."""
        ...

    async def run(self, run_id: str) -> RunRecord | None:
        """One run's record."""
        ...

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
        ...

    async def tasks(self, thread_id: str, *, status: TaskStatus | None = None) -> Sequence[TaskRecord]:
        """The tasks that a thread owns, oldest first."""
        ...

    async def answer(self, run_id: str) -> Message | None:
        """The last answer of a run."""
        ...

    async def calls(self, run_id: str) -> Sequence[Call]:
        """The whole ledger of a run, in order."""
        ...

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
        ...

    async def ticket(self, ticket_id: str) -> Ticket | None:
        """One ticket."""
        ...

    async def decisions(self, ticket_id: str) -> Sequence[Decision]:
        """Who answered a ticket, and how, in order."""
        ...

    async def decision(self, decision_id: str) -> Decision | None:
        """One decision."""
        ...

    async def has_id(self, an_id: str) -> bool:
        """Whether a decision, an inbox item or a request has this id."""
        ...

    async def item(self, item_id: str) -> InboxItem | None:
        """An inbox item or a request, whatever became of it."""
        ...

    async def item_of_run(self, run_id: str) -> InboxItem | None:
        """The input that this run is of, if it had to wait its turn; the run may not be there yet."""
        ...

    async def relay(self, relay_id: str) -> Relay | None:
        """One relay."""
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
        """Relays, oldest first, from behind the relay `after`."""
        ...

    async def due_relays(self, kind: str, now: int, *, limit: int = 100) -> Sequence[Relay]:
        """Live relays of that kind which are due, have something behind their cursor, and nobody delivers."""
        ...

    async def thread(self, thread_id: str) -> ThreadRecord | None:
        """One thread's record."""
        ...

    async def threads(self, *, before: str | None = None, limit: int = 100) -> list[ThreadRecord]:
        """Threads, newest first, older than the thread `before`; without those of delegated runs."""
        ...

    async def counts(self) -> Mapping[str, int]:
        """How many there are: threads, messages, runs by status, open tickets, dispatches."""
        ...

    async def fork(self, thread_id: str, at: int, new_id: str) -> ThreadRecord:
        """A new thread that begins with this one's log up to `at`, and its state as it was there."""
        ...

    async def delete(self, thread_id: str, *, children: ChildPolicy = "reject") -> int:
        """Remove threads and everything of theirs; returns how many. Children are threads of delegated runs. The
        thread that owns a task which runs on the thread, or is yet to, is told in the same transaction."""
        ...

    async def prune(self, retention: Retention) -> Pruned:
        """Remove what is older than it has to be kept."""
        ...

    async def due(self, *, limit: int = 100) -> list[Due]:
        """Dispatches of all tenants that nobody alive has claimed: the first due first, then those of later."""
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
        """Take up to `limit` dispatches of these agents, of all tenants, that are due and that nobody alive has
        claimed: in turns between the tenants, for each the lowest priority and the longest due first.

        No more than `per_tenant` threads of a tenant and `per_agent` of an agent are claimed at once, whoever has
        them. `now` is the time that counts as due, by default the store's. What a worker left that died is an
        attempt; one too many makes the dispatch a dead letter.
        """
        ...

    async def dispatches(
        self, *, dead: bool | None = None, after: str | None = None, limit: int = 100
    ) -> list[Dispatch]:
        """Dispatches by their thread's id, from behind the thread `after`; with `dead` only dead letters, or only
        others."""
        ...

    async def revive(self, thread_id: str) -> bool:
        """Make a dead letter due again, with all its attempts; False if it was none."""
        ...

    async def queued(self, limit: int) -> int:
        """How many dispatches of the tenant wait for a worker, counted up to `limit`."""
        ...

    async def claims(self, worker_id: str) -> list[tuple[str, str, int]]:
        """The threads that a worker has claimed, of all tenants: tenant, thread, and its inbox's head."""
        ...

    def keep(self, worker_id: str, lease: int = LEASE_MS) -> Lease:
        """Keep the claims of this worker alive until the lease is closed."""
        ...

    async def tenants(self) -> list[str]:
        """The tenants that have threads in this store."""
        ...

    def tenant(self, name: str) -> Store:
        """A handle on the same store for another tenant."""
        ...

    async def close(self) -> None:
        """Let go of what the store holds open."""
        ...
