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

__all__ = [
    "PUT_CALL",
    "PUT_LOG",
    "Known",
    "Place",
    "Plain",
    "log_row",
    "plain_of",
    "write_plain",
    "write_together",
]

MAX_KNOWN = 10_000

_Row = tuple[Any, ...]


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


class Plain(Struct, eq=False, gc=False):
    """A commit that goes on with a run which is known, ready to be written. What its calls refer to is counted
    from the thread's head."""

    commit: Commit
    fence: Fence
    run: RunRecord
    place: Place
    entries: list[Entry]
    places: dict[str, int]
    payload: bytearray
    calls: list[_Row]


def plain_of(tenant: str, packer: Packer, commit: Commit, known: Known) -> Plain | None:
    """The commit, ready to be written; None if there is more to it, or its thread isn't known."""
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
    calls = _calls(commit, packer, places, blobs)
    return None if blobs else Plain(commit, fence, run, place, entries, places, payload, calls)


def write_plain(db: sqlite3.Cursor, plain: Plain) -> Committed | None:
    """Write one of them; None, and nothing is written, if its thread isn't its owner's any more."""
    if (written := write_together(db, [plain])) is None and _found(db, plain):
        written = write_together(db, [plain])
    return None if written is None else written[0]


def write_together(db: sqlite3.Cursor, plains: list[Plain]) -> list[Committed] | None:
    """Write commits of several threads, in as many statements as one takes. None, if some of the threads aren't
    as they were left: what was written then has to be rolled back, unless it was to be one only."""
    now = now_ms()
    goes: list[_Row] = []
    runs: list[_Row] = []
    logs: list[_Row] = []
    calls: list[_Row] = []
    indexed: list[_Row] = []
    dropped: list[_Row] = []
    for plain in plains:
        commit, run, place = plain.commit, plain.run, plain.place
        fence, base, number = plain.fence, place.head, place.run
        if commit.inbox_head is not None and commit.inbox_head != place.inbox_head:
            return None
        own = (place.thread, fence.token, fence.epoch, number, place.version, base, place.inbox_head)
        goes.append((len(commit.log), wakes_of(run), now, *own))
        answer = plain.places.get(run.answer_id or "")
        at = 0 if answer is None else base + answer
        runs.append((run.steps, int(run.stage == "acting"), at, plain.payload, number))
        if (place.agent, place.status) != (run.agent_id, run.status):
            indexed.append((run.agent_id, run.status, number))
        logs += [log_row(place.thread, base, number, entry) for entry in plain.entries]
        calls += [(number, *call[:4], call[4] and base + call[4], *call[5:]) for call in plain.calls]
        if place.chunks and answers(commit):
            dropped.append((place.thread,))
    if db.executemany(_GO_ON, goes).rowcount < len(goes):
        return None
    if indexed:
        db.executemany(_PUT_INDEXED, indexed)
    db.executemany(_PUT_RUN, runs)
    db.executemany(PUT_LOG, logs)
    if calls:
        db.executemany(PUT_CALL, calls)
    if dropped:
        db.executemany("DELETE FROM chunks WHERE thread = ?", dropped)
    return [_left(plain) for plain in plains]


def _left(plain: Plain) -> Committed:
    """Keep how a commit left its thread."""
    place, commit, run = plain.place, plain.commit, plain.run
    place.version, place.head = place.version + 1, place.head + len(commit.log)
    place.agent, place.status = run.agent_id, run.status
    place.chunks = place.chunks and not answers(commit)
    return Committed(place.version, place.head, plain.fence.epoch, place.inbox_head)


def _found(db: sqlite3.Cursor, plain: Plain) -> bool:
    """Whether the thread is still its owner's. Something came into its inbox, or this is the first time."""
    place, fence, head = plain.place, plain.fence, plain.commit.inbox_head
    found = db.execute(_FIND, (place.thread, fence.token, fence.epoch, place.run, head)).fetchall()
    if not found:
        return False
    place.version, place.head, place.inbox_head = found[0]
    place.chunks = True  # What was written to it meanwhile may be chunks.
    return True


def log_row(thread: int, base: int, run: int, entry: Entry) -> tuple[Any, ...]:
    """What PUT_LOG is given for an entry behind the number `base`."""
    ref = 0 if entry.ref is None else base + entry.ref
    rest = (ref, bytearray(entry.payload), entry.size, bytearray(entry.more or b""))
    return thread, base + entry.number, entry.kind, run, entry.agent, entry.at, *rest


def _calls(commit: Commit, packer: Packer, places: dict[str, int], blobs: dict[str, bytes]) -> list[_Row]:
    """The rows of the ledger, but for the run's number; a call's answer is counted from the thread's head."""
    rows: list[_Row] = []
    for call in commit.calls:
        ref = places.get(call.id, 0)
        # Once a row is there, its arguments stay as they are, wherever they lie.
        arguments = bytearray(b"" if ref else packer.pack(encode(call.arguments), blobs))
        body = bytearray(packer.pack(call_body(call), blobs))
        rows.append((call.step, call.index, call.id, call.name, ref, arguments, body))
    return rows
