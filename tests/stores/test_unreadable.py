"""Rows that can't be read: what can be done all the same, in SQLite and in Postgres."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from conformance.store_suite import STORES, StoreFactory, Writer, identity, item, message, record, waiting
from wakeful import Agent, Runtime, ScriptedModel, SqliteStore
from wakeful.stores import About, Commit
from wakeful.stores._sql import SqlStore
from wakeful.stores._sql_base import Script
from wakeful.types.runs import RunRecord, TaskRecord, TaskRef


@pytest.fixture(params=["sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest) -> StoreFactory:
    """Opens a fresh store whose rows can be damaged."""
    return STORES[request.param]


async def spoil(store: Any, sql: str, *args: Any) -> None:
    """Change rows behind the store's back: `?` is a payload that can't be read."""

    def script() -> Script[None]:
        yield sql, (b"garbage", *args)

    await cast(SqlStore, store)._transact(script)


# -- deleting ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE runs SET payload = ? WHERE id = 'r-kid'",
        "UPDATE inbox SET payload = ?",
        "UPDATE threads SET metadata = ? WHERE id = 'kid'",
    ],
)
async def test_an_owner_hears_of_a_deleted_task_of_which_nothing_can_be_read(
    open_store: StoreFactory, damage: str
) -> None:
    async with open_store() as store:
        owner = Writer(store)
        await owner.begin(tasks=[TaskRecord("r-kid", "t1", "r1", target="r-kid", target_thread="kid")])
        await owner.release(runs=[record(status="waiting", waiting=waiting("task"))])
        lineage = replace(identity("r-kid", "kid"), parent_thread_id="t1")
        task = TaskRef("r-kid")
        if "inbox" in damage:
            await store.commit(Commit("t1", inbox=[item("i", "kid", lineage=lineage, task=task)]))
        else:
            run = RunRecord(identity=lineage, agent_id="agent", task=task, created_at=1)
            await Writer(store, "kid").write(message(), runs=[run], identity=lineage, about=About("a", {"b": 1}))
        await spoil(store, damage)
        assert await store.delete("kid") == 1
        (heard,) = (await owner.view()).inbox
        assert (heard.id, heard.task_id) == ("r-kid:done:1", "r-kid")


@pytest.mark.parametrize(("table", "column"), [("runs", "payload"), ("threads", "metadata")])
async def test_a_thread_that_cannot_be_read_is_deleted_as_its_error_says(
    tmp_path: Path, table: str, column: str
) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await Writer(store).write(message(), runs=[record(status="waiting", waiting=waiting("decision"))])
    await spoil(store, f"UPDATE {table} SET {column} = ?")
    runtime = Runtime([Agent("agent", model=ScriptedModel([]))], store=store)
    assert await runtime.delete("t1") == 1
    await runtime.close()
