"""Joint commits: runs that another run's commit starts or wakes in this process, written in the same transaction.

A durable child and, at its end, its parent need no claim and no read of the store this way. Nothing depends on it:
the items are in the store all the same, and a refused run is found there by the normal claim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..errors import Conflict, StaleFence, WakefulError
from ..loop import Activation, JoinedCommit, drive
from ..stores import next_turn
from ..types.inbox import InboxItem, InputItem, TaskItem
from .activations import join
from .dispatcher import Dispatcher
from .results import new_run_of

__all__ = ["start_with_commit"]


async def start_with_commit(
    dispatch: Dispatcher, act: Activation, items: Sequence[InboxItem]
) -> Sequence[JoinedCommit]:
    """Start the runs of the items that a run is about to deliver, up to their first commits.

    A run that doesn't reach its first commit within one turn of the event loop commits alone.
    """
    loop = asyncio.get_running_loop()
    rides: list[JoinedCommit] = []
    threads = [item.thread_id for item in items]
    for item in items:
        started = _open(dispatch, act, item) if threads.count(item.thread_id) == 1 else None
        if started is not None:
            rides.append(JoinedCommit())
            started.draft.joined = rides[-1]
            dispatch.track(loop.create_task(_drive(dispatch, started)))
    if not rides:
        return ()
    await next_turn()
    for ride in rides:
        if ride.commit is None:
            ride.settle(None)
    return [ride for ride in rides if ride.commit is not None]


def _open(dispatch: Dispatcher, act: Activation, item: InboxItem) -> Activation | None:
    """An activation for an item, if it can start here and now."""
    is_busy = dispatch.closed or dispatch.worker.must_claim or dispatch.is_busy(item.thread_id)
    if is_busy or not dispatch.runs_agent(item.agent_id or ""):
        return None
    if isinstance(item, InputItem):
        return _open_child(dispatch, act, item)
    parked = dispatch.parked.find(item.thread_id)
    return _wake_parent(dispatch, parked, item) if parked is not None and isinstance(item, TaskItem) else None


def _open_child(dispatch: Dispatcher, act: Activation, item: InputItem) -> Activation | None:
    """An activation for a child of the run, on a new thread."""
    if item.task is None or item.task.epoch > 1 or item.lineage is None:
        return None
    try:
        child = dispatch.activations.new(new_run_of(item))
    except WakefulError:
        return None  # The worker that claims it reports the error.
    child.inbox_head = 1
    if item.lineage.parent_run_id is not None:
        join(child, act)
    return child


def _wake_parent(dispatch: Dispatcher, parked: Activation, item: TaskItem) -> Activation | None:
    """An activation for a parked run whose awaited task ended."""
    waiting = parked.view.run.waiting
    if waiting is None or item.outcome is None or item.wake not in waiting.wakes or parked.view.tree.apart:
        return None
    try:
        return dispatch.activations.wake(parked, item)
    except WakefulError:
        return None


async def _drive(dispatch: Dispatcher, act: Activation) -> None:
    try:
        await drive(act, dispatch)
    except (Conflict, StaleFence):
        dispatch.wake(act.identity.thread_id)
    except Exception:
        if act.draft.fence is not None:
            raise
        # It didn't start: the worker that claims it reports the error.
