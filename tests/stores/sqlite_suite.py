"""Helpers of the tests of the SQLite store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from wakeful.stores import Commit, Committed, Store
from wakeful.stores.sqlite import SqliteStore
from wakeful.types.content import Text
from wakeful.types.ids import new_id
from wakeful.types.messages import Message
from wakeful.types.runs import Identity, RunRecord

__all__ = ["append", "pragma", "raw", "run_of", "told"]


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """The file as any program sees it; what is changed is kept."""
    with closing(sqlite3.connect(path)) as db, db:
        yield db


def run_of(thread_id: str, **fields: Any) -> RunRecord:
    fields = {"status": "running", "agent_id": "agent", "created_at": 1} | fields
    run_id = f"r-{thread_id}"
    return RunRecord(identity=Identity(run_id, thread_id, "agent", run_id), **fields)


async def append(store: Store, thread_id: str, *texts: str, version: int = 0, **changes: Any) -> Committed:
    """Write messages to a thread that nobody owns."""
    log = [Message(new_id(), "user", (Text(text),), 7) for text in texts]
    identity = run_of(thread_id).identity
    return await store.commit(
        Commit(thread_id=thread_id, identity=identity, version=version, **({"log": log} | changes))
    )


async def told(store: Store, thread_id: str = "t1") -> list[str]:
    return [message.text for message in await store.messages(thread_id)]


async def pragma(store: SqliteStore, text: str) -> Any:
    """Ask the connection that writes."""
    rows = await store._database.writer.write(lambda db: db.execute(f"PRAGMA {text}").fetchall())
    return rows[0][0] if rows else None
