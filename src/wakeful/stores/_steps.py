"""Postgres's way of the commits that most are: an owner goes on with its thread's run, and comes alone.

How its last commit left the thread is known, so one statement does it, without looking anything up. It is written
if the thread is as it was left, and else nothing is. It has no id: under one fence a version is made once, by
whose commits come one after the other, so the version says whether a commit is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from msgspec import Struct, field

from ..types.codec import encode
from ..types.runs import Call
from ._plans import escaped, even
from ._protocol import Commit, Committed, Fence
from ._rows import Entry, Packer, call_body, entries_of
from ._rules import answers, going_on, wakes_of

__all__ = ["IS_IN", "Held", "Step", "left_by", "step_of"]

# Each number of rows is a statement of its own, which a connection has to learn. What is more goes the long way.
MAX_ROWS = 8


class Held(Struct):
    """How its owner's last commit left a thread. That commit, or one before it, was synced with the fence in it:
    no crash of the server gives that fence to somebody else."""

    fence: Fence
    version: int
    run_id: str | None = None
    unsynced: bool = False
    # Whether there may be chunks of an answer.
    chunks: bool = True
    # The last step of the open run that has calls, and the places of those whose rows are there.
    step: int = 0
    places: set[int] = field(default_factory=set[int])


class Step(Struct, eq=False, gc=False):
    """A statement and what it is told."""

    sql: str
    args: list[Any]
    drops: bool
    """Whether it leaves no chunks."""


def left_by(commit: Commit, done: Committed, step: Step | None, held: Held | None) -> Held | None:
    """How a commit left its thread, which was as `held` says. It went by a step or, without one, the long way.
    None, if nobody owns the thread."""
    fence = Fence(done.epoch, commit.claim) if commit.claim is not None else commit.fence
    if fence is None or commit.release:
        return None
    if held is None or commit.claim is not None or held.fence != fence:
        held = Held(fence, done.version)
    held.version, held.unsynced = done.version, step is not None and commit.unsynced
    held.chunks = bool(commit.chunks) or (held.chunks and not (step is not None and step.drops))
    for run in commit.runs:
        if run.status != "done" and held.run_id != run.id:
            held.run_id, held.step = run.id, 0
        elif run.status == "done" and held.run_id == run.id:
            held.run_id = None
    for call in commit.calls:
        if call.run_id == held.run_id and call.step >= held.step:
            if call.step > held.step:
                held.step, held.places = call.step, set()
            held.places.add(call.index)
    return held


# -- the statement -------------------------------------------------------------------------------------------

_LOG = ("bigint", "text", "text", "bigint", "bigint", "bytea", "bigint", "bytea")
_NEW = ("bigint", "bigint", "text", "text", "bigint", "bytea")
_OLD = ("bigint", "bigint", "bytea")
_FIRST_ROW = 16

# A step changes only what lies side by side in the thread's row, so that Postgres's own log has little of it. That
# is why the time of the last change is exact to the minute while a run goes on.
_GO_ON = """
WITH t AS (
    UPDATE threads SET version = version + 1, head = head + $7, wakes = $8,
        updated_at = greatest(updated_at, (extract(epoch FROM date_trunc('minute', now())) * 1000)::bigint)
    WHERE tenant = $1 AND id = $2 AND claim = $3 AND epoch = $4 AND version = $5
        AND inbox_head = coalesce($6, inbox_head)
    RETURNING no, open_run, version, head, inbox_head, head - $7 AS base
), put_run AS (
    UPDATE runs SET agent = $9, status = $10, step = $11, acting = $12, payload = $14,
        answer = coalesce(t.base + $13, answer)
    FROM t WHERE runs.no = t.open_run
), put_log AS (
    INSERT INTO log (thread, seq, kind, run, agent, at, ref, payload, size, more)
    SELECT t.no, t.base + x.n, x.kind, t.open_run, x.agent, x.at, t.base + x.ref, x.payload, x.size, x.more
    FROM t CROSS JOIN (VALUES {log}) AS x(n, kind, agent, at, ref, payload, size, more)
){more}
SELECT t.version, t.head, t.inbox_head,
    CASE WHEN $15::boolean THEN set_config('synchronous_commit', 'off', true) END
FROM t
"""

_PUT_NEW = """, put_new AS (
    INSERT INTO calls (run, step, place, id, name, ref, payload)
    SELECT t.open_run, x.step, x.place, x.id, x.name, t.base + x.ref, x.payload
    FROM t CROSS JOIN (VALUES {new}) AS x(step, place, id, name, ref, payload)
)"""

_PUT_OLD = """, put_old AS (
    UPDATE calls SET payload = x.payload FROM t CROSS JOIN (VALUES {old}) AS x(step, place, payload)
    WHERE calls.run = t.open_run AND calls.step = x.step AND calls.place = x.place
)"""

_DROP_CHUNKS = ", drop_chunks AS (DELETE FROM chunks USING t WHERE chunks.thread = t.no)"

# Whether the commit that makes this version is in; its writer's connection broke before it heard. The thread may
# have another owner since: then it says where that one began.
IS_IN = """
SELECT version, head, inbox_head FROM threads
WHERE tenant = $1 AND id = $2 AND claim = $3 AND epoch = $4 AND version = $5::bigint + 1
UNION ALL
SELECT split_part(last_commit, ' ', 3)::bigint, split_part(last_commit, ' ', 4)::bigint, inbox_head FROM threads
WHERE tenant = $1 AND id = $2 AND epoch > $4
    AND split_part(last_commit, ' ', 3) = ($5 + 1)::text AND split_part(last_commit, ' ', 5) = $4::text
"""


@cache
def _statement(log: int, new: int, old: int, drops: bool) -> str:
    """The statement for so many rows of the log and so many of the ledger, new ones and others."""
    parameter = _FIRST_ROW

    def rows(count: int, types: tuple[str, ...]) -> str:
        nonlocal parameter
        written: list[str] = []
        for _ in range(count):
            written.append(", ".join([f"${n}::{kind}" for n, kind in enumerate(types, parameter)]))
            parameter += len(types)
        return ", ".join([f"({row})" for row in written])

    entries = rows(log, _LOG)
    more = _PUT_NEW.format(new=rows(new, _NEW)) if new else ""
    more += _PUT_OLD.format(old=rows(old, _OLD)) if old else ""
    return _GO_ON.format(log=entries, more=more + (_DROP_CHUNKS if drops else ""))


# -- what it is told -----------------------------------------------------------------------------------------


def step_of(tenant: str, packer: Packer, commit: Commit, held: Held) -> Step | None:
    """The statement for a commit; None, if there is more to it than going on with what is known."""
    run, fence = going_on(commit), commit.fence
    if run is None or fence is None or held.fence != fence or held.run_id != run.id:
        return None
    blobs: dict[str, bytes] = {}
    try:
        entries, places = entries_of(commit, packer, blobs)
        payload = packer.pack(even(encode(run)), blobs)
        calls = _calls(commit.calls, places, packer, blobs, held)
    except ValueError:
        return None  # The long way says what is wrong, or mends it.
    if calls is None or blobs or len(entries) > MAX_ROWS or {entry.run_id for entry in entries} != {run.id}:
        return None
    new, old = calls
    drops = held.chunks and answers(commit)
    args: list[Any] = [escaped(tenant), escaped(commit.thread_id), fence.token, fence.epoch, held.version]
    args += (commit.inbox_head, len(commit.log), wakes_of(run), escaped(run.agent_id), run.status, run.steps)
    args += (int(run.stage == "acting"), places.get(run.answer_id or ""), payload, commit.unsynced)
    for entry in entries:
        args += _log_row(entry)
    for row in new:
        args += row
    for row in old:
        args += row
    return Step(_statement(len(entries), len(new), len(old), drops), args, drops)


def _log_row(entry: Entry) -> tuple[Any, ...]:
    words = (escaped(entry.kind), escaped(entry.agent))
    return entry.number, *words, entry.at, entry.ref, entry.payload, entry.size, entry.more


_Rows = list[tuple[Any, ...]]


def _calls(
    calls: Sequence[Call], places: dict[str, int], packer: Packer, blobs: dict[str, bytes], held: Held
) -> tuple[_Rows, _Rows] | None:
    """The rows of calls whose answer is in the commit, and of those whose row is there; None, if there are others
    too."""
    new, old, seen = _Rows(), _Rows(), set[int]()
    for call in calls:
        ref = places.get(call.id)
        known = call.step == held.step and call.index in held.places
        if call.run_id != held.run_id or call.index in seen or known == (ref is not None):
            return None
        seen.add(call.index)
        body = packer.pack(call_body(call), blobs)
        if known:
            old.append((call.step, call.index, body))
        else:
            new.append((call.step, call.index, escaped(call.id), escaped(call.name), ref, body))
    return None if len(seen) > MAX_ROWS else (new, old)
