"""Postgres's own side of a commit: functions that take a batch of commits and give a verdict on each.

They do what `_apply` does for SQLite. A commit comes as JSON that says where in the array of payloads its bytes
are; what depends on the thread's head comes as a distance from it. Functions are named for the version that made
them, so that a client of that version still finds its own beside a newer one's, unless it couldn't read what that
gives it.
"""

from __future__ import annotations

from ..types.runs import PRIORITY
from ._claim_routines import CLAIM_ROUTINES, CLAIM_ROWS, DISPATCH_ROUTINES, UNMADE_ROUTINES
from ._pending import PENDING_ROUTINES
from ._plain_routines import PLAIN_ROUTINES
from ._rare_routines import RARE_ROUTINES
from ._relay_routines import RELAY_ROUTINES
from ._rules import IDLE_WAKES, MAX_PENDING, RESERVE

__all__ = ["ROUTINES_3", "ROUTINES_4", "ROUTINES_6", "ROUTINES_7"]

# Row locks serialise writers of threads that are there. One that isn't is locked by its name, and all names are
# locked before any row, so that two batches never wait for each other.
_LOCK_NAME = """
CREATE FUNCTION lock_name_v3(v_tenant text, v_id text) RETURNS void LANGUAGE sql AS $wakeful$
    SELECT pg_advisory_xact_lock(hashtextextended(concat_ws(E'\\n', current_schema(), v_tenant, v_id), 0))
$wakeful$
"""

# What a commit delivers, other threads' inboxes included. The recipients' rows are locked.
_DELIVER = f"""
CREATE OR REPLACE FUNCTION deliver_v3(c jsonb, p bytea[], v_first int, v_now bigint) RETURNS jsonb
LANGUAGE plpgsql AS $wakeful$
DECLARE
    v_tenant text := c->>'tenant';
    v_positions jsonb := '[]';
    v_place bigint;
    v_agent text;
    v_priority bigint;
    t threads%ROWTYPE;
    e record;
BEGIN
    FOR e IN
        SELECT * FROM jsonb_to_recordset(c->'inbox')
        AS x(id text, thread text, parent text, kind text, wake text, agent text, run text, i int, blobs jsonb,
            priority bigint, at bigint)
    LOOP
        SELECT i.position INTO v_place FROM inbox i WHERE i.tenant = v_tenant AND i.id = e.id;
        IF FOUND THEN
            v_positions := v_positions || jsonb_build_array(v_place);
            CONTINUE;
        END IF;
        SELECT * INTO t FROM threads WHERE tenant = v_tenant AND id = e.thread FOR UPDATE;
        IF NOT FOUND AND e.kind = 'task' THEN -- Its owner is gone: nobody is told.
            v_positions := v_positions || '[null]';
            CONTINUE;
        ELSIF NOT FOUND THEN
            INSERT INTO threads (tenant, id, parent, created_at, updated_at)
                VALUES (v_tenant, e.thread, e.parent, v_now, v_now) RETURNING * INTO t;
        END IF;
        IF (SELECT count(*) FROM inbox WHERE thread = t.no AND status = 'pending')
            >= (CASE e.kind WHEN 'input' THEN {MAX_PENDING} ELSE {MAX_PENDING + RESERVE} END)
        THEN
            RAISE EXCEPTION USING ERRCODE = 'WK001', MESSAGE = jsonb_build_array('inbox_full', e.thread)::text;
        END IF;
        INSERT INTO inbox (tenant, id, thread, kind, wake, position, run, status, priority, at, agent, payload)
            VALUES (v_tenant, e.id, t.no, e.kind, e.wake, t.inbox_head + 1, e.run, 'pending', e.priority, e.at,
                e.agent, p[v_first + e.i])
            ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN -- It went to another thread in the meantime.
            v_positions := v_positions || '[null]';
            CONTINUE;
        END IF;
        v_positions := v_positions || jsonb_build_array(t.inbox_head + 1);
        UPDATE threads SET inbox_head = inbox_head + 1 WHERE no = t.no;
        IF e.blobs IS NOT NULL THEN
            PERFORM put_blobs_v3(e.blobs, p, v_first, t.no);
        END IF;
        IF t.claim IS NULL AND e.wake = ANY (string_to_array(t.wakes, ' ')) THEN
            SELECT r.agent, r.priority INTO v_agent, v_priority FROM runs r WHERE r.no = t.open_run;
            PERFORM dispatch_v3(v_tenant, t.no, coalesce(v_agent, e.agent, ''), greatest(v_now, e.at),
                coalesce(v_priority, e.priority), true);
        ELSIF t.claim IS NULL AND e.kind = 'cancel' THEN -- There is nothing to run that could go wrong again.
            UPDATE dispatches SET dead_at = NULL, error = NULL, attempts = 0, held = 0, due_at = v_now
                WHERE thread = t.no AND dead_at IS NOT NULL;
        END IF;
    END LOOP;
    RETURN v_positions;
END
$wakeful$
"""

# The thread as it is after the commit's own writes.
_APPEND = f"""
CREATE FUNCTION append_v3(c jsonb, p bytea[], v_first int, t threads, v_now bigint) RETURNS threads
LANGUAGE plpgsql AS $wakeful$
DECLARE
    v_tenant text := c->>'tenant';
    v_base bigint := t.head;
    v_numbers bigint[];
    v_no bigint;
    v_status text;
    r jsonb;
BEGIN
    IF c ? 'request' THEN -- First, because another thread's may have been faster.
        INSERT INTO inbox (tenant, id, thread, kind, wake, position, status, taken_by)
            VALUES (v_tenant, c->>'request', t.no, 'request', '', 0, 'taken', c->>'run') ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'WK001', MESSAGE = '["repeated", null]';
        END IF;
    END IF;
    t.version := t.version + 1;
    FOR n IN 0 .. coalesce(jsonb_array_length(c->'runs'), 0) - 1 LOOP -- Cheaper than a query over so few.
        r := c->'runs'->n;
        v_status := r->>'status';
        UPDATE runs SET agent = r->>'agent', status = v_status, step = (r->>'step')::bigint,
            acting = (r->>'acting')::bigint, answer = coalesce(v_base + (r->>'answer')::int, answer),
            finished_at = (r->>'finished_at')::bigint, payload = p[v_first + (r->>'i')::int]
            WHERE tenant = v_tenant AND id = r->>'id' RETURNING no INTO v_no;
        IF NOT FOUND THEN
            INSERT INTO runs
                (tenant, id, thread, agent, status, step, acting, answer, finished_at, payload, root, priority)
                VALUES (v_tenant, r->>'id', t.no, r->>'agent', v_status, (r->>'step')::bigint,
                    (r->>'acting')::bigint, v_base + (r->>'answer')::int, (r->>'finished_at')::bigint,
                    p[v_first + (r->>'i')::int], r->>'root', coalesce((r->>'priority')::bigint, {PRIORITY}))
                RETURNING no INTO v_no;
            t.last_run := v_no;
        END IF;
        v_numbers[(r->>'name')::int] := v_no;
        IF v_status <> 'done' THEN
            t.open_run := v_no;
            t.wakes := r->>'wakes';
        ELSIF t.open_run = v_no THEN
            t.open_run := NULL;
            t.wakes := '{IDLE_WAKES}';
            DELETE FROM chunks WHERE thread = t.no;
        END IF;
    END LOOP;
    FOR n IN 1 .. coalesce(jsonb_array_length(c->'names'), 0) LOOP
        IF v_numbers[n] IS NULL THEN
            SELECT no INTO v_no FROM runs WHERE tenant = v_tenant AND id = c->'names'->>(n - 1);
            v_numbers[n] := coalesce(v_no, 0);
        END IF;
    END LOOP;
    IF c ? 'log' THEN
        INSERT INTO log (thread, seq, kind, run, agent, at, ref, payload, size, more)
            SELECT t.no, v_base + x.n, x.kind, v_numbers[x.run], x.agent, x.at, v_base + x.ref, p[v_first + x.i],
                coalesce(x.size, 1), p[v_first + x.more]
            FROM jsonb_to_recordset(c->'log')
                AS x(n int, i int, kind text, run int, agent text, at bigint, ref int, size int, more int);
        t.head := v_base + (c->>'entries')::int;
        IF c ? 'answered' THEN
            DELETE FROM chunks WHERE thread = t.no;
        END IF;
    END IF;
    IF c ? 'calls' THEN
        INSERT INTO calls (run, step, place, id, name, ref, arguments, payload)
            SELECT v_numbers[x.run], x.step, x.place, x.id, x.name, v_base + x.ref, p[v_first + x.arguments],
                p[v_first + x.i]
            FROM jsonb_to_recordset(c->'calls')
                AS x(run int, step bigint, place bigint, id text, name text, ref int, arguments int, i int)
            ON CONFLICT (run, step, place) DO UPDATE SET payload = excluded.payload;
    END IF;
    IF c ? 'rare' THEN
        PERFORM put_rare_v3(c, p, v_first, t.no, v_numbers, v_now);
    END IF;
    FOR n IN 0 .. coalesce(jsonb_array_length(c->'state'), 0) - 1 LOOP
        r := c->'state'->n;
        v_no := coalesce(v_numbers[(r->>'run')::int], 0);
        INSERT INTO state (thread, run, name, seq, payload)
            VALUES (t.no, v_no, r->>'name', t.head, p[v_first + (r->>'i')::int])
            ON CONFLICT (thread, run, name) DO UPDATE SET seq = excluded.seq, payload = excluded.payload;
        IF v_no = 0 THEN
            INSERT INTO state_log (thread, name, seq, at, payload)
                VALUES (t.no, r->>'name', t.head, v_now, p[v_first + (r->>'i')::int])
                ON CONFLICT (thread, name, seq) DO UPDATE SET payload = excluded.payload;
        END IF;
    END LOOP;
    RETURN t;
END
$wakeful$
"""

_COMMIT_ONE = f"""
CREATE OR REPLACE FUNCTION commit_one_v3(c jsonb, p bytea[], v_first int) RETURNS jsonb
LANGUAGE plpgsql AS $wakeful$
DECLARE
    v_tenant text := c->>'tenant';
    v_id text := c->>'thread';
    v_worker text := c->>'claim';
    v_touches boolean := c ? 'changes' OR c ? 'release' OR c ? 'claim';
    v_positions jsonb := '[]';
    v_lease bigint;
    v_now bigint;
    v_text text;
    v_moved jsonb;
    v_lost boolean;
    v_last text[]; -- the last commit; the last one before the thread changed hands, with what came of it
    t threads%ROWTYPE;
BEGIN
    SELECT * INTO t FROM threads WHERE tenant = v_tenant AND id = v_id FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM lock_name_v3(v_tenant, v_id);
        SELECT * INTO t FROM threads WHERE tenant = v_tenant AND id = v_id FOR UPDATE;
    END IF;
    v_now := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    IF t.no IS NULL THEN
        t.version := 0; t.head := 0; t.epoch := 0; t.inbox_head := 0; t.wakes := '{IDLE_WAKES}';
    ELSE
        -- It may be in, and its writer's connection broke before it heard. The thread may have a new owner by now.
        v_last := string_to_array(t.last_commit, ' ');
        IF v_last[1] = c->>'id' THEN
            RETURN jsonb_build_array('ok', t.version, t.head, t.epoch, t.inbox_head, v_positions);
        ELSIF v_last[2] = c->>'id' THEN
            RETURN jsonb_build_array('ok', v_last[3]::bigint, v_last[4]::bigint, v_last[5]::bigint, t.inbox_head,
                v_positions);
        END IF;
    END IF;

    IF c ? 'fence' THEN
        IF t.claim IS DISTINCT FROM c->'fence'->>1 OR t.epoch <> (c->'fence'->>0)::bigint THEN
            RETURN jsonb_build_array('stale_fence', t.epoch);
        ELSIF t.version <> (c->>'version')::bigint THEN -- What its owner wrote last wasn't synced.
            RETURN '["lost"]';
        END IF;
    ELSIF v_touches THEN
        IF t.claim IS NOT NULL AND (
            v_worker IS NULL OR EXISTS (SELECT 1 FROM workers w WHERE w.id = t.claim AND w.until > v_now)
        ) THEN
            RETURN '["owned"]';
        ELSIF t.version IS DISTINCT FROM (c->>'version')::bigint THEN
            RETURN jsonb_build_array('conflict', t.version);
        END IF;
    END IF;
    IF t.inbox_head <> (c->>'inbox_head')::bigint THEN
        RETURN '["inbox_moved"]';
    END IF;
    IF c ? 'idle' AND (t.claim IS NOT NULL OR t.open_run IS NOT NULL OR EXISTS (
        SELECT 1 FROM inbox i JOIN jsonb_array_elements(c->'inbox') e ON i.tenant = v_tenant AND i.id = e->>'id'
    )) THEN
        RETURN '["not_idle"]';
    END IF;
    IF c ? 'request' THEN
        SELECT taken_by INTO v_text FROM inbox WHERE tenant = v_tenant AND id = c->>'request';
        IF FOUND THEN
            RETURN jsonb_build_array('repeated', v_text);
        END IF;
    END IF;
    IF c ? 'invalid' THEN
        RETURN '["invalid"]';
    END IF;
    IF c ? 'relays' THEN
        v_moved := moved_relay_v3(c, p, v_first);
        IF v_moved IS NOT NULL THEN
            RETURN v_moved;
        END IF;
    END IF;
    IF c ? 'pending' OR c ? 'seen' THEN
        v_moved := moved_pending_v3(c, p, v_first, t.no);
        IF v_moved IS NOT NULL THEN
            RETURN v_moved;
        END IF;
    END IF;

    IF c ? 'claim' OR t.claim IS NULL THEN
        v_last := ARRAY[c->>'id', coalesce(v_last[1], '-'), t.version::text, t.head::text, t.epoch::text];
    ELSE
        v_last[1] := c->>'id';
    END IF;
    IF t.no IS NULL THEN
        IF c ? 'creates' THEN
            INSERT INTO threads (tenant, id, parent, created_at, updated_at)
                VALUES (v_tenant, v_id, c->>'parent', v_now, v_now) RETURNING no INTO t.no;
        ELSE -- It only delivers to others.
            t.no := 0;
        END IF;
    END IF;
    IF v_worker IS NOT NULL THEN
        v_lost := t.claim IS NOT NULL;
        t.claim := v_worker;
        t.epoch := t.epoch + 1;
        v_lease := (c->>'lease')::bigint;
        IF NOT EXISTS (SELECT 1 FROM workers WHERE id = v_worker AND until >= v_now + v_lease - v_lease / 2) THEN
            INSERT INTO workers (id, until, started_at) VALUES (v_worker, v_now + v_lease, v_now)
                ON CONFLICT (id) DO UPDATE SET until = excluded.until;
        END IF;
        IF t.created_at IS NOT NULL THEN -- Nothing was due on one that was just made.
            PERFORM hold_v3(v_tenant, t.no, coalesce(c->>'agent', ''), v_now,
                coalesce((c->'runs'->-1->>'priority')::bigint, {PRIORITY}),
                coalesce((c->'runs'->-1->>'step')::bigint, 0), v_lost);
        END IF;
    END IF;
    IF c ? 'changes' THEN
        t := append_v3(c, p, v_first, t, v_now);
    END IF;
    IF c ? 'release' THEN
        t.claim := NULL;
    END IF;
    IF v_touches THEN
        UPDATE threads SET version = t.version, head = t.head, epoch = t.epoch, claim = t.claim, wakes = t.wakes,
            open_run = t.open_run, last_run = t.last_run, updated_at = v_now,
            last_commit = array_to_string(v_last, ' ')
            WHERE no = t.no;
    END IF;
    IF c ? 'title' THEN
        UPDATE threads SET title = nullif(c->>'title', '') WHERE no = t.no;
    END IF;
    IF c ? 'metadata' THEN
        UPDATE threads SET metadata = p[v_first + (c->>'metadata')::int] WHERE no = t.no;
    END IF;
    IF c ? 'relays' THEN
        PERFORM put_relays_v3(c, p, v_first);
    END IF;
    IF c ? 'inbox' THEN
        v_positions := deliver_v3(c, p, v_first, v_now);
        SELECT coalesce(max(inbox_head), 0) INTO t.inbox_head FROM threads WHERE no = t.no;
    END IF;
    IF c ? 'pending' THEN
        PERFORM put_pending_v3(c, p, v_first, t.no);
        t.inbox_head := t.inbox_head + 1;
    END IF;
    IF (c ? 'changes' OR c ? 'release' OR c ? 'pending') AND t.claim IS NULL AND t.no > 0 THEN
        PERFORM settle_v3(c, t, v_now);
    END IF;
    IF c ? 'blobs' THEN
        PERFORM put_blobs_v3(c->'blobs', p, v_first, t.no);
    END IF;
    RETURN jsonb_build_array('ok', t.version, t.head, t.epoch, t.inbox_head, v_positions);
END
$wakeful$
"""

# `tenants` and `ids` name the threads that a batch of more than one writes to, in order. They are looked up one by
# one: a join that was planned while there were few threads would read all of them. `firsts` says behind which of
# the payloads each commit's begin. A commit that may be refused after its first write has a savepoint of its own.
_COMMIT = """
CREATE OR REPLACE FUNCTION commit_v3(commits jsonb, p bytea[], firsts int[], tenants text[], ids text[])
RETURNS jsonb LANGUAGE plpgsql AS $wakeful$
DECLARE
    c jsonb;
    v_verdict jsonb;
    v_verdicts jsonb := '[]';
    v_plain jsonb := '{}';
BEGIN
    -- Planning takes longer than all of it, and every plan goes by the same indexes.
    PERFORM set_config('plan_cache_mode', 'force_generic_plan', true);
    IF cardinality(ids) > 0 THEN
        FOR n IN 1 .. cardinality(ids) LOOP
            PERFORM 1 FROM threads WHERE tenant = tenants[n] AND id = ids[n];
            IF NOT FOUND THEN
                PERFORM lock_name_v3(tenants[n], ids[n]);
            END IF;
        END LOOP;
        FOR n IN 1 .. cardinality(ids) LOOP
            PERFORM 1 FROM threads WHERE tenant = tenants[n] AND id = ids[n] FOR UPDATE;
        END LOOP;
        IF commits @? '$[*].plain' THEN -- Looking takes long, even if there is none.
            v_plain := commit_plain_v3(commits, p, firsts);
        END IF;
    END IF;
    FOR n IN 1 .. jsonb_array_length(commits) LOOP
        c := commits->(n - 1);
        IF v_plain ? n::text THEN
            v_verdict := v_plain->n::text;
        ELSIF c ? 'inbox' OR c ? 'request' THEN
            BEGIN
                v_verdict := commit_one_v3(c, p, firsts[n]);
            EXCEPTION WHEN SQLSTATE 'WK001' THEN
                v_verdict := SQLERRM::jsonb;
                IF v_verdict->>0 = 'repeated' THEN
                    SELECT jsonb_build_array('repeated', i.taken_by) INTO v_verdict FROM inbox i
                        WHERE i.tenant = c->>'tenant' AND i.id = c->>'request';
                END IF;
            END;
        ELSE
            v_verdict := commit_one_v3(c, p, firsts[n]);
        END IF;
        v_verdicts := v_verdicts || jsonb_build_array(v_verdict);
    END LOOP;
    RETURN v_verdicts;
END
$wakeful$
"""

ROUTINES_3 = (
    _LOCK_NAME,
    *DISPATCH_ROUTINES,
    *RARE_ROUTINES,
    *RELAY_ROUTINES,
    *PENDING_ROUTINES,
    _DELIVER,
    _APPEND,
    _COMMIT_ONE,
    *PLAIN_ROUTINES,
    _COMMIT,
    *CLAIM_ROUTINES,
)

# These take more than they did, and serve clients of version 3 as before; and an inbox has a reserve.
ROUTINES_4 = (_COMMIT_ONE, *PLAIN_ROUTINES, _DELIVER)

# The rows of views say more than they did: what a run's row leaves out. A worker of an earlier version can't read
# those, and would take each for damaged: it can claim nothing any more.
ROUTINES_6 = ("DROP FUNCTION IF EXISTS claim_rows_v3", CLAIM_ROWS)

# A commit that claims a thread which has no dispatch makes none; and what is the same each time is planned once.
ROUTINES_7 = (*UNMADE_ROUTINES, _COMMIT_ONE, *PLAIN_ROUTINES, _COMMIT)
