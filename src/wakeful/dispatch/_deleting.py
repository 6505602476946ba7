"""Removing a thread: whoever waits for a run of it hears at once that it won't end."""

from __future__ import annotations

from ..errors import CorruptRow
from ..stores import ChildPolicy, Store
from ._local import Dispatcher

__all__ = ["delete_thread"]


async def delete_thread(dispatch: Dispatcher, thread_id: str, children: ChildPolicy) -> int:
    """Remove a thread; returns how many threads went. The store tells a run that waits for one of its runs."""
    owner = await _owner(dispatch.env.store, thread_id)
    removed = await dispatch.env.store.delete(thread_id, children=children)
    if removed and owner is not None:
        dispatch.wake(owner)
    return removed


async def _owner(store: Store, thread_id: str) -> str | None:
    try:
        stored = await store.thread(thread_id)
    except CorruptRow:
        return None  # It can be deleted all the same; what is due then is found due.
    return None if stored is None else stored.parent_id
