"""A lease whose renewal meets errors continues; one whose worker stalls ends."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from conformance.store_suite import Writer
from postgres_server import fresh_store, server
from wakeful.stores import Lease
from wakeful.stores.sqlite import SqliteStore


async def beating(lease: Lease, until: Callable[[], bool]) -> None:
    """Show that the event loop is alive until something is the case."""
    async with asyncio.timeout(120):
        while not until():
            lease.beat()
            await asyncio.sleep(0.01)


async def test_sqlite_lease_survives_locked_file(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db", busy_seconds=0.02)
    await Writer(store).claim("w1", lease=0)
    lease = store.keep("w1", 2400)
    await beating(lease, lambda: lease.renewals.ok > 0)
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        await beating(lease, lambda: lease.renewals.failed > 1)
        other.execute("ROLLBACK")
    renewed = lease.renewals.ok
    await beating(lease, lambda: lease.renewals.ok > renewed)
    assert (await Writer(store).view()).thread.owner == "w1"
    assert lease.renewals.stalled == 0
    await lease.close()
    await store.close()


async def test_postgres_lease_is_renewed_when_server_is_back() -> None:
    async with fresh_store() as store:
        await Writer(store).claim("w1", lease=0)
        lease = store.keep("w1", 1500)
        await beating(lease, lambda: lease.renewals.ok > 0)
        await asyncio.to_thread(server().stop)
        try:
            await beating(lease, lambda: lease.renewals.failed > 1)
        finally:
            await asyncio.to_thread(server().start)
        renewed = lease.renewals.ok
        await beating(lease, lambda: lease.renewals.ok > renewed)
        assert (await Writer(store).view()).thread.owner == "w1"
        await lease.close()


async def test_stalled_worker_fences_itself_after_half_a_lease(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    writer = Writer(store)
    await writer.claim("w1", lease=0)
    lease = store.keep("w1", 300)
    await beating(lease, lambda: lease.renewals.ok > 1)
    async with asyncio.timeout(120):
        while (await writer.view()).thread.claimed:  # The store answers; it is the beat that is missing.
            await asyncio.sleep(0.01)
    assert lease.renewals.stalled > 0
    assert lease.renewals.failed == 0
    stopped = lease.renewals.ok
    await beating(lease, lambda: lease.renewals.ok > stopped)  # It comes back, and nobody took its claim.
    assert (await writer.view()).thread.owner == "w1"
    await lease.close()
    await store.close()
