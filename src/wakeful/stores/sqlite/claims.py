"""Claiming dispatches in SQLite, inside a write transaction of the one connection that writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from msgspec import Struct

from ...types.ids import now_ms
from ..dispatches import MAX_ATTEMPTS, PROGRESS, make, reap
from ..heads import DispatchRow, RunRow
from ..records import Claimed, Claims
from ..sql.operations import SQLITE
from ..turns import SUSPECT, Candidate, ClaimRequest, pick_in_turns

__all__ = ["claim_dispatches"]

_READY = "held = 0 AND dead_at IS NULL"
_SUSPECT = f"attempts >= {SUSPECT} AND error IS NULL"  # A failure has an error: that explains its attempts.


class _Lane(Struct, frozen=True):
    """Dispatches of one tenant, agent and priority, with the time of the first."""

    tenant: str
    agent: str
    priority: int
    due_at: int


def claim_dispatches(db: sqlite3.Connection, request: ClaimRequest, is_alive: Callable[[str], bool]) -> Claims:
    """Claim dispatches that are due and free."""
    clock = now_ms()
    due = clock if request.now is None else request.now
    _reap_dead_owners(db, clock)
    lanes = [lane for lane in _lanes(db) if request.can_run(lane.agent)]
    claimed: list[Claimed] = []
    if request.limit > 0 and any(lane.due_at <= due for lane in lanes):
        _extend_lease(db, request, clock)
        suspect = _has_suspect(db, request.worker_id)
        ready = _candidates(db, lanes, due, request.limit, suspect)
        picked = pick_in_turns(ready, _turns(db), _live_counts(db, request, clock), request, suspect=suspect)
        found = [_take(db, one, request.worker_id, clock, is_alive) for one in picked]
        claimed = [one for one in found if one is not None]
        _write_turns(db, [one.tenant for one in picked])
    return Claims(tuple(claimed), _wait(db, lanes, due, clock, request.worker_id))


def _extend_lease(db: sqlite3.Connection, request: ClaimRequest, clock: int) -> None:
    """Begin or extend the worker's lease, if half of it is over."""
    row = db.execute("SELECT until FROM workers WHERE id = ?", (request.worker_id,)).fetchone()
    if row is None or row[0] < clock + request.lease - request.lease // 2:
        db.execute(SQLITE["lease"], (request.worker_id, clock, clock + request.lease))


# -- dead owners -------------------------------------------------------------------------------------------------


_HELD = """SELECT t.no, t.tenant, r.no, r.id, r.agent, r.priority, r.step, r.status,
        d.agent, d.priority, d.due_at, d.attempts, d.held, d.mark, d.dead_at, d.error
    FROM threads t LEFT JOIN runs r ON r.no = t.open_run LEFT JOIN dispatches d ON d.thread = t.no
    WHERE t.claim = ? AND coalesce(d.held, 1) = 1"""


def _reap_dead_owners(db: sqlite3.Connection, clock: int) -> None:
    """Make the dispatches of dead owners due again, each with an attempt more; too many make a dead letter."""
    for owner in _dead_owners(db, clock):
        for row in db.execute(_HELD, (owner,)).fetchall():
            thread, tenant = row[:2]
            run = None if row[2] is None else RunRow(*row[2:8])
            dispatch = make(run, clock) if row[8] is None else DispatchRow(*row[8:])
            dispatch = reap(dispatch, 0 if run is None else run.steps, clock)
            _put_dispatch(db, thread, tenant, dispatch)
            # Heads are compared by what this moves.
            is_dead = dispatch.attempts >= MAX_ATTEMPTS
            claim = "claim = NULL, " if is_dead else ""
            db.execute(f"UPDATE threads SET {claim}inbox_head = inbox_head + 1 WHERE no = ?", (thread,))


def _put_dispatch(db: sqlite3.Connection, thread: int, tenant: str, dispatch: DispatchRow) -> None:
    own = (dispatch.agent, dispatch.priority, dispatch.due_at, dispatch.attempts, int(dispatch.held))
    more = (dispatch.mark, dispatch.dead_at, dispatch.error)
    db.execute(SQLITE["dispatch"], (thread, tenant, *own, *more))


def _dead_owners(db: sqlite3.Connection, clock: int) -> list[str]:
    """Workers that have claims and no lease: one index lookup for each that has claims."""
    dead: list[str] = []
    (owner,) = db.execute("SELECT min(claim) FROM threads WHERE claim IS NOT NULL").fetchone()
    while owner is not None:
        if db.execute("SELECT 1 FROM workers WHERE id = ? AND until > ?", (owner, clock)).fetchone() is None:
            dead.append(owner)
        (owner,) = db.execute("SELECT min(claim) FROM threads WHERE claim > ?", (owner,)).fetchone()
    return dead


# -- candidates --------------------------------------------------------------------------------------------------


def _lanes(db: sqlite3.Connection) -> list[_Lane]:
    """The lanes with dispatches that are ready: a few index lookups for each."""
    lane = f"SELECT tenant, agent, priority, due_at FROM dispatches WHERE {_READY}"
    order = "ORDER BY tenant, agent, priority, due_at LIMIT 1"
    # Column by column: one comparison of all three would scan everything that the tenant has.
    behind = (
        (f"{lane} AND tenant = ? AND agent = ? AND priority > ? {order}", 3),
        (f"{lane} AND tenant = ? AND agent > ? {order}", 2),
        (f"{lane} AND tenant > ? {order}", 1),
    )
    lanes: list[_Lane] = []
    row = db.execute(f"{lane} {order}").fetchone()
    while row is not None:
        lanes.append(_Lane(*row))
        last = row[:3]
        row = next((found for sql, n in behind if (found := db.execute(sql, last[:n]).fetchone())), None)
    return lanes


_IN_LANE = f"FROM dispatches WHERE {_READY} AND tenant = ? AND agent = ? AND priority = ?"


def _candidates(
    db: sqlite3.Connection, lanes: list[_Lane], due: int, limit: int, suspect: bool
) -> list[Candidate]:
    """The dispatches that are due, more of each lane than are wanted: limits and suspects leave some out."""
    left_out = f"AND NOT ({_SUSPECT})" if suspect else ""
    sql = f"""SELECT priority, due_at, thread, tenant, agent, {_SUSPECT} {_IN_LANE} AND due_at <= ? {left_out}
              ORDER BY due_at, thread LIMIT ?"""
    found: list[Candidate] = []
    for lane in lanes:
        if lane.due_at <= due:
            rows = db.execute(sql, (lane.tenant, lane.agent, lane.priority, due, limit * 2 + 16))
            found += [Candidate(*row[:5], suspect=bool(row[5])) for row in rows]
    return found


def _has_suspect(db: sqlite3.Connection, worker_id: str) -> bool:
    sql = f"""SELECT 1 FROM threads t JOIN dispatches d ON d.thread = t.no LEFT JOIN runs r ON r.no = t.open_run
              WHERE t.claim = ? AND {_SUSPECT} AND coalesce(r.step, 0) - d.mark < {PROGRESS}"""
    return db.execute(sql, (worker_id,)).fetchone() is not None


def _turns(db: sqlite3.Connection) -> dict[str, int]:
    return dict(db.execute("SELECT tenant, turn FROM turns").fetchall())


def _write_turns(db: sqlite3.Connection, tenants: list[str]) -> None:
    if not tenants:
        return
    (last,) = db.execute("SELECT coalesce(max(turn), 0) FROM turns").fetchone()
    turns = {tenant: last + place for place, tenant in enumerate(tenants, 1)}
    sql = "INSERT INTO turns (tenant, turn) VALUES (?, ?) ON CONFLICT (tenant) DO UPDATE SET turn = excluded.turn"
    db.executemany(sql, turns.items())


def _live_counts(db: sqlite3.Connection, request: ClaimRequest, clock: int) -> dict[tuple[str, str], int]:
    """The number of threads that live workers have claimed, by tenant and agent; only if that is limited."""
    if request.per_tenant is None and not request.per_agent:
        return {}
    sql = """SELECT t.tenant, coalesce(d.agent, r.agent, ''), count(*) FROM workers w
             JOIN threads t ON t.claim = w.id LEFT JOIN dispatches d ON d.thread = t.no
             LEFT JOIN runs r ON r.no = t.open_run WHERE w.until > ? GROUP BY 1, 2"""
    return {(tenant, agent): count for tenant, agent, count in db.execute(sql, (clock,))}


def _take(
    db: sqlite3.Connection, one: Candidate, worker_id: str, clock: int, is_alive: Callable[[str], bool]
) -> Claimed | None:
    sql = """SELECT t.tenant, t.id, t.claim, t.epoch, t.version, d.attempts, coalesce(r.step, 0) FROM threads t
             JOIN dispatches d ON d.thread = t.no LEFT JOIN runs r ON r.no = t.open_run WHERE t.no = ?"""
    tenant, thread_id, owner, epoch, version, attempts, step = db.execute(sql, (one.thread,)).fetchone()
    if owner is not None and is_alive(owner):  # It renewed its lease after its dispatch was freed.
        db.execute("UPDATE dispatches SET held = 1 WHERE thread = ?", (one.thread,))
        return None
    sql = "UPDATE threads SET claim = ?, epoch = ?, handed = ? WHERE no = ?"
    db.execute(sql, (worker_id, epoch + 1, version, one.thread))
    db.execute("UPDATE dispatches SET held = 1, mark = ? WHERE thread = ?", (step, one.thread))
    waited = max(clock - one.due_at, 0)
    return Claimed(tenant, thread_id, one.agent, epoch + 1, one.due_at, waited, attempts, owner is not None)


def _wait(db: sqlite3.Connection, lanes: list[_Lane], due: int, clock: int, worker_id: str) -> int | None:
    """Milliseconds until something else is due, or until the lease of another worker with claims ends."""
    waits: list[int] = []
    for lane in lanes:
        sql = f"SELECT min(due_at) {_IN_LANE} AND due_at > ?"
        (at,) = db.execute(sql, (lane.tenant, lane.agent, lane.priority, due)).fetchone()
        if at is not None:
            waits.append(at - due)
    sql = """SELECT min(w.until) FROM workers w WHERE w.until > ? AND w.id <> ?
             AND EXISTS (SELECT 1 FROM threads t WHERE t.claim = w.id)"""
    (until,) = db.execute(sql, (clock, worker_id)).fetchone()
    if until is not None:
        waits.append(until - clock)
    return min(waits, default=None)
