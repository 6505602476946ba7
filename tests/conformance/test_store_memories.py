"""Memories: notes that are found by their words, and erased with their thread."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from store_suite import StoreFactory, Writer, message

from wakeful.errors import Conflict, StaleFence
from wakeful.stores import Commit, Records, Store
from wakeful.stores.memories import search_words
from wakeful.types import MemoryNote
from wakeful.types.records import memory_id, memory_prefix


def note(key: str, text: str, scope: Any = "user", owner: str = "ann", **fields: Any) -> MemoryNote:
    return MemoryNote(id=memory_id(scope, owner, key), scope=scope, scope_id=owner, key=key, text=text, **fields)


async def found(store: Store, query: str, scope: Any = "user", owner: str = "ann", limit: int = 20) -> list[str]:
    notes = await store.find_memories(memory_prefix(scope, owner), search_words(query), limit=limit)
    return [one.key for one in notes]


async def put(store: Store, *notes: MemoryNote) -> None:
    await store.put(Records(put=notes))


async def test_note_is_read_back_exactly(open_store: StoreFactory) -> None:
    async with open_store() as store:
        full = note("diet", "vegan \0 \x10", tainted=True, run_id="r", agent_id="a", writes=("r:c",), updated_at=4)
        await put(store, full)
        assert await store.record(MemoryNote, full.id) == full
        assert await store.records(MemoryNote, prefix=memory_prefix("user", "ann")) == [full]


async def test_notes_are_found_by_their_words(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await put(
            store,
            note("diet", "She is a vegan and allergic to peanuts."),
            note("home", "Lives in Zürich, near the lake."),
            note("deploys", "Deploys on Fridays are forbidden by her team."),
        )
        assert await found(store, "What may she eat? Peanuts?") == ["diet"]
        assert await found(store, "zurich") == ["home"]
        assert await found(store, "ZÜRICH") == ["home"]
        assert await found(store, "deployed") == ["deploys"]  # By the beginning of the word.
        assert sorted(await found(store, "peanut allergies, or the lake")) == ["diet", "home"]
        assert await found(store, "home") == ["home"]  # By its key.
        assert await found(store, "I do it o.k., b4 t") == []  # A short word is no beginning.
        assert await found(store, "nothing like it") == await found(store, "?!") == []
        assert await found(store, "she her lives", limit=1) != []


async def test_query_is_no_syntax(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await put(store, note("quote", "a 'quoted' word & \"another\""))
        for query in ('"', "'; DROP", "owner : x OR *", "NEAR(a b)", "a:*", "quoted) OR (", "'quoted':* & !x"):
            await found(store, query)
        assert await found(store, "'quoted'") == ["quote"]


async def test_better_match_comes_first(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await put(store, *[note(f"n{n}", f"the customer called about order {n}") for n in range(9)])
        await put(store, note("refund", "order refund refund refund"))
        assert (await found(store, "refund of the order"))[0] == "refund"


async def test_notes_of_others_are_not_found(open_store: StoreFactory) -> None:
    async with open_store() as store:
        other = store.tenant("other")
        await put(store, note("a", "secret plans"), note("b", "secret plans", owner="bob"))
        await put(store, note("c", "secret plans", scope="agent"), note("d", "secret plans", scope="thread"))
        await put(other, note("e", "secret plans"))
        assert await found(store, "secret") == ["a"]
        assert await found(store, "secret", owner="bob") == ["b"]
        assert await found(store, "secret", scope="agent") == ["c"]
        assert await found(other, "secret") == ["e"]
        assert await found(other, "secret", owner="bob") == []


async def test_changed_note_is_found_by_its_new_words(open_store: StoreFactory) -> None:
    async with open_store() as store:
        first = note("home", "lives in Rome")
        await put(store, first)
        await put(store, replace(first, text="lives in Oslo", revision=2))
        assert await found(store, "Rome") == []
        assert await found(store, "Oslo") == ["home"]
        with pytest.raises(Conflict):
            await put(store, replace(first, text="lives in Bern", revision=2))
        assert await found(store, "Bern") == []


async def test_removed_note_is_not_found(open_store: StoreFactory) -> None:
    async with open_store() as store:
        kept, gone = note("home", "lives in Rome"), note("work", "works in Rome")
        await put(store, kept, gone)
        await store.put(Records(removed=[gone]))
        assert await found(store, "Rome") == ["home"]
        await put(store, gone)
        assert sorted(await found(store, "Rome")) == ["home", "work"]


async def test_note_is_written_with_a_commit_or_not_at_all(open_store: StoreFactory) -> None:
    async with open_store() as store:
        thread = Writer(store, "t")
        await thread.begin()
        fence = thread.fence
        assert fence is not None
        await store.commit(Commit("t", fence=fence, records=Records(put=[note("home", "Rome")])))
        assert await found(store, "Rome") == ["home"]
        stale = replace(fence, epoch=fence.epoch - 1)
        with pytest.raises(StaleFence):
            await store.commit(Commit("t", fence=stale, records=Records(put=[note("work", "Rome")])))
        assert await found(store, "Rome") == ["home"]


async def test_thread_takes_its_memories_along(open_store: StoreFactory) -> None:
    async with open_store() as store:
        for name in ("t", "other"):
            await Writer(store, name).write(message("hi"))
        mine, others = note("a", "plan", "thread", "t"), note("a", "plan", "thread", "other")
        about_ann = note("a", "plan")
        await put(store, mine, others, about_ann)
        assert await store.delete("t") == 1
        assert await store.record(MemoryNote, mine.id) is None
        assert await found(store, "plan", "thread", "t") == []
        assert await found(store, "plan", "thread", "other") == await found(store, "plan") == ["a"]
        await put(store, mine)  # Nothing of it is left.
        assert await found(store, "plan", "thread", "t") == ["a"]
