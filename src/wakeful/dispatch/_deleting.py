"""Removing a thread: whoever waits for a run of it hears that it won't end."""

from __future__ import annotations

from msgspec.structs import replace

from ..loop import report_of
from ..stores import ChildPolicy, InboxItem, ThreadView
from ..types.runs import Cancelled, Outcome, RunRecord
from ._local import Dispatcher

__all__ = ["GONE", "delete_thread"]

GONE = Outcome(Cancelled("its thread was deleted"))


async def delete_thread(dispatch: Dispatcher, thread_id: str, children: ChildPolicy) -> int:
    """Remove a thread; returns how many threads went. A run that waits for one of its runs goes on without it."""
    store = dispatch.env.store
    stored = await store.load(thread_id)
    removed = await store.delete(thread_id, children=children)
    for item in _news(stored) if stored is not None and removed else ():
        await dispatch.deliver(item)
        await dispatch.pump(item.thread_id)
    return removed


def _news(stored: ThreadView) -> list[InboxItem]:
    """What the owners of tasks are told whose runs were open on the thread, or had yet to begin."""
    open_run = [] if stored.run is None else [stored.run]
    pending = [
        RunRecord(identity=item.lineage, agent_id=item.lineage.agent_id, task=item.task, created_at=0)
        for item in stored.inbox
        if item.lineage is not None and item.task is not None
    ]
    told = [report_of(replace(run, outcome=GONE), None) for run in (*open_run, *pending)]
    return [item for item in told if item is not None]
