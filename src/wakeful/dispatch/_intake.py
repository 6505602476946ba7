"""What new input does to its thread: it begins a run, goes on with one, or waits its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import CannotResume
from ..loop import Activation
from ..stores import ThreadView
from ..types.runs import RunRecord
from ._parked import check_resumable
from ._results import NewRun, item_of
from ._trees import dead_letter, open_below, tickets_below, waits_for_tasks

if TYPE_CHECKING:
    from ._local import Dispatcher

__all__ = ["is_answered", "open_for"]


async def open_for(dispatch: Dispatcher, new: NewRun, stored: ThreadView) -> Activation | None:
    """An activation for a new run, or None if the thread is busy and the input must wait."""
    if new.thread_id in dispatch.active or stored.thread.claimed:
        return None
    open_run = stored.run
    if stored.thread.dead and open_run is not None and open_run.waiting is None:
        raise dead_letter(open_run)
    if open_run is not None and is_answered(dispatch, stored, open_run):
        return None
    if open_run is None or (open_run.waiting is not None and "input" not in open_run.waiting.wakes):
        if open_run is not None and (_rests(open_run) or await _works_for(dispatch, open_run)):
            return None
        history = await dispatch.opener.history(stored, new.agent_id) if stored.thread.head else []
        act = dispatch.opener.new(new, stored, history)
        if new.lineage is not None and new.lineage.parent_run_id is not None:
            await dispatch.opener.join_tree(act)
        return act
    if open_run.waiting is None:
        if not dispatch.env.registry.knows(open_run.agent_id):
            return None  # It is left to those who know its agent.
        # Nobody runs it: it goes on from where it stood, and takes the input when its step is closed.
        await dispatch.deliver(item_of(new, "steer"))
        return await dispatch.opener.reopen(
            await dispatch.env.store.load(new.thread_id) or stored, open_run, "recover"
        )
    check_resumable(dispatch.env.registry, stored, open_run)
    act = await dispatch.opener.reopen(stored, open_run, "wake")
    act.draft.request = new.request_id
    if new.message is not None:
        act.log(new.message)
    act.set_run(ending=None)
    return act


async def _works_for(dispatch: Dispatcher, run: RunRecord) -> bool:
    """Whether something works for a run that waits: new input waits then too. One that waits for nothing but a
    person gives way to it."""
    if not waits_for_tasks(run) or await tickets_below(dispatch.env.store, run.thread_id, run.id):
        return False
    below = await open_below(dispatch.env.store, run.thread_id, run.id)
    return any([await dispatch.pump(task.target_thread) for task in below])


def is_answered(dispatch: Dispatcher, stored: ThreadView, run: RunRecord) -> bool:
    """Whether a run that waits has an answer in its inbox that it can go on with. An answer that was accepted
    counts: new input doesn't take the run's place any more."""
    decisions = [item.decision for item in stored.inbox if item.decision is not None]
    if run.waiting is None or not decisions:
        return False
    try:
        check_resumable(dispatch.env.registry, stored, run, decisions)
    except CannotResume:
        return False
    return True


def _rests(run: RunRecord) -> bool:
    """Whether a run waits for nobody, and will go on where it is: new input doesn't take its place."""
    return run.waiting is not None and run.waiting.reason in ("timer", "manual_pause")
