"""What a model is shown of a thread when its run begins, goes on, or another agent takes over."""

from __future__ import annotations

from ..context import Mark, fold
from ..stores import Store
from ..types.messages import Message

__all__ = ["history_of"]


async def history_of(store: Store, thread_id: str, limit: int | None, mark: Mark) -> list[Message]:
    """All of the thread, or its last turns where the agent has a limit; with summaries in place of what they stand
    for. The mark names the one from which on the rest needn't be read."""
    if limit is not None:
        return fold(await _last_turns(store, thread_id, limit))
    if mark.last:
        found = await store.messages(thread_id, after=mark.last)
        if any(m.id == mark.message_id and m.covers == (1, mark.last) for m in found):
            return fold(found)  # What the summary stands for needn't be read.
    return fold(await store.messages(thread_id))


async def _last_turns(store: Store, thread_id: str, limit: int) -> list[Message]:
    wanted = limit
    while True:
        found = await store.messages(thread_id, newest=wanted)
        turns = [place for place, m in enumerate(found) if m.role == "user" and m.covers is None]
        whole = [place for place in turns if place >= len(found) - limit]
        if whole or turns or len(found) < wanted:
            return found[whole[0] if whole else turns[-1] if turns else 0 :]
        wanted *= 2  # A turn is never cut: its beginning is further back.
