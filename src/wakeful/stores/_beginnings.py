"""Postgres's way of the commits that most runs begin and end with: input for a thread that nobody runs, the run,
on a new thread or one that is there, and its last answer.

Each does what `commit_v3` does, without JSON: a run of one step is little else. They are for commits that come
alone; many at once go together.
"""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import Any

from ._plans import Plan, escaped
from ._rules import IDLE_WAKES, MAX_PENDING

__all__ = ["BEGIN", "BEGIN_ROUTINES", "beginning_of", "delivery_of", "ending_of", "opening_of"]

# Gives the thread's version, head, epoch and inbox head. If there is more to it, nothing is given and nothing was
# written: the thread has an owner or an open run, the item is there, or there may be no room.
_PUT = f"""
CREATE FUNCTION put_v3(
    v_tenant text, v_id text, v_item text, v_kind text, v_wake text, v_agent text, v_run text, v_priority bigint,
    v_at bigint, p bytea
) RETURNS bigint[] LANGUAGE plpgsql AS $wakeful$
DECLARE
    v_now bigint;
    t threads%ROWTYPE;
BEGIN
    SELECT * INTO t FROM threads WHERE tenant = v_tenant AND id = v_id FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM lock_name_v3(v_tenant, v_id);
        SELECT * INTO t FROM threads WHERE tenant = v_tenant AND id = v_id FOR UPDATE;
    END IF;
    IF t.claim IS NOT NULL OR t.open_run IS NOT NULL OR t.inbox_head >= {MAX_PENDING}
        OR EXISTS (SELECT 1 FROM inbox i WHERE i.tenant = v_tenant AND i.id = v_item)
    THEN
        RETURN NULL;
    END IF;
    v_now := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    IF t.no IS NULL THEN
        INSERT INTO threads (tenant, id, inbox_head, created_at, updated_at)
            VALUES (v_tenant, v_id, 1, v_now, v_now) RETURNING * INTO t;
    ELSE
        UPDATE threads SET inbox_head = inbox_head + 1 WHERE no = t.no RETURNING inbox_head INTO t.inbox_head;
    END IF;
    INSERT INTO inbox (tenant, id, thread, kind, wake, position, run, status, priority, at, agent, payload)
        VALUES (v_tenant, v_item, t.no, v_kind, v_wake, t.inbox_head, v_run, 'pending', v_priority, v_at, v_agent,
            p);
    IF v_wake = ANY ('{{{IDLE_WAKES.replace(" ", ",")}}}'::text[]) THEN
        PERFORM dispatch_v3(v_tenant, t.no, coalesce(v_agent, ''), greatest(v_now, v_at), v_priority, true);
    END IF;
    RETURN ARRAY[t.version, t.head, t.epoch, t.inbox_head];
END
$wakeful$
"""

# Begins a run on a thread without one: under its owner's fence or, if `i[9]` is null, with a claim. It takes in an
# item or, if `i[4]` is null, what a request brought. `w`, `i` and `p` are ordered as in `beginning_of`.
# Gives the thread's version, head, epoch and inbox head. If the version isn't what the writer saw, it gives that
# alone, and nothing if something else isn't as it was thought to be. Then nothing was written.
BEGIN = """
CREATE OR REPLACE FUNCTION begin_v3(w text[], i bigint[], p bytea[]) RETURNS bigint[] LANGUAGE plpgsql AS $wakeful$
DECLARE
    v_now bigint;
    v_run bigint;
    v_before text;
    t threads%ROWTYPE;
    a int := 10; -- behind which word, integer and payload the next row's are
    b int := 10;
    c int := 1;
BEGIN
    SELECT * INTO t FROM threads WHERE tenant = w[1] AND id = w[2] FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM lock_name_v3(w[1], w[2]);
        SELECT * INTO t FROM threads WHERE tenant = w[1] AND id = w[2] FOR UPDATE;
    END IF;
    IF t.no IS NULL THEN
        t.version := 0; t.head := 0; t.epoch := 0; t.inbox_head := 0;
    ELSIF strpos(t.last_commit, w[4]) > 0 THEN
        RETURN NULL;
    END IF;
    IF i[9] IS NULL AND t.version IS DISTINCT FROM i[1] THEN
        RETURN ARRAY[t.version];
    END IF;
    IF t.open_run IS NOT NULL OR t.inbox_head <> i[10]
        OR EXISTS (SELECT 1 FROM runs r WHERE r.tenant = w[1] AND r.id = w[6])
        OR (i[9] IS NULL AND t.claim IS NOT NULL)
        OR (i[9] IS NOT NULL AND (t.claim IS DISTINCT FROM w[3] OR t.epoch <> i[9]))
        OR (i[4] IS NULL AND EXISTS (SELECT 1 FROM inbox x WHERE x.tenant = w[1] AND x.id = w[9]))
    THEN
        RETURN NULL;
    END IF;
    v_now := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    IF i[4] IS NOT NULL THEN
        UPDATE inbox SET status = 'taken', taken_by = w[6]
            WHERE tenant = w[1] AND id = w[9] AND thread = t.no AND status = 'pending' AND revision = i[4];
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    IF t.no IS NULL THEN
        INSERT INTO threads (tenant, id, created_at, updated_at) VALUES (w[1], w[2], v_now, v_now)
            RETURNING no INTO t.no;
    END IF;
    IF i[4] IS NULL THEN -- Another thread's may be faster; then this is tried again, and finds it.
        INSERT INTO inbox (tenant, id, thread, kind, wake, position, status, taken_by)
            VALUES (w[1], w[9], t.no, 'request', '', 0, 'taken', w[6]);
    END IF;
    v_before := split_part(t.last_commit, ' ', 1);
    IF i[9] IS NULL THEN
        IF NOT EXISTS (SELECT 1 FROM workers WHERE id = w[3] AND until >= v_now + i[2] - i[2] / 2) THEN
            INSERT INTO workers (id, until, started_at) VALUES (w[3], v_now + i[2], v_now)
                ON CONFLICT (id) DO UPDATE SET until = excluded.until;
        END IF;
        IF t.created_at IS NOT NULL THEN -- Nothing was due on one that was just made.
            PERFORM hold_v3(w[1], t.no, w[7], v_now, i[7], i[5], false);
        END IF;
        t.last_commit := concat_ws(' ', w[4], coalesce(v_before, '-'), t.version, t.head, t.epoch);
        t.epoch := t.epoch + 1;
    ELSE
        t.last_commit := w[4] || coalesce(substr(t.last_commit, length(v_before) + 1), '');
    END IF;
    INSERT INTO runs (tenant, id, thread, agent, status, step, acting, payload, root, priority)
        VALUES (w[1], w[6], t.no, w[7], w[8], i[5], i[6], p[1], w[10], i[7]) RETURNING no INTO v_run;
    FOR n IN 1 .. i[8] LOOP
        INSERT INTO log (thread, seq, kind, run, agent, at, ref, payload, size, more)
            VALUES (t.no, t.head + i[b + 1], w[a + 1], v_run, w[a + 2], i[b + 2], t.head + i[b + 3], p[c + 1],
                i[b + 4], p[c + 2]);
        a := a + 2; b := b + 4; c := c + 2;
    END LOOP;
    UPDATE threads SET version = t.version + 1, head = t.head + i[3], epoch = t.epoch, claim = w[3], wakes = w[5],
        open_run = v_run, last_run = v_run, updated_at = v_now, last_commit = t.last_commit WHERE no = t.no;
    RETURN ARRAY[t.version + 1, t.head + i[3], t.epoch, t.inbox_head];
END
$wakeful$
"""

BEGIN_ROUTINES = (_PUT, BEGIN)

# Begins a run on a thread that isn't there yet. Gives the thread's version, head, epoch and inbox head. If it is
# there after all, or the run or the request is, nothing is given and nothing was written.
_OPEN = """
WITH t AS (
    INSERT INTO threads (tenant, id, version, head, epoch, claim, wakes, open_run, last_run, last_commit,
        created_at, updated_at)
    SELECT $1, $2, 1, $7, 1, $3, $6, x.run, x.run, $5 || ' - 0 0 0', x.now, x.now
    FROM (SELECT nextval('runs_no_seq') AS run, (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) AS x
    WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.tenant = $1 AND r.id = $8)
        AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.tenant = $1 AND i.id = $15)
    ON CONFLICT (tenant, id) DO NOTHING
    RETURNING no, open_run, version, head, epoch, inbox_head, created_at AS now
), put_run AS (
    INSERT INTO runs (no, tenant, id, thread, agent, status, step, acting, payload, root, priority)
    OVERRIDING SYSTEM VALUE SELECT t.open_run, $1, $8, t.no, $9, 'running', $10, $11, $14, $13, $12 FROM t
), put_log AS (
    INSERT INTO log (thread, seq, kind, run, agent, at, ref, payload, size, more)
    SELECT t.no, x.n, x.kind, t.open_run, x.agent, x.at, x.ref, x.payload, x.size, x.more
    FROM t CROSS JOIN (VALUES {rows}) AS x(n, kind, agent, at, ref, payload, size, more)
), put_request AS (
    INSERT INTO inbox (tenant, id, thread, kind, wake, position, status, taken_by)
    SELECT $1, $15, t.no, 'request', '', 0, 'taken', $8 FROM t WHERE $15 IS NOT NULL
), lease AS (
    INSERT INTO workers (id, until, started_at) SELECT $3, t.now + $4, t.now FROM t
    WHERE NOT EXISTS (SELECT 1 FROM workers WHERE id = $3 AND until >= t.now + $4 - $4 / 2)
    ON CONFLICT (id) DO UPDATE SET until = excluded.until
)
SELECT version, head, epoch, inbox_head FROM t
"""

# Ends the open run and gives the thread back, if nothing waits in its inbox: neither what was there, nor what
# comes while the row is waited for, which moves the inbox's head. Gives the same. If something isn't as it was
# thought to be, or the commit is in already, nothing is given and nothing was written.
_END = f"""
WITH t AS (
    UPDATE threads SET version = version + 1, head = head + $7, claim = NULL, wakes = '{IDLE_WAKES}',
        open_run = NULL, updated_at = (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
        last_commit = $5 || substr(last_commit, strpos(last_commit || ' ', ' '))
    WHERE tenant = $1 AND id = $2 AND claim = $3 AND epoch = $4 AND version = coalesce($6, version)
        AND inbox_head = $15 AND strpos(last_commit, $5) = 0
        AND open_run = last_run AND open_run = (SELECT r.no FROM runs r WHERE r.tenant = $1 AND r.id = $8)
        AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.thread = threads.no AND i.status = 'pending')
    RETURNING no, last_run, version, head, epoch, inbox_head, head - $7 AS base
), put_run AS (
    UPDATE runs SET agent = $9, status = 'done', step = $10, acting = $11, finished_at = $12, payload = $14,
        answer = coalesce(t.base + $13, answer)
    FROM t WHERE runs.no = t.last_run
), put_log AS (
    INSERT INTO log (thread, seq, kind, run, agent, at, ref, payload, size, more)
    SELECT t.no, t.base + x.n, x.kind, t.last_run, x.agent, x.at, t.base + x.ref, x.payload, x.size, x.more
    FROM t CROSS JOIN (VALUES {{rows}}) AS x(n, kind, agent, at, ref, payload, size, more)
), drop_chunks AS (
    DELETE FROM chunks USING t WHERE chunks.thread = t.no
), settle AS (
    DELETE FROM dispatches USING t WHERE dispatches.thread = t.no
)
SELECT version, head, epoch, inbox_head FROM t
"""


_ROW = ("bigint", "text", "text", "bigint", "bigint", "bytea", "bigint", "bytea")
_FIRST_ROW = 16
# Each number of rows is a statement of its own, which a connection has to learn. What is more goes the long way.
_MAX_ROWS = 4


@cache
def _statement(text: str, rows: int) -> str:
    """The statement for so many rows of the log."""
    numbers = iter(range(_FIRST_ROW, _FIRST_ROW + rows * len(_ROW)))
    written = [", ".join([f"${next(numbers)}::{kind}" for kind in _ROW]) for _ in range(rows)]
    return text.format(rows=", ".join([f"({row})" for row in written]))


def delivery_of(plan: Plan) -> list[Any] | None:
    """What `put` is told of a commit, if that only puts input into its own thread's inbox."""
    commit, told = plan.commit, plan.told
    if len(commit.inbox) != 1 or told.changes or told.claim is not None or told.release or told.fence is not None:
        return None
    if told.inbox_head is not None or told.relays or told.pending or told.seen or commit.about is not None:
        return None
    item, row = commit.inbox[0], told.inbox[0]
    if item.kind != "input" or item.thread_id != commit.thread_id or row.get("parent") or "blobs" in row:
        return None
    words = (told.tenant, item.thread_id, item.id, item.kind, item.wake, item.agent_id, item.run_id)
    given: list[Any] = [None if word is None else escaped(word) for word in words]
    return [*given, item.priority, item.at, *plan.payloads]


def beginning_of(plan: Plan) -> tuple[list[str | None], list[int | None], list[bytes | None]] | None:
    """What `begin` is told of a commit, if that only begins a run with an item or a request: words, integers and
    payloads."""
    commit, told = plan.commit, plan.told
    asked = told.request if not commit.taken else commit.taken[0]
    if asked is None or len(told.runs) != 1 or list(commit.seen) != list(commit.taken) or len(commit.seen) > 1:
        return None
    run, (epoch, owner) = told.runs[0], told.fence or (None, told.claim)
    rare = told.tickets or told.decisions or told.tasks or told.chunks or told.blobs or told.state
    more = told.inbox or told.relays or told.pending or told.calls or commit.about is not None
    if rare or more or told.release or told.answered or owner is None:
        return None
    if run.status != "running" or run.answer is not None or told.names != [run.id] or told.parent is not None:
        return None
    if told.request is not None and (commit.taken or epoch is not None):
        return None
    payloads: list[bytes | None] = [None, *plan.payloads]
    words = [told.tenant, told.thread, owner, told.id, run.wakes, run.id, run.agent, run.status, asked, run.root]
    integers = [told.version, told.lease, told.entries, commit.seen.get(asked), run.step, run.acting, run.priority]
    integers += [len(told.log), epoch, told.inbox_head]
    bodies = [payloads[run.i]]
    for entry in told.log:
        words += (entry.kind, entry.agent)
        integers += (entry.n, entry.at, entry.ref, entry.size)
        bodies += (payloads[entry.i], payloads[entry.more or 0])
    return [None if word is None else escaped(word) for word in words], integers, bodies


def opening_of(plan: Plan) -> tuple[str, list[Any]] | None:
    """The statement that writes a commit, and what it is told, if that only begins a run on a new thread."""
    told = plan.told
    if told.claim is None or told.version != 0 or told.inbox_head or not _runs_only(plan, "running"):
        return None
    (run,) = told.runs
    if told.answered or run.answer is not None or told.parent is not None:
        return None
    own = (escaped(told.tenant), escaped(told.thread), told.claim, told.lease, told.id, run.wakes, told.entries)
    root, request = [None if word is None else escaped(word) for word in (run.root, told.request)]
    begun = (escaped(run.id), escaped(run.agent), run.step, run.acting, run.priority, root)
    return _told(_OPEN, plan, [*own, *begun], request)


def ending_of(plan: Plan) -> tuple[str, list[Any]] | None:
    """The same, if it only ends a run and gives its thread back."""
    told = plan.told
    if told.fence is None or not told.release or told.inbox_head is None or not _runs_only(plan, "done"):
        return None
    if told.request is not None or told.failed is not None:
        return None
    (run,), (epoch, owner) = told.runs, told.fence
    own = (escaped(told.tenant), escaped(told.thread), owner, epoch, told.id, told.version, told.entries)
    ended = (escaped(run.id), escaped(run.agent), run.step, run.acting, run.finished_at, run.answer)
    return _told(_END, plan, [*own, *ended], told.inbox_head)


def _runs_only(plan: Plan, status: str) -> bool:
    """Whether a commit has one run of that status and its log, and nothing else."""
    told = plan.told
    more = told.rare or told.calls or told.state or told.blobs or told.inbox or told.relays or told.pending
    if more or told.seen or plan.commit.about is not None or told.invalid:
        return False
    own = len(told.runs) == 1 and told.runs[0].status == status and told.names == [told.runs[0].id]
    return own and 0 < len(told.log) <= _MAX_ROWS


def _told(text: str, plan: Plan, words: list[Any], last: Any) -> tuple[str, list[Any]]:
    """The statement and what it is told: words, the run's payload, the last word, and the rows of the log."""
    payloads: list[bytes | None] = [None, *plan.payloads]
    rows = [
        (e.n, escaped(e.kind), escaped(e.agent), e.at, e.ref, payloads[e.i], e.size, payloads[e.more or 0])
        for e in plan.told.log
    ]
    args = [*words, payloads[plan.told.runs[0].i], last, *chain(*rows)]
    return _statement(text, len(rows)), args
