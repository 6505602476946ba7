"""Facts around a decision: which rows a commit needs, and the facts that it leaves."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ..types.inbox import InboxItem
from ..types.messages import Message
from .conditions import record_key
from .heads import Facts, Head, ItemRow, NeedFacts, RecordKey, RecordRow
from .records import Commit, Records
from .writes import Writes

__all__ = ["advance", "item_row", "missing_facts", "recipients_of", "runs_of", "threads_of"]

_NOTHING = NeedFacts()


def recipients_of(commit: Commit) -> list[str]:
    """The ids of the threads that a commit may write to, its own first."""
    if not commit.inbox:
        return [commit.thread_id]
    return list(dict.fromkeys([commit.thread_id, *[item.thread_id for item in commit.inbox]]))


def threads_of(commit: Commit) -> frozenset[str]:
    """The ids of the threads that a commit and its followers may write to."""
    if not commit.then:
        return frozenset(recipients_of(commit))
    return frozenset([name for one in (commit, *commit.then) for name in recipients_of(one)])


def missing_facts(facts: Facts, commit: Commit, run_ids: Iterable[str]) -> NeedFacts | None:
    """The facts that a commit needs and `facts` lacks; None if there are enough. See `runs_of`."""
    threads: tuple[str, ...] = ()
    for thread_id in recipients_of(commit):
        if _lacks_head(facts, commit, thread_id):
            threads = (*threads, thread_id)
    home = facts.heads.get(commit.thread_id)
    items: tuple[str, ...] = ()
    if commit.inbox or commit.request is not None or commit.pending or commit.seen:
        items = _missing_items(facts, commit, home)
    runs = _missing_runs(facts, run_ids, home)
    relays: tuple[str, ...] = ()
    if commit.relays:
        relays = tuple([relay.id for relay in commit.relays if relay.id not in facts.relays])
    records = () if commit.records is None else _missing_records(facts, commit.records)
    workers: tuple[str, ...] = ()
    if home is not None and home.claim is not None and commit.claim is not None and commit.fence is None:
        workers = () if home.claim in facts.alive else (home.claim,)
    needs = NeedFacts(threads, items, runs, relays, records, workers)
    return None if needs == _NOTHING else needs


def _missing_items(facts: Facts, commit: Commit, home: Head | None) -> tuple[str, ...]:
    """Ids that have to be new, of items that are sent and of the request, and items that are changed or taken."""
    new = {item.id for item in commit.inbox}
    if commit.request is not None:
        new.add(commit.request.id)
    pending = (home.pending if home is not None else None) or {}
    edited = {*commit.seen, *[item.id for item in commit.pending]}
    return tuple((new | (edited - pending.keys())) - facts.items.keys())


def _missing_records(facts: Facts, records: Records) -> tuple[RecordKey, ...]:
    wanted = [record_key(record) for record in (*records.put, *records.removed)]
    return tuple([key for key in dict.fromkeys(wanted) if key not in facts.records])


def _missing_runs(facts: Facts, run_ids: Iterable[str], home: Head | None) -> tuple[str, ...]:
    """Runs whose row is needed. A thread without a row has no runs."""
    if home is not None and not home.no:
        return ()
    missing = set(run_ids).difference(facts.runs)
    if home is not None and home.open_run is not None:
        missing.discard(home.open_run.id)
    return tuple(missing)


def _lacks_head(facts: Facts, commit: Commit, thread_id: str) -> bool:
    head = facts.heads.get(thread_id)
    if head is None:
        return True
    if head.pending is not None:
        return False
    if any(item.thread_id == thread_id for item in commit.inbox):
        return True
    is_unowned = head.claim is None and commit.claim is None
    return thread_id == commit.thread_id and bool(commit.pending or commit.seen or commit.release or is_unowned)


def runs_of(commit: Commit) -> set[str]:
    """The ids of the runs that a commit's rows refer to."""
    runs = set[str]()
    for record in commit.runs:
        runs.add(record.identity.run_id)
    if commit.log:
        if commit.identity is not None:
            runs.add(commit.identity.run_id)
        for entry in commit.log:
            if not isinstance(entry, Message):
                runs.add(entry.run.run_id)
    for call in commit.calls:
        runs.add(call.run_id)
    for ticket in commit.tickets:
        runs.add(ticket.run_id)
    for change in commit.state:
        if change.run_id is not None:
            runs.add(change.run_id)
    return runs


def _changed_items(facts: Facts, writes: Writes) -> dict[str, ItemRow]:
    commit = writes.commit
    changed = {delivery.item.id: item_row(delivery.item, delivery.position) for delivery in writes.deliveries}
    taken_by = None if commit.identity is None else commit.identity.run_id
    for item in commit.pending:
        changed[item.id] = replace(item_row(item, item.position), status=item.status, revision=item.revision)
    for item_id in writes.taken:
        before = changed.get(item_id) or facts.items.get(item_id) or ItemRow(commit.thread_id, "taken")
        changed[item_id] = replace(before, status="taken", taken_by=taken_by)
    if commit.request is not None:
        request = commit.request
        changed[request.id] = ItemRow(commit.thread_id, "taken", taken_by=taken_by, digest=request.digest)
    return changed


def item_row(item: InboxItem, position: int) -> ItemRow:
    """The row of a pending item."""
    own = (item.thread_id, "pending", 0, position, None, item.wake, item.at, item.priority, item.agent_id)
    return ItemRow(*own, item.digest)


def advance(facts: Facts, writes: Writes) -> Facts:
    """The facts after a commit was written."""
    commit = writes.commit
    items, relays, alive, leases = facts.items, facts.relays, facts.alive, facts.leases
    if writes.deliveries or writes.taken or commit.pending or commit.request is not None:
        items = {**items, **_changed_items(facts, writes)}
    if commit.claim is not None:
        alive = {**alive, commit.claim: True}
    if writes.lease is not None:
        leases = {**leases, writes.lease.worker_id: writes.lease.until}
    if commit.relays:
        relays = {**relays, **{relay.id: relay.revision for relay in commit.relays}}
    runs = dict(facts.runs)
    for run in writes.runs:
        runs[run.row.id] = run.row
    records = facts.records
    if commit.records is not None:
        gone = {record_key(record): None for record in commit.records.removed}
        records = {
            **records,
            **gone,
            **{record_key(one): RecordRow(one.revision, one.digest) for one in commit.records.put},
        }
    return Facts(
        {**facts.heads, **writes.heads},
        items,
        runs,
        relays,
        records,
        alive,
        leases,
        writes.next_thread,
        writes.next_run,
    )
