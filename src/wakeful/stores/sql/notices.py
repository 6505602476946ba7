"""Notices to the owners of tasks, in the transaction that deletes the thread of the tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...types.codec import encode
from ...types.ids import now_ms
from ...types.inbox import InboxItem, InputItem
from ...types.runs import PRIORITY, TaskRecord
from ..codec.packer import UNREADABLE, Packer
from ..codec.reader import Reader
from ..conditions import no_room, room_for, woken
from ..reports import last_words
from .base import Script

__all__ = ["tell_owners"]

T = TypeVar("T")

# The rule of `schedule_sooner`, as one statement of both dialects.
_SOONER = """INSERT INTO dispatches (thread, tenant, agent, priority, due_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (thread) DO UPDATE SET held = 0, dead_at = NULL, error = NULL,
    priority = CASE WHEN dispatches.priority < excluded.priority
        THEN dispatches.priority ELSE excluded.priority END,
    due_at = CASE WHEN dispatches.dead_at IS NULL AND dispatches.due_at < excluded.due_at
        THEN dispatches.due_at ELSE excluded.due_at END,
    agent = CASE dispatches.agent WHEN '' THEN excluded.agent ELSE dispatches.agent END"""


def tell_owners(packer: Packer, tenant: str, thread: int, thread_id: str, parent: str | None) -> Script[None]:
    """Deliver the reports of a thread's deletion to the owners of its tasks."""
    sql = """SELECT r.id, r.status, r.step, r.payload FROM threads t JOIN runs r ON r.no = t.open_run
             WHERE t.no = ?"""
    run = None
    for run_id, status, steps, payload in (yield sql, (thread,)):
        run = yield from _read(
            packer,
            thread,
            payload,
            lambda read, own=(run_id, status, steps), data=payload: read.run(thread_id, *own, data),
        )
    sql = "SELECT payload FROM inbox WHERE thread = ? AND status = 'pending' AND kind = 'input'"
    inbox = yield from _all(packer, thread, (yield sql, (thread,)), InputItem)
    owned: list[TaskRecord] = []
    for (owner,) in (yield "SELECT no FROM threads WHERE tenant = ? AND id = ?", (tenant, parent or "")):
        sql = "SELECT payload FROM tasks WHERE thread = ? AND status = 'running'"
        owned = yield from _all(packer, owner, (yield sql, (owner,)), TaskRecord)
    for item in last_words(thread_id, run, inbox, owned):
        yield from _deliver(packer, tenant, item)


def _all(packer: Packer, thread: int, rows: list[tuple[bytes]], kind: type[T]) -> Script[list[T]]:
    """Decode rows; unreadable ones are left out."""
    found: list[T] = []
    for (payload,) in rows:
        one = yield from _read(packer, thread, payload, lambda read, data=payload: read.json(data, kind, ""))
        found += [] if one is None else [one]
    return found


def _read(packer: Packer, thread: int, payload: bytes, work: Callable[[Reader], T]) -> Script[T | None]:
    """Decode a row; None if it can't be read, which may be why the thread is deleted."""
    try:
        blobs: dict[str, bytes] = {}
        for digest in packer.digests(payload):
            sql = "SELECT payload FROM blobs WHERE thread = ? AND digest = ?"
            for (blob,) in (yield sql, (thread, digest)):
                blobs[digest] = blob
        return work(Reader(packer, blobs, ""))
    except UNREADABLE:
        return None


def _deliver(packer: Packer, tenant: str, item: InboxItem) -> Script[None]:
    """Deliver an item, unless it was delivered before, and make its thread due if it wakes it."""
    sql = "SELECT no, claim, wakes, inbox_head, open_run FROM threads WHERE tenant = ? AND id = ? FOR_UPDATE"
    rows = yield sql, (tenant, item.thread_id)
    if not rows or (yield "SELECT 1 FROM inbox WHERE tenant = ? AND id = ?", (tenant, item.id)):
        return
    thread, claim, wakes, head, run = rows[0]
    ((pending,),) = yield "SELECT count(*) FROM inbox WHERE thread = ? AND status = 'pending'", (thread,)
    if pending >= room_for(item):
        raise no_room(item.thread_id)
    yield (
        """INSERT INTO inbox (tenant, id, thread, kind, wake, position, status, priority, agent, payload)
           VALUES (?, ?, ?, 'task', ?, ?, 'pending', ?, ?, ?)""",
        (
            tenant,
            item.id,
            thread,
            item.wake,
            head + 1,
            item.priority,
            item.agent_id,
            packer.pack(encode(item), {}),
        ),
    )
    yield "UPDATE threads SET inbox_head = inbox_head + 1 WHERE no = ?", (thread,)
    if claim is None and woken(wakes, [item.wake]):
        rows = yield "SELECT agent, priority FROM runs WHERE no = ?", (run or 0,)
        agent, priority = rows[0] if rows else (item.agent_id or "", PRIORITY)
        yield _SOONER, (thread, tenant, agent, priority, now_ms())
