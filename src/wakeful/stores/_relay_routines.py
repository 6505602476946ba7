"""Postgres's own side of relays: whether one moved meanwhile, and writing it."""

from __future__ import annotations

__all__ = ["RELAY_ROUTINES"]

# A relay whose very commit is in already is not refused: its writer's connection broke before it heard.
_MOVED_RELAY = """
CREATE FUNCTION moved_relay_v3(c jsonb, p bytea[], v_first int) RETURNS jsonb LANGUAGE plpgsql AS $wakeful$
DECLARE
    e record;
    r relays%ROWTYPE;
BEGIN
    PERFORM 1 FROM threads WHERE tenant = c->>'tenant' AND id = c->>'thread' FOR UPDATE;
    FOR e IN SELECT * FROM jsonb_to_recordset(c->'relays') AS x(id text, revision bigint, i int) LOOP
        SELECT * INTO r FROM relays WHERE tenant = c->>'tenant' AND id = e.id FOR UPDATE;
        IF NOT FOUND THEN
            r.revision := 0;
        END IF;
        IF r.revision <> e.revision - 1
            AND NOT (r.revision = e.revision AND r.payload = p[v_first + e.i])
        THEN
            RETURN jsonb_build_array('relay_moved', e.id, r.revision, e.revision);
        END IF;
    END LOOP;
    RETURN NULL;
END
$wakeful$
"""

_PUT_RELAYS = """
CREATE FUNCTION put_relays_v3(c jsonb, p bytea[], v_first int) RETURNS void LANGUAGE sql AS $wakeful$
    INSERT INTO relays (tenant, id, thread, run, kind, status, cursor, due_at, until, revision, payload)
    SELECT t.tenant, e.id, t.no, e.run, e.kind, e.status, e.cursor, e.due_at, e.until, e.revision, p[v_first + e.i]
    FROM threads t, jsonb_to_recordset(c->'relays')
        AS e(id text, run text, kind text, status text, cursor bigint, due_at bigint, until bigint,
            revision bigint, i int)
    WHERE t.tenant = c->>'tenant' AND t.id = c->>'thread'
    ON CONFLICT (tenant, id) DO UPDATE SET status = excluded.status, cursor = excluded.cursor,
        due_at = excluded.due_at, until = excluded.until, revision = excluded.revision, payload = excluded.payload
$wakeful$
"""

RELAY_ROUTINES = (_MOVED_RELAY, _PUT_RELAYS)
