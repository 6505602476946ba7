"""A commit, written to SQLite: checked and applied inside the writer's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from msgspec.structs import force_setattr

from ..errors import Conflict, InboxMoved, Repeated, StaleFence
from ..types.codec import encode
from ..types.runs import RunRecord
from . import _dispatching
from ._packing import Packer
from ._pending import change_rows, check_pending
from ._plain import PUT_LOG, Known, Place, entry_values
from ._protocol import Commit, Committed, InboxItem
from ._relays import check_revision
from ._rows import entries_of, run_body
from ._rules import (
    IDLE_WAKES,
    answers,
    due_time,
    makes_thread,
    no_room,
    not_idle,
    room_for,
    root_of,
    wakes_of,
    woken,
    writes,
)
from ._writes import ThreadRow, Write, describe, number_of, put_calls, put_rare, put_relay, put_state

__all__ = ["apply"]


def apply(
    db: sqlite3.Connection,
    tenant: str,
    packer: Packer,
    commit: Commit,
    alive: Callable[[str], bool],
    known: Known,
) -> Committed:
    """Check a commit and write it, or raise. Of an owner it is kept how it left its thread."""
    write = Write(db, tenant, packer, commit, known)
    changes = writes(commit)
    thread = _find(write, commit.thread_id)
    if write.left is not None and (thread is None or write.left.thread != thread.no):
        write.left = None  # It was of one that was deleted.
    _check(write, thread, changes, alive)
    if thread is None:
        if not (changes or commit.claim or commit.inbox or commit.about or commit.relays):
            return Committed(0, 0, 0, 0)
        if not (changes or commit.claim or commit.about or commit.relays) and all(
            i.thread_id != commit.thread_id or not makes_thread(i) for i in commit.inbox
        ):
            thread = ThreadRow(0, 0, 0, 0, None, 0, IDLE_WAKES, None, None)
        else:
            thread = _create(write, commit.thread_id)
    if commit.claim is not None:
        _claim(write, thread, commit.claim)
    if changes:
        _append(write, thread)
    if commit.release:
        thread.claim = None
    if changes or commit.claim is not None or commit.release:
        _update(write, thread)
    if commit.about is not None:
        describe(write, thread)
    for relay in commit.relays:
        put_relay(write, thread, relay)
    for item in commit.inbox:
        _deliver(write, item, thread)
    if commit.pending:
        change_rows(write.run, tenant, packer, write.blobs, {item.id: item for item in commit.pending})
        thread.inbox_head += 1
        write.run("UPDATE threads SET inbox_head = ? WHERE no = ?", (thread.inbox_head, thread.no))
    if (changes or commit.release or commit.pending) and thread.claim is None and thread.no:
        _settle_dispatch(write, thread)
    for digest, payload in write.blobs.items():
        sql = "INSERT INTO blobs (thread, digest, payload) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        write.run(sql, (thread.no, digest, payload))
    _remember(write, thread, known)
    return Committed(thread.version, thread.head, thread.epoch, thread.inbox_head)


def _remember(write: Write, thread: ThreadRow, known: Known) -> None:
    """Keep how the commit left its thread, if somebody owns that."""
    commit, at = write.commit, (thread.version, thread.head, thread.inbox_head)
    if thread.claim is None or write.ended:
        known.forget(write.tenant, commit.thread_id)
    elif write.open is not None and thread.open_run is not None:
        run, chunks = write.open, bool(commit.chunks) or not thread.new
        of_run = (thread.open_run, run.id, run.agent_id, run.status)
        place = Place(thread.no, *of_run, thread.epoch, *at, chunks)
        known.keep(write.tenant, commit.thread_id, place)
    elif write.left is not None:
        write.left.move(*at, chunks=bool(commit.chunks))


_THREAD = """SELECT no, version, head, epoch, claim, inbox_head, wakes, open_run, last_run
             FROM threads WHERE tenant = ? AND id = ?"""


def _find(write: Write, thread_id: str) -> ThreadRow | None:
    row = write.run(_THREAD, (write.tenant, thread_id)).fetchone()
    return None if row is None else ThreadRow(*row)


def _check(write: Write, thread: ThreadRow | None, changes: bool, alive: Callable[[str], bool]) -> None:
    commit, name = write.commit, write.commit.thread_id
    claim, epoch, version = (None, 0, 0) if thread is None else (thread.claim, thread.epoch, thread.version)
    fence = commit.fence
    if fence is not None:
        if claim != fence.token or epoch != fence.epoch:
            raise StaleFence(
                f"thread {name!r} is no longer owned by this writer (epoch {fence.epoch}, now {epoch})"
            )
    elif changes or commit.claim is not None or commit.release:
        if claim is not None and (commit.claim is None or alive(claim)):
            raise Conflict(f"thread {name!r} is owned by another writer")
        if commit.version != version:
            raise Conflict(f"thread {name!r} is at version {version}, not {commit.version}")
    if commit.inbox_head is not None and commit.inbox_head != (0 if thread is None else thread.inbox_head):
        raise InboxMoved(f"thread {name!r} has new items in its inbox")
    if commit.idle:
        _check_idle(write, thread)
    if commit.request is not None:
        sql = "SELECT taken_by FROM inbox WHERE tenant = ? AND id = ?"
        if (row := write.run(sql, (write.tenant, commit.request)).fetchone()) is not None:
            raise Repeated(f"request {commit.request!r} was made before", row[0])
    for relay in commit.relays:
        sql = "SELECT revision FROM relays WHERE tenant = ? AND id = ?"
        row = write.run(sql, (write.tenant, relay.id)).fetchone()
        check_revision(relay, None if row is None else row[0])
    if commit.pending or commit.seen:
        sql = """SELECT t.id, i.status, i.revision FROM inbox i JOIN threads t ON t.no = i.thread
                 WHERE i.tenant = ? AND i.id = ?"""
        check_pending(commit, lambda item_id: write.run(sql, (write.tenant, item_id)).fetchone())


def _check_idle(write: Write, thread: ThreadRow | None) -> None:
    busy = thread is not None and (thread.claim is not None or thread.open_run is not None)
    sql = "SELECT 1 FROM inbox WHERE tenant = ? AND id = ?"
    if busy or any(write.run(sql, (write.tenant, item.id)).fetchone() for item in write.commit.inbox):
        raise not_idle(write.commit)


def _create(write: Write, thread_id: str, parent: str | None = None) -> ThreadRow:
    identity = write.commit.identity
    if identity is not None and thread_id == write.commit.thread_id:
        parent = identity.parent_thread_id
    sql = "INSERT INTO threads (tenant, id, parent, created_at, updated_at) VALUES (?, ?, ?, ?, ?)"
    no = write.run(sql, (write.tenant, thread_id, parent, write.now, write.now)).lastrowid or 0
    return ThreadRow(no, 0, 0, 0, None, 0, IDLE_WAKES, None, None, new=True)


def _claim(write: Write, thread: ThreadRow, worker: str) -> None:
    commit, lost = write.commit, thread.claim is not None
    thread.claim = worker
    thread.epoch += 1
    _dispatching.begin_lease(write.db, worker, commit.lease, write.now)
    if not thread.new:  # Nothing was due on it before.
        agent, step = (commit.runs[-1].agent_id, commit.runs[-1].steps) if commit.runs else ("", 0)
        _dispatching.hold(write.db, thread.no, agent, write.now, step, lost)


def _append(write: Write, thread: ThreadRow) -> None:
    commit = write.commit
    thread.version += 1
    base = thread.head
    entries, places = entries_of(commit, write.packer, write.blobs)
    for record in commit.runs:
        _put_run(write, thread, record, places)
    if entries:
        own = [(thread.no, number_of(write, entry.run_id), *entry_values(entry, base)) for entry in entries]
        write.many(PUT_LOG, own)
        thread.head += len(commit.log)
    if not thread.new and (write.ended or answers(commit)):
        write.run("DELETE FROM chunks WHERE thread = ?", (thread.no,))
    if commit.calls:
        put_calls(write, base, places)
    if commit.tickets or commit.decisions or commit.tasks or commit.chunks or commit.request:
        put_rare(write, thread)
    for item_id in commit.taken:
        write.run(
            "UPDATE inbox SET status = 'taken', taken_by = ? WHERE tenant = ? AND id = ? AND thread = ?",
            (commit.identity.run_id if commit.identity else None, write.tenant, item_id, thread.no),
        )
    if commit.state:
        put_state(write, thread)


# The driver takes long to find out how to store what isn't a number, a string or a bytearray.
_NEW_RUN = """INSERT INTO runs
    (step, acting, answer, finished_at, payload, tenant, id, thread, agent, status, root, priority)
    VALUES (?, ?, nullif(?, 0), nullif(?, 0), ?, ?, ?, ?, ?, ?, ?, ?)"""
_PUT_RUN = """UPDATE runs SET step = ?, acting = ?, answer = coalesce(nullif(?, 0), answer),
    finished_at = nullif(?, 0), payload = ? WHERE no = ?"""
# What has an index, which a step needn't write.
_PUT_STATUS = _PUT_RUN.replace("SET", "SET status = ?,")
_PUT_AGENT = "UPDATE runs SET agent = ? WHERE no = ?"


def _put_run(write: Write, thread: ThreadRow, record: RunRecord, places: dict[str, int]) -> None:
    run_id, status = record.identity.run_id, record.status
    answer = places.get(record.answer_id or "")
    answer = 0 if answer is None else thread.head + answer
    payload = bytearray(write.packer.pack(run_body(record), write.blobs))
    values = (record.steps, int(record.stage == "acting"), answer, record.finished_at or 0, payload)
    row = _known_run(write, thread, run_id)
    if row is None:
        own = (write.tenant, run_id, thread.no, record.agent_id, status, root_of(record), record.priority)
        number = thread.last_run = write.run(_NEW_RUN, (*values, *own)).lastrowid or 0
    else:
        number = row[0]
        if row[2] == status:
            write.run(_PUT_RUN, (*values, number))
        else:
            write.run(_PUT_STATUS, (status, *values, number))
        if row[1] != record.agent_id:
            write.run(_PUT_AGENT, (record.agent_id, number))
    write.run_numbers[run_id] = number
    if status != "done":
        thread.open_run, thread.wakes, write.open = number, wakes_of(record), record
    elif thread.open_run == number:
        thread.open_run, thread.wakes, write.open = None, IDLE_WAKES, None
        write.ended = True


def _known_run(write: Write, thread: ThreadRow, run_id: str) -> tuple[int, str, str] | None:
    """A run's number, agent and status; None if it has no row yet."""
    if thread.new:
        return None
    left = write.left
    if left is not None and left.run_id == run_id:
        return left.run, left.agent, left.status
    sql = "SELECT no, agent, status FROM runs WHERE tenant = ? AND id = ?"
    return write.run(sql, (write.tenant, run_id)).fetchone()


_UPDATE = """UPDATE threads SET version = ?, head = ?, wakes = ?, open_run = nullif(?, 0), last_run = nullif(?, 0),
    updated_at = ? WHERE no = ?"""
# The claim has an index, which a step needn't write.
_CHANGE_HANDS = _UPDATE.replace("WHERE", ", epoch = ?, claim = nullif(?, '') WHERE")


def _update(write: Write, thread: ThreadRow) -> None:
    own = (thread.version, thread.head, thread.wakes, thread.open_run or 0, thread.last_run or 0, write.now)
    if write.commit.claim is not None or write.commit.release:
        write.run(_CHANGE_HANDS, (*own, thread.epoch, thread.claim or "", thread.no))
    else:
        write.run(_UPDATE, (*own, thread.no))


def _deliver(write: Write, item: InboxItem, own: ThreadRow) -> None:
    seen = write.run("SELECT 1 FROM inbox WHERE tenant = ? AND id = ?", (write.tenant, item.id)).fetchone()
    if seen is not None:
        return
    at_home = item.thread_id == write.commit.thread_id
    parent = item.lineage.parent_thread_id if item.lineage is not None else None
    thread = own if at_home else _find(write, item.thread_id)
    if not makes_thread(item) and (thread is None or not thread.no):
        return
    thread = thread or _create(write, item.thread_id, parent)
    sql = "SELECT count(*) FROM inbox WHERE thread = ? AND status = 'pending'"
    if not thread.new and write.run(sql, (thread.no,)).fetchone()[0] >= room_for(item):
        raise no_room(item.thread_id)
    thread.inbox_head += 1
    force_setattr(item, "position", thread.inbox_head)
    blobs: dict[str, bytes] = {}
    write.run(
        """INSERT INTO inbox (tenant, id, thread, kind, wake, position, run, status, priority, at, agent, payload)
           VALUES (?, ?, ?, ?, ?, ?, ?, 'pending', ?, ?, ?, ?)""",
        (
            write.tenant,
            item.id,
            thread.no,
            item.kind,
            item.wake,
            thread.inbox_head,
            item.run_id,
            item.priority,
            item.at,
            item.agent_id,
            bytearray(write.packer.pack(encode(item), blobs)),
        ),
    )
    for digest, payload in blobs.items():
        sql = "INSERT INTO blobs (thread, digest, payload) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        write.run(sql, (thread.no, digest, payload))
    write.run("UPDATE threads SET inbox_head = ? WHERE no = ?", (thread.inbox_head, thread.no))
    if thread.claim is not None:
        return
    if woken(thread.wakes, [item.wake]):
        due = max(write.now, item.at or 0)
        agent, priority = _of_run(write, thread) or (item.agent_id or "", item.priority)
        _dispatching.dispatch(write.db, write.tenant, thread.no, agent, due, priority, sooner=True)
    elif item.kind == "cancel":
        _dispatching.revive(write.db, thread.no)  # There is nothing to run any more that could go wrong.


def _of_run(write: Write, thread: ThreadRow) -> tuple[str, int] | None:
    """The agent and the priority of a thread's open run, which its dispatch has too."""
    if thread.open_run is None:
        return None
    if write.open is not None and write.run_numbers.get(write.open.id) == thread.open_run:
        return write.open.agent_id, write.open.priority
    return write.run("SELECT agent, priority FROM runs WHERE no = ?", (thread.open_run,)).fetchone()


def _last_agent(write: Write, thread: ThreadRow) -> str:
    """The agent of a thread's last run, if nothing says whom the thread is due for."""
    sql = """SELECT r.agent FROM runs r WHERE r.no = ?
             AND NOT EXISTS (SELECT 1 FROM dispatches d WHERE d.thread = r.thread AND d.agent <> '')"""
    row = write.run(sql, (thread.last_run or 0,)).fetchone()
    return "" if row is None else row[0]


def _settle_dispatch(write: Write, thread: ThreadRow) -> None:
    """A thread that nobody owns is due if something in its inbox may wake it, if its run waits for a time, or if
    its run was left in the middle; else nothing is due."""
    commit, now = write.commit, write.now
    # By its owner, whose claim may have made no dispatch.
    given_back = commit.fence is not None or commit.claim is not None
    if commit.failed is not None:
        if given_back:
            _dispatching.make(write.db, thread.no, now)
        _dispatching.fail(write.db, thread.no, commit.failed, now)
        return
    sql = """SELECT wake, at, priority, agent FROM inbox WHERE thread = ? AND status = 'pending'
             ORDER BY position"""
    pending = [row for row in write.run(sql, (thread.no,)) if woken(thread.wakes, [row[0]])]
    times = [max(now, row[1] or 0) for row in pending]
    if write.open is not None and (time := due_time(write.open, now)) is not None:
        times.append(time)
    if write.open is None and thread.open_run is not None and (commit.later is not None or not times):
        if given_back:
            _dispatching.make(write.db, thread.no, now)
        _dispatching.settle(write.db, thread.no, commit.later)  # Its run's record isn't part: what was due is due.
    elif not times:
        write.run("DELETE FROM dispatches WHERE thread = ?", (thread.no,))
    else:
        own = _of_run(write, thread)
        agent, priority = own or (pending[0][3] or "", min(row[2] for row in pending))
        if not agent and given_back:
            agent = _last_agent(write, thread)
        due = min(times) if commit.later is None else commit.later
        _dispatching.dispatch(write.db, write.tenant, thread.no, agent, due, priority)
