"""Postgres's side of what few commits have: tickets, decisions, tasks, pieces of answers, blobs."""

from __future__ import annotations

__all__ = ["RARE_ROUTINES"]

_PUT_RARE = """
CREATE FUNCTION put_rare_v3(c jsonb, p bytea[], v_first int, v_no bigint, v_numbers bigint[], v_now bigint)
RETURNS void LANGUAGE plpgsql AS $wakeful$
DECLARE
    v_tenant text := c->>'tenant';
BEGIN
    INSERT INTO tickets (tenant, id, thread, run, status, assignee, payload)
        SELECT v_tenant, e.id, v_no, v_numbers[e.run], e.status, e.assignee, p[v_first + e.i]
        FROM jsonb_to_recordset(c->'tickets') AS e(id text, run int, status text, assignee text, i int)
        ON CONFLICT (tenant, id) DO UPDATE SET status = excluded.status, assignee = excluded.assignee,
            payload = excluded.payload;
    INSERT INTO decisions (tenant, id, thread, ticket, at, payload)
        SELECT v_tenant, e.id, v_no, e.ticket, e.at, p[v_first + e.i]
        FROM jsonb_to_recordset(c->'decisions') AS e(id text, ticket text, at bigint, i int)
        ON CONFLICT DO NOTHING;
    INSERT INTO tasks (tenant, id, thread, run, status, payload)
        SELECT v_tenant, e.id, v_no, e.run, e.status, p[v_first + e.i]
        FROM jsonb_to_recordset(c->'tasks') AS e(id text, run text, status text, i int)
        ON CONFLICT (tenant, id) DO UPDATE SET status = excluded.status, payload = excluded.payload;
    IF c ? 'attempt' THEN
        DELETE FROM chunks WHERE thread = v_no AND attempt < (c->>'attempt')::bigint;
        INSERT INTO chunks (thread, message, attempt, at, payload)
            SELECT v_no, e.message, e.attempt, v_now, p[v_first + e.i]
            FROM jsonb_to_recordset(c->'chunks') AS e(message text, attempt bigint, i int);
    END IF;
    IF c ? 'taken' THEN
        UPDATE inbox SET status = 'taken', taken_by = c->>'run'
        WHERE tenant = v_tenant AND thread = v_no AND id IN (SELECT jsonb_array_elements_text(c->'taken'));
    END IF;
END
$wakeful$
"""

_PUT_BLOBS = """
CREATE FUNCTION put_blobs_v3(v_blobs jsonb, p bytea[], v_first int, v_no bigint) RETURNS void
LANGUAGE sql AS $wakeful$
    INSERT INTO blobs (thread, digest, payload)
    SELECT v_no, e.digest, p[v_first + e.i] FROM jsonb_to_recordset(v_blobs) AS e(digest text, i int)
    ON CONFLICT DO NOTHING
$wakeful$
"""

RARE_ROUTINES = (_PUT_BLOBS, _PUT_RARE)
