"""The stores that keep the contract, and what its tests are written with.

A store joins by adding a factory to `STORES`: a function that opens a fresh, empty store for the length of
an `async with`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from msgspec.structs import replace

from postgres_server import fresh_store
from wakeful.stores import Commit, Committed, Fence, MemoryStore, StateWrite, Store, ThreadView
from wakeful.stores.sql.schema import MIGRATIONS
from wakeful.stores.sql.store import SqlStore
from wakeful.stores.sqlite import SqliteStore
from wakeful.types.calls import Call
from wakeful.types.content import Text
from wakeful.types.events import Event, MessageAdded, StepStart
from wakeful.types.ids import new_id
from wakeful.types.inbox import InboxItem
from wakeful.types.messages import Message
from wakeful.types.runs import Identity, RunRecord, TaskRecord, Waiting
from wakeful.types.tickets import Decision, Ticket

__all__ = [
    "STORES",
    "StoreFactory",
    "Writer",
    "a_bit_of_everything",
    "call",
    "die",
    "due_threads",
    "everything",
    "identity",
    "item",
    "message",
    "numbered",
    "record",
    "rows_left",
    "step",
    "ticket",
    "waiting",
]

StoreFactory = Callable[[], AbstractAsyncContextManager[Store]]


@asynccontextmanager
async def memory() -> AsyncIterator[Store]:
    store = MemoryStore()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def sqlite() -> AsyncIterator[Store]:
    with TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "store.db", synchronous="NORMAL")
        try:
            yield store
        finally:
            await store.close()


@asynccontextmanager
async def postgres() -> AsyncIterator[Store]:
    async with fresh_store() as store:
        yield store


STORES: dict[str, StoreFactory] = {"memory": memory, "sqlite": sqlite, "postgres": postgres}


def identity(run_id: str = "r1", thread_id: str = "t1") -> Identity:
    return Identity(run_id, thread_id, "agent", run_id)


def record(run_id: str = "r1", thread_id: str = "t1", **fields: Any) -> RunRecord:
    fields = {"status": "running", "agent_id": "agent", "created_at": 1} | fields
    return RunRecord(identity=identity(run_id, thread_id), **fields)


def message(text: str = "hello", **fields: Any) -> Message:
    return Message(fields.pop("id", new_id()), "user", (Text(text),), 7, **fields)


def step(number: int = 1, run: Identity | None = None) -> Event:
    return StepStart(run or identity(), 0, 7, number)


def call(call_id: str, at_step: int = 1, *, run_id: str = "r1", **fields: Any) -> Call:
    """A call whose place in its step is in its id: `c3` is the step's call number 3."""
    return Call(call_id, run_id, at_step, int(call_id[1:]), "look", {"at": "sky"}, **fields)


def numbered(entry: Message, seq: int) -> Message:
    """The message as it is read back."""
    return replace(entry, seq=seq)


def ticket(ticket_id: str, call_id: str = "c1", *, run_id: str = "r1", **fields: Any) -> Ticket:
    fields = {"asked_by": "approval", "tool": "look", "arguments": {}} | fields
    return Ticket(id=ticket_id, run_id=run_id, thread_id="t1", call_id=call_id, **fields)


def waiting(*wakes: str, until: int | None = None) -> Waiting:
    return Waiting("external_event", 1, wakes, until=until)


_ITEMS: dict[str, type[Any]] = {one.kind: one for one in get_args(InboxItem)}


def item(item_id: str, thread_id: str = "t1", kind: str = "input", **fields: Any) -> Any:
    """An inbox item of a kind, with the content that the kind needs."""
    content = {
        "input": {"message": message(item_id)},
        "decision": {"decision": Decision("k1", id=f"decision of {item_id}")},
        "task": {"task_id": "task"},
    }
    return _ITEMS[kind](id=item_id, thread_id=thread_id, **(content.get(kind, {}) | fields))


def a_bit_of_everything() -> dict[str, Any]:
    """A commit's changes, one of each kind."""
    return {
        "log": [message("late"), step(9)],
        "runs": [record(steps=9), record("r9")],
        "calls": [call("c9", 9)],
        "tickets": [ticket("k9", "c9")],
        "decisions": [Decision("k9")],
        "state": [StateWrite("calls", b"9"), StateWrite("mood", b'"sad"', "r1")],
        "tasks": [TaskRecord("task9", "t1", "r1")],
        "inbox": [item("late")],
        "taken": ["waiting"],
    }


class Writer:
    """Writes to one thread: with its fence while it holds the claim, else with the version it last saw."""

    def __init__(self, store: Store, thread_id: str = "t1") -> None:
        self.store = store
        self.thread_id = thread_id
        self.fence: Fence | None = None
        self.version = 0

    async def claim(self, worker: str | None = None, **changes: Any) -> Committed:
        token = worker or new_id()
        done = await self._commit(version=self.version, claim=token, **changes)
        self.fence = Fence(done.epoch, token)
        return done

    async def write(self, *log: Message | Event, **changes: Any) -> Committed:
        if self.fence is not None:
            return await self._commit(fence=self.fence, log=log, **changes)
        return await self._commit(version=self.version, log=log, **changes)

    async def release(self, **changes: Any) -> Committed:
        done = await self._commit(fence=self.fence, release=True, **changes)
        self.fence = None
        return done

    async def begin(self, run_id: str = "r1", **changes: Any) -> Committed:
        """Claim the thread and open a run on it."""
        return await self.claim(runs=[record(run_id, self.thread_id)], **changes)

    async def view(self) -> ThreadView:
        found = await self.store.load(self.thread_id)
        assert found is not None
        return found

    async def _commit(self, **changes: Any) -> Committed:
        changes.setdefault("identity", identity(thread_id=self.thread_id))
        done = await self.store.commit(Commit(thread_id=self.thread_id, **changes))
        self.version = done.version
        return done


async def die(store: Store, worker: str) -> None:
    """A worker that lost its lease leaves nothing."""
    await store.keep(worker).close()


async def due_threads(store: Store) -> list[str]:
    """The threads that are due, the first due first."""
    return [due.thread_id for due in await store.due()]


async def rows_left(store: Store) -> dict[str, int]:
    """How many rows there are in each table that has some, but for those that belong to no thread. A store
    without tables has none."""
    if not isinstance(store, SqlStore):
        return {}
    tables = set(re.findall(r"CREATE TABLE (\w+)", " ".join(MIGRATIONS))) - {
        "meta",
        "turns",
        "usage_log",
        "workers",
    }
    found = {table: (await store._query(f"SELECT count(*) FROM {table}"))[0][0] for table in sorted(tables)}
    return {table: count for table, count in found.items() if count}


async def everything(store: Store, thread_id: str = "t1") -> Any:
    """All that a store knows of a thread, to see that nothing changed."""
    runs = await store.runs(thread_id=thread_id)
    return {
        "view": await store.load(thread_id),
        "messages": await store.messages(thread_id),
        "events": [_plain(event) for event in await store.events(thread_id)],
        "runs": runs,
        "calls": [list(await store.calls(run.id)) for run in runs],
        "tickets": [list(await store.tickets(run.id)) for run in runs],
    }


def _plain(event: Event) -> Any:
    return (event.seq, event.message) if isinstance(event, MessageAdded) else event
