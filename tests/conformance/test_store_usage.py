"""The usage log: entries are written with their commit, summed by the store, and outlive their threads."""

from __future__ import annotations

from datetime import date

import pytest
from store_suite import StoreFactory, Writer, message

from wakeful.errors import StaleFence
from wakeful.stores import Fence, Pruned, Retention, UsageEntry, UsageRow
from wakeful.types.ids import now_ms
from wakeful.types.runs import Usage

DAY = 24 * 3_600_000
KEPT = Retention(chunks=None, events=None, children=None)


def entry(at: int, duration: int = 10, **fields: object) -> UsageEntry:
    own = {"agent_id": "writer", "model": "m1", "usage": Usage(100, 10, 5, 3, 2, 7, 4)} | fields
    return UsageEntry(at=at, duration_ms=duration, **own)  # type: ignore[arg-type]


def row(requests: int, times: tuple[int, int, int], errors: int = 0, **keys: object) -> UsageRow:
    usage = Usage(*[count * requests for count in (100, 10, 5, 3, 2, 7, 4)])
    latency, p50, p95 = times
    own = {"requests": requests, "errors": errors, "usage": usage} | keys
    return UsageRow(latency_ms=latency, p50_ms=p50, p95_ms=p95, **own)  # type: ignore[arg-type]


async def test_usage_is_summed_by_agent_model_and_day(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.claim()
        entries = [entry(DAY - 1), entry(DAY), entry(DAY + 5, 30, failed=True), entry(DAY, 40, model="m2")]
        await writer.write(message(), usage=[*entries, entry(DAY, agent_id="editor")])
        first, second = date(1970, 1, 1), date(1970, 1, 2)
        assert await store.usage(("agent", "model", "day")) == [
            row(1, (10, 10, 10), agent="editor", model="m1", day=second),
            row(1, (10, 10, 10), agent="writer", model="m1", day=first),
            row(2, (40, 10, 30), 1, agent="writer", model="m1", day=second),
            row(1, (40, 40, 40), agent="writer", model="m2", day=second),
        ]
        assert await store.usage(("model",)) == [
            row(4, (60, 10, 30), 1, model="m1"),
            row(1, (40, 40, 40), model="m2"),
        ]
        assert await store.usage(()) == [row(5, (100, 10, 40), 1)]


async def test_usage_is_limited_to_a_time_span(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.claim()
        await writer.write(message(), usage=[entry(at) for at in (10, 20, 30)])
        assert await store.usage((), since=20) == [row(2, (20, 10, 10))]
        assert await store.usage((), until=20) == [row(1, (10, 10, 10))]
        assert await store.usage((), since=11, until=30) == [row(1, (10, 10, 10))]
        assert await store.usage((), since=31) == await store.usage(("day",), since=31) == []


async def test_usage_has_nearest_rank_percentiles(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.claim()
        await writer.write(message(), usage=[entry(1, duration) for duration in range(100, 0, -1)])
        assert await store.usage(("agent",)) == [row(100, (5050, 50, 95), agent="writer")]


async def test_refused_commit_logs_no_usage(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer = Writer(store)
        await writer.claim()
        writer.fence = Fence(99, "other")
        with pytest.raises(StaleFence):
            await writer.write(message(), usage=[entry(1)])
        assert await store.usage(()) == []


async def test_usage_belongs_to_its_tenant(open_store: StoreFactory) -> None:
    async with open_store() as store:
        other = store.tenant("other")
        for handle, count in ((store, 1), (other, 2)):
            writer = Writer(handle)
            await writer.claim()
            await writer.write(message(), usage=[entry(1)] * count)
        assert [row.requests for row in await store.usage(())] == [1]
        assert [row.requests for row in await other.usage(())] == [2]


async def test_usage_outlives_its_thread_until_pruned(open_store: StoreFactory) -> None:
    async with open_store() as store:
        writer, now = Writer(store), now_ms()
        await writer.claim()
        await writer.write(message(), usage=[entry(now - 3 * DAY), entry(now)])
        await writer.release()
        await store.delete("t1")
        assert [row.requests for row in await store.usage(())] == [2]
        assert await store.prune(KEPT) == Pruned()
        assert await store.prune(Retention(chunks=None, events=None, children=None, usage=DAY)) == Pruned(usage=1)
        assert [row.requests for row in await store.usage(())] == [1]
