"""Most commits: an owner goes on with its thread's run, and nothing else. SQLite writes them in one statement.

What was learnt about the thread when its owner last wrote to it is kept. Whether it still holds is what is asked
first: where it doesn't, the commit goes the long way.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from functools import cache
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
    "MAX_ROWS",
    "PUT_CALL",
    "PUT_LOG",
    "VIEW",
    "Known",
    "Place",
    "Plain",
    "call_values",
    "entry_values",
    "found",
    "plain_of",
    "write_together",
]

MAX_KNOWN = 10_000

_Values = tuple[Any, ...]


class Place(Struct):
    """Where a claimed thread and its open run are, and how the thread was left."""

    thread: int
    run: int
    run_id: str
    agent: str
    status: str
    # Of whom these things are known: what others wrote meanwhile is not.
    epoch: int
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
    no harm: a fence that is stale fits no row, and one of a later claim nothing that is known."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self.cursor = cursor
        self._places: dict[tuple[str, str], Place] = {}

    def others(self, owner: tuple[str, str]) -> bool:
        """Whether threads are claimed besides this one."""
        return len(self._places) > (owner in self._places)

    def find(self, tenant: str, thread_id: str, fence: Fence | None) -> Place | None:
        """How a thread's owner left it, if it was this one."""
        place = self._places.get((tenant, thread_id))
        return None if place is None or fence is None or place.epoch != fence.epoch else place

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


# The driver asks around for how to store what isn't a number, a string or a bytearray, which takes longer than the
# statement: payloads come as bytearrays, and what isn't there as 0 or empty.
_INTO_LOG = """INSERT INTO log (thread, run, seq, kind, agent, at, ref, payload, size, more)
               SELECT {}, {}, {}, {}, {}, {}, nullif({}, 0), {}, {}, nullif({}, 0) WHERE {}"""
_INTO_CALLS = """INSERT INTO calls (run, step, place, id, name, ref, arguments, payload)
                 SELECT {}, {}, {}, {}, {}, nullif({}, 0), nullif({}, 0), {} WHERE {}
                 ON CONFLICT (run, step, place) DO UPDATE SET payload = excluded.payload"""
PUT_LOG = _INTO_LOG.format(*"??????????", "true")
PUT_CALL = _INTO_CALLS.format(*"????????", "true")

# All that these commits write goes through this view, so that one statement is enough for many of them: while that
# runs, and is synced, the interpreter is free for those who make the next ones. A row has the thread and the run
# as they are left, an entry of the log and a call. Rows that follow have more entries and calls, and no version.
_THREAD = "thread run claim epoch version head inbox_head added wakes now"
_RUN = "step acting answer body agent status chunks"
_ENTRY = "seq kind writer at ref payload size more"
_CALL = "call_step place id name call_ref arguments call_payload"
_COLUMNS = f"{_THREAD} {_RUN} {_ENTRY} {_CALL}".split()
_MOVED = "a thread is not as it was left"
VIEW = (
    f"CREATE TEMP VIEW steps AS SELECT {', '.join([f'0 AS {name}' for name in _COLUMNS])}",
    f"""CREATE TEMP TRIGGER put_step INSTEAD OF INSERT ON steps BEGIN
        UPDATE threads SET version = version + 1, head = head + new.added, wakes = new.wakes, updated_at = new.now
        WHERE no = new.thread AND claim = new.claim AND epoch = new.epoch AND open_run = new.run
            AND version = new.version AND head = new.head AND inbox_head = new.inbox_head;
        SELECT RAISE(ABORT, '{_MOVED}') WHERE changes() = 0 AND new.version >= 0;
        UPDATE runs SET step = new.step, acting = new.acting, answer = coalesce(nullif(new.answer, 0), answer),
            payload = new.body
        WHERE no = new.run AND new.version >= 0;
        UPDATE runs SET agent = new.agent, status = new.status WHERE no = new.run AND new.status <> '';
        DELETE FROM chunks WHERE thread = new.chunks AND new.chunks > 0;
        {_INTO_LOG.format(*[f"new.{name}" for name in ("thread", "run", *_ENTRY.split())], "new.seq > 0")};
        {_INTO_CALLS.format(*[f"new.{name}" for name in ("run", *_CALL.split())], "new.place >= 0")};
    END""",
)

# A statement for each number of rows, up to so many: the next one that is large enough. Before 3.32 SQLite takes
# 999 values for one.
_SIZES = (*range(1, 9), 16, 24, *((*range(32, 65, 8), 96, 128) if sqlite3.sqlite_version_info >= (3, 32) else ()))
MAX_ROWS = _SIZES[-1]
_NO_STEP: _Values = ("", 0, -1, 0, 0, 0, "", 0, 0, 0, 0, 0, "", "", 0)
_NO_ENTRY: _Values = (0, "", "", 0, 0, 0, 0, 0)
_NO_CALL: _Values = (0, -1, "", "", 0, 0, 0)
_NO_ROW: _Values = (0, 0, *_NO_STEP, *_NO_ENTRY, *_NO_CALL)
_FIND = """SELECT version, inbox_head FROM threads
           WHERE no = ? AND claim = ? AND epoch = ? AND open_run = ? AND head = ?
               AND inbox_head = coalesce(?, inbox_head)"""


class Plain(Struct, eq=False, gc=False):
    """A commit that goes on with a run which is known, ready to be written: the values of its rows."""

    commit: Commit
    fence: Fence
    run: RunRecord
    place: Place
    rows: int
    values: list[Any]
    # Whether there may be chunks of the answer that it has.
    drops: bool
    # The thread's, when it was made ready.
    version: int
    inbox_head: int

    @property
    def current(self) -> bool:
        """Whether the thread is as it was then, as far as is known."""
        place, head = self.place, self.commit.inbox_head
        return self.version == place.version and (self.inbox_head == place.inbox_head or head is not None)

    def left(self) -> Committed:
        """It was written: keep how it left its thread."""
        place, run = self.place, self.run
        place.agent, place.status, place.inbox_head = run.agent_id, run.status, self.inbox_head
        place.chunks = place.chunks and not self.drops
        version = place.version = self.version + 1
        head = place.head = place.head + len(self.commit.log)
        return Committed(version, head, self.fence.epoch, self.inbox_head)


def plain_of(tenant: str, packer: Packer, commit: Commit, known: Known) -> Plain | None:
    """The commit, ready to be written; None if there is more to it, or its thread isn't known."""
    fence = commit.fence
    run, place = going_on(commit), known.find(tenant, commit.thread_id, fence)
    if run is None or place is None or fence is None or run.identity.run_id != place.run_id:
        return None
    blobs: dict[str, bytes] = {}
    entries, places = entries_of(commit, packer, blobs)
    run_id, thread, number, base = place.run_id, place.thread, place.run, place.head
    log: list[_Values] = []
    for entry in entries:
        if entry.run_id != run_id:
            return None
        log.append(entry_values(entry, base))
    calls: list[_Values] = []
    for call in commit.calls:
        if call.run_id != run_id:
            return None
        calls.append(call_values(call, base, packer, places, blobs))
    body = bytearray(packer.pack(run_body(run), blobs))
    if blobs or (rows := max(len(log), len(calls))) > MAX_ROWS:
        return None
    answer = places.get(run.answer_id or "")
    inbox_head = place.inbox_head if commit.inbox_head is None else commit.inbox_head
    same = place.status == run.status and place.agent == run.agent_id
    drops = place.chunks and answers(commit)
    values: list[Any] = [
        thread,
        number,
        fence.token,
        fence.epoch,
        place.version,
        base,
        inbox_head,
        len(commit.log),
        wakes_of(run),
        now_ms(),
        run.steps,
        1 if run.stage == "acting" else 0,
        0 if answer is None else base + answer,
        body,
        run.agent_id,
        "" if same else run.status,
        thread if drops else 0,
    ]
    values += log[0]
    values += calls[0] if calls else _NO_CALL
    for more in range(1, rows):
        values += (thread, number, *_NO_STEP)
        values += log[more] if more < len(log) else _NO_ENTRY
        values += calls[more] if more < len(calls) else _NO_CALL
    return Plain(commit, fence, run, place, rows, values, drops, place.version, inbox_head)


def write_together(db: sqlite3.Cursor, plains: list[Plain]) -> list[Committed] | None:
    """Write commits of several threads, of no more than MAX_ROWS rows, in one statement: in the open transaction,
    or in one of its own. None, and nothing is written, if one of the threads isn't as it was left."""
    values: list[Any] = []
    for plain in plains:
        values += plain.values
    rows = len(values) // len(_COLUMNS)
    size = _SIZES[bisect_left(_SIZES, rows)]
    values += _NO_ROW * (size - rows)
    try:
        db.execute(_statement(size), values)
    except sqlite3.IntegrityError as error:
        if str(error) != _MOVED:
            raise
        return None
    return [plain.left() for plain in plains]


@cache
def _statement(rows: int) -> str:
    row = f"({', '.join('?' * len(_COLUMNS))})"
    return f"INSERT INTO steps VALUES {', '.join([row] * rows)}"


def found(db: sqlite3.Cursor, plain: Plain) -> bool:
    """Whether the thread is still its owner's, only that something came into its inbox, or was written beside."""
    place, fence, head = plain.place, plain.fence, plain.commit.inbox_head
    own = (place.thread, fence.token, fence.epoch, place.run, place.head)
    row = db.execute(_FIND, (*own, head)).fetchone()
    if row is None:
        return False
    place.version, place.inbox_head = row
    place.chunks = True  # What was written to it meanwhile may be chunks.
    return True


def entry_values(entry: Entry, base: int) -> _Values:
    """What PUT_LOG is given for an entry behind the number `base`, after the thread and the run."""
    ref, more = entry.ref, entry.more
    return (
        base + entry.number,
        entry.kind,
        entry.agent,
        entry.at,
        0 if ref is None else base + ref,
        bytearray(entry.payload),
        entry.size,
        0 if more is None else bytearray(more),
    )


def call_values(call: Call, base: int, packer: Packer, places: dict[str, int], blobs: dict[str, bytes]) -> _Values:
    """What PUT_CALL is given, after the run."""
    ref = places.get(call.id)
    body = bytearray(packer.pack(call_body(call), blobs))
    if ref is not None:
        return call.step, call.index, call.id, call.name, base + ref, 0, body
    # Once a row is there, its arguments stay as they are, wherever they lie.
    arguments = bytearray(packer.pack(encode(call.arguments), blobs))
    return call.step, call.index, call.id, call.name, 0, arguments, body
