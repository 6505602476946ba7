"""Lists are read through an index, in its order: their cost is that of the rows that they return."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from context.seeding import seed
from postgres_server import fresh_store
from wakeful.stores.sqlite import SqliteStore
from wakeful.types import ApiKey, AuditEntry, Principal

ANN = Principal("ann", groups=("a", "b"), roles=("lead",))
READS: dict[str, Callable[[SqliteStore], Any]] = {
    "audit": lambda store: store.records(AuditEntry),
    "audit page": lambda store: store.records(AuditEntry, before="a"),
    "runs of a principal": lambda store: store.runs(principal="ann"),
    "threads of a principal": lambda store: store.threads(principal="ann"),
    "threads of a principal, page": lambda store: store.threads(principal="ann", before="t"),
    "children of a run": lambda store: store.runs(parent_run_id="r"),
    "runs by outcome": lambda store: store.runs(outcome="error"),
    "runs in a range": lambda store: store.runs(since=1, until=2),
    "runs in a range, page": lambda store: store.runs(until=2, before="r"),
    "waiting runs by reason": lambda store: store.runs(status="waiting", waits_for="timer"),
    "open tickets by deadline": lambda store: store.tickets(status="open", order="deadline", limit=5),
    "open tickets by deadline, page": lambda store: store.tickets(
        status="open", order="deadline", after=(5, "k"), due_before=9, limit=5
    ),
    "open tickets for a principal": lambda store: store.tickets(
        status="open", order="deadline", answerable_by=ANN, limit=5
    ),
    "open tickets that a principal sees": lambda store: store.tickets(status="open", visible_to=ANN, limit=5),
    "tickets of a requester": lambda store: store.tickets(requester="ann", limit=5),
    "key": lambda store: store.record(ApiKey, "k"),
    "key of any tenant": lambda store: store.find_record(ApiKey, "k"),
}


class Explained(SqliteStore):
    """Notes the plans of its queries."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.plan: list[str] = []

    async def _query(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        self.plan += [row[3] for row in await super()._query(f"EXPLAIN QUERY PLAN {sql}", *args)]
        return await super()._query(sql, *args)


@pytest.mark.parametrize("name", READS)
async def test_list_is_read_in_index_order(name: str, tmp_path: Path) -> None:
    store = Explained(tmp_path / "store.db")
    await READS[name](store)
    assert any(step.startswith("SEARCH") for step in store.plan)
    assert not [step for step in store.plan if step.startswith(("SCAN", "USE TEMP B-TREE"))], store.plan
    await store.close()


async def test_long_log_is_read_in_index_order_on_postgres() -> None:
    """Also before the planner has statistics: it expects a few entries of each thread, then."""
    async with fresh_store() as store:
        await seed(store, 20_000, "Words. " * 60)
        query, plan = store._query, list[str]()

        async def explained(sql: str, *args: Any) -> list[Any]:
            plan.extend([row[0] for row in await query(f"EXPLAIN {sql}", *args)])
            return await query(sql, *args)

        store._query = explained  # type: ignore[method-assign]
        assert len(await store.messages("t", newest=16)) == 16
        assert any("Index Scan Backward using log_pkey" in step for step in plan)
        assert not [step for step in plan if "Sort" in step], plan
