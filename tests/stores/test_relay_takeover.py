"""A relay whose deliverer was killed is due for another process as soon as the death is known."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from msgspec.structs import replace

from postgres_server import fresh_store
from wakeful.stores import Commit, Relay, SqliteStore
from wakeful.types.ids import now_ms

HOUR_MS = 3_600_000

DELIVERER = """
import asyncio, sys, time
from wakeful.stores import Commit, Relay, SqliteStore
from wakeful.types.ids import now_ms

async def main():
    store = SqliteStore(sys.argv[1])
    store.keep("deliverer")
    relay = Relay(id="r", thread_id="t", kind="k", cursor=-1, owner="deliverer", until=now_ms() + 3_600_000)
    await store.commit(Commit("t", relays=[relay]))
    print("leased", flush=True)
    time.sleep(600)

asyncio.run(main())
"""


async def test_relay_of_killed_deliverer_is_due_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DELIVERER, path, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"leased\n"
        store = SqliteStore(path)
        assert await store.due_relays("k", now_ms()) == []
    finally:
        child.kill()
        await child.communicate()
    assert [relay.id for relay in await store.due_relays("k", now_ms())] == ["r"]
    await store.close()


async def test_relay_of_postgres_owner_is_due_after_its_lease() -> None:
    async with fresh_store() as store:
        await store.commit(Commit("other", version=0, claim="alive", lease=HOUR_MS))
        await store.commit(Commit("another", version=0, claim="dead", lease=0))
        relay = Relay(id="r", thread_id="t", kind="k", cursor=-1, until=now_ms() + HOUR_MS)
        relays = [replace(relay, id=f"of {owner}", owner=owner) for owner in ("alive", "dead")]
        await store.commit(Commit("t", relays=relays))
        assert [relay.id for relay in await store.due_relays("k", now_ms())] == ["of dead"]


async def test_relay_of_owner_without_lease_keeps_its_time(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    relay = Relay(id="r", thread_id="t", kind="k", cursor=-1, owner="nobody", until=now_ms() + HOUR_MS)
    await store.commit(Commit("t", relays=[relay]))
    assert await store.due_relays("k", now_ms()) == []
    assert [relay.id for relay in await store.due_relays("k", now_ms() + HOUR_MS)] == ["r"]
    await store.close()
