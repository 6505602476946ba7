"""The changes of an accepted commit: heads, runs, deliveries and dispatches. Nothing is refused here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ..types.inbox import InboxItem
from ..types.runs import RunRecord
from . import dispatches
from .conditions import answers, due_time, makes_thread, principal_of, wakes_of, woken, writes
from .facts import item_row
from .heads import IDLE_WAKES, DispatchRow, Facts, Head, ItemRow, RunRow
from .records import Commit, Committed
from .writes import Delivery, Guard, LeaseWrite, RunWrite, Writes

__all__ = ["Changes"]


class Changes:
    """The changes of an accepted commit, while they are worked out. `run_ids` are the runs of its rows."""

    def __init__(self, facts: Facts, commit: Commit, run_ids: Iterable[str], now: int) -> None:
        self.facts = facts
        self.commit = commit
        self.run_ids = run_ids
        self.now = now
        self.before = facts.heads[commit.thread_id]
        self.has_changes = writes(commit)
        self.heads: dict[str, Head] = {}
        self.guards: dict[str, Guard] = {}
        self.runs: list[RunWrite] = []
        self.deliveries: list[Delivery] = []
        self.next_thread = facts.next_thread
        self.next_run = facts.next_run
        self.needs_inbox_head = commit.inbox_head is not None
        # The run that the commit leaves open, and whether it ends one.
        self.open_record: RunRecord | None = None
        self.has_ended = False
        self.drops_chunks = False
        self.lease: LeaseWrite | None = None

    def write(self) -> Writes:
        """Work out what the commit writes."""
        commit, before = self.commit, self.before
        head = before
        if not head.no and self.makes_home():
            parent = None if commit.identity is None else commit.identity.parent_thread_id
            makers = [*commit.runs, *[item for item in commit.inbox if item.thread_id == commit.thread_id]]
            head = self.create(head, parent, principal_of(makers[0]) if makers else None)
        if commit.claim is not None:
            head = self.take(head, commit.claim)
        if self.has_changes:
            head = self.append(head)
        if commit.release:
            head = replace(head, claim=None)
        if commit.inbox:
            head = self.deliver(head)
        if commit.pending:
            head = self.edit_pending(head)
        if head.no and head.claim is None and (self.has_changes or commit.release or commit.pending):
            head = self.settle(head)
            self.needs_inbox_head = True
        if head.no:
            self.heads[commit.thread_id] = head
        if before.no:
            self.guards[commit.thread_id] = self.guard_home()
        return Writes(
            commit,
            self.now,
            Committed(head.version, head.log_head, head.epoch, head.inbox_head),
            self.heads,
            self.guards,
            before.log_head,
            self.runs,
            self.run_numbers(),
            self.has_changes,
            self.drops_chunks,
            self.deliveries,
            commit.taken,
            self.lease,
            self.next_thread,
            self.next_run,
        )

    def makes_home(self) -> bool:
        """Whether the commit makes its thread, if that isn't there."""
        commit = self.commit
        if self.has_changes or commit.claim is not None or commit.about is not None or commit.relays:
            return True
        return any(item.thread_id == commit.thread_id and makes_thread(item) for item in commit.inbox)

    def guard_home(self) -> Guard:
        commit = self.commit
        needs_version = self.has_changes or commit.release or commit.claim is not None or commit.about is not None
        is_delivered_to = self.before.claim is None and bool(commit.inbox)
        needs_inbox_head = self.needs_inbox_head or bool(commit.pending or commit.seen)
        return Guard(needs_version or is_delivered_to, needs_inbox_head)

    def create(self, head: Head, parent: str | None, principal: str | None) -> Head:
        self.next_thread += 1
        return replace(head, no=self.next_thread - 1, parent=parent, principal=principal, has_chunks=False)

    def take(self, head: Head, worker_id: str) -> Head:
        """Claim the thread: a new epoch, the worker's lease, and the dispatch is held."""
        commit, now = self.commit, self.now
        if self.facts.leases.get(worker_id, 0) < now + commit.lease - commit.lease // 2:
            self.lease = LeaseWrite(worker_id, now + commit.lease)
        dispatch = head.dispatch
        if self.before.no:
            run = commit.runs[-1] if commit.runs else None
            dispatch = dispatches.hold(
                dispatch,
                head.open_run,
                agent="" if run is None else run.agent_id,
                step=0 if run is None else run.steps,
                is_takeover=head.claim is not None,
                now=now,
            )
            self.needs_inbox_head = True
        return replace(head, claim=worker_id, epoch=head.epoch + 1, handed=self.before.version, dispatch=dispatch)

    def append(self, head: Head) -> Head:
        """Put runs and log entries, and take items."""
        commit = self.commit
        open_run, wakes, last_run, last_agent = head.open_run, head.wakes, head.last_run, head.last_agent
        for record in commit.runs:
            run = self.put_run(record)
            if run.is_new:
                last_run = run.row.no
            if last_run == run.row.no:
                last_agent = run.row.agent
            if record.status != "done":
                open_run, wakes, self.open_record = run.row, wakes_of(record), record
            elif open_run is not None and open_run.no == run.row.no:
                open_run, wakes, self.open_record, self.has_ended = None, IDLE_WAKES, None, True
        has_chunks, pending = head.has_chunks, head.pending
        if has_chunks and self.before.no and (self.has_ended or answers(commit)):
            self.drops_chunks, has_chunks = True, False
        if commit.taken and pending:
            pending = {item_id: item for item_id, item in pending.items() if item_id not in commit.taken}
        return replace(
            head,
            version=head.version + 1,
            log_head=head.log_head + len(commit.log),
            wakes=wakes,
            open_run=open_run,
            last_run=last_run,
            last_agent=last_agent,
            pending=pending,
            has_chunks=has_chunks or bool(commit.chunks),
        )

    def put_run(self, record: RunRecord) -> RunWrite:
        known = self.find_run(record.identity.run_id)
        if known is None:
            no, self.next_run = self.next_run, self.next_run + 1
        else:
            no = known.no
        row = RunRow(no, record.identity.run_id, record.agent_id, record.priority, record.steps, record.status)
        is_step = (
            known is not None
            and known.agent == row.agent
            and known.status == row.status
            and record.finished_at is None
        )
        run = RunWrite(record, row, known is None, is_step)
        self.runs.append(run)
        return run

    def find_run(self, run_id: str) -> RunRow | None:
        for run in reversed(self.runs):
            if run.row.id == run_id:
                return run.row
        opened = self.before.open_run
        return opened if opened is not None and opened.id == run_id else self.facts.runs.get(run_id)

    def run_numbers(self) -> dict[str, int]:
        if not self.has_changes:
            return {}
        numbers: dict[str, int] = {}
        for run_id in self.run_ids:
            row = self.find_run(run_id)
            numbers[run_id] = 0 if row is None else row.no
        return numbers

    def deliver(self, home: Head) -> Head:
        """Put items into inboxes, and make dispatches of the threads that they wake."""
        home_id, now, sent = self.commit.thread_id, self.now, set[str]()
        for item in self.commit.inbox:
            if self.facts.items[item.id] is not None or item.id in sent:
                continue
            thread_id = item.thread_id
            is_home = thread_id == home_id
            head = home if is_home else self.heads.get(thread_id) or self.facts.heads[thread_id]
            if not head.no:
                if not makes_thread(item):
                    continue
                head = self.create(head, item.parent_thread_id, principal_of(item))
            elif not is_home and self.facts.heads[thread_id].no:
                self.guards.setdefault(thread_id, Guard(head.claim is None, inbox_head=True))
            sent.add(item.id)
            head = _put_item(head, item, now)
            self.deliveries.append(Delivery(item, head.inbox_head))
            if is_home:
                home, self.needs_inbox_head = head, True
            else:
                self.heads[thread_id] = head
        return home

    def edit_pending(self, head: Head) -> Head:
        """Change pending items, or retract them."""
        pending = dict(head.pending or {})
        for item in self.commit.pending:
            pending.pop(item.id, None)
            if item.status == "pending":
                pending[item.id] = replace(item_row(item, item.position), revision=item.revision)
        pending = dict(sorted(pending.items(), key=lambda entry: entry[1].position))
        return replace(head, pending=pending, inbox_head=head.inbox_head + 1)

    def settle(self, head: Head) -> Head:
        """Say when a thread without an owner is due: by what its commit says, its inbox, and its run's wait."""
        commit = self.commit
        dispatch = head.dispatch
        if dispatch is None and (commit.fence is not None or commit.claim is not None):
            # Given back by an owner whose claim made none.
            made = dispatches.make(head.open_run, self.now)
        else:
            made = dispatch
        if commit.failed is not None:
            return replace(head, dispatch=None if made is None else dispatches.fail(made, commit.failed, self.now))
        waking = [item for item in (head.pending or {}).values() if woken(head.wakes, (item.wake,))]
        times = [max(self.now, item.at or 0) for item in waking]
        if self.open_record is not None and (due := due_time(self.open_record, self.now)) is not None:
            times.append(due)
        if self.open_record is None and head.open_run is not None and (commit.later is not None or not times):
            return replace(head, dispatch=None if made is None else self.postpone(made))
        if not times:
            return replace(head, dispatch=None)
        due_at = min(times) if commit.later is None else commit.later
        return replace(head, dispatch=replace(self.requeue(head, waking, due_at), error=commit.why))

    def postpone(self, dispatch: DispatchRow) -> DispatchRow:
        """The dispatch of a run whose record the commit doesn't have: it stays due as it was, or is put off."""
        commit = self.commit
        if commit.later is None:
            return replace(dispatch, held=False)
        return replace(dispatch, due_at=commit.later, held=False, error=commit.why)

    def requeue(self, head: Head, waking: Sequence[ItemRow], due_at: int) -> DispatchRow:
        """A dispatch with all its attempts, for the agent of the open run or of the first item."""
        dispatch, run = head.dispatch, head.open_run
        if run is not None:
            agent, priority = run.agent, run.priority
        else:
            agent, priority = waking[0].agent or "", min(item.priority for item in waking)
        if not agent and dispatch is not None:
            agent = dispatch.agent
        if not agent and (self.commit.fence is not None or self.commit.claim is not None):
            agent = head.last_agent
        return DispatchRow(agent, priority, due_at, mark=0 if dispatch is None else dispatch.mark)


def _put_item(head: Head, item: InboxItem, now: int) -> Head:
    """The head after an item arrived. A thread without an owner that the item wakes gets a dispatch."""
    position = head.inbox_head + 1
    dispatch = head.dispatch
    if head.claim is None and woken(head.wakes, (item.wake,)):
        run = head.open_run
        dispatch = dispatches.schedule_sooner(
            dispatch,
            agent=(item.agent_id or "") if run is None else run.agent,
            priority=item.priority if run is None else run.priority,
            due_at=max(now, item.at or 0),
        )
    elif head.claim is None and item.kind == "cancel" and dispatch is not None and dispatch.dead_at is not None:
        dispatch = dispatches.revive(dispatch, now)
    pending = {**(head.pending or {}), item.id: item_row(item, position)}
    return replace(head, inbox_head=position, dispatch=dispatch, pending=pending)
