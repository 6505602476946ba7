"""Postgres's way of putting one item into the inbox of a thread that nobody runs, which is how most runs begin.

It does what `commit_v3` does for such a commit, without JSON: whoever sends waits for it, and whoever will run.
"""

from __future__ import annotations

from typing import Any

from ._plans import Plan, escaped
from ._rules import IDLE_WAKES, MAX_PENDING

__all__ = ["DELIVERY_ROUTINES", "delivery_of"]

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

DELIVERY_ROUTINES = (_PUT,)


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
