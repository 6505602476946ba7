"""Postgres's way of writing many commits at once that only go on with their threads' runs, where nobody knows how
these were left. Most go by a step, see `_steps`.
"""

from __future__ import annotations

__all__ = ["PLAIN_ROUTINES"]

# Gives the verdicts by the commits' places in the batch. What isn't as it was thought to be is left out: a commit
# that is in already, a fence that is stale, another open run. The threads' rows are locked.
_COMMIT_PLAIN = """
CREATE OR REPLACE FUNCTION commit_plain_v3(commits jsonb, p bytea[], firsts int[]) RETURNS jsonb
LANGUAGE plpgsql AS $wakeful$
DECLARE
    v_now bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    v_verdicts jsonb;
BEGIN
    WITH plain AS MATERIALIZED (
        SELECT x.n, x.c, x.c->'runs'->0 AS r, x.first, t.no, t.open_run AS run, t.head, t.version, t.epoch,
            t.inbox_head, string_to_array(t.last_commit, ' ') AS last
        FROM (SELECT n, first, commits->(n::int - 1) AS c FROM unnest(firsts) WITH ORDINALITY AS f(first, n)) AS x
        CROSS JOIN LATERAL (
            SELECT * FROM threads WHERE tenant = x.c->>'tenant' AND id = x.c->>'thread' LIMIT 1) AS t
        CROSS JOIN LATERAL (SELECT id FROM runs WHERE no = t.open_run LIMIT 1) AS o
        WHERE x.c ? 'plain' AND o.id = x.c->'runs'->0->>'id'
            AND t.claim = x.c->'fence'->>1 AND t.epoch = (x.c->'fence'->>0)::bigint
            AND t.inbox_head = coalesce((x.c->>'inbox_head')::bigint, t.inbox_head)
            AND t.version = coalesce((x.c->>'version')::bigint, t.version)
            AND t.last_commit NOT LIKE '%' || (x.c->>'id') || '%'
    ), put_runs AS (
        UPDATE runs SET agent = r->>'agent', status = r->>'status', step = (r->>'step')::bigint,
            acting = (r->>'acting')::bigint, answer = coalesce(e.head + (r->>'answer')::int, answer),
            finished_at = (r->>'finished_at')::bigint, payload = p[e.first + (r->>'i')::int]
        FROM plain e WHERE runs.no = e.run
    ), put_log AS (
        INSERT INTO log (thread, seq, kind, run, agent, at, ref, payload, size, more)
        SELECT e.no, e.head + x.n, x.kind, e.run, x.agent, x.at, e.head + x.ref, p[e.first + x.i],
            coalesce(x.size, 1), p[e.first + x.more]
        FROM plain e CROSS JOIN LATERAL jsonb_to_recordset(e.c->'log')
            AS x(n int, i int, kind text, agent text, at bigint, ref int, size int, more int)
    ), put_calls AS (
        INSERT INTO calls (run, step, place, id, name, ref, arguments, payload)
        SELECT e.run, x.step, x.place, x.id, x.name, e.head + x.ref, p[e.first + x.arguments], p[e.first + x.i]
        FROM plain e CROSS JOIN LATERAL jsonb_to_recordset(e.c->'calls')
            AS x(step bigint, place bigint, id text, name text, ref int, arguments int, i int)
        ON CONFLICT (run, step, place) DO UPDATE SET payload = excluded.payload
    ), drop_chunks AS (
        DELETE FROM chunks USING plain e WHERE chunks.thread = e.no AND e.c ? 'answered'
    ), put_threads AS (
        UPDATE threads SET version = e.version + 1, wakes = r->>'wakes', updated_at = v_now,
            head = e.head + coalesce((e.c->>'entries')::int, 0),
            last_commit = array_to_string(ARRAY[e.c->>'id'] || e.last[2:], ' ')
        FROM plain e WHERE threads.no = e.no
    )
    SELECT jsonb_object_agg(e.n, jsonb_build_array('ok', e.version + 1,
        e.head + coalesce((e.c->>'entries')::int, 0), e.epoch, e.inbox_head, '[]'::jsonb))
        INTO v_verdicts FROM plain e;
    RETURN coalesce(v_verdicts, '{}');
END
$wakeful$
"""

# What earlier clients have for one that comes alone.
# `w` has words, `i` integers, `p` payloads: the commit's and the run's, then those of each row of the log and of
# each call; last the version that the thread must have, and whether the commit may be synced with a later one.
# Gives the thread's version, head and inbox head. If something isn't as it was thought to be, nothing is given and
# nothing was written: the first statement has all the conditions.
_GO_ON = """
CREATE OR REPLACE FUNCTION go_on_v3(w text[], i bigint[], p bytea[]) RETURNS bigint[] LANGUAGE plpgsql AS $wakeful$
DECLARE
    v_no bigint;
    v_open bigint;
    v_version bigint;
    v_head bigint;
    v_inbox_head bigint;
    v_base bigint;
    v_found boolean;
    a int := 8; -- behind which word, integer and payload the next row's are
    b int := 10;
    c int := 1;
    v_end int := 10 + 4 * i[9] + 3 * i[10];
BEGIN
    UPDATE threads SET version = version + 1, head = head + i[3], wakes = w[5],
        updated_at = (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
        last_commit = w[4] || substr(last_commit, strpos(last_commit || ' ', ' '))
        WHERE tenant = w[1] AND id = w[2] AND claim = w[3] AND epoch = i[1]
            AND inbox_head = coalesce(i[2], inbox_head) AND version = coalesce(i[v_end + 1], version)
            AND strpos(last_commit, w[4]) = 0
            AND open_run = (SELECT r.no FROM runs r WHERE r.tenant = w[1] AND r.id = w[6])
        RETURNING no, open_run, version, head, inbox_head INTO v_no, v_open, v_version, v_head, v_inbox_head;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF i[v_end + 2] = 1 THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    v_base := v_head - i[3];
    UPDATE runs SET agent = w[7], status = w[8], step = i[5], acting = i[6], finished_at = i[8], payload = p[1],
        answer = coalesce(v_base + i[7], answer) WHERE no = v_open;
    FOR n IN 1 .. i[9] LOOP
        INSERT INTO log (thread, seq, kind, run, agent, at, ref, payload, size, more)
            VALUES (v_no, v_base + i[b + 1], w[a + 1], v_open, w[a + 2], i[b + 2], v_base + i[b + 3], p[c + 1],
                i[b + 4], p[c + 2]);
        a := a + 2; b := b + 4; c := c + 2;
    END LOOP;
    FOR n IN 1 .. i[10] LOOP
        v_found := false;
        IF i[b + 3] IS NULL THEN -- Its answer came before, and so did its row.
            UPDATE calls SET payload = p[c + 2] WHERE run = v_open AND step = i[b + 1] AND place = i[b + 2];
            v_found := FOUND;
        END IF;
        IF NOT v_found THEN
            INSERT INTO calls (run, step, place, id, name, ref, arguments, payload)
                VALUES (v_open, i[b + 1], i[b + 2], w[a + 1], w[a + 2], v_base + i[b + 3], p[c + 1], p[c + 2]);
        END IF;
        a := a + 2; b := b + 3; c := c + 2;
    END LOOP;
    IF i[4] = 1 THEN
        DELETE FROM chunks WHERE thread = v_no;
    END IF;
    RETURN ARRAY[v_version, v_head, v_inbox_head];
END
$wakeful$
"""

PLAIN_ROUTINES = (_COMMIT_PLAIN, _GO_ON)
