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
from ..types.runs import Call, RunRecord
from ._packing import Packer
from ._protocol import Commit, Committed, Fence
from ._rows import Entry, call_body, entries_of, run_body
from ._rules import answers, going_on, wakes_of

__all__ = [
    "PUT_CALL",
    "PUT_LOG",
    "Known",
    "Place",
    "Plain",
    "call_row",
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
    version: int
    head: int
    inbox_head: int
    # Whether the thread may have chunks of an answer.
    chunks: bool = True

    def move(self, version: int, head: int, inbox_head: int, *, chunks: bool) -> None:
        """Its owner wrote something to the thread that isn't about its run."""
        self.version, self.head, self.inbox_head = version, head, inbox_head
        self.chunks = self.chunks or chunks


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

    def keep(self, tenant: str, thread_id: str, place: Place) -> None:
        """A thread's owner wrote to it."""
        if len(self._places) >= MAX_KNOWN:
            self._places.clear()
        self._places[tenant, thread_id] = place

    def forget(self, tenant: str, thread_id: str) -> None:
        """A thread was given back."""
        self._places.pop((tenant, thread_id), None)

    def clear(self) -> None:
        """What was written last may not be there."""
        self._places.clear()


_GO_ON = """UPDATE threads SET version = version + 1, head = head + ?, wakes = ?, updated_at = ?
            WHERE no = ? AND claim = ? AND epoch = ? AND open_run = ?
                AND version = ? AND head = ? AND inbox_head = ?"""
_FIND = """SELECT version, inbox_head FROM threads
           WHERE no = ? AND claim = ? AND epoch = ? AND open_run = ? AND head = ?
               AND inbox_head = coalesce(?, inbox_head)"""
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
    """A commit that goes on with a run which is known, ready to be written: the rows of its run, log and calls."""

    commit: Commit
    fence: Fence
    run: RunRecord
    place: Place
    row: _Row
    log: list[_Row]
    calls: list[_Row]
    # Whether there may be chunks of the answer that it has.
    drops: bool
    # The thread's when it was made ready.
    version: int


def plain_of(tenant: str, packer: Packer, commit: Commit, known: Known) -> Plain | None:
    """The commit, ready to be written; None if there is more to it, or its thread isn't known."""
    run, place, fence = going_on(commit), known.find(tenant, commit.thread_id), commit.fence
    if run is None or place is None or fence is None or run.identity.run_id != place.run_id:
        return None
    blobs: dict[str, bytes] = {}
    entries, places = entries_of(commit, packer, blobs)
    run_id, thread, number, base = place.run_id, place.thread, place.run, place.head
    log: list[_Row] = []
    for entry in entries:
        if entry.run_id != run_id:
            return None
        log.append(log_row(thread, base, number, entry))
    calls: list[_Row] = []
    for call in commit.calls:
        if call.run_id != run_id:
            return None
        calls.append(call_row(call, number, base, packer, places, blobs))
    answer = places.get(run.answer_id or "")
    payload = bytearray(packer.pack(run_body(run), blobs))
    if blobs:
        return None
    row = (run.steps, int(run.stage == "acting"), 0 if answer is None else base + answer, payload, number)
    return Plain(commit, fence, run, place, row, log, calls, place.chunks and answers(commit), place.version)


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
    log: list[_Row] = []
    calls: list[_Row] = []
    for plain in plains:
        commit, place, fence = plain.commit, plain.place, plain.fence
        if commit.inbox_head is not None and commit.inbox_head != place.inbox_head:
            return None
        own = (place.thread, fence.token, fence.epoch, place.run, place.version, place.head, place.inbox_head)
        goes.append((len(commit.log), wakes_of(plain.run), now, *own))
        log += plain.log
        calls += plain.calls
    if db.executemany(_GO_ON, goes).rowcount < len(goes):
        return None
    db.executemany(_PUT_RUN, [plain.row for plain in plains])
    db.executemany(PUT_LOG, log)
    if calls:
        db.executemany(PUT_CALL, calls)
    return [_left(db, plain) for plain in plains]


def _left(db: sqlite3.Cursor, plain: Plain) -> Committed:
    """Write what few of them have, and keep how each left its thread."""
    place, run = plain.place, plain.run
    if place.agent != run.agent_id or place.status != run.status:
        db.execute(_PUT_INDEXED, (run.agent_id, run.status, place.run))
        place.agent, place.status = run.agent_id, run.status
    if plain.drops:
        db.execute("DELETE FROM chunks WHERE thread = ?", (place.thread,))
        place.chunks = False
    version = place.version = place.version + 1
    head = place.head = place.head + len(plain.commit.log)
    return Committed(version, head, plain.fence.epoch, place.inbox_head)


def _found(db: sqlite3.Cursor, plain: Plain) -> bool:
    """Whether the thread is still its owner's, only that something came into its inbox, or was written beside."""
    place, fence, head = plain.place, plain.fence, plain.commit.inbox_head
    own = (place.thread, fence.token, fence.epoch, place.run, place.head)
    found = db.execute(_FIND, (*own, head)).fetchone()
    if found is None:
        return False
    place.version, place.inbox_head = found
    place.chunks = True  # What was written to it meanwhile may be chunks.
    plain.drops = answers(plain.commit)
    return True


def log_row(thread: int, base: int, run: int, entry: Entry) -> _Row:
    """What PUT_LOG is given for an entry behind the number `base`."""
    ref = 0 if entry.ref is None else base + entry.ref
    rest = (ref, bytearray(entry.payload), entry.size, bytearray(entry.more or b""))
    return thread, base + entry.number, entry.kind, run, entry.agent, entry.at, *rest


def call_row(
    call: Call, run: int, base: int, packer: Packer, places: dict[str, int], blobs: dict[str, bytes]
) -> _Row:
    """What PUT_CALL is given."""
    ref = places.get(call.id)
    body = bytearray(packer.pack(call_body(call), blobs))
    if ref is not None:
        return run, call.step, call.index, call.id, call.name, base + ref, bytearray(), body
    # Once a row is there, its arguments stay as they are, wherever they lie.
    arguments = bytearray(packer.pack(encode(call.arguments), blobs))
    return run, call.step, call.index, call.id, call.name, 0, arguments, body
