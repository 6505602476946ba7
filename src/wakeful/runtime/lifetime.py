"""The end of a runtime: drain, then close."""

from __future__ import annotations

import asyncio

from ..dispatch import drain as drain_dispatchers
from .scope import Shared

__all__ = ["DRAIN_GRACE", "close", "drain"]

DRAIN_GRACE = 5.0


async def drain(shared: Shared, grace: float) -> int:
    """Claim and start nothing more, and hand over active runs; returns the number of runs cut off."""
    shared.draining = True
    dispatchers = [scope.dispatch for scope in shared.scopes.values()]
    for dispatch in dispatchers:
        dispatch.stop()
    await shared.worker.stop()
    if shared.env.store.durable:
        return await drain_dispatchers(dispatchers, grace)
    ends = [act.ended() for dispatch in dispatchers for act in dispatch.active.values()]
    if ends:
        await asyncio.wait(ends, timeout=grace)
    return sum(len(dispatch.active) for dispatch in dispatchers)


async def close(shared: Shared, grace: float) -> None:
    """Drain, end all activations, and close the store. Runs on a store in memory are cancelled."""
    await shared.worker.stop()
    if shared.env.store.durable:
        await drain(shared, grace)
    await shared.courier.close()
    for scope in list(shared.scopes.values()):
        await scope.dispatch.close()
        scope.bus.close()
    # From here on calls are refused: work started on a closed store, or in memory, would be lost.
    shared.closed = True
    shared.env.threads.close()
    await shared.worker.close()
    await shared.signals.close()
    await shared.env.registry.close()
    await shared.env.store.close()
