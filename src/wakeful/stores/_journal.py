"""What the store in memory keeps of a thread: what was committed as it came, and the index that its first reader
makes of it.

A fork has the entries before it from its base, as in the other stores: what its base loses, it loses too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from operator import attrgetter
from time import time_ns
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from ..types.codec import decode
from ..types.events import Event, MessageAdded
from ..types.messages import Message
from ..types.runs import Call, Identity, RunRecord, TaskRecord
from ..types.tickets import Decision, Ticket
from ._protocol import Chunk, Commit, InboxItem, ThreadRecord

__all__ = ["Index", "RunIndex", "Thread", "behind"]

_seq = attrgetter("seq")


# Entries of a log in their order; before those of another writer stands who that is.
Journal = list[Message | Event | Identity]


class RunIndex:
    """A run, with what hangs off it."""

    __slots__ = ("answer", "calls", "record", "state")

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self.answer: Message | None = None
        self.calls: dict[str, Call] = {}
        self.state: dict[str, bytes] = {}


class Index:
    """What was committed to a thread, sorted out up to some commit."""

    __slots__ = (
        "_head",
        "_open_run_id",
        "chunks",
        "decisions",
        "log",
        "messages",
        "runs",
        "state",
        "state_log",
        "tasks",
        "tickets",
    )

    def __init__(self, head: int) -> None:
        self._head = head
        self._open_run_id: str | None = None
        self.runs: dict[str, RunIndex] = {}
        self.log: list[Event] = []
        self.messages: list[Message] = []
        self.chunks: list[tuple[int, Chunk]] = []
        self.tickets: dict[str, Ticket] = {}
        self.decisions: dict[str, Decision] = {}
        self.tasks: dict[str, TaskRecord] = {}
        self.state: dict[str, bytes] = {}
        # By key: the number of the log's last entry at the time, the time, the value.
        self.state_log: dict[str, list[tuple[int, int, bytes]]] = {}

    def add(self, log: Journal, runs: Mapping[str, RunRecord], calls: Mapping[str, Call]) -> None:
        """Sort out entries of the log, and the newest rows of runs and calls."""
        for record in runs.values():
            self._put_run(record)
        writer: Identity | None = None
        for entry in log:
            if type(entry) is Identity:
                writer = entry
                continue
            self._head = number = self._head + 1
            force_setattr(entry, "seq", number)
            if type(entry) is Message:
                if writer is not None:
                    self._put_message(MessageAdded(writer, number, entry.created_at, entry))
            elif type(entry) is MessageAdded:
                force_setattr(entry.message, "seq", number)
                self._put_message(entry)
            elif isinstance(entry, Event):
                self.log.append(entry)
        for call in calls.values():
            self._put_call(call)

    def add_rare(self, commits: Iterable[Commit]) -> None:
        """Sort out tickets, decisions and tasks, which few commits have."""
        for commit in commits:
            for ticket in commit.tickets:
                self.tickets[ticket.id] = ticket
            for decision in commit.decisions:
                self.decisions.setdefault(decision.id, decision)
            for task in commit.tasks:
                self.tasks[task.id] = task

    def add_values(self, commit: Commit, at: int) -> None:
        """Sort out chunks and state of a commit that was made at this time."""
        for chunk in commit.chunks:
            self.chunks = [kept for kept in self.chunks if kept[1].attempt >= chunk.attempt]
            self.chunks.append((at, chunk))
        for write in commit.state:
            if write.run_id is not None:
                self.runs[write.run_id].state[write.name] = write.value
            else:
                self._put_state(write.name, write.value, at)

    def _put_run(self, record: RunRecord) -> None:
        run_id = record.identity.run_id
        if run_id in self.runs:
            self.runs[run_id].record = record
        else:
            self.runs[run_id] = RunIndex(record)
        if record.status != "done":
            self._open_run_id = run_id
        elif self._open_run_id == run_id:
            self._open_run_id = None
            self.chunks.clear()

    def _put_message(self, added: MessageAdded) -> None:
        message = added.message
        self.messages.append(message)
        self.log.append(added)
        if message.role == "assistant":
            self.chunks.clear()
        run = self.runs.get(added.run.run_id)
        if run is not None and run.record.answer_id == message.id:
            run.answer = message

    def _put_call(self, call: Call) -> None:
        calls = self.runs[call.run_id].calls
        known = calls.get(call.id)
        if known is not None and known.arguments is not call.arguments:
            call = replace(call, arguments=known.arguments)
        calls[call.id] = call

    def _put_state(self, name: str, value: bytes, at: int) -> None:
        self.state[name] = value
        values = self.state_log.setdefault(name, [])
        if values and values[-1][0] == self._head:
            values[-1] = (self._head, values[-1][1], value)
        else:
            values.append((self._head, at, value))

    def drop_events(self, run_ids: Iterable[str]) -> int:
        """Forget the events of these runs, not their messages; returns how many there were."""
        gone, before = set(run_ids), len(self.log)
        self.log = [e for e in self.log if isinstance(e, MessageAdded) or e.run.run_id not in gone]
        return before - len(self.log)

    def drop_run(self, run_id: str) -> None:
        """Forget a run with its ledger and its events; the messages it wrote stay."""
        self.drop_events([run_id])
        gone = {ticket.id for ticket in self.tickets.values() if ticket.run_id == run_id}
        self.tickets = {k: v for k, v in self.tickets.items() if k not in gone}
        self.decisions = {k: v for k, v in self.decisions.items() if v.ticket_id not in gone}
        del self.runs[run_id]

    def forked(self, at: int) -> Index:
        """The index that a thread begins with which is forked off at this entry: the state as it was there."""
        index = Index(at)
        for name, values in self.state_log.items():
            if kept := [value for value in values if value[0] <= at]:
                index.state_log[name] = kept
                index.state[name] = kept[-1][2]
        return index


class Thread(Struct, eq=False, gc=False):
    """One thread. What commits are checked against is kept as it stands; the rest lies there as it came until
    somebody reads."""

    no: int
    tenant: str
    id: str
    parent: str | None
    created_at: int
    # When it was last claimed, released or described.
    touched: int
    version: int = 0
    epoch: int = 0
    head: int = 0
    claim: str | None = None
    open: RunRecord | None = None
    last_run_id: str | None = None
    inbox: dict[str, InboxItem] = {}
    inbox_head: int = 0
    title: str | None = None
    metadata: bytes = b"{}"
    base: Thread | None = None
    base_seq: int = 0
    # What isn't sorted out yet: the newest rows of runs, but for the open one's, and of calls; the log's entries;
    # and commits that have what few do.
    runs: dict[str, RunRecord] = {}
    _log: Journal = []
    _calls: dict[str, Call] = {}
    _rare: tuple[Commit, ...] = ()
    _writer: Identity | None = None
    # When that was, in nanoseconds.
    _at: int = 0
    _index: Index | None = None

    def append(self, commit: Commit) -> None:
        """Take in what a commit adds to the log and the ledger; whoever reads first sorts it out."""
        self.version += 1
        self._at = time_ns()
        if log := commit.log:
            writer = commit.identity
            if writer is not self._writer and writer is not None:
                self._writer = writer
                self._log.append(writer)
            self.head += len(log)
            self._log += log if len(commit.runs) < 2 else _attributed(commit)
        if rows := commit.calls:
            calls = self._calls
            for call in rows:
                call_id = call.id
                known = calls.get(call_id)
                if known is not None and known.arguments is not call.arguments:
                    call = replace(call, arguments=known.arguments)
                calls[call_id] = call
        if commit.more:
            if commit.tickets or commit.decisions or commit.tasks:
                self._rare = (*self._rare, commit)
            if commit.chunks or commit.state:  # What these come to depends on what the log has by now.
                self.index().add_values(commit, self.updated_at)

    def index(self) -> Index:
        """What was committed, sorted out."""
        index = self._index
        if index is None:
            index = self._index = Index(0)
        if self.open is not None:
            self.runs[self.open.identity.run_id] = self.open
        if self._log or self.runs or self._calls:
            index.add(self._log, self.runs, self._calls)
            self._log, self.runs, self._calls, self._writer = [], {}, {}, None
        if self._rare:
            index.add_rare(self._rare)
            self._rare = ()
        return index

    @property
    def updated_at(self) -> int:
        """When the thread was last written to."""
        return max(self.touched, self._at // 1_000_000)

    def fork(self, new: Thread, at: int) -> None:
        """Let a new thread begin with this one's log up to `at`."""
        new.base, new.base_seq = self, at
        new.version, new.head = 1, at
        new._index = self.index().forked(at)

    def chain(self) -> list[tuple[Index, int, int]]:
        """The indexes that hold the thread's log, its own last, each with what is its part: behind, up to."""
        found, thread, high = list[tuple[Index, int, int]](), self, self.head
        while thread is not None:
            found.append((thread.index(), thread.base_seq, high))
            thread, high = thread.base, min(high, thread.base_seq)
        return found[::-1]

    def settle_alone(self) -> None:
        """Take over from the base what the thread has of it before the base is removed: its messages."""
        base = self.base
        if base is None:
            return
        own, theirs = self.index(), base.index()
        own.messages[:0] = [m for m in theirs.messages if m.seq <= self.base_seq]
        own.log[:0] = [e for e in theirs.log if isinstance(e, MessageAdded) and e.seq <= self.base_seq]
        self.base, self.base_seq = base.base, min(self.base_seq, base.base_seq)

    def record(self, owner: str | None) -> ThreadRecord:
        """The thread's record; `owner` is who has claimed it, if that one is alive."""
        last = self.index().runs[self.last_run_id].record if self.last_run_id else None
        return ThreadRecord(
            id=self.id,
            version=self.version,
            head=self.head,
            epoch=self.epoch,
            claimed=owner is not None,
            owner=owner,
            inbox_head=self.inbox_head,
            open_run_id=self.open.id if self.open else None,
            last_run_id=self.last_run_id,
            last_agent_id=last.agent_id if last else None,
            parent_id=self.parent,
            base_id=self.base.id if self.base else None,
            base_seq=self.base_seq,
            title=self.title,
            metadata=decode(self.metadata, dict[str, Any]),
            created_at=self.created_at,
            updated_at=self.updated_at,
        )


def _attributed(commit: Commit) -> list[Message | Event]:
    """The log of a run that supersedes another and so writes that one's last words too: each message with the run
    that wrote it."""
    identity, others = commit.identity, {record.identity.run_id: record.identity for record in commit.runs}

    def attributed(entry: Message | Event) -> Message | Event:
        if type(entry) is not Message or identity is None or entry.producer is None:
            return entry
        writer = others.get(entry.producer.run_id or "", identity)
        writer = writer if writer.agent_id == identity.agent_id else replace(writer, agent_id=identity.agent_id)
        return MessageAdded(writer, 0, entry.created_at, entry)

    return [attributed(entry) for entry in commit.log]


def behind(entries: list[Any], low: int, high: int) -> list[Any]:
    """The entries behind one sequence number and up to another."""
    start = bisect_right(entries, low, key=_seq) if low else 0
    end = len(entries) if not entries or entries[-1].seq <= high else bisect_right(entries, high, key=_seq)
    return entries[start:end]
