"""What a run has done since its last commit, gathered until there is a reason to write it."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ..state import OWN_NAMES, SentNotice, State
from ..stores import Commit, Committed, Fence, InboxItem, Relay, StateWrite
from ..types.events import Event, StateDelta
from ..types.messages import Message
from ..types.runs import Call, Identity, RunRecord, TaskRecord
from ..types.tickets import Decision, Ticket

__all__ = ["Draft"]

# What few steps have is made when there is some: every run begins with a draft.
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Draft:
    """The next commit in the making: `run` is the run's record, `calls` the rows of the ledger that changed.

    After a refusal all of it is still there. `more` says whether there is any of what few steps have.
    """

    __slots__ = (
        "_closed",
        "_decisions",
        "_items",
        "_relays",
        "_seen",
        "_taken",
        "_tickets",
        "begun",
        "calls",
        "claim",
        "fence",
        "identity",
        "inbox_head",
        "log",
        "more",
        "notices",
        "request",
        "run",
        "state",
        "tasks",
        "version",
    )

    def __init__(self, identity: Identity, state: State) -> None:
        self.identity = identity
        self.state = state
        self.log: list[Message | Event] = []
        self.run: RunRecord | None = None
        self.calls: dict[str, Call] = {}
        self.fence: Fence | None = None
        self.version: int | None = None
        self.claim: str | None = None
        self.request: str | None = None
        # Which head of the inbox a claim depends on, if it does.
        self.inbox_head: int | None = None
        self.begun: Future[None] | None = None
        self.more = False
        self.notices: tuple[SentNotice, ...] = ()
        self.tasks: Mapping[str, TaskRecord] = _NOTHING
        self._closed: RunRecord | None = None
        self._tickets: Mapping[str, Ticket] = _NOTHING
        self._decisions: tuple[Decision, ...] = ()
        self._taken: tuple[str, ...] = ()
        self._items: tuple[InboxItem, ...] = ()
        self._relays: tuple[Relay, ...] = ()
        self._seen: Mapping[str, int] = _NOTHING

    def put_closed(self, run: RunRecord) -> None:
        """Write the record of a run that this one supersedes."""
        self._closed, self.more = run, True

    def put_ticket(self, ticket: Ticket) -> None:
        """Write a ticket."""
        self._tickets = {**self._tickets, ticket.id: ticket}
        self.more = True

    def put_decision(self, decision: Decision) -> None:
        """Write a decision."""
        self._decisions = (*self._decisions, decision)
        self.more = True

    def put_task(self, task: TaskRecord) -> None:
        """Write a task."""
        self.tasks = {**self.tasks, task.id: task}
        self.more = True

    def put_item(self, item: InboxItem) -> None:
        """Put an item into another thread's inbox."""
        self._items = (*self._items, item)
        self.more = True

    def put_relay(self, relay: Relay) -> None:
        """Send something to a recipient outside the store."""
        self._relays = (*self._relays, relay)
        self.more = True

    def put_notices(self, notices: Iterable[SentNotice]) -> None:
        """Deliver these once they are committed."""
        self.notices = (*self.notices, *notices)
        self.more = True

    def divert(self, relay_of: Callable[[InboxItem], Relay]) -> bool:
        """Let messages go by relays which the inboxes they are for have no room for; whether there are any."""
        mail = [item for item in self._items if item.lineage is not None and item.lineage.origin == "message"]
        self._items = tuple([item for item in self._items if item not in mail])
        self._relays = (*self._relays, *[relay_of(item) for item in mail])
        return bool(mail)

    def aside(self) -> tuple[Mapping[str, TaskRecord], tuple[InboxItem, ...]]:
        """What is said about tasks and to other threads so far, to go back to."""
        return self.tasks, self._items

    def go_back(self, aside: tuple[Mapping[str, TaskRecord], tuple[InboxItem, ...]]) -> None:
        """Take back what was said about tasks and to other threads since."""
        self.tasks, self._items = aside

    def take(self, item_id: str, revision: int | None = None) -> None:
        """Mark an inbox item as taken in; with a revision only if nobody changed it since."""
        self._taken = (*self._taken, item_id)
        self.more = True
        if revision is not None:
            self._seen = {**self._seen, item_id: revision}

    def leave(self, item_ids: set[str], messages: list[Message]) -> None:
        """Take back that these items were taken in, with what they became."""
        self._taken = tuple([item_id for item_id in self._taken if item_id not in item_ids])
        self._seen = {k: v for k, v in self._seen.items() if k not in item_ids}
        self.log = [entry for entry in self.log if all(entry is not message for message in messages)]
        self.more = self._has_more()

    def __bool__(self) -> bool:
        return bool(self.log or self.run is not None or self.calls or self.more or self.state.changes)

    def commit(self, now: int, release: bool = False, inbox_head: int | None = None) -> Commit:
        """Everything gathered, as one commit: what is added from now on is for the next one. One that was written
        is followed by `clear`, one that was refused by `put_back`."""
        identity, more = self.identity, self.more or self.claim is not None
        if self.state.changes:
            self._show_changes(now)
            more = True
        run, calls = self.run, self.calls
        log, runs, rows = tuple(self.log), () if run is None else (run,), ()
        self.log.clear()
        self.run = None
        if calls:
            rows = tuple(calls.values())
            calls.clear()
        commit = Commit(identity.thread_id, identity, self.fence, log, runs, rows, release, inbox_head, more)
        if more:
            self._add_more(commit)
        return commit

    def put_back(self, commit: Commit) -> None:
        """The commit was refused: all of it is still to be written, before what was added meanwhile."""
        self.log[:0] = commit.log
        if self.run is None and commit.runs and commit.runs[-1] is not self._closed:
            self.run = commit.runs[-1]
        self.calls = {**{call.id: call for call in commit.calls}, **self.calls}

    def _add_more(self, commit: Commit) -> None:
        if self.claim is not None:
            commit.claim, commit.version, commit.request = self.claim, self.version, self.request
            commit.inbox_head = commit.inbox_head if self.inbox_head is None else self.inbox_head
        if self.state.changes:
            commit.state = self._writes()
        if not self.more:
            return
        if self._closed is not None:
            commit.runs = (self._closed, *commit.runs)
        commit.tickets, commit.decisions = tuple(self._tickets.values()), self._decisions
        commit.taken, commit.seen = self._taken, self._seen
        commit.tasks, commit.inbox, commit.relays = tuple(self.tasks.values()), self._items, self._relays

    def clear(self, commit: Commit, committed: Committed) -> None:
        """Forget what few commits have once one with `more` is written; what was added meanwhile stays."""
        if self.claim is not None:
            self.fence = Fence(committed.epoch, self.claim)
            self.claim = self.version = self.request = self.inbox_head = None
        if self.state.changes:
            self.state.changes = {}
        if not self.more:
            return
        self._closed, self.notices = None, ()
        self._tickets, self._decisions, self._taken = _NOTHING, (), self._taken[len(commit.taken) :]
        self._seen = {k: v for k, v in self._seen.items() if k in self._taken}
        self._relays, self._items = self._relays[len(commit.relays) :], self._items[len(commit.inbox) :]
        self.tasks = {k: v for k, v in self.tasks.items() if v not in commit.tasks}
        self.more = self._has_more()

    def tell_begun(self) -> None:
        """Tell who waits for the first commit that it is written."""
        begun, self.begun = self.begun, None
        if begun is not None and not begun.done():
            begun.set_result(None)

    def _has_more(self) -> bool:
        closing = self._closed is not None or bool(self._tickets or self._decisions or self._taken)
        return closing or bool(self.tasks or self._items or self._relays or self.notices)

    def _show_changes(self, now: int) -> None:
        shown = {
            key.name: self.state.values[key.name]
            for key in self.state.changes
            if key.persistent and not key.name.startswith(OWN_NAMES)
        }
        # A commit that was refused keeps its draft, so the event may be there already.
        if shown and not (self.log and type(self.log[-1]) is StateDelta):
            self.log.append(StateDelta(self.identity, 0, now, shown))

    def _writes(self) -> list[StateWrite]:
        run_id = self.identity.run_id
        return [
            StateWrite(key.name, value, run_id if key.scope == "run" else None)
            for key, value in self.state.changes.items()
            if value is not None
        ]
