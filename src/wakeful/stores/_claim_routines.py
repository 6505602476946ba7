"""Dispatches in Postgres: the functions that make them due, settle them, and claim them in one round trip.

They do what `_dispatching` does for SQLite. A dispatch is made and changed by whoever has its thread's row locked.
Claiming waits for nobody: rows that others have locked are left to them.
"""

from __future__ import annotations

from ..types.runs import PRIORITY
from ._claiming import FIRST_PAUSE, LONGEST_PAUSE, PROGRESS, SUSPECT, died
from ._protocol import MAX_ATTEMPTS
from ._sql import VIEWS

__all__ = ["CLAIM_ROUTINES", "CLAIM_ROWS", "DISPATCH_ROUTINES", "UNMADE_ROUTINES"]

_DISPATCH = """
CREATE FUNCTION dispatch_v3(
    v_tenant text, v_thread bigint, v_agent text, v_due bigint, v_priority bigint, v_sooner boolean
) RETURNS void LANGUAGE plpgsql AS $wakeful$
BEGIN
    INSERT INTO dispatches AS d (thread, tenant, agent, priority, due_at)
        VALUES (v_thread, v_tenant, v_agent, v_priority, v_due)
    ON CONFLICT (thread) DO UPDATE SET tenant = excluded.tenant, held = 0, dead_at = NULL, error = NULL,
        due_at = CASE WHEN v_sooner AND d.dead_at IS NULL THEN least(d.due_at, excluded.due_at)
            ELSE excluded.due_at END,
        attempts = CASE WHEN v_sooner THEN d.attempts ELSE 0 END,
        priority = CASE WHEN v_sooner THEN least(d.priority, excluded.priority) ELSE excluded.priority END,
        agent = CASE WHEN excluded.agent = '' OR (v_sooner AND d.agent <> '') THEN d.agent ELSE excluded.agent END;
END
$wakeful$
"""

_AFTER_DEATH = f"""
CREATE FUNCTION after_death_v3(v_attempts bigint, v_mark bigint, v_step bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $wakeful$
    SELECT CASE WHEN v_step - v_mark >= {PROGRESS} THEN 1 ELSE v_attempts + 1 END
$wakeful$
"""

# Makes the dispatch of a thread that is or was claimed, if the claim made none: as it would be.
_MAKE = f"""
CREATE OR REPLACE FUNCTION make_dispatch_v7(v_thread bigint, v_now bigint) RETURNS void
LANGUAGE sql AS $wakeful$
    INSERT INTO dispatches (thread, tenant, agent, priority, due_at, held, mark)
        SELECT t.no, t.tenant, coalesce(r.agent, ''), coalesce(r.priority, {PRIORITY}), v_now, 1,
            coalesce(r.step, 0)
        FROM threads t LEFT JOIN runs r ON r.no = t.open_run WHERE t.no = v_thread
    ON CONFLICT (thread) DO NOTHING
$wakeful$
"""

# A commit claims the thread; `v_lost` says that its owner before died, which counts unless it was counted. Where
# there is no dispatch and nothing to count, none is made. `v_tenant` and `v_priority` aren't asked for any more.
_HOLD = """
CREATE OR REPLACE FUNCTION hold_v3(
    v_tenant text, v_thread bigint, v_agent text, v_now bigint, v_priority bigint, v_step bigint, v_lost boolean
) RETURNS void LANGUAGE plpgsql AS $wakeful$
BEGIN
    IF v_lost THEN
        PERFORM make_dispatch_v7(v_thread, v_now);
    END IF;
    UPDATE dispatches SET held = 1, dead_at = NULL, error = NULL, due_at = v_now, mark = v_step,
        attempts = CASE WHEN v_lost AND held = 1 THEN after_death_v3(attempts, mark, v_step) ELSE attempts END,
        agent = coalesce(nullif(v_agent, ''), agent)
        WHERE thread = v_thread;
END
$wakeful$
"""

_FAIL = f"""
CREATE FUNCTION fail_v3(v_thread bigint, v_error text, v_now bigint) RETURNS void LANGUAGE sql AS $wakeful$
    UPDATE dispatches SET held = 0, attempts = attempts + 1, error = v_error,
        due_at = v_now + least({FIRST_PAUSE} * power(2, least(attempts, 30))::bigint, {LONGEST_PAUSE}),
        dead_at = CASE WHEN attempts + 1 >= {MAX_ATTEMPTS} THEN v_now END
    WHERE thread = v_thread
$wakeful$
"""

# What is due on a thread that nobody owns.
_SETTLE = f"""
CREATE OR REPLACE FUNCTION settle_v3(c jsonb, t threads, v_now bigint) RETURNS void LANGUAGE plpgsql AS $wakeful$
DECLARE
    v_due bigint;
    v_priority bigint;
    v_agent text;
    v_later bigint := (c->>'later')::bigint;
    v_given_back boolean := c ? 'fence' OR c ? 'claim'; -- by its owner, whose claim may have made no dispatch
BEGIN
    IF c ? 'failed' THEN
        IF v_given_back THEN
            PERFORM make_dispatch_v7(t.no, v_now);
        END IF;
        PERFORM fail_v3(t.no, c->>'failed', v_now);
        RETURN;
    END IF;
    SELECT min(greatest(coalesce(at, 0), v_now)), min(priority), (array_agg(agent ORDER BY position))[1]
        INTO v_due, v_priority, v_agent FROM inbox
        WHERE thread = t.no AND status = 'pending' AND wake = ANY (string_to_array(t.wakes, ' '));
    IF c ? 'open' THEN
        v_due := least(v_due, CASE WHEN c->'open' ? 'waits' THEN (c->'open'->>'until')::bigint ELSE v_now END);
        v_priority := (c->'open'->>'priority')::bigint;
        v_agent := c->'open'->>'agent';
    ELSIF t.open_run IS NOT NULL THEN
        IF v_later IS NOT NULL OR v_due IS NULL THEN -- Its run's record isn't part: what was due is due.
            IF v_given_back THEN
                PERFORM make_dispatch_v7(t.no, v_now);
            END IF;
            UPDATE dispatches SET held = 0, due_at = coalesce(v_later, due_at) WHERE thread = t.no;
            RETURN;
        END IF;
        SELECT priority, agent INTO v_priority, v_agent FROM runs WHERE no = t.open_run;
    END IF;
    IF v_due IS NULL THEN
        DELETE FROM dispatches WHERE thread = t.no;
    ELSE
        IF v_given_back AND coalesce(v_agent, '') = ''
            AND NOT EXISTS (SELECT 1 FROM dispatches d WHERE d.thread = t.no AND d.agent <> '')
        THEN -- Nothing says whom it is due for.
            SELECT agent INTO v_agent FROM runs WHERE no = t.last_run;
        END IF;
        PERFORM dispatch_v3(c->>'tenant', t.no, coalesce(v_agent, ''), coalesce(v_later, v_due),
            coalesce(v_priority, {PRIORITY}), false);
    END IF;
END
$wakeful$
"""

DISPATCH_ROUTINES = (_DISPATCH, _AFTER_DEATH, _MAKE, _HOLD, _FAIL, _SETTLE)

# Those who have claims and no lease: one look into the index for each who has claims.
_DEAD = """
CREATE FUNCTION dead_v3(v_now bigint) RETURNS TABLE (id text) LANGUAGE sql STABLE AS $wakeful$
    WITH RECURSIVE owners AS (
        SELECT min(t.claim) AS id FROM threads t WHERE t.claim IS NOT NULL
        UNION ALL
        SELECT (SELECT min(t.claim) FROM threads t WHERE t.claim > o.id) FROM owners o WHERE o.id IS NOT NULL
    )
    SELECT o.id FROM owners o
    WHERE o.id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = o.id AND w.until > v_now)
$wakeful$
"""

# Makes due what workers left that died, each an attempt; one too many is a dead letter. Once a thread is locked,
# its dispatch is looked at again: another may have counted it meanwhile. An owner that isn't dead, and gives the
# thread back in this moment in one statement, doesn't see a dispatch that is made here: the inbox's head moves, so
# that it looks again.
_REAP = f"""
CREATE OR REPLACE FUNCTION reap_v3(v_now bigint) RETURNS void LANGUAGE plpgsql AS $wakeful$
DECLARE
    e record;
    v_step bigint;
    v_attempts bigint;
BEGIN
    FOR e IN
        SELECT t.no, t.open_run FROM threads t LEFT JOIN dispatches d ON d.thread = t.no
        WHERE t.claim = ANY (ARRAY(SELECT w.id FROM dead_v3(v_now) w)) AND (d.thread IS NULL OR d.held = 1)
        FOR UPDATE OF t SKIP LOCKED
    LOOP
        IF NOT EXISTS (SELECT 1 FROM dispatches WHERE thread = e.no) THEN
            PERFORM make_dispatch_v7(e.no, v_now);
            UPDATE threads SET inbox_head = inbox_head + 1 WHERE no = e.no;
        END IF;
        SELECT step INTO v_step FROM runs WHERE no = e.open_run;
        v_step := coalesce(v_step, 0);
        SELECT after_death_v3(attempts, mark, v_step) INTO v_attempts FROM dispatches
            WHERE thread = e.no AND held = 1;
        CONTINUE WHEN NOT FOUND;
        IF v_attempts < {MAX_ATTEMPTS} THEN
            UPDATE dispatches SET held = 0, attempts = v_attempts, mark = v_step, error = NULL
                WHERE thread = e.no;
        ELSE
            UPDATE dispatches SET held = 0, attempts = v_attempts, dead_at = v_now,
                error = replace($error${died(0)}$error$, ' 0 times', ' ' || v_attempts || ' times')
                WHERE thread = e.no;
            UPDATE threads SET claim = NULL WHERE no = e.no;
        END IF;
    END LOOP;
END
$wakeful$
"""

# Whether a run may be what ends its workers; one that failed has said why.
_IS_SUSPECT = f"""
CREATE FUNCTION is_suspect_v3(v_attempts bigint, v_error text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $wakeful$
    SELECT v_attempts >= {SUSPECT} AND v_error IS NULL
$wakeful$
"""

# Lanes are where something waits, each with the time of its first: one look into the index for each.
_LANES = """
CREATE FUNCTION lanes_v3(v_agents text[]) RETURNS TABLE (tenant text, agent text, priority bigint, due_at bigint)
LANGUAGE sql STABLE AS $wakeful$
    WITH RECURSIVE lanes AS (
        (SELECT d.tenant, d.agent, d.priority, d.due_at FROM dispatches d WHERE d.held = 0 AND d.dead_at IS NULL
            ORDER BY d.tenant, d.agent, d.priority, d.due_at LIMIT 1)
        UNION ALL
        SELECT n.* FROM lanes l CROSS JOIN LATERAL (
            SELECT d.tenant, d.agent, d.priority, d.due_at FROM dispatches d
            WHERE d.held = 0 AND d.dead_at IS NULL
                AND (d.tenant, d.agent, d.priority) > (l.tenant, l.agent, l.priority)
            ORDER BY d.tenant, d.agent, d.priority, d.due_at LIMIT 1
        ) AS n
    )
    SELECT l.tenant, l.agent, l.priority, l.due_at FROM lanes l WHERE l.agent = '' OR l.agent = ANY (v_agents)
$wakeful$
"""

# Takes one dispatch, if it is still there to be taken; what came of it as the client is told, else null.
_TAKE = """
CREATE FUNCTION take_v3(v_thread bigint, v_worker text, v_due bigint, v_now bigint) RETURNS jsonb
LANGUAGE plpgsql AS $wakeful$
DECLARE
    t threads%ROWTYPE;
    v_agent text;
    v_since bigint;
    v_attempts bigint;
    v_last text[];
BEGIN
    SELECT * INTO t FROM threads WHERE no = v_thread FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    UPDATE dispatches SET held = 1, mark = coalesce((SELECT r.step FROM runs r WHERE r.no = t.open_run), 0)
        WHERE thread = v_thread AND held = 0 AND dead_at IS NULL AND due_at <= v_due
        RETURNING agent, due_at, attempts INTO v_agent, v_since, v_attempts;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF t.claim IS NOT NULL THEN
        IF EXISTS (SELECT 1 FROM workers w WHERE w.id = t.claim AND w.until > v_now) THEN
            RETURN NULL; -- Its owner came back in time, and holds it again.
        END IF;
    END IF;
    -- The owner before may ask what became of its last commit.
    v_last := string_to_array(t.last_commit, ' ');
    UPDATE threads SET claim = v_worker, epoch = t.epoch + 1, last_commit =
        concat_ws(' ', '-', coalesce(v_last[1], '-'), t.version, t.head, t.epoch) WHERE no = v_thread;
    RETURN jsonb_build_array(t.no, t.tenant, t.id, v_agent, t.epoch + 1, v_since, greatest(v_now - v_since, 0),
        v_attempts, t.claim IS NOT NULL);
END
$wakeful$
"""

# Tenants take turns: of each one dispatch in a round, who was served longest ago first. More than are wanted are
# looked at, since others may be taking the first. Where something is limited, one worker counts at a time.
#
# Nobody waits for a claim to be on the disk. Before anything of the user's runs there is a commit under the
# claim's fence, and its flush takes the claim along. A server that crashes in between forgets the claim, and then
# refuses the fence.
_CLAIM = f"""
CREATE OR REPLACE FUNCTION claim_v3(
    v_worker text, v_lease bigint, v_agents text[], v_limit int, v_at bigint, v_per_tenant bigint,
    v_per_agent jsonb
) RETURNS jsonb LANGUAGE plpgsql AS $wakeful$
DECLARE
    v_now bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    v_due bigint := coalesce(v_at, v_now);
    v_limited boolean := v_per_tenant IS NOT NULL OR v_per_agent <> '{{}}';
    v_of_tenant jsonb := '{{}}';
    v_of_agent jsonb := '{{}}';
    v_claimed jsonb := '[]';
    v_served jsonb := '{{}}';
    v_missed boolean := false;
    v_tenants bigint;
    v_wait bigint;
    v_turn bigint;
    v_taken jsonb;
    v_in_tenant text[];
    v_in_agent text[];
    v_in_priority bigint[];
    v_first bigint[];
    v_leased boolean;
    v_suspect boolean;
    e record;
BEGIN
    -- Planning takes longer than all of it, and every plan goes by the same indexes.
    PERFORM set_config('synchronous_commit', 'off', true),
        set_config('plan_cache_mode', 'force_generic_plan', true);
    IF EXISTS (SELECT 1 FROM dead_v3(v_now)) THEN
        PERFORM reap_v3(v_now);
    END IF;
    SELECT array_agg(l.tenant), array_agg(l.agent), array_agg(l.priority), array_agg(l.due_at)
        INTO v_in_tenant, v_in_agent, v_in_priority, v_first FROM lanes_v3(v_agents) l;
    IF v_limit > 0 AND v_due >= ANY (v_first) THEN
        IF v_limited THEN
            PERFORM pg_advisory_xact_lock(hashtextextended(concat_ws(E'\\n', current_schema(), 'claim'), 0));
            SELECT coalesce(jsonb_object_agg(x.tenant, x.n), '{{}}') INTO v_of_tenant FROM (
                SELECT t.tenant, count(*) AS n FROM workers w JOIN threads t ON t.claim = w.id
                WHERE w.until > v_now GROUP BY t.tenant) AS x;
            SELECT coalesce(jsonb_object_agg(x.agent, x.n), '{{}}') INTO v_of_agent FROM (
                SELECT coalesce(d.agent, r.agent, '') AS agent, count(*) AS n
                FROM workers w JOIN threads t ON t.claim = w.id LEFT JOIN dispatches d ON d.thread = t.no
                LEFT JOIN runs r ON r.no = t.open_run WHERE w.until > v_now GROUP BY 1) AS x;
        END IF;
        SELECT EXISTS (SELECT 1 FROM workers WHERE id = v_worker AND until >= v_now + v_lease - v_lease / 2),
            EXISTS (SELECT 1 FROM threads t JOIN dispatches d ON d.thread = t.no
                LEFT JOIN runs r ON r.no = t.open_run
                WHERE t.claim = v_worker AND is_suspect_v3(d.attempts, d.error)
                    AND coalesce(r.step, 0) - d.mark < {PROGRESS})
            INTO v_leased, v_suspect;
        IF NOT v_leased THEN
            INSERT INTO workers (id, until, started_at) VALUES (v_worker, v_now + v_lease, v_now)
                ON CONFLICT (id) DO UPDATE SET until = excluded.until;
        END IF;
        FOR e IN
            SELECT f.*, count(*) OVER (PARTITION BY f.place) AS tenants FROM (
                SELECT c.thread, l.tenant, l.agent, l.priority, c.due_at, c.suspect,
                    row_number() OVER (PARTITION BY l.tenant ORDER BY l.priority, c.due_at, c.thread) AS place
                FROM unnest(v_in_tenant, v_in_agent, v_in_priority, v_first) AS l(tenant, agent, priority, due_at)
                CROSS JOIN LATERAL (
                    SELECT d.thread, d.due_at, is_suspect_v3(d.attempts, d.error) AS suspect FROM dispatches d
                    WHERE d.held = 0 AND d.dead_at IS NULL AND d.tenant = l.tenant AND d.agent = l.agent
                        AND d.priority = l.priority AND d.due_at <= v_due
                        AND NOT (v_suspect AND is_suspect_v3(d.attempts, d.error))
                    ORDER BY d.due_at, d.thread LIMIT v_limit * 2 + 16
                ) AS c WHERE l.due_at <= v_due
            ) AS f LEFT JOIN turns u ON u.tenant = f.tenant
            ORDER BY f.place, coalesce(u.turn, 0), f.priority, f.due_at, f.thread
        LOOP
            EXIT WHEN jsonb_array_length(v_claimed) >= v_limit;
            v_tenants := greatest(v_tenants, e.tenants);
            CONTINUE WHEN (v_of_tenant->>e.tenant)::bigint >= v_per_tenant
                OR (v_of_agent->>e.agent)::bigint >= (v_per_agent->>e.agent)::bigint;
            CONTINUE WHEN v_suspect AND e.suspect;
            v_taken := take_v3(e.thread, v_worker, v_due, v_now);
            IF v_taken IS NULL THEN
                v_missed := true;
                CONTINUE;
            END IF;
            v_suspect := v_suspect OR e.suspect;
            v_claimed := v_claimed || jsonb_build_array(v_taken);
            v_served := v_served || jsonb_build_object(e.tenant, jsonb_array_length(v_claimed));
            IF v_limited THEN
                v_of_tenant := v_of_tenant
                    || jsonb_build_object(e.tenant, coalesce((v_of_tenant->>e.tenant)::bigint, 0) + 1);
                v_of_agent := v_of_agent
                    || jsonb_build_object(e.agent, coalesce((v_of_agent->>e.agent)::bigint, 0) + 1);
            END IF;
        END LOOP;
        IF v_tenants > 1 THEN -- Where there is but one, it has every turn.
            SELECT coalesce(max(turn), 0) INTO v_turn FROM turns;
            FOR e IN SELECT s.key AS tenant, s.value::bigint AS place FROM jsonb_each_text(v_served) s
                ORDER BY s.key COLLATE "C"
            LOOP
                INSERT INTO turns (tenant, turn) VALUES (e.tenant, v_turn + e.place) ON CONFLICT DO NOTHING;
                UPDATE turns SET turn = v_turn + e.place WHERE tenant =
                    (SELECT u.tenant FROM turns u WHERE u.tenant = e.tenant FOR UPDATE SKIP LOCKED);
            END LOOP;
        END IF;
    END IF;
    SELECT min(d.due_at) - v_due INTO v_wait
    FROM unnest(v_in_tenant, v_in_agent, v_in_priority) AS l(tenant, agent, priority) CROSS JOIN LATERAL (
        SELECT d.due_at FROM dispatches d
        WHERE d.held = 0 AND d.dead_at IS NULL AND d.tenant = l.tenant AND d.agent = l.agent
            AND d.priority = l.priority AND d.due_at > v_due ORDER BY d.due_at LIMIT 1
    ) AS d;
    SELECT least(v_wait, min(w.until) - v_now) INTO v_wait FROM workers w
        WHERE w.until > v_now AND w.id <> v_worker AND EXISTS (SELECT 1 FROM threads t WHERE t.claim = w.id);
    IF v_missed AND jsonb_array_length(v_claimed) < v_limit THEN
        v_wait := least(v_wait, 50); -- Others were faster; there may be more behind what they took.
    END IF;
    RETURN jsonb_build_array(v_claimed, v_wait);
END
$wakeful$
"""

# A claim's answer, and behind it the rows of the views of what was claimed, as they are while the threads' rows
# are locked: whoever claims needn't ask again.
_VIEWS = VIEWS.replace("tenant = ? AND id = ANY (?)", "no = ANY (v_threads)").replace("NOW_MS", "v_now")
CLAIM_ROWS = f"""
CREATE FUNCTION claim_rows_v6(
    v_worker text, v_lease bigint, v_agents text[], v_limit int, v_at bigint, v_per_tenant bigint,
    v_per_agent jsonb
) RETURNS TABLE (c0 text, {", ".join([f"c{n} bigint" for n in range(1, 9)])},
    {", ".join([f"c{n} text" for n in range(9, 17)])}, c17 bytea, c18 bytea, c19 bigint)
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
        RETURN QUERY {_VIEWS};
    END IF;
END
$wakeful$
"""

CLAIM_ROUTINES = (_DEAD, _REAP, _IS_SUSPECT, _LANES, _TAKE, _CLAIM)

# Those that know of claims which made no dispatch.
UNMADE_ROUTINES = (_MAKE, _HOLD, _SETTLE, _REAP, _CLAIM)
