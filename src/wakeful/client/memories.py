"""The namespace of memories, over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from ..api.memories import EditMemory, Erased, EraseMemories, ListMemories, PutMemory
from ..api.runs import Wanted
from ..errors import UnknownMemory
from ..types.records import MemoryNote, MemoryScope
from .http import path_of
from .nouns import Noun, pages

__all__ = ["Memories"]


class Memories(Noun):
    """`client.memories`: see `runtime.memories`."""

    async def list(
        self, scope: MemoryScope, scope_id: str, *, before: str | None = None, limit: int = 100
    ) -> Sequence[MemoryNote]:
        """The notes about a user, an agent or a thread, older than the note `before`, the newest first."""
        query = ListMemories(scope=scope, scope_id=scope_id)
        return await pages(self._http, "/v1/memories", MemoryNote, query, limit, before)

    async def search(
        self, scope: MemoryScope, scope_id: str, query: str, *, limit: int = 20
    ) -> Sequence[MemoryNote]:
        """The notes about a user, an agent or a thread that have words of the query, the best match first."""
        wanted = {"scope": scope, "scope_id": scope_id, "query": query, "limit": limit}
        return await self._http.get("/v1/memories/search", list[MemoryNote], **wanted)

    async def get(self, memory: str) -> MemoryNote:
        """A note; raises `UnknownMemory`."""
        return await self._http.get(path_of("/v1/memories/{}", memory), MemoryNote)

    async def put(self, scope: MemoryScope, scope_id: str, key: str, text: str) -> MemoryNote:
        """Write the note under a key, or replace it."""
        body = PutMemory(scope=scope, scope_id=scope_id, key=key, text=text)
        return await self._http.post("/v1/memories", MemoryNote, body)

    async def edit(self, memory: str, text: str) -> MemoryNote:
        """Replace the text of a note; raises `UnknownMemory`."""
        path = path_of("/v1/memories/{}", memory)
        return await self._http.call("PATCH", path, MemoryNote, body=EditMemory(text=text))

    async def delete(self, memory: str) -> bool:
        """Delete a note; False if there is none."""
        try:
            return (await self._http.call("DELETE", path_of("/v1/memories/{}", memory), Wanted)).changed
        except UnknownMemory:
            return False

    async def erase(self, scope: MemoryScope, scope_id: str) -> int:
        """Delete all notes about a user, an agent or a thread; returns how many there were."""
        body = EraseMemories(scope=scope, scope_id=scope_id)
        return (await self._http.post("/v1/memories/erase", Erased, body)).erased
