"""The draft: what an activation has not committed yet."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..state import RESERVED_PREFIXES, SentNotice, State
from ..stores import Commit, Committed, Fence, Records, Relay, StateWrite, UsageEntry
from ..types.base import Data
from ..types.calls import Call
from ..types.events import Event, RunFinish, StateDelta
from ..types.inbox import InboxItem, Request
from ..types.messages import Message
from ..types.records import Record
from ..types.runs import Identity, RunRecord, TaskRecord
from ..types.tickets import Decision, Ticket
from .joined_commit import JoinedCommit

__all__ = ["Draft"]

_EMPTY: Mapping[str, Any] = MappingProxyType({})


class Extras(Data):
    """The parts that few commits have.

    `closed` is the record of a run that this one supersedes. Tickets and tasks are keyed by id. `taken` are inbox
    items, `seen` the revisions on which the commit depends. `items` and `relays` go to other threads,
    `records` belong to none.
    """

    closed: RunRecord | None = None
    tickets: Mapping[str, Ticket] = _EMPTY
    decisions: tuple[Decision, ...] = ()
    tasks: Mapping[str, TaskRecord] = _EMPTY
    taken: tuple[str, ...] = ()
    seen: Mapping[str, int] = _EMPTY
    items: tuple[InboxItem, ...] = ()
    relays: tuple[Relay, ...] = ()
    records: tuple[Record, ...] = ()

    def since(self, commit: Commit) -> Extras | None:
        """The extras that were added during the commit; None if there are none."""
        taken = self.taken[len(commit.taken) :]
        left = Extras(
            tickets={k: v for k, v in self.tickets.items() if v not in commit.tickets},
            decisions=self.decisions[len(commit.decisions) :],
            tasks={k: v for k, v in self.tasks.items() if v not in commit.tasks},
            taken=taken,
            seen={k: v for k, v in self.seen.items() if k in taken},
            items=self.items[len(commit.inbox) :],
            relays=self.relays[len(commit.relays) :],
            records=self.records[0 if commit.records is None else len(commit.records.put) :],
        )
        return None if left == _NO_EXTRAS else left


_NO_EXTRAS = Extras()


class Draft(Struct, eq=False):
    """The next commit: log entries, the run's record, changed rows of the ledger, and `extras`.

    A refused commit is put back into the draft.
    """

    identity: Identity
    state: State
    log: list[Message | Event] = []
    run: RunRecord | None = None
    calls: dict[str, Call] = {}
    usage: list[UsageEntry] = []
    fence: Fence | None = None
    # A first commit claims the thread for this worker, on condition of a version and an inbox head.
    claim: str | None = None
    version: int | None = None
    request: Request | None = None
    inbox_head: int | None = None
    # Resolved once the first commit is written.
    started: Future[None] | None = None
    # The transaction that the first commit joins.
    joined: JoinedCommit | None = None
    extras: Extras | None = None
    # The extras of the commit that is being written.
    _written: Extras | None = None
    notices: tuple[SentNotice, ...] = ()

    def _put(self, **extras: Any) -> None:
        self.extras = replace(self.extras or _NO_EXTRAS, **extras)

    def _set(self, extras: Extras) -> None:
        self.extras = None if extras == _NO_EXTRAS and not self.notices else extras

    def put_closed(self, run: RunRecord) -> None:
        """Add the record of a run that this one supersedes."""
        self._put(closed=run)

    def put_ticket(self, ticket: Ticket) -> None:
        """Add a ticket."""
        self._put(tickets={**(self.extras or _NO_EXTRAS).tickets, ticket.id: ticket})

    def put_decision(self, decision: Decision) -> None:
        """Add a decision."""
        self._put(decisions=(*(self.extras or _NO_EXTRAS).decisions, decision))

    def put_task(self, task: TaskRecord) -> None:
        """Add a task."""
        self._put(tasks={**(self.extras or _NO_EXTRAS).tasks, task.id: task})

    def task(self, task: TaskRecord) -> TaskRecord:
        """A stored task with its uncommitted changes."""
        return (self.extras or _NO_EXTRAS).tasks.get(task.id, task)

    def put_item(self, item: InboxItem) -> None:
        """Add an item for another thread's inbox."""
        self._put(items=(*(self.extras or _NO_EXTRAS).items, item))

    def put_relay(self, relay: Relay) -> None:
        """Add a delivery to an address outside the store."""
        self._put(relays=(*(self.extras or _NO_EXTRAS).relays, relay))

    def put_record(self, record: Record) -> None:
        """Add a record that belongs to no thread."""
        self._put(records=(*(self.extras or _NO_EXTRAS).records, record))

    def put_notices(self, notices: Iterable[SentNotice]) -> None:
        """Add notices, which are delivered after the commit."""
        self.notices = (*self.notices, *notices)
        self._put()

    def divert(self, thread_id: str | None, relay_of: Callable[[InboxItem], Relay]) -> bool:
        """Replace the items for a full inbox by relays, or all items if the store doesn't say which inbox is full.

        Returns whether there are any.
        """
        extras = self.extras or _NO_EXTRAS
        refused = [item for item in extras.items if thread_id in (None, item.thread_id)]
        if refused:
            items = tuple([item for item in extras.items if item not in refused])
            self._put(items=items, relays=(*extras.relays, *[relay_of(item) for item in refused]))
        return bool(refused)

    def restore(self, before: Extras | None) -> None:
        """Restore the tasks and items of earlier extras."""
        before = before or _NO_EXTRAS
        self._set(replace(self.extras or _NO_EXTRAS, tasks=before.tasks, items=before.items))

    def take(self, item_id: str, revision: int | None = None) -> None:
        """Mark an inbox item as taken; with a revision only if nobody edited it since."""
        extras = self.extras or _NO_EXTRAS
        seen = extras.seen if revision is None else {**extras.seen, item_id: revision}
        self._put(taken=(*extras.taken, item_id), seen=seen)

    def expect(self, item: InboxItem) -> None:
        """Make the commit depend on the revision of an inbox item."""
        self._put(seen={**(self.extras or _NO_EXTRAS).seen, item.id: item.revision})

    def untake(self, item_ids: set[str], messages: list[Message]) -> None:
        """Undo `take`, and remove the messages of the items from the log."""
        extras = self.extras or _NO_EXTRAS
        taken = tuple([item_id for item_id in extras.taken if item_id not in item_ids])
        self._set(replace(extras, taken=taken, seen={k: v for k, v in extras.seen.items() if k not in item_ids}))
        self.log = [entry for entry in self.log if all(entry is not message for message in messages)]

    def __bool__(self) -> bool:
        # Usage alone needs no commit: the answer or the failure follows.
        return bool(
            self.log or self.run is not None or self.calls or self.extras is not None or self.state.changes
        )

    def commit(self, now: int, release: bool = False, inbox_head: int | None = None) -> Commit:
        """Turn the draft into a commit; later changes go into the next one.

        Call `clear` after it is written, or `put_back` after it is refused.
        """
        identity, has_extras = self.identity, self.extras is not None or self.claim is not None
        if self.state.changes:
            self._log_changes(now)
            has_extras = True
        run, calls = self.run, self.calls
        log, runs, rows = tuple(self.log), () if run is None else (run,), ()
        self.log.clear()
        self.run = None
        if calls:
            rows = tuple(calls.values())
            calls.clear()
        usage = tuple(self.usage)
        self.usage.clear()
        whose = (identity.thread_id, identity, self.fence)
        commit = Commit(*whose, log, runs, rows, release, inbox_head, usage, has_extras)
        if has_extras:
            self._add_extras(commit)
        return commit

    def put_back(self, commit: Commit) -> None:
        """Put a refused commit back, before later changes."""
        self.log[:0] = commit.log
        closed = None if self.extras is None else self.extras.closed
        if self.run is None and commit.runs and commit.runs[-1] is not closed:
            self.run = commit.runs[-1]
        self.calls = {**{call.id: call for call in commit.calls}, **self.calls}
        self.usage[:0] = commit.usage

    def _add_extras(self, commit: Commit) -> None:
        if self.claim is not None:
            commit.claim, commit.version, commit.request = self.claim, self.version, self.request
            commit.inbox_head = commit.inbox_head if self.inbox_head is None else self.inbox_head
        if self.state.changes:
            commit.state = self._writes()
        extras = self._written = self.extras
        if extras is None:
            return
        if extras.closed is not None:
            commit.runs = (extras.closed, *commit.runs)
        if extras.tasks:
            commit.tasks = tuple(extras.tasks.values())
        if extras.tickets:
            commit.tickets = tuple(extras.tickets.values())
        commit.decisions, commit.taken, commit.seen = extras.decisions, extras.taken, extras.seen
        commit.inbox, commit.relays = extras.items, extras.relays
        if extras.records:
            commit.records = Records(extras.records)

    def clear(self, commit: Commit, committed: Committed) -> None:
        """Drop the extras of a written commit; those added meanwhile stay."""
        if self.claim is not None:
            self.fence = Fence(committed.epoch, self.claim)
            self.claim = None
        if self.state.changes:
            self.state.changes = {}
        if (extras := self.extras) is not None:
            self.notices = ()
            self.extras = None if extras is self._written else extras.since(commit)

    def tell_started(self) -> None:
        """Resolve `started`: the first commit is written."""
        started, self.started = self.started, None
        if started is not None and not started.done():
            started.set_result(None)

    def _log_changes(self, now: int) -> None:
        shown = {
            key.name: self.state.values[key.name]
            for key in self.state.changes
            if key.persistent and not key.name.startswith(RESERVED_PREFIXES)
        }
        if not shown:
            return
        log = self.log
        place = len(log) - 1 if log and type(log[-1]) is RunFinish else len(log)
        # A refused commit that was put back already has an event, with fewer changes.
        before = place - 1 if place and type(log[place - 1]) is StateDelta else place
        log[before:place] = [StateDelta(self.identity, 0, now, shown)]

    def _writes(self) -> list[StateWrite]:
        run_id = self.identity.run_id
        return [
            StateWrite(key.name, value, run_id if key.scope == "run" else None)
            for key, value in self.state.changes.items()
            if value is not None
        ]
