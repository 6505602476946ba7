"""The memories that a run reads and writes: rows of the store, written under the fence of the run."""

from __future__ import annotations

from collections.abc import Sequence

from ..stores import Commit, Records, search_words
from ..types.records import MemoryNote
from .activation import Activation

__all__ = ["RunMemories"]


class RunMemories:
    """The memories of one run's tenant."""

    __slots__ = ("_act",)

    def __init__(self, act: Activation) -> None:
        self._act = act

    async def get(self, note_id: str) -> MemoryNote | None:
        """A note; None if there is none."""
        return await self._act.env.store.record(MemoryNote, note_id)

    async def list(self, prefix: str, limit: int) -> Sequence[MemoryNote]:
        """The newest notes of an owner."""
        return await self._act.env.store.records(MemoryNote, prefix=prefix, limit=limit)

    async def find(self, prefix: str, query: str, limit: int) -> Sequence[MemoryNote]:
        """The notes of an owner with words of the query, the best match first."""
        return await self._act.env.store.find_memories(prefix, search_words(query), limit=limit)

    async def write(self, put: MemoryNote | None = None, removed: MemoryNote | None = None) -> None:
        """Put or remove a note under the run's fence; raises `Conflict` by its revision."""
        act = self._act
        records = Records([] if put is None else [put], [] if removed is None else [removed])
        await act.env.store.commit(Commit(act.identity.thread_id, act.identity, act.draft.fence, records=records))
