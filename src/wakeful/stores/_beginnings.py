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

__all__ = ["BEGIN", "BEGIN_ROUTINES", "beginning_of", "delivery_of", "ending_of"]

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

# What earlier clients have to begin a run on a thread without one: under its owner's fence or, if `i[9]` is null,
# with a claim. It takes in an item or, if `i[4]` is null, what a request brought. `w` has words, `i` integers, `p`
# payloads: the run's, then those of each row of the log.
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

# Each of these gives the thread's version, head, epoch and inbox head. If something isn't as it was thought to be,
# or the commit is in already, nothing is given and nothing was written.

# Begins a run on a thread that isn't there yet.
_OPEN = """
WITH t AS (
    INSERT INTO threads (tenant, id, version, head, epoch, claim, wakes, open_run, last_run, last_commit,
        created_at, updated_at)
    SELECT $1, $2, 1, $6, 1, $3, $5, x.run, x.run, $4 || ' - 0 0 0', x.now, x.now
    FROM (SELECT nextval('runs_no_seq') AS run, (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) AS x
    WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.tenant = $1 AND r.id = $7)
        AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.tenant = $1 AND i.id = $14)
    ON CONFLICT (tenant, id) DO NOTHING
    RETURNING no, open_run, version, head, epoch, inbox_head, updated_at, 0 AS base
), {put_run}, {put_log}, {put_request}, {lease}
SELECT version, head, epoch, inbox_head FROM t
"""

# Begins a run on a thread without one: with a claim or, if there is an epoch, under its owner's fence. What it
# takes in may be an item: whoever changes that meanwhile moves the inbox's head.
_BEGIN = """
WITH t AS (
    UPDATE threads SET version = version + 1, head = head + $6, claim = $3, wakes = $5, open_run = x.run,
        last_run = x.run, updated_at = x.now, epoch = epoch + CASE WHEN $15::bigint IS NULL THEN 1 ELSE 0 END,
        last_commit = CASE WHEN $15::bigint IS NULL
            THEN concat_ws(' ', $4, coalesce(split_part(last_commit, ' ', 1), '-'), version, head, epoch)
            ELSE $4 || coalesce(substr(last_commit, strpos(last_commit || ' ', ' ')), '') END
    FROM (SELECT nextval('runs_no_seq') AS run, (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) AS x
    WHERE tenant = $1 AND id = $2 AND open_run IS NULL
        AND CASE WHEN $15::bigint IS NULL THEN claim IS NULL ELSE claim = $3 AND epoch = $15 END
        AND version = coalesce($16, version) AND inbox_head = coalesce($17, inbox_head)
        AND coalesce(strpos(last_commit, $4), 0) = 0
        AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.tenant = $1 AND r.id = $7)
        AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.tenant = $1 AND i.id = $14)
        AND ($18::text IS NULL OR EXISTS (SELECT 1 FROM inbox i WHERE i.tenant = $1 AND i.id = $18
            AND i.thread = threads.no AND i.status = 'pending' AND i.revision = $19))
    RETURNING no, open_run, version, head, epoch, inbox_head, updated_at, head - $6 AS base
), {put_run}, {put_log}, {put_request}, {lease}, take AS (
    UPDATE inbox SET status = 'taken', taken_by = $7 FROM t WHERE inbox.tenant = $1 AND inbox.id = $18
), hold AS (
    UPDATE dispatches SET held = 1, dead_at = NULL, error = NULL, due_at = t.updated_at, mark = $9, agent = $8
    FROM t WHERE dispatches.thread = t.no AND $15::bigint IS NULL
)
SELECT version, head, epoch, inbox_head FROM t
"""

# Ends the open run and gives the thread back, if nothing waits in its inbox: neither what was there, nor what
# comes while the row is waited for, which moves the inbox's head.
_END = f"""
WITH t AS (
    UPDATE threads SET version = version + 1, head = head + $6, claim = NULL, wakes = '{IDLE_WAKES}',
        open_run = NULL, updated_at = (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
        last_commit = $4 || substr(last_commit, strpos(last_commit || ' ', ' '))
    WHERE tenant = $1 AND id = $2 AND claim = $3 AND epoch = $5 AND version = coalesce($14, version)
        AND inbox_head = $15 AND strpos(last_commit, $4) = 0
        AND open_run = last_run AND open_run = (SELECT r.no FROM runs r WHERE r.tenant = $1 AND r.id = $7)
        AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.thread = threads.no AND i.status = 'pending')
    RETURNING no, last_run AS open_run, version, head, epoch, inbox_head, head - $6 AS base
), put_run AS (
    UPDATE runs SET agent = $8, status = 'done', step = $9, acting = $10, finished_at = $11, payload = $13,
        answer = coalesce(t.base + $12, answer)
    FROM t WHERE runs.no = t.open_run
), {{put_log}}, drop_chunks AS (
    DELETE FROM chunks USING t WHERE chunks.thread = t.no
), settle AS (
    DELETE FROM dispatches USING t WHERE dispatches.thread = t.no
)
SELECT version, head, epoch, inbox_head FROM t
"""

_PARTS = {
    "put_run": """put_run AS (
    INSERT INTO runs (no, tenant, id, thread, agent, status, step, acting, payload, root, priority)
    OVERRIDING SYSTEM VALUE SELECT t.open_run, $1, $7, t.no, $8, 'running', $9, $10, $13, $12, $11 FROM t
)""",
    "put_request": """put_request AS (
    INSERT INTO inbox (tenant, id, thread, kind, wake, position, status, taken_by)
    SELECT $1, $14, t.no, 'request', '', 0, 'taken', $7 FROM t WHERE $14::text IS NOT NULL
)""",
    "lease": """lease AS (
    INSERT INTO workers (id, until, started_at) SELECT $3, t.updated_at + {lease}, t.updated_at FROM t
    WHERE {lease} IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM workers WHERE id = $3 AND until >= t.updated_at + {lease} - {lease} / 2)
    ON CONFLICT (id) DO UPDATE SET until = excluded.until
)""",
    "put_log": """put_log AS (
    INSERT INTO log (thread, seq, kind, run, agent, at, ref, payload, size, more)
    SELECT t.no, t.base + x.n, x.kind, t.open_run, x.agent, x.at, t.base + x.ref, x.payload, x.size, x.more
    FROM t CROSS JOIN (VALUES {rows}) AS x(n, kind, agent, at, ref, payload, size, more)
)""",
}
_ROW = ("bigint", "text", "text", "bigint", "bigint", "bytea", "bigint", "bytea")
# Each number of rows is a statement of its own, which a connection has to learn. What is more goes the long way.
_MAX_ROWS = 4


@cache
def _statement(text: str, words: int, rows: int) -> str:
    """The statement that is told so many words and rows of the log. The last word is the lease, where there is
    one."""
    numbers = iter(range(words + 1, words + 1 + rows * len(_ROW)))
    written = [", ".join([f"${next(numbers)}::{kind}" for kind in _ROW]) for _ in range(rows)]
    given = {"rows": ", ".join([f"({row})" for row in written]), "lease": f"${words}::bigint"}
    return text.format(**{name: part.format(**given) for name, part in _PARTS.items()})


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
    return [*map(_spelled, words), item.priority, item.at, *plan.payloads]


def beginning_of(plan: Plan) -> tuple[str, list[Any]] | None:
    """The statement that writes a commit, and what it is told, if that only begins a run: on a new thread or one
    without a run, with an item, a request or neither."""
    commit, told = plan.commit, plan.told
    (epoch, owner), items = told.fence or (None, told.claim), list(commit.taken)
    if owner is None or told.release or told.answered or told.parent is not None or not _has_only(plan, "running"):
        return None
    if items != list(commit.seen) or len(items) > 1 or (items and told.inbox_head is None):
        return None
    if told.request is not None and (items or epoch is not None):
        return None
    if (epoch is None and told.version is None) or told.runs[0].answer is not None:
        return None
    (run,) = told.runs
    begun = [run.priority, _spelled(run.root), plan.payloads[run.i - 1], _spelled(told.request)]
    words = [*_words(plan, owner, run.wakes), *begun]
    if epoch is None and told.version == 0 and not items and not told.inbox_head:
        return _told(_OPEN, [*words, told.lease], plan)
    item, revision = next(iter(commit.seen.items()), (None, None))
    held = [epoch, told.version, told.inbox_head, _spelled(item), revision]
    return _told(_BEGIN, [*words, *held, told.lease], plan)


def ending_of(plan: Plan) -> tuple[str, list[Any]] | None:
    """The same, if it only ends a run and gives its thread back."""
    told = plan.told
    if told.fence is None or not told.release or told.inbox_head is None or not _has_only(plan, "done"):
        return None
    if told.request is not None or told.failed is not None or told.taken or told.seen:
        return None
    (run,), (epoch, owner) = told.runs, told.fence
    ended = [run.finished_at, run.answer, plan.payloads[run.i - 1]]
    return _told(_END, [*_words(plan, owner, epoch), *ended, told.version, told.inbox_head], plan)


def _has_only(plan: Plan, status: str) -> bool:
    """Whether a commit has one run of that status and its log, and nothing else but what it takes in."""
    told = plan.told
    rare = told.tickets or told.decisions or told.tasks or told.chunks or told.blobs or told.state or told.calls
    if rare or told.inbox or told.relays or told.pending or plan.commit.about is not None or told.invalid:
        return False
    own = len(told.runs) == 1 and told.runs[0].status == status and told.names == [told.runs[0].id]
    return own and 0 < len(told.log) <= _MAX_ROWS


def _words(plan: Plan, owner: str, fifth: Any) -> list[Any]:
    """What all of them are told first."""
    told, run = plan.told, plan.told.runs[0]
    thread = [escaped(told.tenant), escaped(told.thread), escaped(owner), told.id, fifth, told.entries]
    return [*thread, escaped(run.id), escaped(run.agent), run.step, run.acting]


def _spelled(word: str | None) -> str | None:
    return None if word is None else escaped(word)


def _told(text: str, words: list[Any], plan: Plan) -> tuple[str, list[Any]]:
    payloads: list[bytes | None] = [None, *plan.payloads]
    rows = [
        (e.n, escaped(e.kind), escaped(e.agent), e.at, e.ref, payloads[e.i], e.size, payloads[e.more or 0])
        for e in plan.told.log
    ]
    return _statement(text, len(words), len(rows)), [*words, *chain(*rows)]
