"""Memories: list, search, edit and erase the notes of users, agents and threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from msgspec.structs import replace

from ..errors import Conflict, InvalidInput, UnknownMemory
from ..errors.arguments import checked_methods
from ..stores import Records, search_words
from ..types.content import clean_text, require_text
from ..types.records import MAX_KEY, MAX_TEXT, MemoryNote, MemoryScope, memory_id, memory_prefix
from ..types.runs import Author, Principal
from .arguments import check_author, check_choice, check_count, check_id
from .scope import Scope

__all__ = ["Memories"]

PAGE = 200


@checked_methods("runtime.memories")
class Memories:
    """`runtime.memories`: the long-term memories of one tenant, each a note about a user, an agent or a thread."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def list(
        self, scope: MemoryScope, scope_id: str, *, before: str | None = None, limit: int = 100
    ) -> Sequence[MemoryNote]:
        """The notes about a user, an agent or a thread, older than the note `before`, the newest first."""
        prefix = _prefix(scope, scope_id)
        most = check_count(limit, "limit") or 100
        return await self._scope.store.records(MemoryNote, before=before, prefix=prefix, limit=most)

    async def search(
        self, scope: MemoryScope, scope_id: str, query: str, *, limit: int = 20
    ) -> Sequence[MemoryNote]:
        """The notes about a user, an agent or a thread that have words of the query, the best match first."""
        prefix, words = _prefix(scope, scope_id), search_words(require_text(query, "a query"))
        return await self._scope.store.find_memories(prefix, words, limit=check_count(limit, "limit") or 20)

    async def get(self, memory: str) -> MemoryNote:
        """A note; raises `UnknownMemory`."""
        found = await self._scope.store.record(MemoryNote, check_id(memory, "memory"))
        if found is None:
            raise UnknownMemory(f"no memory {memory!r:.80} in this store; memories.list(scope, scope_id) has all")
        return found

    async def put(
        self,
        scope: MemoryScope,
        scope_id: str,
        key: str,
        text: str,
        *,
        principal: Principal | Author | None = None,
    ) -> MemoryNote:
        """Write the note under a key, or replace it. It counts as trusted: a person has read it."""
        _prefix(scope, scope_id)
        key, text = _check_note(key, text)
        author = check_author(principal)
        note_id = memory_id(scope, scope_id, key)
        while True:
            found = await self._scope.store.record(MemoryNote, note_id)
            now = self._scope.env.clock.now()
            before = MemoryNote(
                id=note_id, scope=scope, scope_id=scope_id, key=key, text="", created_at=now, revision=0
            )
            note = replace(
                found or before,
                text=text,
                tainted=False,
                edited_by=None if author is None else author.principal.id,
                updated_at=now,
                revision=(found or before).revision + 1,
            )
            try:
                await self._scope.store.put(Records([note]))
            except Conflict:
                continue  # Somebody else wrote it meanwhile.
            return note

    async def edit(self, memory: str, text: str, *, principal: Principal | Author | None = None) -> MemoryNote:
        """Replace the text of a note; raises `UnknownMemory`."""
        found = await self.get(memory)
        return await self.put(found.scope, found.scope_id, found.key, text, principal=principal)

    async def delete(self, memory: str) -> bool:
        """Delete a note; False if there is none."""
        check_id(memory, "memory")
        while True:
            found = await self._scope.store.record(MemoryNote, memory)
            if found is None:
                return False
            try:
                await self._scope.store.put(Records(removed=[found]))
            except Conflict:
                continue  # It was written meanwhile.
            return True

    async def erase(self, scope: MemoryScope, scope_id: str) -> int:
        """Delete all notes about a user, an agent or a thread; returns how many there were."""
        erased = 0
        while page := await self.list(scope, scope_id, limit=PAGE):
            for note in page:
                erased += await self.delete(note.id)
        return erased


def _prefix(scope: MemoryScope, scope_id: str) -> str:
    check_choice(scope, get_args(MemoryScope), "scope")
    return memory_prefix(scope, check_id(scope_id, scope))


def _check_note(key: str, text: str) -> tuple[str, str]:
    key, text = clean_text(require_text(key, "a memory's key")), clean_text(require_text(text, "a memory's text"))
    if not 1 <= len(key) <= MAX_KEY or not 1 <= len(text) <= MAX_TEXT:
        raise InvalidInput(
            f"a memory has a key of 1 to {MAX_KEY} characters and a text of 1 to {MAX_TEXT:,}; these have "
            f"{len(key):,} and {len(text):,}: shorten them, or keep several"
        )
    return key, text
