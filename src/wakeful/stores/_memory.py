"""A store in memory: the same commit and the same rules, for tests and for programs that need no more.

It is log-structured: a commit is checked and appended to its thread's journal, and whoever reads first pays for
sorting the journal into messages, events, runs and calls. A run that nobody looks at costs an append.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import force_setattr, replace

from ..errors import Conflict, InboxMoved, StaleFence
from ..types.events import Event, MessageAdded
from ..types.ids import now_ms
from ..types.messages import Message
from ..types.runs import Call, Identity, RunRecord, RunStatus, TaskRecord
from ..types.tickets import Ticket
from ._protocol import Commit, Committed, InboxItem, ThreadRecord, ThreadView, number

__all__ = ["MemoryStore"]


class _Run:
    __slots__ = ("calls", "record", "state", "tickets")

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self.calls: dict[str, Call] = {}
        self.tickets: dict[str, Ticket] = {}
        self.state: dict[str, bytes] = {}


class _Index:
    """A thread's journal, sorted out up to some commit."""

    __slots__ = ("last_run_id", "log", "messages", "open_run_id", "runs", "state", "tasks")

    def __init__(self) -> None:
        self.runs: dict[str, _Run] = {}
        self.open_run_id: str | None = None
        self.last_run_id: str | None = None
        # The log's index is the sequence number less one.
        self.log: list[Event] = []
        self.messages: list[Message] = []
        self.state: dict[str, bytes] = {}
        self.tasks: dict[str, TaskRecord] = {}

    def add(self, commit: Commit) -> None:
        for record in commit.runs:
            self._put_run(record)
        identity = commit.identity
        number(commit.log, len(self.log) + len(commit.log))
        for entry in commit.log:
            if type(entry) is Message and identity is not None:
                self.messages.append(entry)
                self.log.append(MessageAdded(self._writer(entry, identity), entry.seq, entry.created_at, entry))
            elif isinstance(entry, Event):
                self.log.append(entry)
        for call in commit.calls:
            self.runs[call.run_id].calls[call.id] = call
        for ticket in commit.tickets:
            self.runs[ticket.run_id].tickets[ticket.id] = ticket
        for write in commit.state:
            state = self.state if write.run_id is None else self.runs[write.run_id].state
            state[write.name] = write.value
        for task in commit.tasks:
            self.tasks[task.id] = task

    def _writer(self, message: Message, identity: Identity) -> Identity:
        """The run that wrote a message: a run that supersedes another writes that one's last words too."""
        run = self.runs.get(message.producer.run_id or "") if message.producer is not None else None
        return identity if run is None else run.record.identity

    def _put_run(self, record: RunRecord) -> None:
        run_id = record.identity.run_id
        if run_id in self.runs:
            self.runs[run_id].record = record
        else:
            self.runs[run_id] = _Run(record)
            self.last_run_id = run_id
        if record.status != "done":
            self.open_run_id = run_id
        elif self.open_run_id == run_id:
            self.open_run_id = None


class _Thread:
    __slots__ = ("_index", "claim", "created_at", "epoch", "head", "inbox", "inbox_head", "journal", "version")

    def __init__(self) -> None:
        self.version = 0
        self.epoch = 0
        self.head = 0
        self.claim: str | None = None
        self.created_at = now_ms()
        self.journal: list[Commit] = []
        self.inbox: dict[str, InboxItem] = {}
        self.inbox_head = 0
        self._index: _Index | None = None

    def index(self) -> _Index:
        """The journal, sorted out."""
        if self._index is None:
            self._index = _Index()
        if self.journal:
            for commit in self.journal:
                self._index.add(commit)
            self.journal.clear()
        return self._index


class MemoryStore:
    """Threads, runs and everything else, kept in this process for as long as the object lives."""

    def __init__(self) -> None:
        self._threads: dict[str, _Thread] = {}
        self._thread_of: dict[str, _Thread] = {}
        self._seen: set[str] = set()

    async def commit(self, commit: Commit) -> Committed:
        """Write the commit, or nothing of it."""
        thread = self._threads.get(commit.thread_id)
        if thread is None:
            thread = _Thread()
        writes = bool(commit.log or commit.runs) or _writes(commit)
        fence = commit.fence
        if fence is None:
            self._check_free(commit, thread, writes)
        elif thread.claim != fence.token or thread.epoch != fence.epoch:
            raise StaleFence(
                f"thread {commit.thread_id!r} is no longer owned by this writer "
                f"(epoch {fence.epoch}, now {thread.epoch})"
            )
        if commit.inbox_head is not None and commit.inbox_head != thread.inbox_head:
            raise InboxMoved(f"thread {commit.thread_id!r} has new items in its inbox")
        if fence is None and (writes or commit.claim is not None or commit.inbox):
            self._threads[commit.thread_id] = thread
            if commit.claim is not None:
                thread.claim = commit.claim
                thread.epoch += 1
        if writes:
            self._append(commit, thread)
        for item in commit.inbox:
            self._deliver(item)
        if commit.release:
            thread.claim = None
        return Committed(thread.version, thread.head, thread.epoch, thread.inbox_head)

    def _check_free(self, commit: Commit, thread: _Thread, writes: bool) -> None:
        if not (writes or commit.claim is not None or commit.release):
            return
        if thread.claim is not None:
            raise Conflict(f"thread {commit.thread_id!r} is owned by another writer")
        if commit.version != thread.version:
            raise Conflict(f"thread {commit.thread_id!r} is at version {thread.version}, not {commit.version}")

    def _append(self, commit: Commit, thread: _Thread) -> None:
        thread.version += 1
        thread.journal.append(commit)
        thread.head += len(commit.log)
        for record in commit.runs:
            self._thread_of[record.identity.run_id] = thread
        for item_id in commit.taken:
            thread.inbox.pop(item_id, None)

    def _deliver(self, item: InboxItem) -> None:
        if item.id in self._seen:
            return
        self._seen.add(item.id)
        thread = self._threads.get(item.thread_id)
        if thread is None:
            thread = self._threads[item.thread_id] = _Thread()
        thread.inbox_head += 1
        force_setattr(item, "position", thread.inbox_head)
        thread.inbox[item.id] = item

    async def load(self, thread_id: str) -> ThreadView | None:
        """The thread's view, or None if it doesn't exist."""
        thread = self._threads.get(thread_id)
        if thread is None:
            return None
        index = thread.index()
        last = index.runs[index.last_run_id].record if index.last_run_id else None
        view = ThreadView(
            thread=ThreadRecord(
                id=thread_id,
                version=thread.version,
                head=thread.head,
                epoch=thread.epoch,
                claimed=thread.claim is not None,
                inbox_head=thread.inbox_head,
                open_run_id=index.open_run_id,
                last_run_id=index.last_run_id,
                last_agent_id=last.agent_id if last else None,
                created_at=thread.created_at,
            ),
            tasks=tuple([task for task in index.tasks.values() if task.status == "running"]),
            inbox=tuple(thread.inbox.values()),
            state=dict(index.state),
        )
        return view if index.open_run_id is None else _with_run(view, index, index.runs[index.open_run_id])

    async def messages(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> list[Message]:
        """The thread's messages, oldest first, from behind a sequence number."""
        thread = self._threads.get(thread_id)
        if thread is None:
            return []
        found = thread.index().messages
        return [m for m in found if m.seq > after][:limit] if after else found[:limit]

    async def events(self, thread_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """The thread's durable events, oldest first, from behind a sequence number."""
        thread = self._threads.get(thread_id)
        return thread.index().log[after : after + limit] if thread else []

    async def run(self, run_id: str) -> RunRecord | None:
        """One run's record."""
        run = self._run(run_id)
        return run.record if run else None

    def _run(self, run_id: str) -> _Run | None:
        thread = self._thread_of.get(run_id)
        return thread.index().runs.get(run_id) if thread else None

    async def runs(
        self,
        *,
        thread_id: str | None = None,
        status: RunStatus | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[RunRecord]:
        """Run records, newest first, older than the run `before`."""
        found: list[RunRecord] = []
        for run_id in sorted(self._thread_of, reverse=True):
            if before is not None and run_id >= before:
                continue
            record = self._thread_of[run_id].index().runs[run_id].record
            if thread_id not in (None, record.thread_id) or status not in (None, record.status):
                continue
            found.append(record)
            if len(found) == limit:
                break
        return found

    async def calls(self, run_id: str) -> Sequence[Call]:
        """The whole ledger of a run, in order."""
        run = self._run(run_id)
        return list(run.calls.values()) if run else []

    async def tickets(self, run_id: str) -> Sequence[Ticket]:
        """All tickets of a run, in order, whatever became of them."""
        run = self._run(run_id)
        return list(run.tickets.values()) if run else []

    async def close(self) -> None:
        """Nothing is held open."""


def _with_run(view: ThreadView, index: _Index, run: _Run) -> ThreadView:
    record = run.record
    acting, newest = record.stage == "acting", reversed(index.messages)
    return replace(
        view,
        run=record,
        run_state=dict(run.state),
        tickets=tuple([t for t in run.tickets.values() if t.status == "open"]),
        calls=tuple([c for c in run.calls.values() if c.step == record.steps]) if acting else (),
        answer=next((m for m in newest if m.id == record.answer_id), None) if record.answer_id else None,
    )


def _writes(commit: Commit) -> bool:
    return bool(commit.calls or commit.tickets or commit.state or commit.tasks or commit.taken or commit.decisions)
