"""Postgres's way of writing many commits at once: those that only go on with their thread's run.

Most commits are of that kind, an answer or a result of a run that its owner goes on with. One statement writes all
of a batch, which takes the server a fraction of what a few statements for each take it.
"""

from __future__ import annotations

__all__ = ["PLAIN_ROUTINES"]

# Gives the verdicts by the commits' places in the batch. What isn't as it was thought to be is left out: a commit
# that is in already, a fence that is stale, another open run. The threads' rows are locked.
_COMMIT_PLAIN = """
CREATE FUNCTION commit_plain_v3(commits jsonb, p bytea[], firsts int[]) RETURNS jsonb
LANGUAGE plpgsql AS $wakeful$
DECLARE
    v_now bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    v_verdicts jsonb;
BEGIN
    WITH plain AS MATERIALIZED (
        SELECT x.n, x.c, x.c->'runs'->0 AS r, x.first, t.no, t.open_run AS run, t.head, t.version, t.epoch,
            t.inbox_head, string_to_array(t.last_commit, ' ') AS last
        FROM (SELECT n, first, commits->(n::int - 1) AS c FROM unnest(firsts) WITH ORDINALITY AS f(first, n)) AS x
        JOIN threads t ON t.tenant = x.c->>'tenant' AND t.id = x.c->>'thread'
        JOIN runs o ON o.no = t.open_run AND o.id = x.c->'runs'->0->>'id'
        WHERE x.c ? 'plain' AND t.claim = x.c->'fence'->>1 AND t.epoch = (x.c->'fence'->>0)::bigint
            AND t.inbox_head = coalesce((x.c->>'inbox_head')::bigint, t.inbox_head)
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

PLAIN_ROUTINES = (_COMMIT_PLAIN,)
