"""What a run has done since its last commit, gathered until there is a reason to write it."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..state import OWN_NAMES, SentNotice, State
from ..stores import Commit, Committed, Fence, InboxItem, Relay, StateWrite
from ..types.events import Event, RunFinish, StateDelta
from ..types.messages import Message
from ..types.runs import Call, Identity, RunRecord, TaskRecord
from ..types.tickets import Decision, Ticket
from ._rides import Ride

__all__ = ["Draft"]

# What few steps have is made when there is some: every run begins with a draft.
_NONE: Mapping[str, Any] = MappingProxyType({})


class More(Struct, frozen=True, gc=False):
    """What few commits have: the record of a run that this one supersedes, tickets and tasks by their ids,
    answers, inbox items that were taken in with revisions that were seen of them, and what goes to others."""

    closed: RunRecord | None = None
    tickets: Mapping[str, Ticket] = _NONE
    decisions: tuple[Decision, ...] = ()
    tasks: Mapping[str, TaskRecord] = _NONE
    taken: tuple[str, ...] = ()
    seen: Mapping[str, int] = _NONE
    items: tuple[InboxItem, ...] = ()
    relays: tuple[Relay, ...] = ()

    def since(self, commit: Commit) -> More | None:
        """What was added while the commit was being written, if anything was."""
        taken = self.taken[len(commit.taken) :]
        left = More(
            tickets={k: v for k, v in self.tickets.items() if v not in commit.tickets},
            decisions=self.decisions[len(commit.decisions) :],
            tasks={k: v for k, v in self.tasks.items() if v not in commit.tasks},
            taken=taken,
            seen={k: v for k, v in self.seen.items() if k in taken},
            items=self.items[len(commit.inbox) :],
            relays=self.relays[len(commit.relays) :],
        )
        return None if left == _NOTHING else left


_NOTHING = More()


class Draft(Struct, eq=False, gc=False):
    """The next commit in the making: `run` is the run's record, `calls` the rows of the ledger that changed.

    After a refusal all of it is still there. `more` is what few steps have, if there is any of it.
    """

    identity: Identity
    state: State
    log: list[Message | Event] = []
    run: RunRecord | None = None
    calls: dict[str, Call] = {}
    fence: Fence | None = None
    # The worker that the next commit claims the thread for, if it does; at which version, by which request, and
    # which head of the inbox that depends on.
    claim: str | None = None
    version: int | None = None
    request: str | None = None
    inbox_head: int | None = None
    begun: Future[None] | None = None
    # What the first commit goes along with, if it does.
    ride: Ride | None = None
    more: More | None = None
    # What there was of it when it was last written.
    _written: More | None = None
    notices: tuple[SentNotice, ...] = ()

    def _put(self, **more: Any) -> None:
        self.more = replace(self.more or _NOTHING, **more)

    def _keep(self, left: More) -> None:
        self.more = None if left == _NOTHING and not self.notices else left

    def put_closed(self, run: RunRecord) -> None:
        """Write the record of a run that this one supersedes."""
        self._put(closed=run)

    def put_ticket(self, ticket: Ticket) -> None:
        """Write a ticket."""
        self._put(tickets={**(self.more or _NOTHING).tickets, ticket.id: ticket})

    def put_decision(self, decision: Decision) -> None:
        """Write a decision."""
        self._put(decisions=(*(self.more or _NOTHING).decisions, decision))

    def put_task(self, task: TaskRecord) -> None:
        """Write a task."""
        self._put(tasks={**(self.more or _NOTHING).tasks, task.id: task})

    def task(self, task: TaskRecord) -> TaskRecord:
        """A task of the store, as it will be."""
        return (self.more or _NOTHING).tasks.get(task.id, task)

    def put_item(self, item: InboxItem) -> None:
        """Put an item into another thread's inbox."""
        self._put(items=(*(self.more or _NOTHING).items, item))

    def put_relay(self, relay: Relay) -> None:
        """Send something to a recipient outside the store."""
        self._put(relays=(*(self.more or _NOTHING).relays, relay))

    def put_notices(self, notices: Iterable[SentNotice]) -> None:
        """Deliver these once they are committed."""
        self.notices = (*self.notices, *notices)
        self._put()

    def divert(self, thread_id: str | None, relay_of: Callable[[InboxItem], Relay]) -> bool:
        """Let items go by relays which the inbox of this thread has no room for, or all of them, if the store
        doesn't say which it is; whether there are any."""
        more = self.more or _NOTHING
        full = [item for item in more.items if thread_id in (None, item.thread_id)]
        if full:
            items = tuple([item for item in more.items if item not in full])
            self._put(items=items, relays=(*more.relays, *[relay_of(item) for item in full]))
        return bool(full)

    def go_back(self, before: More | None) -> None:
        """Take back what was said about tasks and to other threads since there was no more than this."""
        before = before or _NOTHING
        self._keep(replace(self.more or _NOTHING, tasks=before.tasks, items=before.items))

    def take(self, item_id: str, revision: int | None = None) -> None:
        """Mark an inbox item as taken in; with a revision only if nobody changed it since."""
        more = self.more or _NOTHING
        seen = more.seen if revision is None else {**more.seen, item_id: revision}
        self._put(taken=(*more.taken, item_id), seen=seen)

    def expect(self, item: InboxItem) -> None:
        """Write only if an item of the inbox is as it was seen."""
        self._put(seen={**(self.more or _NOTHING).seen, item.id: item.revision})

    def leave(self, item_ids: set[str], messages: list[Message]) -> None:
        """Take back that these items were taken in, with what they became."""
        more = self.more or _NOTHING
        taken = tuple([item_id for item_id in more.taken if item_id not in item_ids])
        self._keep(replace(more, taken=taken, seen={k: v for k, v in more.seen.items() if k not in item_ids}))
        self.log = [entry for entry in self.log if all(entry is not message for message in messages)]

    def __bool__(self) -> bool:
        return bool(self.log or self.run is not None or self.calls or self.more is not None or self.state.changes)

    def commit(self, now: int, release: bool = False, inbox_head: int | None = None) -> Commit:
        """Everything gathered, as one commit: what is added from now on is for the next one. One that was written
        is followed by `clear`, one that was refused by `put_back`."""
        identity, more = self.identity, self.more is not None or self.claim is not None
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
        closed = None if self.more is None else self.more.closed
        if self.run is None and commit.runs and commit.runs[-1] is not closed:
            self.run = commit.runs[-1]
        self.calls = {**{call.id: call for call in commit.calls}, **self.calls}

    def _add_more(self, commit: Commit) -> None:
        if self.claim is not None:
            commit.claim, commit.version, commit.request = self.claim, self.version, self.request
            commit.inbox_head = commit.inbox_head if self.inbox_head is None else self.inbox_head
        if self.state.changes:
            commit.state = self._writes()
        more = self._written = self.more
        if more is None:
            return
        if more.closed is not None:
            commit.runs = (more.closed, *commit.runs)
        if more.tasks:
            commit.tasks = tuple(more.tasks.values())
        if more.tickets:
            commit.tickets = tuple(more.tickets.values())
        commit.decisions, commit.taken, commit.seen = more.decisions, more.taken, more.seen
        commit.inbox, commit.relays = more.items, more.relays

    def clear(self, commit: Commit, committed: Committed) -> None:
        """Forget what few commits have once one with `more` is written; what was added meanwhile stays."""
        if self.claim is not None:
            self.fence = Fence(committed.epoch, self.claim)
            self.claim = None
        if self.state.changes:
            self.state.changes = {}
        if (more := self.more) is not None:
            self.notices = ()
            self.more = None if more is self._written else more.since(commit)

    def tell_begun(self) -> None:
        """Tell who waits for the first commit that it is written."""
        begun, self.begun = self.begun, None
        if begun is not None and not begun.done():
            begun.set_result(None)

    def _show_changes(self, now: int) -> None:
        shown = {
            key.name: self.state.values[key.name]
            for key in self.state.changes
            if key.persistent and not key.name.startswith(OWN_NAMES)
        }
        log = self.log
        place = len(log) - 1 if log and type(log[-1]) is RunFinish else len(log)
        # A commit that was refused keeps its draft, so the event may be there already.
        if shown and not (place and type(log[place - 1]) is StateDelta):
            log.insert(place, StateDelta(self.identity, 0, now, shown))

    def _writes(self) -> list[StateWrite]:
        run_id = self.identity.run_id
        return [
            StateWrite(key.name, value, run_id if key.scope == "run" else None)
            for key, value in self.state.changes.items()
            if value is not None
        ]
