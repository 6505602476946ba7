"""Workers: dispatches, leases, readiness and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ..dispatch import Metrics, read_backlog
from ..errors import RuntimeClosed, StoreError, UsageError, explain
from ..errors.arguments import checked_methods
from ..stores import Backlog, Dispatch, WorkerSeen
from ..tasks import EVERYWHERE
from ..types.limits import Capacity
from .arguments import check_count, check_id, check_ids, check_instance
from .lifetime import DRAIN_GRACE, drain
from .scope import Scope

__all__ = ["LocalWorker", "Workers"]

# How long a readiness check waits for the store, in seconds.
READY_SECONDS = 2.0


@checked_methods("runtime.workers")
class Workers:
    """`runtime.workers` of a tenant: its dispatches."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def dispatches(
        self, *, dead: bool | None = None, after: str | None = None, limit: int = 100
    ) -> Sequence[Dispatch]:
        """Threads that are due for a worker or claimed by one, by thread id, after the thread `after`.

        With `dead=True` only dead dispatches, which `revive` and `runs.retry` put back; with False the others.
        """
        check_instance(dead, bool, "dead")
        check_ids(thread=after)
        return await self._scope.store.dispatches(dead=dead, after=after, limit=check_count(limit, "limit") or 100)

    async def revive(self, thread: str) -> bool:
        """Put a thread's dead dispatch back, with a new count of attempts; False if it has none."""
        return await self._scope.store.revive(check_id(thread, "thread"))

    def hold_lease(self) -> str:
        """Hold the lease of this process until the runtime closes, also if it claims nothing.

        Returns its owner id. Other processes take over what that owner left once the lease is over.
        """
        self._scope.shared.worker.state.hold_lease()
        return self._scope.shared.owner

    async def readiness(self) -> str | None:
        """The reason why this process can't take work at present: it drains, or its store can't be reached or
        written to; None if it is ready."""
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self._scope.store.probe()
        except RuntimeClosed as error:
            return str(error)
        except TimeoutError as error:
            return f"the store doesn't answer: {explain(error)}"
        except StoreError as error:
            return f"the store can't be written to: {explain(error)}"
        return "it drains, and claims no more threads" if self._scope.dispatch.closed else None


class LocalWorker(Workers):
    """`runtime.workers`: all workers of the store, and this process as one of them."""

    @property
    def id(self) -> str:
        """The owner id of this process in claims and leases."""
        return self._scope.shared.owner

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents whose dispatches this process claims."""
        return tuple([agent for agent in self._scope.shared.worker.agents if agent not in EVERYWHERE])

    @property
    def capacity(self) -> Capacity:
        """The limits of this process."""
        return self._scope.shared.worker.capacity

    @property
    def abandoned(self) -> int:
        """Tool calls of this process that ignored their cancellation and still run: tasks and threads."""
        return self._scope.shared.abandoned

    @property
    def metrics(self) -> Metrics:
        """The counters of this process."""
        return self._scope.shared.worker.metrics

    async def metrics_text(self) -> str:
        """The counters of this process and the backlog of the store, in Prometheus's text format."""
        await read_backlog(self.metrics, self._scope.env.store)
        return self.metrics.text()

    async def list(self, *, limit: int = 100) -> Sequence[WorkerSeen]:
        """The workers that hold a lease on the store, and lost ones whose claims wait for a takeover."""
        store: Any = self._scope.store
        if not hasattr(store, "workers"):
            raise UsageError(
                "a store in memory has no other workers; give the runtime a store that processes share: "
                "store='app.db' or store='postgres://user@host/database'"
            )
        return await store.workers(limit=check_count(limit, "limit") or 100)

    async def backlog(self) -> Backlog:
        """Dispatches of all tenants that wait for a worker, by tenant and agent, and the number of dead ones."""
        store: Any = self._scope.store
        if not hasattr(store, "backlog"):
            raise UsageError("a store in memory has no other workers, and so no backlog for them")
        return await store.backlog()

    async def drain(self, grace: float = DRAIN_GRACE) -> int:
        """Claim and start nothing more, and hand over the active runs of all tenants.

        Each run continues to the end of its open step, and from there in another process on the store. Runs that
        take longer than `grace` seconds are cut off and recovered elsewhere by their tools' effects; returns their
        number. A store in memory has no other process: there, runs may finish, and `close` cancels the rest.
        """
        return await drain(self._scope.shared, grace)
