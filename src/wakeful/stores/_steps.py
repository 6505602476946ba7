"""Postgres's way of the commits that most are: an owner goes on with its thread's run.

How its last commit left the thread is known, so one statement does it, without looking anything up: one that comes
alone, or as many as there are. Each is written if its thread is as it was left, and else nothing of it is. It has
no id: under one fence a version is made once, by whose commits come one after the other, so the version says
whether a commit is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

from msgspec import Struct, field

from ..types.runs import Call
from ._driver import broken
from ._packing import Packer
from ._plans import escaped, even
from ._protocol import Commit, Committed, Fence
from ._rows import Entry, call_body, entries_of, run_body
from ._rules import answers, going_on, wakes_of

__all__ = ["Held", "Step", "go_on", "left_by", "step_of"]

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


_Rows = list[tuple[Any, ...]]


class Step(Struct, eq=False, gc=False):
    """What a commit tells the statement."""

    head: tuple[Any, ...]
    """The thread and how it was left; what becomes of it and of its run."""
    log: _Rows
    calls: _Rows
    """A row that is there has no answer."""
    drops: bool
    """Whether it leaves no chunks."""
    size: int
    unsynced: bool = False
    unsure: bool = False
    """Whether it was sent and no answer was heard: it may be in."""

    @property
    def epoch(self) -> int:
        return self.head[3]


def left_by(commit: Commit, done: Committed, step: Step | None, held: Held | None) -> Held | None:
    """How a commit left its thread, which was as `held` says. It went by a step or, without one, the long way.
    None, if nobody owns the thread."""
    fence = Fence(done.epoch, commit.claim) if commit.claim is not None else commit.fence
    if fence is None or commit.release:
        return None
    if held is None or commit.claim is not None or held.fence != fence:
        held = Held(fence, done.version)
    held.version, held.unsynced = done.version, step is not None and step.unsynced
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


# -- one commit ----------------------------------------------------------------------------------------------

_LOG = ("bigint", "text", "text", "bigint", "bigint", "bytea", "bigint", "bytea")
_NEW = ("bigint", "bigint", "text", "text", "bigint", "bytea")
_OLD = ("bigint", "bigint", "bytea")
_FIRST_ROW = 16

# A step changes only what lies side by side in the thread's row, so that Postgres's own log has little of it. That
# is why the time of the last change is exact to the minute while a run goes on.
_ONE = """
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
SELECT 1 AS n, t.version, t.head, t.inbox_head,
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
_IS_IN = """
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
    return _ONE.format(log=entries, more=more + (_DROP_CHUNKS if drops else ""))


# -- many commits --------------------------------------------------------------------------------------------

# One text for every number of them. The threads are locked in the order in which they are given. `a` has by a
# commit's number what its rows need: nothing, if its thread isn't as it was left.
#
# A connection plans this once, perhaps while the tables are empty, and must never come to read whole tables. So
# the planner can't see how many commits there are, takes those with `ok = n` for few, and goes by the indexes.
_MANY = """
WITH x AS MATERIALIZED (
    SELECT x.*, t.no, t.open_run, t.head AS base, CASE WHEN t.no IS NOT NULL THEN x.n END AS ok
    FROM unnest((SELECT $1::text[]), $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[],
        $7::bigint[], $8::text[], $9::text[], $10::text[], $11::bigint[], $12::bigint[], $13::bigint[],
        $14::bytea[], $15::boolean[]) WITH ORDINALITY AS x(tenant, id, claim, epoch, version, inbox_head, entries,
        wakes, agent, status, step, acting, answer, payload, drops, n)
    LEFT JOIN LATERAL (
        SELECT * FROM threads WHERE tenant = x.tenant AND id = x.id FOR NO KEY UPDATE
    ) t ON t.claim = x.claim AND t.epoch = x.epoch AND t.version = x.version
        AND t.inbox_head = coalesce(x.inbox_head, t.inbox_head)
), a AS MATERIALIZED (
    SELECT array_agg(no) AS no, array_agg(open_run) AS run, array_agg(base) AS base FROM x
), t AS (
    UPDATE threads SET version = threads.version + 1, head = threads.head + x.entries, wakes = x.wakes,
        updated_at = greatest(updated_at, (extract(epoch FROM date_trunc('minute', now())) * 1000)::bigint)
    FROM x WHERE threads.no = x.no AND x.ok = x.n
    RETURNING x.n, threads.version, threads.head, threads.inbox_head
), put_runs AS (
    UPDATE runs SET agent = x.agent, status = x.status, step = x.step, acting = x.acting, payload = x.payload,
        answer = coalesce(x.base + x.answer, runs.answer)
    FROM x WHERE runs.no = x.open_run AND x.ok = x.n
), put_log AS (
    INSERT INTO log (thread, seq, kind, run, agent, at, ref, payload, size, more)
    SELECT a.no[e.x], a.base[e.x] + e.n, e.kind, a.run[e.x], e.agent, e.at, a.base[e.x] + e.ref, e.payload, e.size,
        e.more
    FROM a CROSS JOIN unnest($16::bigint[], $17::bigint[], $18::text[], $19::text[], $20::bigint[], $21::bigint[],
        $22::bytea[], $23::bigint[], $24::bytea[]) AS e(x, n, kind, agent, at, ref, payload, size, more)
    WHERE a.no[e.x] IS NOT NULL
), put_calls AS (
    INSERT INTO calls (run, step, place, id, name, ref, payload)
    SELECT a.run[c.x], c.step, c.place, c.id, c.name, a.base[c.x] + c.ref, c.payload
    FROM a CROSS JOIN unnest($25::bigint[], $26::bigint[], $27::bigint[], $28::text[], $29::text[], $30::bigint[],
        $31::bytea[]) AS c(x, step, place, id, name, ref, payload)
    WHERE a.no[c.x] IS NOT NULL
    ON CONFLICT (run, step, place) DO UPDATE SET payload = excluded.payload
), drop_chunks AS (
    DELETE FROM chunks USING x WHERE chunks.thread = x.no AND x.drops AND x.ok = x.n
)
SELECT t.n, t.version, t.head, t.inbox_head,
    CASE WHEN $32::boolean THEN set_config('synchronous_commit', 'off', true) END
FROM t
"""


async def go_on(connection: Any, steps: Sequence[Step], unsynced: bool) -> list[tuple[int, int, int, int]]:
    """Write steps, ordered by their threads, as all who lock several do. Gives the numbers of those
    that are in, beginning with 1, each with its thread's version, head and inbox head."""
    sql, args = _told(steps, unsynced)
    try:
        rows = await connection.fetch(sql, *args)
    except BaseException as error:
        if broken(error) or not isinstance(error, Exception):
            for step in steps:
                step.unsure = True
        raise
    found = [tuple(row)[:4] for row in rows]
    written = {row[0] for row in found}
    for number, step in enumerate(steps, 1):
        if step.unsure and number not in written:
            found += [(number, *row) for row in await connection.fetch(_IS_IN, *step.head[:5])]
    return found


def _told(steps: Sequence[Step], unsynced: bool) -> tuple[str, list[Any]]:
    """The statement for these and what it is told."""
    if len(steps) == 1:
        (step,) = steps
        new = [row for row in step.calls if row[4] is not None]
        old = [(*row[:2], row[5]) for row in step.calls if row[4] is None]
        sql = _statement(len(step.log), len(new), len(old), step.drops)
        return sql, [*step.head, unsynced, *chain(*step.log, *new, *old)]
    args: list[Any] = list(zip(*[step.head for step in steps], strict=True))
    args.append([step.drops for step in steps])
    args += _columns([step.log for step in steps], len(_LOG))
    args += _columns([step.calls for step in steps], len(_NEW))
    return _MANY, [*args, unsynced]


def _columns(rows: list[_Rows], width: int) -> list[Any]:
    """Rows as columns; the first one says whose row it is."""
    numbers = [number for number, own in enumerate(rows, 1) for _ in own]
    return [numbers, *zip(*chain(*rows), strict=True)] if numbers else [()] * (width + 1)


# -- what they are told --------------------------------------------------------------------------------------


def step_of(tenant: str, packer: Packer, commit: Commit, held: Held) -> Step | None:
    """What a commit tells the statement; None, if there is more to it than going on with what is known."""
    run, fence = going_on(commit), commit.fence
    if run is None or fence is None or held.fence != fence or held.run_id != run.id:
        return None
    blobs: dict[str, bytes] = {}
    try:
        entries, places = entries_of(commit, packer, blobs)
        payload = packer.pack(even(run_body(run)), blobs)
        calls = _calls(commit.calls, places, packer, blobs, held)
    except ValueError:
        return None  # The long way says what is wrong, or mends it.
    if calls is None or blobs or len(entries) > MAX_ROWS or {entry.run_id for entry in entries} != {run.id}:
        return None
    log = [_log_row(entry) for entry in entries]
    left = (escaped(tenant), escaped(commit.thread_id), fence.token, fence.epoch, held.version, commit.inbox_head)
    then = (len(commit.log), wakes_of(run), escaped(run.agent_id), run.status, run.steps)
    last = (int(run.stage == "acting"), places.get(run.answer_id or ""), payload)
    size = len(payload) + sum([len(row[5]) + len(row[7] or b"") for row in log]) + sum([len(r[5]) for r in calls])
    return Step((*left, *then, *last), log, calls, held.chunks and answers(commit), size)


def _log_row(entry: Entry) -> tuple[Any, ...]:
    words = (escaped(entry.kind), escaped(entry.agent))
    return entry.number, *words, entry.at, entry.ref, entry.payload, entry.size, entry.more


def _calls(
    calls: Sequence[Call], places: dict[str, int], packer: Packer, blobs: dict[str, bytes], held: Held
) -> _Rows | None:
    """The rows of calls whose answer is in the commit, and of those whose row is there; None, if there are others
    too."""
    rows: _Rows = []
    seen: set[int] = set()
    for call in calls:
        ref = places.get(call.id)
        known = call.step == held.step and call.index in held.places
        if call.run_id != held.run_id or call.index in seen or known == (ref is not None):
            return None
        seen.add(call.index)
        body = packer.pack(call_body(call), blobs)
        rows.append((call.step, call.index, escaped(call.id), escaped(call.name), ref, body))
    return None if len(seen) > MAX_ROWS else rows
