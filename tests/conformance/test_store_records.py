"""Records that belong to no thread: put and removed by revision, read by kind, and written with a commit."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from msgspec.structs import replace
from store_suite import StoreFactory, Writer, item, message

from wakeful.errors import Conflict, DuplicateRequest, RequestReused, StaleFence
from wakeful.stores import Commit, Fence, Pruned, Records, Retention, Store
from wakeful.types import ApiKey, AuditEntry
from wakeful.types.ids import now_ms

DAY = 24 * 3_600_000


def key(key_id: str = "Ab3dE6gH", **fields: Any) -> ApiKey:
    own = {"name": "ci", "hash": b"\0\xff" * 16, "principal_id": "ann", "created_at": 5} | fields
    return ApiKey(id=key_id, **own)


def entry(entry_id: str = "a1", **fields: Any) -> AuditEntry:
    return AuditEntry(id=entry_id, **({"at": 7, "action": "tickets:answer", "outcome": "done"} | fields))


def changed(of: ApiKey, **fields: Any) -> ApiKey:
    return replace(of, revision=of.revision + 1, **fields)


async def put(store: Store, *records: ApiKey | AuditEntry) -> None:
    await store.put(Records(put=records))


async def test_records_are_read_back_exactly(open_store: StoreFactory) -> None:
    async with open_store() as store:
        full = key(
            name="n\0\x10",
            scopes=("runs:create", "tickets:*"),
            kind="service",
            groups=("finance",),
            agents=(),
            created_by="root",
            expires_at=9,
            last_used_at=8,
            revoked_at=10,
        )
        seen = entry(
            principal_id="ann", auth="key", key_id=full.id, resource="ticket", resource_id="k\0", detail={"a": [1]}
        )
        await put(store, full, seen)
        assert await store.record(ApiKey, full.id) == full
        assert await store.record(AuditEntry, "a1") == seen
        assert await store.record(AuditEntry, full.id) is await store.record(ApiKey, "a1") is None


async def test_large_record_is_read_back_exactly(open_store: StoreFactory) -> None:
    async with open_store() as store:
        large = entry(detail={"text": "x" * 100_000})
        await put(store, large)
        assert await store.records(AuditEntry) == [large]


async def test_each_revision_of_record_is_put_once(open_store: StoreFactory) -> None:
    async with open_store() as store:
        first = key()
        await put(store, first)
        second = changed(first, last_used_at=3)
        await put(store, second)
        for stale in (first, changed(first, name="x"), changed(changed(second)), replace(first, revision=0)):
            with pytest.raises(Conflict, match="key Ab3dE6gH is at revision 2"):
                await put(store, stale)
        with pytest.raises(Conflict, match="isn't in this store"):
            await put(store, key("zzzzzzzz", revision=2))
        assert await store.records(ApiKey) == [second]


async def test_repeated_request_for_a_key_is_told(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await put(store, key(digest="abc"))
        await put(store, changed(key(digest="abc"), last_used_at=3))
        with pytest.raises(DuplicateRequest, match="made key Ab3dE6gH was made before"):
            await put(store, key(digest="abc"))
        with pytest.raises(RequestReused, match="key Ab3dE6gH"):
            await put(store, key(digest="xyz"))
        with pytest.raises(Conflict):
            await put(store, key())


async def test_removed_record_has_to_be_at_given_revision(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await put(store, key())
        await put(store, now := changed(key()))
        with pytest.raises(Conflict, match="revision 2, not 1"):
            await store.put(Records(removed=[key()]))
        await store.put(Records(removed=[now]))
        assert await store.record(ApiKey, now.id) is await store.find_record(ApiKey, now.id) is None
        with pytest.raises(Conflict, match="isn't in this store"):
            await store.put(Records(removed=[now]))
        await put(store, key())


async def test_refused_record_leaves_the_others_unwritten(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await put(store, key())
        with pytest.raises(Conflict):
            await put(store, entry(), key("zzzzzzzz"), key())
        with pytest.raises(Conflict, match="given twice"):
            await put(store, entry(), entry())
        assert await store.records(AuditEntry) == []
        assert await store.records(ApiKey) == [key()]


async def test_audit_entry_is_neither_changed_nor_removed(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await put(store, entry())
        with pytest.raises(Conflict, match="audit a1 is at revision 1, not 0"):
            await put(store, entry(outcome="denied"))
        removed: Any = entry()
        with pytest.raises(Conflict, match="append-only"):
            await store.put(Records(removed=[removed]))
        assert await store.records(AuditEntry) == [entry()]


async def test_concurrent_puts_of_a_revision_have_one_winner(open_store: StoreFactory) -> None:
    async with open_store() as store:
        for revision in (1, 2, 3):
            puts = [put(store, key(name=name, revision=revision)) for name in ("a", "b", "c")]
            came = await asyncio.gather(*puts, return_exceptions=True)
            assert sorted(type(each).__name__ for each in came) == ["Conflict", "Conflict", "NoneType"]
            found = await store.record(ApiKey, key().id)
            assert found is not None
            assert (found.revision, found.name) == (revision, "abc"[came.index(None)])


async def test_records_are_listed_newest_first_in_pages(open_store: StoreFactory) -> None:
    async with open_store() as store:
        times = {"a": 3, "b": 1, "c": 2, "d": 2}
        await put(store, *[entry(name, at=at) for name, at in times.items()], key("e", created_at=9))
        await put(store.tenant("other"), entry("f", at=2))
        assert [one.id for one in await store.records(AuditEntry)] == ["a", "d", "c", "b"]
        assert [one.id for one in await store.records(AuditEntry, limit=2)] == ["a", "d"]
        assert [one.id for one in await store.records(AuditEntry, before="d", limit=1)] == ["c"]
        assert await store.records(AuditEntry, before="b") == await store.records(AuditEntry, before="no") == []


async def test_api_key_is_unique_and_found_over_all_tenants(open_store: StoreFactory) -> None:
    async with open_store() as store:
        other = store.tenant("other")
        await put(other, key())
        for wanted in (key(), key(revision=2), key(revision=0)):
            with pytest.raises(Conflict, match="belongs to another tenant"):
                await put(store, wanted)
        with pytest.raises(Conflict, match="isn't in this store"):
            await store.put(Records(removed=[key()]))
        assert await store.record(ApiKey, key().id) is None
        assert await store.records(ApiKey) == []
        assert await store.find_record(ApiKey, key().id) == ("other", key())
        assert await store.find_record(ApiKey, "nothing") is None


async def test_audit_entries_of_tenants_are_apart(open_store: StoreFactory) -> None:
    async with open_store() as store:
        other = store.tenant("other")
        await put(store, entry(action="here"))
        await put(other, entry(action="there"))
        assert [one.action for one in await store.records(AuditEntry)] == ["here"]
        assert [one.action for one in await other.records(AuditEntry)] == ["there"]
        assert await store.tenants() == ["default", "other"]


async def test_put_makes_no_thread(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await put(store, key())
        assert await store.threads() == []
        assert await store.thread("") is None


async def test_records_are_written_with_their_commit(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await Writer(store).write(message(), records=Records(put=[entry(), key()]))
        await store.commit(Commit("t1", inbox=[item("i1")], records=Records(put=[entry("a2"), changed(key())])))
        assert [one.id for one in await store.records(AuditEntry)] == ["a2", "a1"]
        assert await store.records(ApiKey) == [changed(key())]


async def test_records_need_no_version_and_raise_none(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        begun = await writer.begin()
        done = await store.commit(Commit("t1", records=Records(put=[entry()])))
        assert (done.version, done.inbox_head) == (begun.version, begun.inbox_head)
        await writer.write(message())


async def test_refused_commit_writes_no_records(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.begin()
        writer.fence = Fence(99, "other")
        with pytest.raises(StaleFence):
            await writer.write(message(), records=Records(put=[entry()]))
        assert await store.records(AuditEntry) == []


async def test_refused_record_refuses_its_commit(open_store: StoreFactory) -> None:
    async with open_store() as store:
        with pytest.raises(Conflict, match=re.escape("key Ab3dE6gH is expected at revision 1")):
            await store.commit(Commit("t1", inbox=[item("i1")], records=Records(put=[changed(key())])))
        assert await store.thread("t1") is None


async def test_followers_see_the_records_before_them(open_store: StoreFactory) -> None:
    async with open_store() as store:
        second = changed(key(), name="second")
        then = [
            Commit("t2", inbox=[item("i2", "t2")], records=Records(put=[key(name="late")])),
            Commit("t3", inbox=[item("i3", "t3")], records=Records(put=[second])),
            Commit("t4", inbox=[item("i4", "t4")], records=Records(removed=[second])),
            Commit("t5", inbox=[item("i5", "t5")], records=Records(put=[key(name="new")])),
        ]
        done = await store.commit(
            Commit("t1", inbox=[item("i1")], records=Records(put=[key(), entry()]), then=then)
        )
        assert [one is None for one in done.then] == [True, False, False, False]
        assert await store.record(ApiKey, key().id) == key(name="new")
        assert await store.thread("t2") is None


async def test_record_made_and_removed_by_one_group_is_gone(open_store: StoreFactory) -> None:
    async with open_store() as store:
        then = [Commit("t2", inbox=[item("i2", "t2")], records=Records(removed=[key()]))]
        await store.commit(Commit("t1", inbox=[item("i1")], records=Records(put=[key()]), then=then))
        assert await store.find_record(ApiKey, key().id) is None
        await put(store.tenant("other"), key())


async def test_records_outlive_threads(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await store.commit(Commit("t1", inbox=[item("i1")], records=Records(put=[entry(), key()])))
        await store.delete("t1")
        assert (await store.records(AuditEntry), await store.records(ApiKey)) == ([entry()], [key()])


async def test_audit_is_pruned_by_its_age_alone(open_store: StoreFactory) -> None:
    async with open_store() as store:
        old, new = entry("a1", at=now_ms() - 3 * DAY), entry("a2", at=now_ms())
        await put(store, old, new, key())
        await put(store.tenant("other"), old)
        assert await store.prune(Retention()) == Pruned()
        assert await store.prune(Retention(audit=DAY)) == Pruned(audit=1)
        assert (await store.records(AuditEntry), await store.records(ApiKey)) == ([new], [key()])
        assert await store.tenant("other").records(AuditEntry) == [old]


async def test_lone_surrogates_in_records_are_replaced(open_store: StoreFactory) -> None:
    async with open_store() as store:
        await put(store, entry(action="a\ud800"))
        (found,) = await store.records(AuditEntry)
        assert found.action == "a\ufffd"
