"""What a run has done since its last commit, gathered until there is a reason to write it."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable

from ..state import OWN_NAMES, SentNotice, State
from ..stores import Commit, Committed, Fence, InboxItem, Relay, StateWrite
from ..types.events import Event, StateDelta
from ..types.messages import Message
from ..types.runs import Call, Identity, RunRecord, TaskRecord
from ..types.tickets import Decision, Ticket

__all__ = ["Draft"]


class Draft:
    """The next commit in the making: `run` is the run's record, `calls` the rows of the ledger that changed.

    After a refusal all of it is still there. What a step rarely has is a tuple, which costs nothing while empty.
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
        "log",
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
        self.notices: tuple[SentNotice, ...] = ()
        self.fence: Fence | None = None
        self.version: int | None = None
        self.claim: str | None = None
        self.request: str | None = None
        self.begun: Future[None] | None = None
        self._closed: RunRecord | None = None
        self._tickets: dict[str, Ticket] = {}
        self._decisions: tuple[Decision, ...] = ()
        self._taken: tuple[str, ...] = ()
        self.tasks: dict[str, TaskRecord] = {}
        self._items: tuple[InboxItem, ...] = ()
        self._relays: tuple[Relay, ...] = ()
        self._seen: dict[str, int] = {}

    def put_closed(self, run: RunRecord) -> None:
        """Write the record of a run that this one supersedes."""
        self._closed = run

    def put_ticket(self, ticket: Ticket) -> None:
        """Write a ticket."""
        self._tickets[ticket.id] = ticket

    def put_decision(self, decision: Decision) -> None:
        """Write a decision."""
        self._decisions = (*self._decisions, decision)

    def put_task(self, task: TaskRecord) -> None:
        """Write a task."""
        self.tasks[task.id] = task

    def put_item(self, item: InboxItem) -> None:
        """Put an item into another thread's inbox."""
        self._items = (*self._items, item)

    def put_relay(self, relay: Relay) -> None:
        """Send something to a recipient outside the store."""
        self._relays = (*self._relays, relay)

    def divert(self, relay_of: Callable[[InboxItem], Relay]) -> bool:
        """Let messages go by relays which the inboxes they are for have no room for; whether there are any."""
        mail = [item for item in self._items if item.lineage is not None and item.lineage.origin == "message"]
        self._items = tuple([item for item in self._items if item not in mail])
        self._relays = (*self._relays, *[relay_of(item) for item in mail])
        return bool(mail)

    def aside(self) -> tuple[dict[str, TaskRecord], tuple[InboxItem, ...]]:
        """What is said about tasks and to other threads so far, to go back to."""
        return dict(self.tasks), self._items

    def go_back(self, aside: tuple[dict[str, TaskRecord], tuple[InboxItem, ...]]) -> None:
        """Take back what was said about tasks and to other threads since."""
        self.tasks, self._items = aside

    def take(self, item_id: str, revision: int | None = None) -> None:
        """Mark an inbox item as taken in; with a revision only if nobody changed it since."""
        self._taken = (*self._taken, item_id)
        if revision is not None:
            self._seen[item_id] = revision

    def leave(self, item_ids: set[str], messages: list[Message]) -> None:
        """Take back that these items were taken in, with what they became."""
        self._taken = tuple([item_id for item_id in self._taken if item_id not in item_ids])
        self._seen = {k: v for k, v in self._seen.items() if k not in item_ids}
        self.log = [entry for entry in self.log if all(entry is not message for message in messages)]

    def __bool__(self) -> bool:
        return bool(
            self.log
            or self.run is not None
            or self.calls
            or self._tickets
            or self._taken
            or self.tasks
            or self._items
            or self._relays
            or self.state.changes
            or self.notices
        )

    def commit(self, now: int, *, release: bool = False, inbox_head: int | None = None) -> Commit:
        """Everything gathered, as one commit."""
        if self.state.changes:
            self._show_changes(now)
        identity = self.identity
        runs = (self.run,) if self._closed is None and self.run is not None else self._records()
        log, calls = tuple(self.log), tuple(self.calls.values())
        commit = Commit(identity.thread_id, identity, self.fence, log, runs, calls, release, inbox_head)
        if self.claim is not None:
            commit.claim, commit.version, commit.request = self.claim, self.version, self.request
        if self.state.changes:
            commit.state = self._writes()
        if self._tickets or self._decisions or self._taken:
            commit.tickets = tuple(self._tickets.values())
            commit.decisions, commit.taken, commit.seen = self._decisions, self._taken, self._seen
        if self.tasks or self._items:
            commit.tasks, commit.inbox = tuple(self.tasks.values()), self._items
        if self._relays:
            commit.relays = self._relays
        return commit

    def clear(self, commit: Commit, committed: Committed) -> None:
        """Begin anew after a commit; what was added while it was being written stays."""
        del self.log[: len(commit.log)]
        if commit.runs and commit.runs[-1] is self.run:
            self.run = None
        self.calls.clear()
        self.notices = ()
        if self._tickets or self._decisions or self._taken:
            self._tickets, self._decisions, self._taken = {}, (), self._taken[len(commit.taken) :]
            self._seen = {k: v for k, v in self._seen.items() if k in self._taken}
        if self._relays:
            self._relays = self._relays[len(commit.relays) :]
        if self.tasks or self._items:
            self._items = self._items[len(commit.inbox) :]
            self.tasks = {k: v for k, v in self.tasks.items() if v not in commit.tasks}
        if self.state.changes:
            self.state.changes = {}
        if self._closed is not None:
            self._closed = None
        if self.claim is not None:
            self.fence = Fence(committed.epoch, self.claim)
            self.claim = self.version = self.request = None
        if self.begun is not None and not self.begun.done():
            self.begun.set_result(None)

    def _records(self) -> tuple[RunRecord, ...]:
        return tuple([run for run in (self._closed, self.run) if run is not None])

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
