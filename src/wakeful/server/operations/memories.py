"""Operations of memories."""

from __future__ import annotations

from typing import Any

from ...api.memories import EditMemory, Erased, EraseMemories, ListMemories, PutMemory, SearchMemories
from ...api.pages import Page, page_of, position_of
from ...api.runs import Wanted
from ...errors import UnknownMemory
from ...identity import Resource
from ...types.records import MemoryNote, MemoryScope
from .call import Call
from .operation import op

__all__: list[str] = []


@op("memories.list", "GET", "/v1/memories", scope="memories:read", reply=Page[MemoryNote])
async def list_(call: Call, query: ListMemories) -> Any:
    """The notes about a user, an agent or a thread, the newest first."""
    await _require(call, query.scope, query.scope_id)
    found = await call.runtime.memories.list(
        query.scope, query.scope_id, before=position_of(query), limit=query.limit + 1
    )
    return page_of(query, found, "id")


@op("memories.search", "GET", "/v1/memories/search", scope="memories:read", reply=list[MemoryNote])
async def search(call: Call, query: SearchMemories) -> Any:
    """The notes about a user, an agent or a thread with words of the query, the best match first."""
    await _require(call, query.scope, query.scope_id)
    return await call.runtime.memories.search(query.scope, query.scope_id, query.query, limit=query.limit)


@op("memories.erase", "POST", "/v1/memories/erase", scope="memories:write", reply=Erased)
async def erase(call: Call, body: EraseMemories) -> Any:
    """Delete all notes about a user, an agent or a thread."""
    await _require(call, body.scope, body.scope_id)
    erased = await call.runtime.memories.erase(body.scope, body.scope_id)
    await call.audit("done", body.scope, body.scope_id)
    return Erased(erased=erased)


@op("memories.get", "GET", "/v1/memories/{memory}", scope="memories:read", reply=MemoryNote)
async def get(call: Call, memory: str) -> Any:
    """A note."""
    return await _note_of(call, memory)


@op("memories.put", "POST", "/v1/memories", scope="memories:write", reply=MemoryNote)
async def put(call: Call, body: PutMemory) -> Any:
    """Write the note under a key, or replace it."""
    await _require(call, body.scope, body.scope_id)
    return await call.runtime.memories.put(body.scope, body.scope_id, body.key, body.text, principal=call.author)


@op("memories.edit", "PATCH", "/v1/memories/{memory}", scope="memories:write", reply=MemoryNote)
async def edit(call: Call, memory: str, body: EditMemory) -> Any:
    """Replace the text of a note."""
    await _note_of(call, memory)
    return await call.runtime.memories.edit(memory, body.text, principal=call.author)


@op("memories.delete", "DELETE", "/v1/memories/{memory}", scope="memories:write", reply=Wanted)
async def delete(call: Call, memory: str) -> Any:
    """Delete a note."""
    await _note_of(call, memory)
    return Wanted(changed=await call.runtime.memories.delete(memory))


async def _note_of(call: Call, memory: str) -> MemoryNote:
    """A note that the caller may use; one that doesn't exist and another's give equal errors."""
    try:
        found = await call.runtime.memories.get(memory)
    except UnknownMemory:
        raise UnknownMemory(f"no memory {memory!r:.80} for this caller") from None
    await _require(call, found.scope, found.scope_id, memory)
    return found


async def _require(call: Call, scope: MemoryScope, scope_id: str, memory: str = "") -> None:
    """Check the right to the notes of an owner: users have their own and those of their threads."""
    owner, agent = (scope_id, None) if scope == "user" else (None, scope_id if scope == "agent" else None)
    if scope == "thread" and (thread := await call.runtime.store.thread(scope_id)) is not None:
        owner = thread.principal
    await call.require(Resource("memory", memory or scope_id, owner, agent))
