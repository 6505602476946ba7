"""Deleting threads."""

from __future__ import annotations

from ..errors import CorruptRow
from ..stores import ChildPolicy, Store
from .dispatcher import Dispatcher

__all__ = ["delete_thread"]


async def delete_thread(dispatch: Dispatcher, thread_id: str, children: ChildPolicy) -> int:
    """Delete a thread; returns the number of deleted threads.

    Runs that wait for a run of the thread are told in the same transaction.
    """
    owner = await _owner(dispatch.env.store, thread_id)
    removed = await dispatch.env.store.delete(thread_id, children=children)
    if removed and owner is not None:
        dispatch.wake(owner)
    return removed


async def _owner(store: Store, thread_id: str) -> str | None:
    try:
        stored = await store.thread(thread_id)
    except CorruptRow:
        return None  # An unreadable thread can be deleted; workers find its owner due.
    return None if stored is None else stored.parent_id
