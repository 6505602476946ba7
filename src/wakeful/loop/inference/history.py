"""The history that a model is shown when its run starts, resumes, or another agent takes over."""

from __future__ import annotations

from ...context import SummaryState, fold
from ...stores import Store
from ...types.messages import Message

__all__ = ["history_of"]


async def history_of(store: Store, thread_id: str, limit: int | None, mark: SummaryState) -> list[Message]:
    """Load a thread's messages, or its last turns if the agent has a limit, with summaries in place.

    `mark` names the latest summary: messages that it covers aren't read.
    """
    if limit is not None:
        return fold(await _last_turns(store, thread_id, limit))
    if mark.last:
        found = await store.messages(thread_id, after=mark.last)
        if any(m.id == mark.message_id and m.covers == (1, mark.last) for m in found):
            return fold(found)
    return fold(await store.messages(thread_id))


async def _last_turns(store: Store, thread_id: str, limit: int) -> list[Message]:
    wanted = limit
    while True:
        found = await store.messages(thread_id, newest=wanted)
        turns = [place for place, m in enumerate(found) if m.role == "user" and m.covers is None]
        whole = [place for place in turns if place >= len(found) - limit]
        if whole or turns or len(found) < wanted:
            return found[whole[0] if whole else turns[-1] if turns else 0 :]
        wanted *= 2  # A turn is never cut: its start is further back.
