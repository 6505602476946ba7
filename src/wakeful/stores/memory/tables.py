"""The tables of a store in memory: threads with their logs, and the indexes of a tenant over them."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from msgspec.structs import force_setattr, replace

from ...types.calls import Call
from ...types.codec import clean_value, decode, encode
from ...types.events import Event, MessageAdded
from ...types.ids import now_ms
from ...types.inbox import InboxItem, Request, RequestItem
from ...types.messages import Message
from ...types.records import ApiKey, Record
from ...types.runs import Identity, RunRecord, TaskRecord
from ...types.tickets import Decision, Ticket
from ..conditions import record_key
from ..heads import FOREIGN, Head, RecordKey, RecordRow, RunRow
from ..records import About, Chunk, Commit, Records, StateWrite, ThreadRecord
from ..relays import Relay
from ..usage import UsageEntry
from ..writes import RunWrite, Writes, number_items

__all__ = ["Database", "Run", "Tenant", "Thread"]


class Run:
    """A run with its ledger, its state and its last answer."""

    __slots__ = ("answer", "calls", "record", "row", "state")

    def __init__(self, write: RunWrite) -> None:
        self.record: RunRecord = write.record
        self.row: RunRow = write.row
        self.answer: Message | None = None
        self.calls: dict[str, Call] = {}
        self.state: dict[str, bytes] = {}

    def put_call(self, call: Call) -> None:
        """Insert or update a call. The arguments that the model gave are kept."""
        known = self.calls.get(call.id)
        if known is not None and known.arguments is not call.arguments:
            call = replace(call, arguments=known.arguments)
        self.calls[call.id] = call


class Thread:
    """A thread: its head, its log, and its rows.

    A fork reads the entries up to `base_seq` from its base. `inbox` holds the pending items in order of position.
    """

    def __init__(self, tenant: str, head: Head, now: int) -> None:
        self.tenant = tenant
        self.head = head
        self.created_at = now
        self.updated_at = now
        self.principal = head.principal
        self.title: str | None = None
        self.metadata: bytes = b"{}"
        self.base: Thread | None = None
        self.base_seq = 0
        self.last_run_id: str | None = None
        self.log: list[Event] = []
        self.messages: list[Message] = []
        self.runs: dict[str, Run] = {}
        self.inbox: dict[str, InboxItem] = {}
        self.tickets: dict[str, Ticket] = {}
        self.decisions: dict[str, Decision] = {}
        self.tasks: dict[str, TaskRecord] = {}
        # Chunks with the time of their commit.
        self.chunks: list[tuple[int, Chunk]] = []
        self.state: dict[str, bytes] = {}
        # By key: the log head at the time of the write, the time in milliseconds, and the value.
        self.state_log: dict[str, list[tuple[int, int, bytes]]] = {}

    @property
    def id(self) -> str:
        return self.head.id

    @property
    def open_run(self) -> RunRecord | None:
        """The record of the open run."""
        row = self.head.open_run
        return None if row is None else self.runs[row.id].record

    # -- commits -----------------------------------------------------------------------------------------------

    def append(self, writes: Writes) -> None:
        """Apply the changes of a commit to the log, the ledger and the state."""
        commit = writes.commit
        for write in writes.runs:
            self._put_run(write)
        if writes.drops_chunks:
            self.chunks.clear()
        self._put_log(commit, writes.base)
        for call in commit.calls:
            self.runs[call.run_id].put_call(call)
        for ticket in commit.tickets:
            self.tickets[ticket.id] = ticket
        for decision in commit.decisions:
            self.decisions[decision.id] = decision
        for task in commit.tasks:
            self.tasks[task.id] = task
        for chunk in commit.chunks:
            self.chunks = [kept for kept in self.chunks if kept[1].attempt >= chunk.attempt]
            self.chunks.append((writes.now, chunk))
        for write in commit.state:
            self._put_state(write, writes.now)

    def _put_run(self, write: RunWrite) -> None:
        run = self.runs.get(write.row.id)
        if run is None:
            self.runs[write.row.id] = Run(write)
        else:
            run.record, run.row = write.record, write.row
        if write.is_new:
            self.last_run_id = write.row.id

    def _put_log(self, commit: Commit, base: int) -> None:
        for seq, entry in enumerate(commit.log, base + 1):
            force_setattr(entry, "seq", seq)
            if isinstance(entry, Message):
                writer = _writer_of(entry, commit)
                if writer is None:
                    continue
                entry = MessageAdded(writer, seq, entry.created_at, entry)
            if isinstance(entry, MessageAdded):
                self._put_message(entry, seq)
            self.log.append(entry)

    def _put_message(self, added: MessageAdded, seq: int) -> None:
        message = added.message
        force_setattr(message, "seq", seq)
        self.messages.append(message)
        run = self.runs.get(added.run.run_id)
        if run is not None and run.record.answer_id == message.id:
            run.answer = message

    def _put_state(self, write: StateWrite, now: int) -> None:
        if write.run_id is not None:
            self.runs[write.run_id].state[write.name] = write.value
            return
        self.state[write.name] = write.value
        values = self.state_log.setdefault(write.name, [])
        head = self.head.log_head
        if values and values[-1][0] == head:
            values[-1] = (head, values[-1][1], write.value)
        else:
            values.append((head, now, write.value))

    def describe(self, about: About) -> None:
        """Set the title and the metadata that the application gives."""
        if about.title is not None:
            self.title = about.title or None
        if about.metadata is not None:
            self.metadata = encode(clean_value(about.metadata))

    # -- forks and retention -----------------------------------------------------------------------------------

    def fork(self, new: Thread, at: int) -> None:
        """Make a new thread start with this one's log up to `at`, and with the state as of there."""
        new.base, new.base_seq = self, at
        for name, values in self.state_log.items():
            if kept := [value for value in values if value[0] <= at]:
                new.state_log[name] = kept
                new.state[name] = kept[-1][2]

    def chain(self) -> list[tuple[Thread, int, int]]:
        """The threads that hold this one's log, its own last, each with its part: after, up to."""
        found, thread, high = list[tuple[Thread, int, int]](), self, self.head.log_head
        while thread is not None:
            found.append((thread, thread.base_seq, high))
            thread, high = thread.base, min(high, thread.base_seq)
        return found[::-1]

    def detach(self) -> None:
        """Copy the messages of the base, which is about to be removed."""
        base = self.base
        if base is None:
            return
        self.messages[:0] = [m for m in base.messages if m.seq <= self.base_seq]
        self.log[:0] = [e for e in base.log if isinstance(e, MessageAdded) and e.seq <= self.base_seq]
        self.base, self.base_seq = base.base, min(self.base_seq, base.base_seq)

    def drop_events(self, run_ids: Iterable[str]) -> int:
        """Remove the events of these runs, but not their messages; return how many."""
        gone, before = set(run_ids), len(self.log)
        self.log = [e for e in self.log if isinstance(e, MessageAdded) or e.run.run_id not in gone]
        return before - len(self.log)

    def drop_run(self, run_id: str) -> None:
        """Remove a run with its ledger and its events; its messages stay."""
        self.drop_events([run_id])
        gone = {ticket.id for ticket in self.tickets.values() if ticket.run_id == run_id}
        self.tickets = {k: v for k, v in self.tickets.items() if k not in gone}
        self.decisions = {k: v for k, v in self.decisions.items() if v.ticket_id not in gone}
        del self.runs[run_id]
        if self.last_run_id == run_id:
            self.last_run_id = None

    def record(self, owner: str | None) -> ThreadRecord:
        """The thread's record; `owner` is the worker that has claimed it, if it is alive."""
        head = self.head
        last = self.runs[self.last_run_id].record if self.last_run_id else None
        return ThreadRecord(
            id=head.id,
            version=head.version,
            head=head.log_head,
            epoch=head.epoch,
            claimed=owner is not None,
            owner=owner,
            inbox_head=head.inbox_head,
            open_run_id=head.open_run.id if head.open_run else None,
            last_run_id=self.last_run_id,
            last_agent_id=last.agent_id if last else None,
            parent_id=head.parent,
            base_id=self.base.id if self.base else None,
            base_seq=self.base_seq,
            title=self.title,
            metadata=decode(self.metadata, dict[str, Any]),
            created_at=self.created_at,
            updated_at=self.updated_at,
            dead=head.dispatch is not None and head.dispatch.dead_at is not None,
            principal=self.principal,
        )


def _writer_of(message: Message, commit: Commit) -> Identity | None:
    """The run that a message belongs to. A run that supersedes another writes that one's last messages, too."""
    identity = commit.identity
    if identity is None or len(commit.runs) < 2 or message.producer is None:
        return identity
    for record in commit.runs:
        if record.identity.run_id == message.producer.run_id:
            return replace(record.identity, agent_id=identity.agent_id)
    return identity


class Tenant:
    """The threads of one tenant, and indexes over them.

    `items` holds inbox items of any status, and used request ids.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.threads: dict[str, Thread] = {}
        self.thread_of_run: dict[str, Thread] = {}
        self.thread_of_ticket: dict[str, Thread] = {}
        self.thread_of_decision: dict[str, Thread] = {}
        self.item_of_run: dict[str, str] = {}
        self.relays: dict[str, Relay] = {}
        self.usage: list[UsageEntry] = []
        self.items: dict[str, InboxItem] = {}
        self.records: dict[RecordKey, Record] = {}
        # The ids of the runs below a run, by the root of their tree.
        self.trees: dict[str, list[str]] = {}

    def children(self, thread_id: str) -> list[Thread]:
        """The threads of runs that were delegated from a thread."""
        return [thread for thread in self.threads.values() if thread.head.parent == thread_id]

    def apply(self, writes: Writes, database: Database) -> None:
        """Apply an accepted commit."""
        commit, now = writes.commit, writes.now
        for head in writes.heads.values():
            thread = self.threads.get(head.id)
            if thread is None:
                thread = self.threads[head.id] = Thread(self.name, head, now)
            database.put_head(thread, head)
        if writes.lease is not None:
            database.extend_lease(writes.lease.worker_id, writes.lease.until)
        if writes.deliveries:
            self._put_deliveries(writes)
        if commit.records is not None:
            self._put_records(commit.records, database)
        thread = self.threads.get(commit.thread_id)
        if thread is None:
            return
        if writes.has_changes:
            thread.append(writes)
            self._index(writes, thread)
            self.usage += commit.usage
        if commit.about is not None:
            thread.describe(commit.about)
        for relay in commit.relays:
            self.relays[relay.id] = relay
        for item in commit.pending:
            self.items[item.id] = thread.inbox[item.id] = item
        if commit.pending:
            kept = sorted([i for i in thread.inbox.values() if i.status == "pending"], key=_position)
            thread.inbox = {item.id: item for item in kept}
        if writes.has_changes or commit.claim is not None or commit.release or commit.pending:
            thread.updated_at = now

    def _put_deliveries(self, writes: Writes) -> None:
        number_items(writes)
        for delivery in writes.deliveries:
            item = delivery.item
            if item.revision:
                item = replace(item, revision=0)
            self.items[item.id] = self.threads[item.thread_id].inbox[item.id] = item
            if item.run_id is not None and item.kind == "input":
                self.item_of_run[item.run_id] = item.id

    def _put_records(self, records: Records, database: Database) -> None:
        for key in [record_key(record) for record in records.removed]:
            del self.records[key]
            database.keys.pop(key, None)
        for record in records.put:
            key = record_key(record)
            self.records[key] = clean_value(record)
            if isinstance(record, ApiKey):
                database.keys[key] = self.name

    def _index(self, writes: Writes, thread: Thread) -> None:
        """Index the runs, tickets, decisions and items of a commit."""
        commit = writes.commit
        for write in writes.runs:
            if write.is_new:
                run_id, root = write.row.id, write.record.identity.root_run_id
                self.thread_of_run[run_id] = thread
                if root != run_id:
                    self.trees.setdefault(root, []).append(run_id)
        for ticket in commit.tickets:
            self.thread_of_ticket[ticket.id] = thread
        for decision in commit.decisions:
            self.thread_of_decision.setdefault(decision.id, thread)
        if not commit.taken and commit.request is None:
            return
        run_id = None if commit.identity is None else commit.identity.run_id
        for item_id in commit.taken:
            item = self.items.get(item_id)
            if item is not None and item.thread_id == thread.id:
                thread.inbox.pop(item_id, None)
                self.items[item_id] = replace(item, status="taken", taken_by=run_id)
        if commit.request is not None:
            self.items[commit.request.id] = _request_item(thread, commit.request, run_id)

    def put_request(self, thread: Thread, request: Request) -> None:
        """Note a request that its thread's open run took, or that made the thread."""
        run = thread.head.open_run
        self.items[request.id] = _request_item(thread, request, None if run is None else run.id)


def _request_item(thread: Thread, request: Request, run_id: str | None) -> RequestItem:
    return RequestItem(id=request.id, thread_id=thread.id, status="taken", taken_by=run_id, digest=request.digest)


_position = attrgetter("position")


class Database:
    """The state that all handles on one store share: tenants, leases, turns, and row numbers."""

    def __init__(self) -> None:
        self._tenants: dict[str, Tenant] = {}
        # Worker id to the end of its lease in milliseconds.
        self.leases: dict[str, float] = {}
        self.turns: dict[str, int] = {}
        # The tenants of API keys.
        self.keys: dict[RecordKey, str] = {}
        self.next_thread = 1
        self.next_run = 1
        # The threads with a claim or a dispatch.
        self.active: dict[Thread, None] = {}

    def names(self) -> list[str]:
        """The tenants that have threads or records."""
        return sorted(name for name, tenant in self._tenants.items() if tenant.threads or tenant.records)

    def tenant(self, name: str) -> Tenant:
        return self._tenants.setdefault(name, Tenant(name))

    def record_row(self, tenant: Tenant, key: RecordKey) -> RecordRow | None:
        """The row of a record, as commits see it."""
        record = tenant.records.get(key)
        if record is None:
            return RecordRow(FOREIGN) if key in self.keys else None
        return RecordRow(record.revision, record.digest)

    def is_alive(self, worker_id: str) -> bool:
        """Whether the worker has a lease."""
        return self.leases.get(worker_id, 0) > now_ms()

    def extend_lease(self, worker_id: str, until: float) -> None:
        self.leases[worker_id] = max(self.leases.get(worker_id, 0), until)

    def put_head(self, thread: Thread, head: Head) -> None:
        """Replace a thread's head."""
        thread.head = head
        if head.claim is not None or head.dispatch is not None:
            self.active[thread] = None
        else:
            self.active.pop(thread, None)
