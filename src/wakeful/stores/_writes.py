"""What a commit writes to SQLite's tables besides the log, its run and its thread."""

from __future__ import annotations

import sqlite3

from msgspec import Struct

from ..types.codec import encode
from ..types.ids import now_ms
from ..types.runs import RunRecord
from ._packing import Packer
from ._plain import PUT_CALL, Known, call_values
from ._protocol import Commit
from ._relays import Relay

__all__ = ["ThreadRow", "Write", "describe", "number_of", "put_calls", "put_rare", "put_relay", "put_state"]


class ThreadRow(Struct):
    """A thread, as it was found and as the commit changes it."""

    no: int
    version: int
    head: int
    epoch: int
    claim: str | None
    inbox_head: int
    wakes: str
    open_run: int | None
    last_run: int | None
    # Whether this commit made it: nothing hangs off it yet.
    new: bool = False


class Write:
    """One commit on its way into the tables."""

    def __init__(self, db: sqlite3.Connection, tenant: str, packer: Packer, commit: Commit, known: Known) -> None:
        self.db = db
        self.run = known.cursor.execute
        self.many = known.cursor.executemany
        self.tenant = tenant
        self.packer = packer
        self.commit = commit
        # What its owner left of the thread, which holds as long as it is the owner.
        self.left = known.find(tenant, commit.thread_id, commit.fence)
        self.now = now_ms()
        self.blobs: dict[str, bytes] = {}
        self.run_numbers: dict[str, int] = {}
        self.open: RunRecord | None = None
        self.ended = False


def number_of(write: Write, run_id: str) -> int:
    """A run's number; 0 for one that has no record."""
    found = write.run_numbers.get(run_id)
    if found is None:
        row = write.run("SELECT no FROM runs WHERE tenant = ? AND id = ?", (write.tenant, run_id)).fetchone()
        found = write.run_numbers[run_id] = 0 if row is None else row[0]
    return found


def put_calls(write: Write, base: int, places: dict[str, int]) -> None:
    """Write rows of the ledger."""
    rows = [
        (number_of(write, call.run_id), *call_values(call, base, write.packer, places, write.blobs))
        for call in write.commit.calls
    ]
    write.many(PUT_CALL, rows)


def put_rare(write: Write, thread: ThreadRow) -> None:
    """Write tickets, decisions, tasks, chunks and a request, which few commits have."""
    commit, pack, tenant = write.commit, write.packer.pack, write.tenant
    for ticket in commit.tickets:
        write.run(
            """INSERT INTO tickets (tenant, id, thread, run, status, assignee, payload) VALUES (?,?,?,?,?,?,?)
               ON CONFLICT (tenant, id) DO UPDATE SET status = excluded.status, assignee = excluded.assignee,
               payload = excluded.payload""",
            (
                tenant,
                ticket.id,
                thread.no,
                number_of(write, ticket.run_id),
                ticket.status,
                ticket.assignee,
                bytearray(pack(encode(ticket), write.blobs)),
            ),
        )
    for decision in commit.decisions:
        write.run(
            """INSERT INTO decisions (tenant, id, thread, ticket, at, payload) VALUES (?, ?, ?, ?, ?, ?)
               ON CONFLICT DO NOTHING""",
            (tenant, decision.id, thread.no, decision.ticket_id, decision.at, pack(encode(decision), write.blobs)),
        )
    for task in commit.tasks:
        write.run(
            """INSERT INTO tasks (tenant, id, thread, run, status, payload) VALUES (?, ?, ?, ?, ?, ?)
               ON CONFLICT (tenant, id) DO UPDATE SET status = excluded.status, payload = excluded.payload""",
            (tenant, task.id, thread.no, task.run_id, task.status, bytearray(pack(encode(task), write.blobs))),
        )
    for chunk in commit.chunks:
        payload = pack(encode(chunk), write.blobs)
        write.run("DELETE FROM chunks WHERE thread = ? AND attempt < ?", (thread.no, chunk.attempt))
        write.run(
            "INSERT INTO chunks (thread, message, attempt, at, payload) VALUES (?, ?, ?, ?, ?)",
            (thread.no, chunk.message_id, chunk.attempt, write.now, payload),
        )
    if commit.request is not None:
        run_id = commit.identity.run_id if commit.identity else None
        write.run(
            """INSERT INTO inbox (tenant, id, thread, kind, wake, position, status, taken_by)
               VALUES (?, ?, ?, 'request', '', 0, 'taken', ?)""",
            (tenant, commit.request, thread.no, run_id),
        )


def put_state(write: Write, thread: ThreadRow) -> None:
    """Write state keys, and of the thread's what they were when."""
    for change in write.commit.state:
        run = 0 if change.run_id is None else number_of(write, change.run_id)
        payload = write.packer.pack(change.value, write.blobs)
        write.run(
            """INSERT INTO state (thread, run, name, seq, payload) VALUES (?, ?, ?, ?, ?)
               ON CONFLICT (thread, run, name) DO UPDATE SET seq = excluded.seq, payload = excluded.payload""",
            (thread.no, run, change.name, thread.head, payload),
        )
        if not run:
            write.run(
                """INSERT INTO state_log (thread, name, seq, at, payload) VALUES (?, ?, ?, ?, ?)
                   ON CONFLICT (thread, name, seq) DO UPDATE SET payload = excluded.payload""",
                (thread.no, change.name, thread.head, write.now, payload),
            )


def describe(write: Write, thread: ThreadRow) -> None:
    """Write what the application says about the thread."""
    about = write.commit.about
    if about is not None and about.title is not None:
        write.run("UPDATE threads SET title = ? WHERE no = ?", (about.title or None, thread.no))
    if about is not None and about.metadata is not None:
        payload = write.packer.pack(encode(about.metadata), write.blobs)
        write.run("UPDATE threads SET metadata = ? WHERE no = ?", (payload, thread.no))


def put_relay(write: Write, thread: ThreadRow, relay: Relay) -> None:
    """Write a relay."""
    write.run(
        """INSERT INTO relays (tenant, id, thread, run, kind, status, cursor, due_at, until, revision, payload)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT (tenant, id) DO UPDATE SET status = excluded.status, cursor = excluded.cursor,
           due_at = excluded.due_at, until = excluded.until, revision = excluded.revision,
           payload = excluded.payload""",
        (
            write.tenant,
            relay.id,
            thread.no,
            relay.run_id,
            relay.kind,
            relay.status,
            relay.cursor,
            relay.due_at,
            relay.until,
            relay.revision,
            write.packer.pack(encode(relay), write.blobs),
        ),
    )
