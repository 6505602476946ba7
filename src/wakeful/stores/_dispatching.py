"""Dispatches in SQLite, inside the writer's transaction: what is due, who takes it, and what becomes of it.

A commit that claims a thread which has no dispatch makes none. One is made when the thread's owner died or gives
it back, as it would be if it had been made with the claim.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from msgspec import Struct

from ..types.ids import now_ms
from ..types.runs import PRIORITY
from ._claiming import PROGRESS, SUSPECT, Asked, Ready, after_death, backoff, died, in_turns
from ._protocol import MAX_ATTEMPTS, Claimed, Claims

__all__ = ["SOONER", "begin_lease", "claim", "dispatch", "fail", "hold", "make", "revive", "settle"]

_READY = "held = 0 AND dead_at IS NULL"
_SUSPECT = f"attempts >= {SUSPECT} AND error IS NULL"  # One that failed has said why.


# -- what a commit does to its thread's dispatch ---------------------------------------------------------------


_DISPATCH = """INSERT INTO dispatches (thread, tenant, agent, priority, due_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (thread) DO UPDATE SET tenant = excluded.tenant, held = 0, dead_at = NULL, error = NULL, """
# In words that Postgres has too.
SOONER = f"""{_DISPATCH} priority = CASE WHEN dispatches.priority < excluded.priority
        THEN dispatches.priority ELSE excluded.priority END,
    due_at = CASE WHEN dispatches.dead_at IS NULL AND dispatches.due_at < excluded.due_at
        THEN dispatches.due_at ELSE excluded.due_at END,
    agent = CASE dispatches.agent WHEN '' THEN excluded.agent ELSE dispatches.agent END"""
_ANEW = f"""{_DISPATCH} priority = excluded.priority, due_at = excluded.due_at, attempts = 0,
    agent = CASE excluded.agent WHEN '' THEN agent ELSE excluded.agent END"""


def dispatch(
    db: sqlite3.Connection,
    tenant: str,
    thread: int,
    agent: str,
    due_at: int,
    priority: int,
    *,
    sooner: bool = False,
) -> None:
    """The thread is due at that time. With `sooner` something more came for it: it isn't due later than it was,
    and who was first comes first. Otherwise it begins anew, with all its attempts."""
    db.execute(SOONER if sooner else _ANEW, (thread, tenant, agent, priority, due_at))


_MAKE = f"""INSERT INTO dispatches (thread, tenant, agent, priority, due_at, held, mark)
    SELECT t.no, t.tenant, coalesce(r.agent, ''), coalesce(r.priority, {PRIORITY}), ?, 1, coalesce(r.step, 0)
    FROM threads t LEFT JOIN runs r ON r.no = t.open_run
    WHERE t.no = ? AND NOT EXISTS (SELECT 1 FROM dispatches d WHERE d.thread = t.no)"""
_MAKE_ALL = _MAKE.replace("t.no = ?", "t.claim = ?")


def make(db: sqlite3.Connection, thread: int, now: int) -> None:
    """Make the dispatch of a thread that is or was claimed, if the claim made none."""
    db.execute(_MAKE, (now, thread))


def hold(db: sqlite3.Connection, thread: int, agent: str, now: int, step: int, lost: bool) -> None:
    """The thread is claimed by a commit; `lost` says that its owner before died, which counts unless it was."""
    if lost:
        make(db, thread, now)
        sql = "SELECT held, attempts, mark FROM dispatches WHERE thread = ?"
        for held, attempts, mark in db.execute(sql, (thread,)).fetchall():
            if held:
                sql = "UPDATE dispatches SET attempts = ? WHERE thread = ?"
                db.execute(sql, (after_death(attempts, mark, step), thread))
    sql = """UPDATE dispatches SET held = 1, dead_at = NULL, error = NULL, due_at = ?, mark = ?,
             agent = coalesce(nullif(?, ''), agent) WHERE thread = ?"""
    db.execute(sql, (now, step, agent, thread))


def settle(db: sqlite3.Connection, thread: int, later: int | None) -> None:
    """Nobody owns the thread any more, and what was due is due, or at the time that was said."""
    sql = "UPDATE dispatches SET held = 0, due_at = coalesce(?, due_at) WHERE thread = ?"
    db.execute(sql, (later, thread))


def fail(db: sqlite3.Connection, thread: int, error: str, now: int) -> None:
    """The thread's owner gave up: it is due again after a pause, unless that was the last attempt."""
    row = db.execute("SELECT attempts FROM dispatches WHERE thread = ?", (thread,)).fetchone()
    if row is None:
        return
    attempts = row[0] + 1
    dead_at = now if attempts >= MAX_ATTEMPTS else None
    sql = "UPDATE dispatches SET held = 0, attempts = ?, due_at = ?, dead_at = ?, error = ? WHERE thread = ?"
    db.execute(sql, (attempts, now + backoff(attempts), dead_at, error, thread))


def revive(db: sqlite3.Connection, thread: int) -> bool:
    """Make a dead letter due again."""
    sql = """UPDATE dispatches SET dead_at = NULL, error = NULL, attempts = 0, due_at = ?, held = 0
             WHERE thread = ? AND dead_at IS NOT NULL"""
    return db.execute(sql, (now_ms(), thread)).rowcount > 0


def begin_lease(db: sqlite3.Connection, worker_id: str, lease: int, now: int) -> None:
    """Begin or prolong a worker's lease, if there isn't enough left of it."""
    row = db.execute("SELECT until FROM workers WHERE id = ?", (worker_id,)).fetchone()
    if row is None or row[0] < now + lease - lease // 2:
        db.execute(
            """INSERT INTO workers (id, until, started_at) VALUES (?, ?, ?)
               ON CONFLICT (id) DO UPDATE SET until = excluded.until""",
            (worker_id, now + lease, now),
        )


# -- claiming --------------------------------------------------------------------------------------------------


class _Lane(Struct, frozen=True):
    tenant: str
    agent: str
    priority: int
    due_at: int


def claim(db: sqlite3.Connection, asked: Asked, alive: Callable[[str], bool]) -> Claims:
    """Take what is due and free. Inside a transaction nobody else claims."""
    clock = now_ms()
    due = clock if asked.now is None else asked.now
    _free_the_dead(db, clock)
    lanes = [lane for lane in _lanes(db) if asked.knows(lane.agent)]
    claimed: list[Claimed] = []
    if asked.limit > 0 and any(lane.due_at <= due for lane in lanes):
        begin_lease(db, asked.worker_id, asked.lease, clock)
        suspect = _has_suspect(db, asked.worker_id)
        ready = _candidates(db, lanes, due, asked.limit, suspect)
        picked = in_turns(ready, _turns(db), _live(db, asked, clock), asked, suspect=suspect)
        claimed = [taken for one in picked if (taken := _take(db, one, asked.worker_id, clock, alive)) is not None]
        _write_turns(db, [one.tenant for one in picked])
    return Claims(tuple(claimed), _wait(db, lanes, due, clock, asked.worker_id))


def _free_the_dead(db: sqlite3.Connection, clock: int) -> None:
    """Make due what workers left that died, each an attempt; one too many is a dead letter."""
    sql = """SELECT t.no, d.attempts, d.mark, coalesce(r.step, 0) FROM threads t
             JOIN dispatches d ON d.thread = t.no AND d.held = 1 LEFT JOIN runs r ON r.no = t.open_run
             WHERE t.claim = ?"""
    dead = _dead(db, clock)
    for owner in dead:
        db.execute(_MAKE_ALL, (clock, owner))
    left = [row for owner in dead for row in db.execute(sql, (owner,)).fetchall()]
    for thread, attempts, mark, step in left:
        attempts = after_death(attempts, mark, step)
        if attempts < MAX_ATTEMPTS:
            sql = "UPDATE dispatches SET held = 0, attempts = ?, mark = ?, error = NULL WHERE thread = ?"
            db.execute(sql, (attempts, step, thread))
        else:
            sql = "UPDATE dispatches SET held = 0, attempts = ?, dead_at = ?, error = ? WHERE thread = ?"
            db.execute(sql, (attempts, clock, died(attempts), thread))
            db.execute("UPDATE threads SET claim = NULL WHERE no = ?", (thread,))


def _dead(db: sqlite3.Connection, clock: int) -> list[str]:
    """Those who have claims and no lease: one look into the index for each who has claims."""
    dead: list[str] = []
    (owner,) = db.execute("SELECT min(claim) FROM threads WHERE claim IS NOT NULL").fetchone()
    while owner is not None:
        if db.execute("SELECT 1 FROM workers WHERE id = ? AND until > ?", (owner, clock)).fetchone() is None:
            dead.append(owner)
        (owner,) = db.execute("SELECT min(claim) FROM threads WHERE claim > ?", (owner,)).fetchone()
    return dead


def _lanes(db: sqlite3.Connection) -> list[_Lane]:
    """Where something waits, each lane with the time of its first: a few looks into the index for each."""
    lane = f"SELECT tenant, agent, priority, due_at FROM dispatches WHERE {_READY}"
    order = "ORDER BY tenant, agent, priority, due_at LIMIT 1"
    # What is behind a lane column by column: to compare them at once would go through all that the tenant has.
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


def _candidates(db: sqlite3.Connection, lanes: list[_Lane], due: int, limit: int, suspect: bool) -> list[Ready]:
    """What is due in each lane, and more than is wanted of it: of what is suspect one is taken, or none if the
    worker has such a run."""
    left_out = f"AND NOT ({_SUSPECT})" if suspect else ""
    sql = f"""SELECT priority, due_at, thread, tenant, agent, {_SUSPECT} {_IN_LANE} AND due_at <= ? {left_out}
              ORDER BY due_at, thread LIMIT ?"""
    found: list[Ready] = []
    for lane in lanes:
        if lane.due_at <= due:
            rows = db.execute(sql, (lane.tenant, lane.agent, lane.priority, due, limit * 2 + 16))
            found += [Ready(*row[:5], suspect=bool(row[5])) for row in rows]
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


def _live(db: sqlite3.Connection, asked: Asked, clock: int) -> dict[tuple[str, str], int]:
    """How many threads are claimed by somebody alive, by tenant and agent; only where that is limited."""
    if asked.per_tenant is None and not asked.per_agent:
        return {}
    sql = """SELECT t.tenant, coalesce(d.agent, r.agent, ''), count(*) FROM workers w
             JOIN threads t ON t.claim = w.id LEFT JOIN dispatches d ON d.thread = t.no
             LEFT JOIN runs r ON r.no = t.open_run WHERE w.until > ? GROUP BY 1, 2"""
    return {(tenant, agent): count for tenant, agent, count in db.execute(sql, (clock,))}


def _take(
    db: sqlite3.Connection, one: Ready, worker_id: str, clock: int, alive: Callable[[str], bool]
) -> Claimed | None:
    sql = """SELECT t.tenant, t.id, t.claim, t.epoch, d.attempts, coalesce(r.step, 0) FROM threads t
             JOIN dispatches d ON d.thread = t.no LEFT JOIN runs r ON r.no = t.open_run WHERE t.no = ?"""
    tenant, thread_id, owner, epoch, attempts, step = db.execute(sql, (one.thread,)).fetchone()
    if owner is not None and alive(owner):  # It came back in time, or it is of a version that holds nothing.
        db.execute("UPDATE dispatches SET held = 1 WHERE thread = ?", (one.thread,))
        return None
    db.execute("UPDATE threads SET claim = ?, epoch = ? WHERE no = ?", (worker_id, epoch + 1, one.thread))
    db.execute("UPDATE dispatches SET held = 1, mark = ? WHERE thread = ?", (step, one.thread))
    waited = max(clock - one.due_at, 0)
    return Claimed(tenant, thread_id, one.agent, epoch + 1, one.due_at, waited, attempts, owner is not None)


def _wait(db: sqlite3.Connection, lanes: list[_Lane], due: int, clock: int, worker_id: str) -> int | None:
    """When something else is due, or a lease of another worker's that has claims is over."""
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
