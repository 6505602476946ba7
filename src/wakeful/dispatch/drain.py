"""Draining: finish open steps, hand runs over, and cut off those that exceed the grace."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..errors import StoreError
from ..loop import Activation
from ..stores import Commit
from .dispatcher import Dispatcher

__all__ = ["drain"]

# How long cut-off activations have to end before their threads are released, in seconds.
CUT_OFF_GRACE = 1.0


async def drain(dispatchers: Sequence[Dispatcher], grace: float) -> int:
    """Hand over all active runs at a step boundary; returns how many had to be cut off.

    Nothing new starts meanwhile. `grace` is in seconds.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + grace
    while running := [act for dispatch in dispatchers for act in dispatch.active.values()]:
        for act in running:
            if act.stopping is None:
                act.hand_over()
        if (left := until - loop.time()) <= 0:
            break
        await asyncio.wait([act.ended() for act in running], timeout=left)
    cut = [(dispatch, act) for dispatch in dispatchers for act in list(dispatch.active.values())]
    if cut:
        _cut_off([act for _, act in cut])
        await asyncio.wait([act.ended() for _, act in cut], timeout=CUT_OFF_GRACE)
        await asyncio.gather(*[_release(dispatch, act) for dispatch, act in cut])
    return len(cut)


def _cut_off(acts: Sequence[Activation]) -> None:
    interrupted: set[asyncio.Task[object] | None] = set()
    for act in acts:
        act.cut_off(interrupt=act.cancellation.task not in interrupted)
        interrupted.add(act.cancellation.task)


async def _release(dispatch: Dispatcher, act: Activation) -> None:
    """Release a thread at its last commit, so that nobody has to wait for the end of the lease."""
    if act.draft.fence is not None and not act.left:
        commit = Commit(act.identity.thread_id, act.identity, act.draft.fence, release=True)
        try:
            await dispatch.env.store.commit(commit)
        except StoreError:
            pass  # Another owner has it, or the end of the lease frees it.
