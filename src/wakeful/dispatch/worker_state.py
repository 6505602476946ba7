"""The part of a worker that runs use: its lease, its capacity, its metrics and the events that wake its loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from ..stores import Lease, Store
from ..types.limits import Capacity
from .metrics import Metrics

__all__ = ["WorkerState"]


class WorkerState:
    """Shared by the runs of all tenants in this process.

    `excluded` are agents that this process knows and leaves to others. `pulse` runs while at least one run is
    active on a durable store.
    """

    def __init__(
        self,
        store: Store,
        owner: str,
        capacity: Capacity,
        excluded: Collection[str],
        pulse: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self.store = store
        self.owner = owner
        self.capacity = capacity
        self.excluded = frozenset(excluded)
        # Limits for all workers together are counted in the store, at the claim.
        self.has_shared_limits = capacity.per_tenant is not None or bool(capacity.per_agent)
        self._has_limits = self.has_shared_limits or capacity.running is not None
        self.metrics = Metrics()
        self.metrics.renewals = lambda: None if self.lease is None else self.lease.renewals
        self.lease: Lease | None = None
        self.serving = False
        # Whether the store may have claims of this process that it doesn't know of.
        self.may_have_strays = False
        # Whether the last look found less than there was room for, and no look is under way.
        self.queue_is_empty = False
        self.look_requested = asyncio.Event()
        self.looked = asyncio.Event()
        self._start_pulse = pulse
        self._pulse: asyncio.Task[None] | None = None
        self._active = 0
        self._holds_lease = False

    @property
    def must_claim(self) -> bool:
        """Whether due work has to be claimed before it starts, because there is a limit."""
        return self._has_limits and self.serving

    @property
    def is_full(self) -> bool:
        """Whether as many runs are active as may be."""
        return self.capacity.running is not None and self.metrics.active >= self.capacity.running

    def accepts(self, agent_id: str) -> bool:
        """Whether an agent's runs start here, and there is room for one now."""
        return agent_id not in self.excluded and not self.is_full

    def look(self) -> None:
        """Wake the worker's loop to look for due work."""
        self.look_requested.set()

    def suspect_strays(self) -> None:
        """Note that the store may have a claim of this process that it doesn't know of."""
        self.may_have_strays = True
        self.look_requested.set()

    # -- slots -----------------------------------------------------------------------------------------------

    async def take_slot(self) -> bool:
        """Take a slot for new input that starts here; False if none is free, or due work waits for it."""
        if self.has_shared_limits or not await self.has_free_slot():
            return False
        self.metrics.active += 1
        return True

    def free_slot(self) -> None:
        """Give a slot to the next due dispatch."""
        self.metrics.active -= 1
        self.look_requested.set()

    async def has_free_slot(self) -> bool:
        """Whether a slot is free that no due dispatch waits for. Waits for the look under way."""
        while self.serving:
            await self.looked.wait()
            if self.queue_is_empty or self.is_full or self.may_have_strays:
                break
            if self.looked.is_set():  # The last look found no free slot; one was freed since.
                self.looked.clear()
                self.look_requested.set()
        return self.serving and self.queue_is_empty and not self.may_have_strays and not self.is_full

    # -- lease -----------------------------------------------------------------------------------------------

    def open_lease(self) -> None:
        """Start the lease of this process, once."""
        if self.lease is None:
            self.lease = self.store.keep(self.owner)

    def beat(self) -> None:
        """Show the lease that the event loop is alive."""
        if self.lease is not None:
            self.lease.beat()

    def hold_lease(self) -> None:
        """Keep the lease until it is closed, also while nothing is served and no run is active."""
        if not self.serving and not self._holds_lease:
            self._holds_lease = True
            self.run_started()

    def run_started(self) -> None:
        """Keep the lease while a run is active."""
        self._active += 1
        if self.lease is None:
            self.open_lease()
        if self._active == 1 and self.store.durable:
            self._pulse = asyncio.get_running_loop().create_task(self._start_pulse())

    def run_ended(self) -> None:
        """Stop the pulse with the last active run."""
        self._active -= 1
        if self._active == 0 and self._pulse is not None:
            self._pulse.cancel()
            self._pulse = None
        if self.has_shared_limits:
            self.look_requested.set()  # The run may have used up a limit.

    async def close(self) -> None:
        """Stop the pulse and give up the lease."""
        pulse, self._pulse = self._pulse, None
        if pulse is not None:
            pulse.cancel()
            await asyncio.wait({pulse})
        lease, self.lease = self.lease, None
        if lease is not None:
            await lease.close()
