"""The rules of a commit, without I/O: whether it is accepted, and what it writes.

`decide` checks everything before it changes anything, so that a refusal needs no rollback. The thread's row is the
lock and the fingerprint of a decision's facts: every change to them moves its version, its epoch or its
inbox head.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, cast

from msgspec.structs import astuple, replace

from ..errors import Conflict, DuplicateRequest, InboxMoved, RequestReused, StaleFence, StoreError
from ..types.base import Data
from ..types.records import AuditEntry, Record
from .changes import Changes
from .conditions import no_room, not_idle, record_key, record_kind, refuse_reuse, room_for, writes
from .facts import advance, missing_facts, runs_of
from .heads import FOREIGN, Facts, Head, NeedFacts, RecordRow
from .records import Commit, Committed, Records, Relay
from .writes import GroupWrites, Writes

__all__ = ["Refusal", "decide", "decide_group"]

_AUDIT = record_kind(AuditEntry)


class Refusal(Data):
    """The reason why nothing of a commit is written."""

    error: StoreError | RequestReused


def decide(facts: Facts, commit: Commit, now: int) -> Writes | Refusal | NeedFacts:
    """Decide on a commit at the time `now`, in milliseconds. Ignores `commit.then`: see `decide_group`."""
    run_ids = runs_of(commit)
    needs = missing_facts(facts, commit, run_ids)
    if needs is not None:
        return needs
    error = _refuse(facts, commit)
    if error is not None:
        return Refusal(error)
    return Changes(facts, commit, run_ids, now).write()


def decide_group(facts: Facts, commit: Commit, now: int) -> GroupWrites | Refusal | NeedFacts:
    """Decide on a commit, then on its followers, each by the facts that the one before it leaves.

    A follower may be refused without consequences for the others.
    """
    first = decide(facts, commit, now)
    if isinstance(first, NeedFacts):
        if not commit.then:
            return first
        return _merge([first, *[missing_facts(facts, follower, runs_of(follower)) for follower in commit.then]])
    if isinstance(first, Refusal):
        return first
    after = advance(facts, first)
    if not commit.then:
        return GroupWrites((first,), first.committed, after)
    found = [first]
    then: list[Committed | None] = []
    for follower in commit.then:
        home = facts.heads.get(follower.thread_id)
        if home is not None and not home.no:
            # A thread that this group makes has no runs but those of the group.
            after = replace(after, runs={**dict.fromkeys(runs_of(follower)), **after.runs})
        decided = decide(after, follower, now)
        if isinstance(decided, NeedFacts):
            return decided
        if isinstance(decided, Refusal):
            then.append(None)
            continue
        found.append(decided)
        then.append(decided.committed)
        after = advance(after, decided)
    return GroupWrites(found, replace(first.committed, then=tuple(then)), after)


def _merge(needs: Sequence[NeedFacts | None]) -> NeedFacts:
    """All of the facts that are needed, each once."""
    found = [astuple(need) for need in needs if need is not None]
    columns = cast(Iterable[Sequence[tuple[Any, ...]]], zip(*found, strict=True))
    return NeedFacts(*[tuple(dict.fromkeys(chain(*ids))) for ids in columns])


def _refuse(facts: Facts, commit: Commit) -> StoreError | RequestReused | None:
    """The reason to refuse a commit, if there is one."""
    head = facts.heads[commit.thread_id]
    error: StoreError | RequestReused | None = _refuse_writer(facts, commit, head)
    if error is not None:
        return error
    if commit.inbox_head is not None and commit.inbox_head != head.inbox_head:
        return InboxMoved(f"thread {commit.thread_id!r} has new items in its inbox")
    if commit.idle:
        is_repeated = any(facts.items[item.id] is not None for item in commit.inbox)
        if head.claim is not None or head.open_run is not None or is_repeated:
            return not_idle(commit)
    if commit.request is not None or commit.inbox:
        error = _refuse_reuse(facts, commit)
    if error is None and commit.relays:
        error = _refuse_relays(facts, commit.relays)
    if error is None and (commit.pending or commit.seen):
        error = _refuse_revisions(facts, commit, head)
    if error is None and commit.inbox:
        error = _refuse_overflow(facts, commit)
    if error is None and commit.records is not None:
        error = _refuse_records(facts, commit.records)
    return error


def _refuse_writer(facts: Facts, commit: Commit, head: Head) -> StoreError | None:
    """A writer needs the claim that its fence names, or has to have seen the version of an unowned thread."""
    fence, name = commit.fence, commit.thread_id
    if fence is not None:
        if head.claim == fence.token and head.epoch == fence.epoch:
            return None
        return StaleFence(
            f"thread {name!r} is no longer owned by this writer (epoch {fence.epoch}, now {head.epoch})"
        )
    if not (commit.claim is not None or commit.release or writes(commit)):
        return None
    if head.claim is not None and (commit.claim is None or facts.alive[head.claim]):
        return Conflict(f"thread {name!r} is owned by another writer")
    if commit.version != head.version:
        return Conflict(f"thread {name!r} is at version {head.version}, not {commit.version}")
    return None


def _refuse_reuse(facts: Facts, commit: Commit) -> StoreError | RequestReused | None:
    """An id belongs to one request: a repeated request is a duplicate, another one with its id is refused."""
    request = commit.request
    if request is not None and (used := facts.items[request.id]) is not None:
        error = refuse_reuse(request.id, used.digest, request.digest)
        return error or DuplicateRequest(f"request {request.id!r} was made before", used.taken_by)
    for item in commit.inbox:
        if item.digest and (known := facts.items[item.id]) is not None:
            error = refuse_reuse(item.id, known.digest, item.digest)
            if error is not None:
                return error
    return None


def _refuse_relays(facts: Facts, relays: Sequence[Relay]) -> Conflict | None:
    """A relay follows the stored revision."""
    for relay in relays:
        stored = facts.relays[relay.id] or 0
        if relay.revision != stored + 1:
            return Conflict(f"relay {relay.id!r} is at revision {stored}, not {relay.revision - 1}")
    return None


def _refuse_revisions(facts: Facts, commit: Commit, head: Head) -> Conflict | None:
    """Items that a commit changes or takes have to be pending, at the revision that its writer saw."""
    pending = head.pending or {}
    wanted = {**commit.seen, **{item.id: item.revision - 1 for item in commit.pending}}
    for item_id, revision in wanted.items():
        row = pending.get(item_id) or facts.items.get(item_id)
        if row is None or row.thread_id != commit.thread_id:
            return Conflict(f"item {item_id!r} isn't in this thread's inbox")
        if row.status != "pending":
            return Conflict(f"item {item_id!r} was {row.status} before")
        if row.revision != revision:
            return Conflict(f"item {item_id!r} was changed meanwhile: it is at revision {row.revision}")
    return None


def _refuse_records(facts: Facts, records: Records) -> StoreError | RequestReused | None:
    """A record is put at the revision after the stored one, and removed at the stored one. Each occurs once."""
    given = [record_key(record) for record in (*records.put, *records.removed)]
    for number, key in enumerate(given):
        name = " ".join(key)
        if key in given[:number]:
            return Conflict(f"{name} is given twice; give each record once")
        if key[0] == _AUDIT and number >= len(records.put):
            return Conflict(
                f"{name} can't be removed: the audit is append-only; prune it with Retention(audit=...)"
            )
    for record in records.put:
        row = facts.records[record_key(record)]
        if row is not None and row.revision == FOREIGN:
            return Conflict(f"key {record.id} belongs to another tenant; make a new id")
        if row is not None and record.revision == 1 and record.digest and row.digest:
            name = " ".join(record_key(record))
            error = refuse_reuse(name, row.digest, record.digest)
            return error or DuplicateRequest(f"the request that made {name} was made before", None)
        if record.revision != (0 if row is None else row.revision) + 1:
            return _not_at(record, row, record.revision - 1)
    for record in records.removed:
        row = facts.records[record_key(record)]
        if row is None or record.revision != row.revision:
            return _not_at(record, row, record.revision)
    return None


def _not_at(record: Record, row: RecordRow | None, expected: int) -> Conflict:
    name = " ".join(record_key(record))
    if row is None or row.revision == FOREIGN:
        return Conflict(f"{name} is expected at revision {expected}, and isn't in this store")
    return Conflict(f"{name} is at revision {row.revision}, not {expected}; read it again, and repeat the change")


def _refuse_overflow(facts: Facts, commit: Commit) -> StoreError | None:
    """An inbox has room for a limited number of pending items; those that the commit takes make room."""
    counts: dict[str, int] = {}
    for item in commit.inbox:
        if facts.items[item.id] is not None:
            continue
        thread_id = item.thread_id
        if thread_id not in counts:
            pending = facts.heads[thread_id].pending or {}
            freed = sum(item_id in pending for item_id in commit.taken) if thread_id == commit.thread_id else 0
            counts[thread_id] = len(pending) - freed
        counts[thread_id] += 1
        if counts[thread_id] > room_for(item):
            return no_room(thread_id)
    return None
