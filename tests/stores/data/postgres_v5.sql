-- What version 5 had of its own: how a claim shows the views of what was claimed.
CREATE FUNCTION claim_rows_v3(
    v_worker text, v_lease bigint, v_agents text[], v_limit int, v_at bigint, v_per_tenant bigint,
    v_per_agent jsonb
) RETURNS TABLE (c0 text, c1 bigint, c2 bigint, c3 bigint, c4 bigint, c5 bigint, c6 bigint, c7 bigint, c8 bigint,
    c9 text, c10 text, c11 text, c12 text, c13 text, c14 text, c15 text, c16 text, c17 bytea, c18 bytea, c19 bigint)
LANGUAGE plpgsql AS $wakeful$
DECLARE
    v_claims jsonb := claim_v3(v_worker, v_lease, v_agents, v_limit, v_at, v_per_tenant, v_per_agent);
    v_now bigint;
    v_threads bigint[];
BEGIN
    c0 := 'claims';
    c9 := v_claims::text;
    RETURN NEXT;
    IF v_claims->0 <> '[]' THEN
        v_now := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
        v_threads := ARRAY(SELECT (x->>0)::bigint FROM jsonb_array_elements(v_claims->0) x);
        RETURN QUERY 
WITH t AS (SELECT no, open_run FROM threads WHERE no = ANY (v_threads)),
r AS (SELECT runs.*, t.no AS home FROM runs JOIN t ON runs.no = t.open_run)

SELECT 'thread', t.no, t.version, t.head, t.epoch, t.inbox_head, t.base_seq, t.created_at, t.updated_at,
    coalesce((SELECT w.id FROM workers w WHERE w.id = t.claim AND w.until > v_now),
        CASE WHEN EXISTS (SELECT 1 FROM dispatches d WHERE d.thread = t.no AND d.dead_at IS NOT NULL) THEN '' END),
    t.id, o.id, l.id, l.agent, t.parent, b.id, t.title, t.metadata,
    CASE WHEN FALSE THEN t.metadata END, -- nothing, but of the type that others have there
    t.no
FROM threads t LEFT JOIN runs o ON o.no = t.open_run LEFT JOIN runs l ON l.no = t.last_run
LEFT JOIN threads b ON b.no = t.base
 WHERE t.no IN (SELECT no FROM t)
UNION ALL
SELECT 'run', r.no, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, r.payload, NULL, r.home FROM r
UNION ALL
SELECT 'call', c.step, c.place, c.ref, NULL, NULL, NULL, NULL, NULL, NULL, c.id, c.name, NULL, NULL, NULL, NULL, NULL, c.arguments, c.payload,
    r.home
FROM r JOIN calls c ON c.run = r.no AND c.step = r.step WHERE r.acting = 1
UNION ALL
SELECT 'ticket', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, k.id, NULL, NULL, NULL, NULL, NULL, NULL, k.payload, NULL, r.home
FROM r JOIN tickets k ON k.run = r.no AND k.status = 'open'
UNION ALL
SELECT 'answer', l.seq, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, l.payload, NULL, t.no
FROM t JOIN r ON r.no = t.open_run JOIN log l ON l.thread = t.no AND l.seq = r.answer
UNION ALL
SELECT 'task', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, k.id, NULL, NULL, NULL, NULL, NULL, NULL, k.payload, NULL, t.no
FROM t JOIN tasks k ON k.thread = t.no AND k.status = 'running'
UNION ALL
SELECT 'item', i.position, i.revision, NULL, NULL, NULL, NULL, NULL, NULL, NULL, i.id, NULL, NULL, NULL, NULL, NULL, NULL, i.payload, NULL, t.no
FROM t JOIN inbox i ON i.thread = t.no AND i.status = 'pending'
UNION ALL
SELECT 'state', s.run, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, s.name, NULL, NULL, NULL, NULL, NULL, NULL, s.payload, NULL, t.no
FROM t JOIN state s ON s.thread = t.no AND (s.run = 0 OR s.run = t.open_run)
;
    END IF;
END
$wakeful$;
