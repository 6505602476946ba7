"""Stopping in order: let open steps finish, hand over what goes on, and cut off what doesn't get there in time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..errors import StoreError
from ..loop import Activation
from ..stores import Commit
from ._local import Dispatcher

__all__ = ["drain"]

# How long what was cut off has to let go before its threads are given back, in seconds.
LET_GO = 1.0


async def drain(dispatchers: Sequence[Dispatcher], grace: float) -> int:
    """Bring everything that runs to a step boundary and hand it over, where nothing more begins; returns how many
    had to be cut off."""
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
        await asyncio.wait([act.ended() for _, act in cut], timeout=LET_GO)
        await asyncio.gather(*[_give_back(dispatch, act) for dispatch, act in cut])
    return len(cut)


def _cut_off(acts: Sequence[Activation]) -> None:
    told: set[asyncio.Task[object] | None] = set()
    for act in acts:
        act.cut_off(interrupt=act.task not in told)
        told.add(act.task)


async def _give_back(dispatch: Dispatcher, act: Activation) -> None:
    """Release the thread as its last commit left it, so that nobody has to wait for the end of the lease."""
    if act.draft.fence is not None and not act.left:
        commit = Commit(act.identity.thread_id, act.identity, act.draft.fence, release=True)
        try:
            await dispatch.env.store.commit(commit)
        except StoreError:
            pass  # Somebody has it, or the lease's end will say so.
