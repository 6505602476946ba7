"""Claiming dispatches: one statement reads what may be claimed, Python picks by turns, one statement takes it.

Claiming waits for nobody: rows that others have locked are left to them. Claims and counted deaths are not synced
to disk: the first commit under a claim's fence syncs them. A server that crashes before that refuses the fence.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .. import dispatches
from ..dispatches import PROGRESS
from ..heads import DispatchRow, RunRow
from ..sql.base import Row
from ..sql.store import VIEWS
from ..turns import SUSPECT, Candidate, ClaimRequest, pick_in_turns
from .text import NOW_MS, escape, postgres_text, unescape_rows

__all__ = ["Claim", "Taken", "claim"]

# Candidates beyond the limit, for those that other workers are taking.
_SPARE = 16
# Milliseconds until a worker asks again that found candidates which others took.
_RACE_PAUSE = 50

_IS_READY = "d.held = 0 AND d.dead_at IS NULL"
_IS_SUSPECT = f"(d.attempts >= {SUSPECT} AND d.error IS NULL)"
_LANE = "d.tenant = l.tenant AND d.agent = l.agent AND d.priority = l.priority"
_UNSYNCED = "set_config('synchronous_commit', 'off', true)"

# $1 is the time that counts as due, $2 the agents, $3 the worker, $4 the number of candidates of a lane, $5
# whether to count live claims. Each owner and each lane takes one look into an index, however many rows it has.
_LOOK = f"""
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT s.now, coalesce($1::bigint, s.now) AS due FROM (SELECT {NOW_MS} AS now) s
), owners AS (
    SELECT min(t.claim) AS id FROM threads t WHERE t.claim IS NOT NULL
    UNION ALL
    SELECT (SELECT min(t.claim) FROM threads t WHERE t.claim > o.id) FROM owners o WHERE o.id IS NOT NULL
), dead AS MATERIALIZED (
    SELECT o.id FROM owners o, clock c
    WHERE o.id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = o.id AND w.until > c.now)
), lanes AS (
    (SELECT d.tenant, d.agent, d.priority, d.due_at FROM dispatches d WHERE {_IS_READY}
        ORDER BY d.tenant, d.agent, d.priority, d.due_at LIMIT 1)
    UNION ALL
    SELECT n.* FROM lanes l CROSS JOIN LATERAL (
        SELECT d.tenant, d.agent, d.priority, d.due_at FROM dispatches d
        WHERE {_IS_READY} AND (d.tenant, d.agent, d.priority) > (l.tenant, l.agent, l.priority)
        ORDER BY d.tenant, d.agent, d.priority, d.due_at LIMIT 1
    ) AS n
), mine AS MATERIALIZED (SELECT l.* FROM lanes l WHERE l.agent = '' OR l.agent = ANY ($2::text[])
), has AS MATERIALIZED (
    SELECT EXISTS (
        SELECT 1 FROM threads t JOIN dispatches d ON d.thread = t.no LEFT JOIN runs r ON r.no = t.open_run
        WHERE t.claim = $3 AND {_IS_SUSPECT} AND coalesce(r.step, 0) - d.mark < {PROGRESS}) AS suspect
)
SELECT 'clock' AS kind, c.now AS n1, c.due AS n2, has.suspect::int::bigint AS n3,
    (SELECT w.until FROM workers w WHERE w.id = $3) AS n4,
    (SELECT min(n.due_at) FROM mine l CROSS JOIN LATERAL (
        SELECT d.due_at FROM dispatches d WHERE {_IS_READY} AND {_LANE} AND d.due_at > c.due
        ORDER BY d.due_at LIMIT 1) AS n) AS n5,
    (SELECT min(w.until) FROM workers w WHERE w.until > c.now AND w.id <> $3
        AND EXISTS (SELECT 1 FROM threads t WHERE t.claim = w.id)) AS n6,
    NULL::bigint AS n7, NULL::bigint AS n8, NULL::bigint AS n9, NULL::bigint AS n10,
    NULL AS s1, NULL AS s2, NULL AS s3, NULL AS s4, NULL AS s5
FROM clock c, has
UNION ALL
SELECT 'ready', l.priority, d.due_at, d.thread, d.suspect::int, NULL, NULL, NULL, NULL, NULL, NULL,
    l.tenant, l.agent, NULL, NULL, NULL
FROM mine l, clock c, has CROSS JOIN LATERAL (
    SELECT d.thread, d.due_at, {_IS_SUSPECT} AS suspect FROM dispatches d
    WHERE {_IS_READY} AND {_LANE} AND d.due_at <= c.due AND NOT (has.suspect AND {_IS_SUSPECT})
    ORDER BY d.due_at, d.thread LIMIT $4
) AS d WHERE l.due_at <= c.due
UNION ALL
SELECT 'turn', u.turn, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, u.tenant, NULL, NULL, NULL, NULL
FROM turns u
UNION ALL
SELECT 'live', count(*), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    t.tenant, coalesce(d.agent, r.agent, ''), NULL, NULL, NULL
FROM clock c, workers w JOIN threads t ON t.claim = w.id LEFT JOIN dispatches d ON d.thread = t.no
    LEFT JOIN runs r ON r.no = t.open_run
WHERE $5::boolean AND w.until > c.now GROUP BY t.tenant, coalesce(d.agent, r.agent, '')
UNION ALL
SELECT 'dead', t.no, t.epoch, t.inbox_head, d.priority, d.due_at, d.attempts, d.mark, r.no, r.priority, r.step,
    t.tenant, t.claim, d.agent, d.error, r.agent
FROM dead o JOIN threads t ON t.claim = o.id LEFT JOIN dispatches d ON d.thread = t.no
    LEFT JOIN runs r ON r.no = t.open_run
WHERE d.thread IS NULL OR d.held = 1
"""

_REAP = f"""
WITH dead AS MATERIALIZED (
    SELECT x.* FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[],
        $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[])
        AS x(no, claim, epoch, inbox_head, tenant, agent, priority, due_at, attempts, mark, dead_at, error)
    CROSS JOIN LATERAL (
        SELECT claim, epoch, inbox_head FROM threads WHERE no = x.no FOR NO KEY UPDATE SKIP LOCKED) t
    WHERE t.claim = x.claim AND t.epoch = x.epoch AND t.inbox_head = x.inbox_head
        AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = x.claim AND w.until > {NOW_MS})
), put AS (
    INSERT INTO dispatches (thread, tenant, agent, priority, due_at, attempts, held, mark, dead_at, error)
    SELECT no, tenant, agent, priority, due_at, attempts, 0, mark, dead_at, error FROM dead
    ON CONFLICT (thread) DO UPDATE SET attempts = excluded.attempts, held = 0, mark = excluded.mark,
        dead_at = excluded.dead_at, error = excluded.error
), moved AS (
    UPDATE threads t SET inbox_head = t.inbox_head + 1, claim = CASE WHEN d.dead_at IS NULL THEN t.claim END
    FROM dead d WHERE t.no = d.no
)
SELECT count(*), {_UNSYNCED} FROM dead
"""

# $1 are the candidates in order, $2 the limit, $3 the time that counts as due, $4 the worker, $5 its lease in
# milliseconds and $6 whether to write that, $7 and $8 the turns of tenants. The views are read as of the
# statement's beginning; a view is right if the locked row has the version and the inbox head of the view's row.
_VIEWS = VIEWS.replace("WITH t AS", "t AS", 1).replace(
    "tenant = ? AND id = ANY (?)", "no IN (SELECT no FROM taken)"
)
_TAKE = f"""
WITH locked AS MATERIALIZED (
    SELECT t.* FROM unnest($1::bigint[]) WITH ORDINALITY AS p(no, n) CROSS JOIN LATERAL (
        SELECT t.no, t.tenant, t.id, t.claim, t.epoch, t.version, t.inbox_head, t.wakes, t.open_run, t.last_run
        FROM threads t WHERE t.no = p.no
            AND EXISTS (SELECT 1 FROM dispatches d WHERE d.thread = p.no AND {_IS_READY} AND d.due_at <= $3)
        FOR NO KEY UPDATE OF t SKIP LOCKED
    ) AS t LIMIT $2
), held AS (
    UPDATE dispatches d SET held = 1, mark = coalesce((SELECT r.step FROM runs r WHERE r.no = l.open_run), 0)
    FROM locked l WHERE d.thread = l.no AND {_IS_READY} AND d.due_at <= $3
    RETURNING d.thread, d.agent, d.priority, d.due_at, d.attempts, d.mark, d.error
), taken AS (
    UPDATE threads t SET claim = $4, epoch = t.epoch + 1, handed = t.version FROM locked l, held h
    WHERE t.no = l.no AND h.thread = l.no
        AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = l.claim AND w.until > {NOW_MS})
    RETURNING t.no
), lease AS (
    INSERT INTO workers (id, until, started_at) SELECT $4, {NOW_MS} + $5::bigint, {NOW_MS} WHERE $6::boolean
    ON CONFLICT (id) DO UPDATE SET until = excluded.until
), served AS (
    INSERT INTO turns (tenant, turn)
    SELECT x.tenant, x.turn FROM unnest($7::text[], $8::bigint[]) AS x(tenant, turn)
    ON CONFLICT (tenant) DO UPDATE SET turn = excluded.turn
), {postgres_text(_VIEWS)}
UNION ALL
SELECT 'claim', l.epoch + 1, h.due_at, h.attempts, h.priority, h.mark, l.version, l.inbox_head, l.last_run,
    l.tenant, l.id, h.agent, h.error, l.wakes, l.claim, {_UNSYNCED}, NULL, NULL, NULL, l.no, NULL
FROM taken k JOIN locked l ON l.no = k.no JOIN held h ON h.thread = k.no
"""
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtextextended(concat_ws(E'\\n', current_schema(), 'claim'), 0))"


class Taken(Struct, frozen=True):
    """A thread that was claimed. `rows` are those of its view, as of the claim; none if it moved meanwhile."""

    tenant: str
    thread_id: str
    no: int
    epoch: int
    version: int
    inbox_head: int
    last_run: int | None
    wakes: str
    dispatch: DispatchRow
    is_takeover: bool
    rows: list[Row]


class Claim(Struct, frozen=True):
    """The dispatches claimed at the time `now`, and the milliseconds until the next reason to claim."""

    now: int
    taken: list[Taken]
    wait: int | None


class _Seen(Struct):
    """The dispatches that may be claimed."""

    now: int = 0
    due: int = 0
    has_suspect: bool = False
    until: int = 0
    next_due: int | None = None
    next_end: int | None = None
    ready: list[Candidate] = []
    turns: dict[str, int] = {}
    live: dict[tuple[str, str], int] = {}
    dead: list[Row] = []


async def claim(connection: Any, request: ClaimRequest) -> Claim:
    """Claim due dispatches without a live owner."""
    is_limited = request.per_tenant is not None or bool(request.per_agent)
    async with AsyncExitStack() as stack:
        if is_limited:  # Workers count one at a time.
            await stack.enter_async_context(connection.transaction())
            await connection.execute(_ONE_AT_A_TIME)
        seen = await _look(connection, request, is_limited)
        if seen.dead:
            await _reap(connection, seen)
            seen = await _look(connection, request, is_limited)
        # Other workers may take the first candidates at the same time.
        wanted = request if is_limited else replace(request, limit=request.limit and request.limit * 2 + _SPARE)
        picked = pick_in_turns(seen.ready, seen.turns, seen.live, wanted, suspect=seen.has_suspect)
        taken = await _take(connection, request, seen, picked) if picked else []
    waits = [] if seen.next_due is None else [seen.next_due - seen.due]
    if seen.next_end is not None:
        waits.append(seen.next_end - seen.now)
    if len(taken) < min(request.limit, len(picked)):
        waits.append(_RACE_PAUSE)
    return Claim(seen.now, taken, min(waits, default=None))


async def _look(connection: Any, request: ClaimRequest, is_limited: bool) -> _Seen:
    agents = [escape(agent) for agent in request.agents]
    args = (request.now, agents, escape(request.worker_id), request.limit * 2 + _SPARE, is_limited)
    seen = _Seen()
    for kind, *values in unescape_rows(await connection.fetch(_LOOK, *args)):
        n, s = values[:10], values[10:]
        match kind:
            case "clock":
                seen.now, seen.due, seen.has_suspect, seen.until = n[0], n[1], bool(n[2]), n[3] or 0
                seen.next_due, seen.next_end = n[4], n[5]
            case "ready":
                seen.ready.append(Candidate(n[0], n[1], n[2], s[0], s[1], bool(n[3])))
            case "turn":
                seen.turns[s[0]] = n[0]
            case "live":
                seen.live[s[0], s[1]] = n[0]
            case _:
                seen.dead.append(tuple(values))
    return seen


async def _reap(connection: Any, seen: _Seen) -> None:
    """Count the deaths of owners: their dispatches are due again, or dead letters after the last attempt."""
    rows: list[Row] = []
    for row in seen.dead:
        no, epoch, inbox_head, priority, due_at, attempts, mark, run_no, run_priority, step = row[:10]
        tenant, owner, agent, error, run_agent = row[10:]
        run = None if run_no is None else RunRow(run_no, "", run_agent, run_priority, step, "")
        held = dispatches.make(run, seen.now)
        if priority is not None:
            held = DispatchRow(agent, priority, due_at, attempts, True, mark, None, error)
        after = dispatches.reap(held, step or 0, seen.now)
        own = (escape(tenant), escape(after.agent), after.priority, after.due_at, after.attempts, after.mark)
        rows.append((no, escape(owner), epoch, inbox_head, *own, after.dead_at, after.error))
    await connection.fetch(_REAP, *zip(*sorted(rows), strict=True))


async def _take(connection: Any, request: ClaimRequest, seen: _Seen, picked: Sequence[Candidate]) -> list[Taken]:
    last, turns = max(seen.turns.values(), default=0), dict[str, int]()
    if len({one.tenant for one in seen.ready}) > 1:  # A lone tenant has every turn.
        turns = {one.tenant: last + place for place, one in enumerate(picked[: request.limit], 1)}
    is_short = seen.until < seen.now + request.lease - request.lease // 2
    tenants = sorted([(escape(tenant), turn) for tenant, turn in turns.items()])
    rows = await connection.fetch(
        _TAKE,
        [one.thread for one in picked],
        request.limit,
        seen.due,
        escape(request.worker_id),
        request.lease,
        is_short,
        [tenant for tenant, _ in tenants],
        [turn for _, turn in tenants],
    )
    views: dict[int, list[Row]] = {}
    claims: dict[int, Row] = {}
    for row in unescape_rows(rows):
        if row[0] == "claim":
            claims[row[19]] = row
        else:
            views.setdefault(row[19], []).append(row)
    return [_taken(claims[one.thread], views[one.thread]) for one in picked if one.thread in claims]


def _taken(row: Row, view: list[Row]) -> Taken:
    epoch, due_at, attempts, priority, mark, version, inbox_head, last_run = row[1:9]
    tenant, thread_id, agent, error, wakes, owner = row[9:15]
    dispatch = DispatchRow(agent, priority, due_at, attempts, True, mark, None, error)
    thread = next(one for one in view if one[0] == "thread")
    is_current = (thread[2], thread[5]) == (version, inbox_head)
    return Taken(
        tenant,
        thread_id,
        row[19],
        epoch,
        version,
        inbox_head,
        last_run,
        wakes,
        dispatch,
        owner is not None,
        view if is_current else [],
    )
