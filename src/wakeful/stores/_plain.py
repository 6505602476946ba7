"""Most commits: an owner goes on with its thread's run, and nothing else. SQLite writes them in few statements.

What was learnt about the thread when its owner last wrote to it is kept. Whether it still holds is what is asked
first: where it doesn't, the commit goes the long way.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from msgspec import Struct

from ..types.codec import encode
from ..types.ids import now_ms
from ..types.runs import RunRecord
from ._protocol import Commit, Committed, Fence
from ._rows import Entry, Packer, call_body, entries_of
from ._rules import answers, going_on, wakes_of

__all__ = ["PUT_CALL", "PUT_LOG", "Known", "Place", "log_row", "write_plain"]

MAX_KNOWN = 10_000


class Place(Struct):
    """Where a claimed thread and its open run are, and how the thread was left."""

    thread: int
    run: int
    run_id: str
    agent: str
    status: str
    version: int = -1
    head: int = -1
    inbox_head: int = -1
    # Whether the thread may have chunks of an answer.
    chunks: bool = True


class Known:
    """The threads that commits of this process have claimed, by tenant and id. Claims that others took since are
    no harm: a fence that is stale fits no row."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self.cursor = cursor
        self._places: dict[tuple[str, str], Place] = {}

    def others(self, owner: tuple[str, str]) -> bool:
        """Whether threads are claimed besides this one."""
        return len(self._places) > (owner in self._places)

    def find(self, tenant: str, thread_id: str) -> Place | None:
        return self._places.get((tenant, thread_id))

    def keep(self, tenant: str, thread_id: str, thread: int, number: int, run: RunRecord) -> None:
        """A thread's owner wrote to it."""
        if len(self._places) >= MAX_KNOWN:
            self._places.clear()
        self._places[tenant, thread_id] = Place(thread, number, run.id, run.agent_id, run.status)

    def forget(self, tenant: str, thread_id: str) -> None:
        """A thread was given back."""
        self._places.pop((tenant, thread_id), None)

    def clear(self) -> None:
        """What was written last may not be there."""
        self._places.clear()


_GO_ON = """UPDATE threads SET version = version + 1, head = head + ?, wakes = ?, updated_at = ?
            WHERE no = ? AND claim = ? AND epoch = ? AND open_run = ?
                AND version = ? AND head = ? AND inbox_head = ?"""
_FIND = """SELECT version, head, inbox_head FROM threads
           WHERE no = ? AND claim = ? AND epoch = ? AND open_run = ? AND inbox_head = coalesce(?, inbox_head)"""
# The driver asks around for how to store what isn't a number, a string or a bytearray, which takes longer than the
# statement: payloads come as bytearrays, and what isn't there as 0 or empty.
_PUT_RUN = """UPDATE runs SET step = ?, acting = ?, answer = coalesce(nullif(?, 0), answer), payload = ?
              WHERE no = ?"""
_PUT_INDEXED = "UPDATE runs SET agent = ?, status = ? WHERE no = ?"
PUT_LOG = """INSERT INTO log (thread, seq, kind, run, agent, at, ref, payload, size, more)
             VALUES (?, ?, ?, ?, ?, ?, nullif(?, 0), ?, ?, nullif(?, x''))"""
PUT_CALL = """INSERT INTO calls (run, step, place, id, name, ref, arguments, payload)
               VALUES (?, ?, ?, ?, ?, nullif(?, 0), nullif(?, x''), ?)
               ON CONFLICT (run, step, place) DO UPDATE SET payload = excluded.payload"""


def write_plain(tenant: str, packer: Packer, commit: Commit, known: Known) -> Committed | None:
    """Write a commit that goes on with a run which is known; None, and nothing is written, if it isn't such."""
    run, place, fence = going_on(commit), known.find(tenant, commit.thread_id), commit.fence
    if run is None or place is None or fence is None or run.id != place.run_id:
        return None
    blobs: dict[str, bytes] = {}
    entries, places = entries_of(commit, packer, blobs)
    run_id = place.run_id
    for one in (*entries, *commit.calls):
        if one.run_id != run_id:
            return None
    payload = bytearray(packer.pack(encode(run), blobs))
    calls = _calls(commit, place.run, packer, places, blobs)
    if blobs:
        return None
    db = known.cursor
    if not _gone_on(db, place, commit, fence, run):
        return None
    base = place.head
    answer = places.get(run.answer_id or "")
    values = (run.steps, int(run.stage == "acting"), 0 if answer is None else base + answer)
    if (place.agent, place.status) != (run.agent_id, run.status):
        db.execute(_PUT_INDEXED, (run.agent_id, run.status, place.run))
    db.execute(_PUT_RUN, (*values, payload, place.run))
    thread, number = place.thread, place.run
    db.executemany(PUT_LOG, [log_row(thread, base, number, entry) for entry in entries])
    for call in calls:
        if call[5]:
            call[5] += base
    if calls:
        db.executemany(PUT_CALL, calls)
    if place.chunks and answers(commit):
        db.execute("DELETE FROM chunks WHERE thread = ?", (thread,))
        place.chunks = False
    place.version, place.head = place.version + 1, base + len(commit.log)
    place.agent, place.status = run.agent_id, run.status
    return Committed(place.version, place.head, fence.epoch, place.inbox_head)


def _gone_on(db: sqlite3.Cursor, place: Place, commit: Commit, fence: Fence, run: RunRecord) -> bool:
    """Whether the thread is still its owner's, and has its new version and head now."""
    own = (place.thread, fence.token, fence.epoch, place.run)
    values = (len(commit.log), wakes_of(run), now_ms(), *own)
    expected = commit.inbox_head is None or commit.inbox_head == place.inbox_head
    seen = (place.version, place.head, place.inbox_head)
    if expected and place.version >= 0 and db.execute(_GO_ON, (*values, *seen)).rowcount:
        return True
    # Something came into its inbox, or this is the first time.
    found = db.execute(_FIND, (*own, commit.inbox_head)).fetchall()
    if not found:
        return False
    place.version, place.head, place.inbox_head = found[0]
    place.chunks = True  # What was written to it meanwhile may be chunks.
    return bool(db.execute(_GO_ON, (*values, *found[0])).rowcount)


def log_row(thread: int, base: int, run: int, entry: Entry) -> tuple[Any, ...]:
    """What PUT_LOG is given for an entry behind the number `base`."""
    ref = 0 if entry.ref is None else base + entry.ref
    rest = (ref, bytearray(entry.payload), entry.size, bytearray(entry.more or b""))
    return thread, base + entry.number, entry.kind, run, entry.agent, entry.at, *rest


def _calls(
    commit: Commit, run: int, packer: Packer, places: dict[str, int], blobs: dict[str, bytes]
) -> list[list[Any]]:
    """The rows of the ledger; a call's answer is counted from the thread's head."""
    rows: list[list[Any]] = []
    for call in commit.calls:
        ref = places.get(call.id, 0)
        # Once a row is there, its arguments stay as they are, wherever they lie.
        arguments = bytearray(b"" if ref else packer.pack(encode(call.arguments), blobs))
        body = bytearray(packer.pack(call_body(call), blobs))
        rows.append([run, call.step, call.index, call.id, call.name, ref, arguments, body])
    return rows
