"""Postgres's side of a commit, as version 2 has it: relays, and for input in an inbox the run that it will be.

Version 1's functions do the rest. They stay as they are, for clients of that version.
"""

from __future__ import annotations

from ._routines import COMMIT_1

__all__ = ["ROUTINES_2"]

# A relay whose very commit is in already is not refused: its writer's connection broke before it heard.
_MOVED_RELAY = """
CREATE FUNCTION moved_relay_v2(c jsonb, p bytea[], v_first int) RETURNS jsonb LANGUAGE plpgsql AS $wakeful$
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
CREATE FUNCTION put_relays_v2(c jsonb, p bytea[], v_first int) RETURNS void LANGUAGE sql AS $wakeful$
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

_COMMIT_ONE = """
CREATE FUNCTION commit_one_v2(c jsonb, p bytea[], v_first int) RETURNS jsonb LANGUAGE plpgsql AS $wakeful$
DECLARE
    v_verdict jsonb;
BEGIN
    IF c ? 'relays' THEN
        v_verdict := moved_relay_v2(c, p, v_first);
        IF v_verdict IS NOT NULL THEN
            RETURN v_verdict;
        END IF;
    END IF;
    v_verdict := commit_one_v1(c, p, v_first);
    IF v_verdict->>0 <> 'ok' THEN
        RETURN v_verdict;
    END IF;
    IF c ? 'relays' THEN
        PERFORM put_relays_v2(c, p, v_first);
    END IF;
    IF c ? 'inbox' THEN
        UPDATE inbox i SET run = e.run FROM jsonb_to_recordset(c->'inbox') AS e(id text, run text)
        WHERE e.run IS NOT NULL AND i.tenant = c->>'tenant' AND i.id = e.id AND i.run IS NULL;
    END IF;
    RETURN v_verdict;
END
$wakeful$
"""

ROUTINES_2 = (
    _MOVED_RELAY,
    _PUT_RELAYS,
    _COMMIT_ONE,
    COMMIT_1.replace("commit_v1", "commit_v2").replace("commit_one_v1", "commit_one_v2"),
)
