"""A store in memory: the same commit and the same rules, for tests and for programs that need no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from msgspec.structs import force_setattr

from ..errors import Conflict, InboxMoved, StaleFence
from ..types.events import Event, MessageAdded
from ..types.ids import now_ms
from ..types.messages import Message
from ..types.runs import Call, Identity, RunRecord, RunStatus, TaskRecord
from ..types.tickets import Decision, Ticket
from ._protocol import Commit, Committed, InboxItem, ThreadRecord, ThreadView

__all__ = ["MemoryStore"]


class _Run:
    __slots__ = ("calls", "decisions", "record", "state", "tickets")

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        # Most runs have few of these: the dicts are made when they are needed.
        self.calls: dict[str, Call] | None = None
        self.tickets: dict[str, Ticket] | None = None
        self.state: dict[str, bytes] | None = None
        self.decisions: tuple[Decision, ...] = ()


class _Thread:
    __slots__ = (
        "claim",
        "created_at",
        "epoch",
        "inbox",
        "inbox_head",
        "last_run_id",
        "log",
        "messages",
        "open_run_id",
        "state",
        "tasks",
        "version",
    )

    def __init__(self) -> None:
        self.version = 0
        self.epoch = 0
        self.claim: str | None = None
        self.created_at = now_ms()
        self.open_run_id: str | None = None
        self.last_run_id: str | None = None
        # The log's index is the sequence number less one. A message waits there with its run until it is read.
        self.log: list[Event | tuple[Message, Identity]] = []
        self.messages: list[Message] = []
        self.state: dict[str, bytes] | None = None
        self.tasks: dict[str, TaskRecord] = {}
        self.inbox: dict[str, InboxItem] = {}
        self.inbox_head = 0


class MemoryStore:
    """Threads, runs and everything else, kept in this process for as long as the object lives."""

    def __init__(self) -> None:
        self._threads: dict[str, _Thread] = {}
        self._runs: dict[str, _Run] = {}
        self._seen: set[str] = set()

    async def commit(self, commit: Commit) -> Committed:
        """Write the commit, or nothing of it."""
        thread = self._threads.get(commit.thread_id) or _Thread()
        writes = bool(commit.log or commit.runs or commit.calls) or _writes(commit)
        fence, claim = commit.fence, commit.claim
        if fence is not None:
            if thread.claim != fence.token or thread.epoch != fence.epoch:
                raise StaleFence(
                    f"thread {commit.thread_id!r} is no longer owned by this writer "
                    f"(epoch {fence.epoch}, now {thread.epoch})"
                )
        elif writes or claim is not None or commit.release:
            self._check_free(commit, thread)
        if commit.inbox_head is not None and commit.inbox_head != thread.inbox_head:
            raise InboxMoved(f"thread {commit.thread_id!r} has new items in its inbox")
        if claim is not None:
            thread.claim = claim
            thread.epoch += 1
        if writes or claim is not None:
            self._threads[commit.thread_id] = thread
        if writes:
            thread.version += 1
            self._apply(commit, thread)
        for item in commit.inbox:
            self._deliver(item)
        if commit.release:
            thread.claim = None
        thread = self._threads.get(commit.thread_id, thread)
        return Committed(thread.version, len(thread.log), thread.epoch, thread.inbox_head)

    def _check_free(self, commit: Commit, thread: _Thread) -> None:
        if thread.claim is not None:
            raise Conflict(f"thread {commit.thread_id!r} is owned by another writer")
        if commit.version != thread.version:
            raise Conflict(f"thread {commit.thread_id!r} is at version {thread.version}, not {commit.version}")

    def _apply(self, commit: Commit, thread: _Thread) -> None:
        for record in commit.runs:
            self._put_run(record, thread)
        log, identity = thread.log, commit.identity
        seq = len(log)
        for entry in commit.log:
            seq += 1
            force_setattr(entry, "seq", seq)
            if type(entry) is Message:
                thread.messages.append(entry)
                log.append((entry, cast(Identity, identity)))
            else:
                log.append(entry)  # pyright: ignore[reportArgumentType]
        for call in commit.calls:
            run = self._runs[call.run_id]
            if run.calls is None:
                run.calls = {}
            run.calls[call.id] = call
        if commit.tickets or commit.decisions or commit.state or commit.tasks or commit.taken:
            self._apply_rest(commit, thread)

    def _apply_rest(self, commit: Commit, thread: _Thread) -> None:
        for ticket in commit.tickets:
            run = self._runs[ticket.run_id]
            run.tickets = {**(run.tickets or {}), ticket.id: ticket}
        if commit.decisions and commit.identity is not None:
            run = self._runs[commit.identity.run_id]
            run.decisions = (*run.decisions, *commit.decisions)
        for write in commit.state:
            target = thread if write.run_id is None else self._runs[write.run_id]
            if target.state is None:
                target.state = {}
            target.state[write.name] = write.value
        for task in commit.tasks:
            thread.tasks[task.id] = task
        for item_id in commit.taken:
            thread.inbox.pop(item_id, None)

    def _put_run(self, record: RunRecord, thread: _Thread) -> None:
        run_id = record.identity.run_id
        run = self._runs.get(run_id)
        if run is None:
            self._runs[run_id] = _Run(record)
            thread.last_run_id = run_id
        else:
            run.record = record
        if record.status != "done":
            thread.open_run_id = run_id
        elif thread.open_run_id == run_id:
            thread.open_run_id = None

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
        run = self._runs[thread.open_run_id] if thread.open_run_id else None
        last = self._runs[thread.last_run_id].record if thread.last_run_id else None
        record = ThreadRecord(
            id=thread_id,
            version=thread.version,
            head=len(thread.log),
            epoch=thread.epoch,
            claimed=thread.claim is not None,
            inbox_head=thread.inbox_head,
            open_run_id=thread.open_run_id,
            last_run_id=thread.last_run_id,
            last_agent_id=last.agent_id if last else None,
            created_at=thread.created_at,
        )
        view: dict[str, Any] = {
            "thread": record,
            "tasks": tuple([t for t in thread.tasks.values() if t.status == "running"]),
            "inbox": tuple(thread.inbox.values()),
            "state": dict(thread.state or {}),
        }
        return ThreadView(**view) if run is None else self._open_run(run, thread, view)

    def _open_run(self, run: _Run, thread: _Thread, view: dict[str, Any]) -> ThreadView:
        record = run.record
        view["run"] = record
        view["run_state"] = dict(run.state or {})
        view["tickets"] = tuple([t for t in (run.tickets or {}).values() if t.status == "open"])
        if record.stage == "acting":
            view["calls"] = tuple([c for c in (run.calls or {}).values() if c.step == record.steps])
        if record.answer_id is not None:
            newest = reversed(thread.messages)
            view["answer"] = next((m for m in newest if m.id == record.answer_id), None)
        return ThreadView(**view)

    async def messages(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> list[Message]:
        """The thread's messages, oldest first, from behind a sequence number."""
        thread = self._threads.get(thread_id)
        if thread is None:
            return []
        found = thread.messages if not after else [m for m in thread.messages if m.seq > after]
        return found[:limit]

    async def events(self, thread_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """The thread's durable events, oldest first, from behind a sequence number."""
        thread = self._threads.get(thread_id)
        if thread is None:
            return []
        return [
            MessageAdded(entry[1], entry[0].seq, entry[0].created_at, entry[0]) if type(entry) is tuple else entry  # pyright: ignore[reportReturnType]
            for entry in thread.log[after : after + limit]
        ]

    async def run(self, run_id: str) -> RunRecord | None:
        """One run's record."""
        run = self._runs.get(run_id)
        return run.record if run else None

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
        for run_id in sorted(self._runs, reverse=True):
            record = self._runs[run_id].record
            if before is not None and run_id >= before:
                continue
            if thread_id not in (None, record.thread_id) or status not in (None, record.status):
                continue
            found.append(record)
            if len(found) == limit:
                break
        return found

    async def calls(self, run_id: str) -> Sequence[Call]:
        """The whole ledger of a run, in order."""
        run = self._runs.get(run_id)
        return list((run.calls or {}).values()) if run else []

    async def tickets(self, run_id: str) -> Sequence[Ticket]:
        """All tickets of a run, in order, whatever became of them."""
        run = self._runs.get(run_id)
        return list((run.tickets or {}).values()) if run else []

    async def close(self) -> None:
        """Nothing is held open."""


def _writes(commit: Commit) -> bool:
    return bool(commit.tickets or commit.state or commit.tasks or commit.taken or commit.decisions)
