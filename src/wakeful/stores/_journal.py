"""What the store in memory keeps of a thread: a journal of commits, and the index that its first reader makes.

A fork has the entries before it from its base, as in the other stores: what its base loses, it loses too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from ..types.codec import decode
from ..types.events import Event, MessageAdded
from ..types.messages import Message
from ..types.runs import Call, Identity, RunRecord, TaskRecord
from ..types.tickets import Decision, Ticket
from ._protocol import Chunk, Commit, InboxItem, ThreadRecord, number

__all__ = ["Index", "RunIndex", "Thread", "behind"]

_seq = attrgetter("seq")


class RunIndex:
    """A run, with what hangs off it."""

    __slots__ = ("answer", "calls", "record", "state")

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self.answer: Message | None = None
        self.calls: dict[str, Call] = {}
        self.state: dict[str, bytes] = {}


class Index:
    """A thread's journal, sorted out up to some commit."""

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

    def add(self, commit: Commit, at: int) -> None:
        """Sort out one more commit, which was made at this time."""
        for record in commit.runs:
            self._put_run(record)
        if commit.log:
            self._put_log(commit)
        for call in commit.calls:
            self._put_call(call)
        for ticket in commit.tickets:
            self.tickets[ticket.id] = ticket
        for decision in commit.decisions:
            self.decisions.setdefault(decision.id, decision)
        for task in commit.tasks:
            self.tasks[task.id] = task
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

    def _put_log(self, commit: Commit) -> None:
        identity = commit.identity
        self._head += len(commit.log)
        number(commit.log, self._head)
        for entry in commit.log:
            if type(entry) is Message and identity is not None:
                writer = _writer(entry, identity, commit.runs)
                self._put_message(MessageAdded(writer, entry.seq, entry.created_at, entry), commit.runs)
            elif type(entry) is MessageAdded:
                force_setattr(entry.message, "seq", entry.seq)
                self._put_message(entry, commit.runs)
            elif isinstance(entry, Event):
                self.log.append(entry)

    def _put_message(self, added: MessageAdded, runs: Iterable[RunRecord]) -> None:
        message = added.message
        self.messages.append(message)
        self.log.append(added)
        if message.role == "assistant":
            self.chunks.clear()
        for record in runs:
            if record.answer_id == message.id:
                self.runs[record.identity.run_id].answer = message

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


def _writer(message: Message, identity: Identity, runs: Iterable[RunRecord]) -> Identity:
    """The run that wrote a message: a run that supersedes another writes that one's last words too."""
    run_id = message.producer.run_id if message.producer is not None else None
    if run_id is None or run_id == identity.run_id:
        return identity
    found = next((record.identity for record in runs if record.identity.run_id == run_id), identity)
    return found if found.agent_id == identity.agent_id else replace(found, agent_id=identity.agent_id)


class Thread(Struct, eq=False, gc=False):
    """One thread. What commits are checked against is kept as it stands; the rest lies in the journal, each commit
    by the time it was made (in nanoseconds), until somebody reads."""

    no: int
    tenant: str
    id: str
    parent: str | None
    created_at: int
    # When it was last written to, with an entry of the journal or without.
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
    journal: dict[int, Commit] = {}
    _index: Index | None = None

    def index(self) -> Index:
        """The journal, sorted out."""
        index = self._index
        if index is None:
            index = self._index = Index(0)
        if self.journal:
            self.touched = self.updated_at
            for at, commit in self.journal.items():
                index.add(commit, at // 1_000_000)
            self.journal.clear()
        return index

    @property
    def updated_at(self) -> int:
        """When the thread was last written to."""
        return max(self.touched, next(reversed(self.journal)) // 1_000_000) if self.journal else self.touched

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


def behind(entries: list[Any], low: int, high: int) -> list[Any]:
    """The entries behind one sequence number and up to another."""
    start = bisect_right(entries, low, key=_seq) if low else 0
    end = len(entries) if not entries or entries[-1].seq <= high else bisect_right(entries, high, key=_seq)
    return entries[start:end]
