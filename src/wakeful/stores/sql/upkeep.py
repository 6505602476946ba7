"""Fork, delete and prune, as scripts that SQLite and Postgres run in one transaction each.

A script yields statements with their arguments and is sent their rows. FOR_UPDATE stands for a row lock, which
Postgres needs and SQLite doesn't; with IF_FREE, rows that are locked are skipped. A script that changes a fact of
a thread's head moves its inbox head, by which cached heads are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from ...errors import HasChildren, ThreadBusy, ThreadExists, UnknownThread, WakefulError
from ...types.ids import now_ms
from ...types.inbox import Request
from ...types.records import AuditEntry, MemoryNote, memory_prefix
from ..codec.packer import Packer
from ..conditions import FOR_RUNS, no_place, record_kind, refuse_fork
from ..memories import row_number
from ..records import ChildPolicy, Pruned, Retention
from .base import Script
from .notices import tell_owners
from .requests import put_request

__all__ = ["Script", "Undone", "delete", "fork", "probe", "prune", "prune_and_undo"]

T = TypeVar("T")

# Relays with a message to deliver.
_ON_THEIR_WAY = "status = 'live' AND cursor < 0"
_ALIVE = "EXISTS (SELECT 1 FROM workers w WHERE w.id = t.claim AND w.until > NOW_MS)"


def fork(tenant: str, thread_id: str, at: int, new_id: str, request: Request | None) -> Script[str]:
    """Make a thread that shares the first `at` entries of another, without copying them; returns its id.

    A repeated request returns the thread that the first one made.
    """
    if request is not None:
        for made, base_id, digest in (
            yield (
                """SELECT t.id, b.id, i.digest FROM inbox i JOIN threads t ON t.no = i.thread
                   LEFT JOIN threads b ON b.no = t.base WHERE i.tenant = ? AND i.id = ?""",
                (tenant, request.id),
            )
        ):
            if error := refuse_fork(request, digest, base_id, thread_id):
                raise error
            return made
    rows = yield (
        "SELECT no, head, principal FROM threads WHERE tenant = ? AND id = ? FOR_UPDATE",
        (tenant, thread_id),
    )
    if not rows:
        raise UnknownThread(f"no thread {thread_id!r} in this store")
    base, head, principal = rows[0]
    if not 0 <= at <= head:
        raise no_place(thread_id, head, at)
    if (yield "SELECT 1 FROM threads WHERE tenant = ? AND id = ?", (tenant, new_id)):
        raise ThreadExists(f"thread {new_id!r} exists already; fork into another id")
    now = now_ms()
    rows = yield (
        """INSERT INTO threads (tenant, id, version, head, base, base_seq, created_at, updated_at, principal)
           VALUES (?, ?, 1, ?, ?, ?, ?, ?, ?) RETURNING no""",
        (tenant, new_id, at, base, at, now, now, principal),
    )
    new = rows[0][0]
    for table, columns in (("state_log", "name, seq, at, payload"), ("blobs", "digest, payload")):
        only = " AND seq <= ?" if table == "state_log" else ""
        yield (
            f"INSERT INTO {table} (thread, {columns}) SELECT {new}, {columns} FROM {table} WHERE thread = ?{only}",
            (base, at) if only else (base,),
        )
    yield (
        """INSERT INTO state (thread, run, name, seq, payload)
           SELECT thread, 0, name, seq, payload FROM state_log s WHERE thread = ?
           AND seq = (SELECT max(seq) FROM state_log n WHERE n.thread = s.thread AND n.name = s.name)""",
        (new,),
    )
    if request is not None:
        yield from put_request(tenant, new, request)
    return new_id


def probe() -> Script[None]:
    """Write a row, as any commit does."""
    insert = "INSERT INTO meta (name, value) VALUES ('probe', ?)"
    yield f"{insert} ON CONFLICT (name) DO UPDATE SET value = excluded.value", (str(now_ms()),)


def delete(packer: Packer, tenant: str, thread_id: str, children: ChildPolicy) -> Script[int]:
    """Delete a thread, and its children by policy. The owner of a task that runs on it is told.

    The owners of its children's tasks are deleted with them.
    """
    # Lock the thread and its parent in one order.
    yield (
        """SELECT no FROM threads WHERE tenant = ? AND
           (id = ? OR id = (SELECT k.parent FROM threads k WHERE k.tenant = ? AND k.id = ?))
           ORDER BY id FOR_UPDATE""",
        (tenant, thread_id, tenant, thread_id),
    )
    for thread, parent in (
        yield (
            "SELECT no, parent FROM threads WHERE tenant = ? AND id = ?",
            (tenant, thread_id),
        )
    ):
        yield from tell_owners(packer, tenant, thread, thread_id, parent)
    return (yield from _delete(tenant, thread_id, children))


def _delete(tenant: str, thread_id: str, children: ChildPolicy) -> Script[int]:
    yield "SELECT no FROM threads WHERE tenant = ? AND id = ? FOR_UPDATE", (tenant, thread_id)
    rows = yield f"SELECT no, {_ALIVE} FROM threads t WHERE tenant = ? AND id = ?", (tenant, thread_id)
    if not rows:
        return 0
    thread, alive = rows[0]
    if alive:
        raise ThreadBusy(f"thread {thread_id!r} has a running run; cancel it or wait for it before you delete it")
    kids = yield "SELECT id FROM threads WHERE tenant = ? AND parent = ?", (tenant, thread_id)
    if kids and children == "reject":
        raise HasChildren(
            f"thread {thread_id!r} has {len(kids)} child threads of delegated runs; delete it with "
            'children="cascade" to remove them too, or children="detach" to keep them'
        )
    removed = 1
    if children == "cascade":
        for (child,) in kids:
            removed += yield from _delete(tenant, child, children)
    elif kids:
        yield "UPDATE threads SET parent = NULL WHERE tenant = ? AND parent = ?", (tenant, thread_id)
    yield from _free_forks(thread)
    yield from _remove(thread)
    yield from _forget(tenant, thread_id)
    return removed


def _free_forks(thread: int) -> Script[None]:
    """Copy to a thread's forks the messages that they share. Its events are deleted with its runs."""
    for fork, seq in (yield "SELECT no, base_seq FROM threads WHERE base = ?", (thread,)):
        yield (
            f"""INSERT INTO log (thread, seq, kind, run, agent, at, ref, payload)
                SELECT {fork}, seq, kind, run, agent, at, ref, payload FROM log
                WHERE thread = ? AND seq <= ? AND kind = 'message'""",
            (thread, seq),
        )
        yield (
            """UPDATE threads SET base = (SELECT base FROM threads b WHERE b.no = threads.base),
               base_seq = (SELECT CASE WHEN b.base_seq < threads.base_seq THEN b.base_seq ELSE threads.base_seq END
               FROM threads b WHERE b.no = threads.base) WHERE no = ?""",
            (fork,),
        )


_OF_THREAD = (
    "log",
    "chunks",
    "tickets",
    "decisions",
    "state",
    "state_log",
    "inbox",
    "tasks",
    "relays",
    "blobs",
)


def _remove(thread: int) -> Script[None]:
    yield "DELETE FROM calls WHERE run IN (SELECT no FROM runs WHERE thread = ?)", (thread,)
    for table in (*_OF_THREAD, "dispatches", "runs"):
        yield f"DELETE FROM {table} WHERE thread = ?", (thread,)
    yield "DELETE FROM threads WHERE no = ?", (thread,)


def _forget(tenant: str, thread_id: str) -> Script[None]:
    """Delete the memories of a thread."""
    kind, prefix = record_kind(MemoryNote), memory_prefix("thread", thread_id)
    sql = "DELETE FROM records WHERE tenant = ? AND kind = ? AND id >= ? AND id < ? RETURNING id"
    for (note_id,) in (yield sql, (tenant, kind, prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1))):
        yield "DELETE FROM memory_index WHERE rowid = ?", (row_number(tenant, note_id),)


def prune(tenant: str, retention: Retention) -> Script[Pruned]:
    """Delete what is older than its retention."""
    now = now_ms()
    chunks = events = runs = threads = usage = audit = 0
    mine = "SELECT no FROM threads WHERE tenant = ?"
    if retention.chunks is not None:
        sql = f"DELETE FROM chunks WHERE at < ? AND thread IN ({mine}) RETURNING 1"
        chunks = len((yield sql, (now - retention.chunks, tenant)))
    if retention.events is not None:
        cut = now - retention.events
        old = "tenant = ? AND status = 'done' AND finished_at < ? AND bare < finished_at"
        events = yield from _strip(f"(thread, run) IN (SELECT thread, no FROM runs WHERE {old})", (tenant, cut))
        yield f"UPDATE runs SET bare = finished_at WHERE {old}", (tenant, cut)
        # Keep the last value before the cut: the key had it at the cut.
        yield (
            f"""DELETE FROM state_log WHERE at < ? AND thread IN ({mine}) AND EXISTS (SELECT 1 FROM state_log n
                WHERE n.thread = state_log.thread AND n.name = state_log.name AND n.seq > state_log.seq
                AND n.at < ?)""",
            (cut, tenant, cut),
        )
    if retention.runs is not None:
        sql = "SELECT no, thread FROM runs WHERE tenant = ? AND status = 'done' AND finished_at < ?"
        runs += yield from _remove_runs((yield sql, (tenant, now - retention.runs)))
    if retention.runs_kept is not None:
        sql = """SELECT no, thread FROM (SELECT no, thread, status, row_number() OVER (PARTITION BY thread
                 ORDER BY CASE WHEN status = 'done' THEN 1 ELSE 0 END, finished_at DESC, no DESC) AS place
                 FROM runs WHERE tenant = ?) AS r WHERE status = 'done' AND place > ?"""
        runs += yield from _remove_runs((yield sql, (tenant, retention.runs_kept)))
    if retention.children is not None:
        old = ("parent IS NOT NULL AND updated_at < ?", (now - retention.children,))
        threads += yield from _remove_idle(tenant, *old)
    if retention.threads is not None:
        threads += yield from _remove_idle(tenant, "updated_at < ?", (now - retention.threads,))
    if retention.threads_kept is not None:
        older = """parent IS NULL AND no NOT IN (SELECT no FROM threads WHERE tenant = ? AND parent IS NULL
                   ORDER BY updated_at DESC, no DESC LIMIT ?)"""
        threads += yield from _remove_idle(tenant, older, (tenant, retention.threads_kept))
    if retention.usage is not None:
        sql = "DELETE FROM usage_log WHERE tenant = ? AND at < ? RETURNING 1"
        usage = len((yield sql, (tenant, now - retention.usage)))
    if retention.audit is not None:
        sql = "DELETE FROM records WHERE tenant = ? AND kind = ? AND at < ? RETURNING 1"
        audit = len((yield sql, (tenant, record_kind(AuditEntry), now - retention.audit)))
    yield (
        # Other workers find the claims of a dead worker by its row.
        """DELETE FROM workers WHERE until < ? AND id NOT IN (SELECT claim FROM threads WHERE claim IS NOT NULL)
           AND id NOT IN (SELECT owner FROM relays WHERE owner IS NOT NULL)""",
        (now - 24 * 3600 * 1000,),
    )
    return Pruned(chunks, events, runs, threads, usage, audit)


def _strip(where: str, args: Sequence[Any]) -> Script[int]:
    """Delete events from the log and return their number. Messages stay."""
    rows = yield f"DELETE FROM log WHERE kind <> 'message' AND {where} RETURNING size", args
    events = sum([size for (size,) in rows])
    packed = f"size > 1 AND {where}"
    for (more,) in (yield f"SELECT sum(size - 1) FROM log WHERE {packed}", args):
        if more:
            events += int(more)
            yield f"UPDATE log SET size = 1, more = NULL WHERE {packed}", args
    return events


class Undone(WakefulError):
    """Rolls back a transaction that was run to see its result."""

    def __init__(self, pruned: Pruned) -> None:
        self.pruned = pruned


def prune_and_undo(tenant: str, retention: Retention) -> Script[Pruned]:
    """Prune, and roll back by raising `Undone` with the result."""
    raise Undone((yield from prune(tenant, retention)))


def _remove_idle(tenant: str, which: str, args: Sequence[Any]) -> Script[int]:
    """Delete idle threads: no open run, owner, pending item or outgoing relay, on them or on their children.

    A child stays while its parent has an open run, which may ask for the result. Items that only an open run can
    use don't count.
    """
    kinds = ", ".join([f"'{kind}'" for kind in FOR_RUNS])
    idle = f"""t.tenant = ? AND t.open_run IS NULL AND NOT {_ALIVE}
               AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.thread = t.no AND i.status = 'pending'
                   AND i.kind NOT IN ({kinds}))
               AND NOT EXISTS (SELECT 1 FROM relays WHERE thread = t.no AND {_ON_THEIR_WAY})"""
    busy = f"""WITH RECURSIVE tree(id) AS (
                   SELECT id FROM threads WHERE tenant = ? AND id = ?
                   UNION SELECT k.id FROM tree JOIN threads k ON k.parent = tree.id AND k.tenant = ?)
               SELECT 1 FROM tree JOIN threads t ON t.tenant = ? AND t.id = tree.id WHERE NOT ({idle}) LIMIT 1"""
    removed = 0
    asked = "SELECT 1 FROM threads p WHERE p.tenant = t.tenant AND p.id = t.parent AND p.open_run IS NOT NULL"
    sql = f"SELECT id FROM threads t WHERE {idle} AND NOT EXISTS ({asked}) AND {which} FOR_UPDATE IF_FREE"
    for (thread_id,) in (yield sql, (tenant, *args)):
        if not (yield busy, (tenant, thread_id, tenant, tenant, tenant)):
            removed += yield from _delete(tenant, thread_id, "cascade")
    return removed


def _remove_runs(rows: list[tuple[Any, ...]]) -> Script[int]:
    """Delete finished runs with their ledger and events. Their messages and outgoing relays stay."""
    for run, thread in rows:
        yield from _strip("thread = ? AND run = ?", (thread, run))
        yield (
            "DELETE FROM decisions WHERE thread = ? AND ticket IN (SELECT id FROM tickets WHERE run = ?)",
            (thread, run),
        )
        for table in ("calls", "tickets", "state"):
            yield f"DELETE FROM {table} WHERE run = ?", (run,)
        yield (
            """UPDATE inbox SET payload = NULL WHERE thread = ? AND status <> 'pending'
               AND taken_by = (SELECT id FROM runs WHERE no = ?)""",
            (thread, run),
        )
        yield (
            f"""DELETE FROM relays WHERE thread = ? AND run = (SELECT id FROM runs WHERE no = ?)
                AND NOT ({_ON_THEIR_WAY})""",
            (thread, run),
        )
        yield (
            "UPDATE threads SET last_run = NULL, inbox_head = inbox_head + 1 WHERE no = ? AND last_run = ?",
            (thread, run),
        )
        yield "DELETE FROM runs WHERE no = ?", (run,)
    return len(rows)
