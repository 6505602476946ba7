"""What a run begins or wakes in its own process: children and, at their end, the run that waits for them. Their
first commits go along with the one that has something for them: nothing is looked for, read or claimed anew.

Nothing depends on it. What one has for another is in the store all the same, and whoever is refused, in whichever
process, finds it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import Conflict, StaleFence, WakefulError
from ..loop import Activation, Ride
from ..stores import InboxItem, next_turn
from ._opening import join
from ._results import new_run_of

if TYPE_CHECKING:
    from ._local import Dispatcher

__all__ = ["Resting", "board"]


class Resting:
    """Runs that wait for others which run in this process, as they left: only as long as one of those does."""

    def __init__(self, active: Mapping[str, Activation]) -> None:
        self._active = active
        self.acts: dict[str, Activation] = {}

    def find(self, thread_id: str) -> Activation | None:
        """The activation that left a run which rests."""
        return self.acts.get(thread_id)

    def began(self, act: Activation) -> None:
        """Somebody goes on with a thread: with what rests here, or with what the store has."""
        if (rested := self.acts.pop(act.identity.thread_id, None)) is not None:
            rested.view.tree.apart |= rested.view.tree is not act.view.tree

    def ended(self, act: Activation) -> None:
        """An activation is over: keep it if it waits, and let go of one that waited for nobody but it. Who goes on
        with what isn't kept has a count of its own of what the tree used."""
        run, above = act.view.run, act.identity.parent_thread_id
        if act.left and run.waiting is not None and self._works_for(act):
            self.acts[act.identity.thread_id] = act
        elif run.status != "done":
            act.view.tree.apart = True
        if self.acts and above in self.acts and not self._works_for(self.acts[above]):
            self.acts.pop(above).view.tree.apart = True

    def _works_for(self, act: Activation) -> bool:
        return any(task.target_thread in self._active for task in act.view.tasks)


async def board(dispatch: Dispatcher, act: Activation, items: Sequence[InboxItem]) -> Sequence[Ride]:
    """Let what these items begin or wake here come as far as its first commit, if it gets there at once."""
    loop = asyncio.get_running_loop()
    rides: list[Ride] = []
    threads = [item.thread_id for item in items]
    for item in items:
        rider = _rider(dispatch, act, item) if threads.count(item.thread_id) == 1 else None
        if rider is not None:
            rides.append(Ride())
            rider.draft.ride = rides[-1]
            dispatch.track(loop.create_task(_drive(dispatch, rider)))
    if not rides:
        return ()
    await next_turn()
    for ride in rides:
        if ride.commit is None:
            ride.end(None)
    return [ride for ride in rides if ride.commit is not None]


def _rider(dispatch: Dispatcher, act: Activation, item: InboxItem) -> Activation | None:
    """What goes on because of an item, if that can be here and now."""
    busy = dispatch.closed or dispatch.keeper.claims_only or dispatch.goes_on(item.thread_id)
    if busy or not dispatch.runs(item.agent_id or ""):
        return None
    if item.kind == "input":
        return _child(dispatch, act, item)
    rested = dispatch.resting.find(item.thread_id)
    return None if rested is None else _woken(dispatch, rested, item)


def _child(dispatch: Dispatcher, act: Activation, item: InboxItem) -> Activation | None:
    """What begins a child of the run on a thread that is new."""
    if item.task is None or item.task.epoch > 1 or item.lineage is None:
        return None
    try:
        child = dispatch.opener.new(new_run_of(item), None, [])
    except WakefulError:
        return None  # Whoever takes it from the inbox says why.
    child.inbox_head = 1
    if item.lineage.parent_run_id is not None:
        join(child, act)
    return child


def _woken(dispatch: Dispatcher, rested: Activation, item: InboxItem) -> Activation | None:
    """What goes on with a run because something that it waits for has come to an end."""
    waiting = rested.view.run.waiting
    if waiting is None or item.outcome is None or item.wake not in waiting.wakes or rested.view.tree.apart:
        return None
    try:
        return dispatch.opener.wake(rested, item)
    except WakefulError:
        return None


async def _drive(dispatch: Dispatcher, act: Activation) -> None:
    try:
        await act.drive(dispatch)
    except (Conflict, StaleFence):
        dispatch.wake(act.identity.thread_id)
    except Exception:
        if act.draft.fence is not None:
            raise
        # It didn't begin: whoever finds it in the store says why.
