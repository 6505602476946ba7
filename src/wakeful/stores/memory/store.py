"""The store in memory: loads facts, calls `decide`, and applies the writes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Self

from msgspec.structs import replace

from ...types.ids import now_ms
from ...types.inbox import InboxItem, Request
from ..heads import Facts, Head, ItemRow, NeedFacts
from ..records import (
    LEASE_MS,
    ChildPolicy,
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
)
from ..rules import Refusal, decide_group
from ..turns import ClaimRequest
from ..writes import GroupWrites
from .claims import claim_dispatches, count_queued, due_dispatches, list_dispatches, revive_dispatch
from .reads import MemoryReads
from .tables import Database
from .upkeep import delete_thread, fork_thread, prune_tenant, reports_of

__all__ = ["MemoryLease", "MemoryStore"]


class MemoryStore(MemoryReads):
    """Threads and runs in this process, for as long as the object lives. The handle sees one tenant."""

    durable = False

    def __init__(self, *, tenant: str = "default") -> None:
        self._open(Database(), tenant)

    # -- commits -----------------------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> Committed:
        """Write a commit and its followers, or nothing."""
        group = self._decide(commit)
        self._apply(group)
        return group.committed

    async def put(self, records: Records) -> None:
        """Write records that belong to no thread, or nothing of it. Raises `Conflict` by their revisions."""
        await self.commit(Commit("", records=records))

    def _decide(self, commit: Commit) -> GroupWrites:
        """Decide on a commit by the present tables. Raises the error of a refusal."""
        facts, now = self._facts(commit), now_ms()
        while isinstance(decided := decide_group(facts, commit, now), NeedFacts):
            facts = self._load(facts, decided)
        if isinstance(decided, Refusal):
            raise decided.error
        return decided

    def _apply(self, group: GroupWrites) -> None:
        for writes in group.writes:
            self._tenant.apply(writes, self._database)
        self._database.next_thread, self._database.next_run = group.facts.next_thread, group.facts.next_run

    def _facts(self, commit: Commit) -> Facts:
        """The facts that most commits need."""
        database = self._database
        head = self._head(commit.thread_id)
        alive, leases = dict[str, bool](), dict[str, int]()
        if commit.claim is not None:
            # A lease that is kept in this process doesn't end.
            leases[commit.claim] = int(min(database.leases.get(commit.claim, 0), 2**62))
            if head.claim is not None:
                alive[head.claim] = database.is_alive(head.claim)
        return Facts(
            {head.id: head},
            alive=alive,
            leases=leases,
            next_thread=database.next_thread,
            next_run=database.next_run,
        )

    def _load(self, facts: Facts, needs: NeedFacts) -> Facts:
        """Add the rows that a decision needs."""
        tenant = self._tenant
        runs = {run_id: None if (run := self._run(run_id)) is None else run.row for run_id in needs.runs}
        relays = {relay_id: tenant.relays.get(relay_id) for relay_id in needs.relays}
        return replace(
            facts,
            heads={**facts.heads, **{thread_id: self._head(thread_id) for thread_id in needs.threads}},
            items={**facts.items, **{item_id: _row_of(tenant.items.get(item_id)) for item_id in needs.items}},
            runs={**facts.runs, **runs},
            relays={
                **facts.relays,
                **{k: None if relay is None else relay.revision for k, relay in relays.items()},
            },
            records={**facts.records, **{key: self._database.record_row(tenant, key) for key in needs.records}},
            alive={**facts.alive, **{worker: self._database.is_alive(worker) for worker in needs.workers}},
        )

    def _head(self, thread_id: str) -> Head:
        thread = self._threads.get(thread_id)
        return Head(thread_id) if thread is None else thread.head

    # -- dispatches --------------------------------------------------------------------------------------------

    async def due(self, *, limit: int = 100) -> list[Due]:
        """Dispatches of all tenants without a live owner, the first due first."""
        return due_dispatches(self._database)[:limit]

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
        """Claim up to `limit` due dispatches of these agents, of all tenants: see `Store.claim`."""
        request = ClaimRequest(
            worker_id=worker_id,
            agents=agents,
            limit=limit,
            lease=lease,
            now=now,
            per_tenant=per_tenant,
            per_agent=per_agent or {},
        )
        return claim_dispatches(self._database, request)

    async def dispatches(
        self,
        *,
        thread_id: str | None = None,
        dead: bool | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Dispatch]:
        """Dispatches of one thread, or of all after `after`; `dead` selects dead letters or the others."""
        rows = list_dispatches(self._database, self._tenant.name)
        found = [one for one in rows if dead in (None, one.dead_at is not None) and one.thread_id > (after or "")]
        return [one for one in found if thread_id in (None, one.thread_id)][:limit]

    async def revive(self, thread_id: str, *, request: Request | None = None) -> bool:
        """Make a dead letter due again, with all its attempts; False if it was none."""
        thread = self._threads.get(thread_id)
        if thread is None or not revive_dispatch(self._database, thread):
            return False
        if request is not None:
            self._tenant.put_request(thread, request)
        return True

    async def queued(self, limit: int) -> int:
        """The number of the tenant's dispatches that wait for a worker, up to `limit`."""
        return min(count_queued(self._database, self._tenant.name), limit)

    async def claims(self, worker_id: str) -> list[tuple[str, str, int]]:
        """The threads that a worker has claimed, of all tenants: tenant, thread, and inbox head."""
        mine = [thread for thread in self._database.active if thread.head.claim == worker_id]
        return [(thread.tenant, thread.id, thread.head.inbox_head) for thread in mine]

    # -- threads -----------------------------------------------------------------------------------------------

    async def fork(self, thread_id: str, at: int, new_id: str, *, request: Request | None = None) -> ThreadRecord:
        """Create a thread that starts with this one's log up to `at`, and its state as of there."""
        return self._record(fork_thread(self._database, self._tenant, thread_id, at, new_id, request))

    async def delete(self, thread_id: str, *, children: ChildPolicy = "reject") -> int:
        """Delete a thread; return how many threads were deleted. Owners of its tasks get a report."""
        reports = reports_of(self._tenant, thread_id)
        writes = self._decide(Commit(reports[0].thread_id, inbox=reports)) if reports else None
        deleted = delete_thread(self._database, self._tenant, thread_id, children)
        if writes is not None:
            self._apply(writes)
        return deleted

    async def prune(self, retention: Retention) -> Pruned:
        """Remove rows that are older than the retention keeps them."""
        return prune_tenant(self._database, self._tenant, retention)

    # -- handles -----------------------------------------------------------------------------------------------

    def keep(self, worker_id: str, lease: int = LEASE_MS) -> MemoryLease:
        """Keep the claims of this worker alive until the lease is closed."""
        return MemoryLease(self._database, worker_id)

    async def probe(self) -> None:
        """Nothing: a store in memory can always write."""

    async def tenants(self) -> list[str]:
        """The tenants that have threads or records in this store."""
        return self._database.names()

    def tenant(self, name: str) -> Self:
        """A handle on the same store for another tenant."""
        other = type(self).__new__(type(self))
        other._open(self._database, name)
        return other

    async def close(self) -> None:
        """Do nothing: a store in memory holds no resources."""


class MemoryLease:
    """A worker's lease. The worker lives in this process, so the lease lasts until it is closed."""

    def __init__(self, database: Database, worker_id: str) -> None:
        self.renewals = Renewals()
        self._leases = database.leases
        self._worker_id = worker_id
        self._leases[worker_id] = float("inf")

    def beat(self) -> None:
        """Do nothing: the lease needs no renewal."""

    async def close(self) -> None:
        """End the lease: the worker's claims are no longer alive."""
        self._leases.pop(self._worker_id, None)


def _row_of(item: InboxItem | None) -> ItemRow | None:
    if item is None:
        return None
    return ItemRow(
        item.thread_id,
        item.status,
        item.revision,
        item.position,
        item.taken_by,
        item.wake,
        item.at,
        item.priority,
        item.agent_id,
        item.digest,
    )
