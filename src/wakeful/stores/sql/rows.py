"""The writes of a commit as rows, by operation: the same for SQLite and Postgres."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import Any

from msgspec import Struct

from ...types.addressees import barred_from
from ...types.codec import encode
from ...types.records import MemoryNote, Record
from ...types.runs import PRIORITY
from ..codec.entries import call_body, entries_of, run_body
from ..codec.packer import Packer
from ..conditions import principal_of, record_key, record_time, root_of
from ..filters import due_of, outcome_of
from ..heads import Facts, Head, RecordKey
from ..memories import index_text, owner_of, row_number
from ..records import Chunk, Commit, Records
from ..writes import GroupWrites, Writes
from .filters import names_text
from .operations import OPERATIONS, RANK, Rows

__all__ = ["group_rows"]


def group_rows(
    tenant: str, packer: Packer, facts: Facts, group: GroupWrites, commit_id: str | None = None
) -> Rows:
    """The rows of a group, decided by these facts. Rows with the same key are merged into one.

    Raises `CodecFailed` if the codec fails, and `UnicodeEncodeError` for texts with lone surrogates. `commit_id`
    is noted on the row of the first commit's thread.
    """
    rows: Rows = defaultdict(list)
    runs: dict[int, _RunColumns] = {}
    abouts: dict[str, _About] = {}
    records: dict[RecordKey, _RecordChange] = {}
    touched: dict[str, None] = {}
    for writes in group.writes:
        about = _Encoder(tenant, packer, writes, rows, runs).encode()
        if about is not None:
            abouts[writes.commit.thread_id] = about
        if writes.commit.records is not None:
            _merge_records(writes.commit.records, records)
        touched.update(dict.fromkeys(writes.heads))
    for run in runs.values():
        _put_run(run, rows)
    for change in records.values():
        _put_record(tenant, packer, change, rows)
    if len(group.writes) > 1:
        _merge_upserts(rows)
    home = group.writes[0].commit.thread_id
    now = group.writes[0].now
    for thread_id in touched:
        about = abouts.get(thread_id, _NO_ABOUT)
        noted = commit_id if thread_id == home else None
        _put_thread(tenant, facts.heads[thread_id], group.facts.heads[thread_id], about, noted, now, rows)
        _put_dispatch(tenant, facts.heads[thread_id], group.facts.heads[thread_id], rows)
    return {name: rows[name] for name in sorted(rows, key=RANK.__getitem__) if rows[name]}


_About = tuple[str | None, bytearray | None]
_NO_ABOUT: _About = (None, None)


class _RunColumns(Struct):
    """The columns of a run: those that every step changes, those that have an index, and those of a new run."""

    no: int
    step: tuple[int, int]
    answer: int | None
    payload: bytearray
    indexed: tuple[str, str]
    waits: str | None
    outcome: str | None
    finished_at: int | None
    is_step: bool
    made: tuple[Any, ...] | None


class _RecordChange(Struct):
    """The change of a record by a group: the record, whether it is new, and whether it is removed."""

    record: Record
    is_new: bool
    is_removed: bool


class _Encoder:
    """Encodes the writes of one commit, except the rows of threads and dispatches."""

    def __init__(
        self, tenant: str, packer: Packer, writes: Writes, rows: Rows, runs: dict[int, _RunColumns]
    ) -> None:
        self.tenant = tenant
        self.packer = packer
        self.writes = writes
        self.commit = writes.commit
        self.rows = rows
        self.runs = runs
        self.blobs: dict[str, bytes] = {}
        self.pack = partial(packer.pack, blobs=self.blobs)
        self.head = writes.heads.get(self.commit.thread_id)
        self.thread = 0 if self.head is None else self.head.no

    def encode(self) -> _About | None:
        """Encode all of it. Returns title and metadata as columns of the thread."""
        writes, commit = self.writes, self.commit
        if writes.deliveries:
            self.put_deliveries()
        if writes.has_changes:
            self.put_changes()
        for relay in commit.relays:
            row = (relay.run_id, relay.kind, relay.status, relay.cursor, relay.due_at, relay.owner, relay.until)
            payload = self.pack(encode(relay))
            self.rows["relay"].append((self.tenant, relay.id, self.thread, *row, relay.revision, payload))
        for item in commit.pending:
            row = (self.tenant, item.id, item.status, item.position, item.revision, self.pack(encode(item)))
            self.rows["item_changed"].append(row)
        if writes.lease is not None:
            self.rows["lease"].append((writes.lease.worker_id, writes.now, writes.lease.until))
        about, found = commit.about, None
        if about is not None:
            found = (about.title, None if about.metadata is None else self.pack(encode(about.metadata)))
        if self.blobs:
            self.put_blobs(self.thread, self.blobs)
        return found

    def put_blobs(self, thread: int, blobs: dict[str, bytes]) -> None:
        self.rows["blob"] += [(thread, digest, bytearray(payload)) for digest, payload in blobs.items()]

    def put_deliveries(self) -> None:
        for delivery in self.writes.deliveries:
            item, blobs = delivery.item, dict[str, bytes]()
            thread = self.writes.heads[item.thread_id].no
            payload = self.packer.pack(encode(item), blobs)
            own = (item.kind, item.wake, delivery.position, item.run_id, "pending", None)
            more = (item.priority, item.at, item.agent_id, payload, item.digest)
            self.rows["item_new"].append((self.tenant, item.id, thread, *own, *more))
            self.put_blobs(thread, blobs)

    def put_changes(self) -> None:
        writes, commit, rows = self.writes, self.commit, self.rows
        entries, places = entries_of(commit, self.packer, self.blobs) if commit.log else ((), {})
        self.put_runs(places)
        numbers, base = writes.run_numbers, writes.base
        for entry in entries:
            ref = None if entry.ref is None else base + entry.ref
            own = (self.thread, base + entry.number, entry.kind, numbers.get(entry.run_id, 0))
            rows["log"].append((*own, entry.agent, entry.at, ref, entry.payload, entry.size, entry.more))
        if writes.drops_chunks:
            rows["chunks_drop"].append((self.thread,))
        if commit.calls:
            self.put_calls(places)
        if commit.tickets or commit.decisions or commit.tasks:
            self.put_records()
        if commit.chunks:
            self.put_chunks(commit.chunks)
        if commit.taken or commit.request is not None:
            self.put_taken()
        if commit.state:
            self.put_state(commit)
        for one in commit.usage:
            used = one.usage
            tokens = (used.input_tokens, used.output_tokens, used.cached_tokens, used.cache_write_tokens)
            own = (self.tenant, one.at, one.agent_id, one.model, int(one.failed), one.duration_ms)
            rows["usage"].append((*own, *tokens, used.reasoning_tokens, used.cost, used.searches))

    def put_records(self) -> None:
        """Put tickets, decisions and tasks."""
        commit, rows, numbers = self.commit, self.rows, self.writes.run_numbers
        for ticket in {ticket.id: ticket for ticket in commit.tickets}.values():
            own = (self.tenant, ticket.id, self.thread, numbers[ticket.run_id], ticket.status, ticket.agent_id)
            who = (ticket.tool, ticket.asked_by, ticket.assignee, ticket.requester, names_text(ticket))
            rows["ticket"].append((*own, *who, barred_from(ticket), due_of(ticket), self.pack(encode(ticket))))
        for decision in commit.decisions:
            own = (self.tenant, decision.id, self.thread, decision.ticket_id, decision.at)
            rows["decision"].append((*own, self.pack(encode(decision))))
        for task in {task.id: task for task in commit.tasks}.values():
            own = (self.tenant, task.id, self.thread, task.run_id, task.status)
            rows["task"].append((*own, self.pack(encode(task))))

    def put_runs(self, places: dict[str, int]) -> None:
        for run in self.writes.runs:
            record, row = run.record, run.row
            place = places.get(record.answer_id or "")
            own = (self.tenant, row.id, self.thread)
            last = (root_of(record), row.priority, principal_of(record))
            more = (record.identity.parent_run_id, record.created_at)
            columns = _RunColumns(
                row.no,
                (row.steps, int(record.stage != "between")),
                None if place is None else self.writes.base + place,
                self.pack(run_body(record)),
                (row.agent, row.status),
                None if record.waiting is None else record.waiting.reason,
                outcome_of(record),
                record.finished_at,
                run.is_step,
                (own, last, more) if run.is_new else None,
            )
            before = self.runs.get(row.no)
            if before is not None:
                columns.answer = columns.answer or before.answer
                columns.is_step = columns.is_step and before.is_step
                columns.made = before.made
            self.runs[row.no] = columns

    def put_calls(self, places: dict[str, int]) -> None:
        calls: dict[tuple[int, int, int], tuple[Any, ...]] = {}
        for call in self.commit.calls:
            key = (self.writes.run_numbers[call.run_id], call.step, call.index)
            body = self.pack(call_body(call))
            if (row := calls.get(key)) is not None:
                calls[key] = (*row[:-1], body)
                continue
            place = places.get(call.id)
            arguments = self.pack(encode(call.arguments)) if place is None else None
            ref = None if place is None else self.writes.base + place
            calls[key] = (*key, call.id, call.name, ref, arguments, body)
        self.rows["call"] += calls.values()

    def put_chunks(self, chunks: Iterable[Chunk]) -> None:
        kept: list[Chunk] = []
        for chunk in chunks:
            kept = [one for one in kept if one.attempt >= chunk.attempt]
            kept.append(chunk)
        self.rows["chunks_older"].append((self.thread, max(chunk.attempt for chunk in kept)))
        for chunk in kept:
            own = (self.thread, chunk.message_id, chunk.attempt, self.writes.now)
            self.rows["chunk"].append((*own, self.pack(encode(chunk))))

    def put_taken(self) -> None:
        """Mark items as taken; an item that arrived in the same group is inserted as taken."""
        commit, rows = self.commit, self.rows
        run_id = None if commit.identity is None else commit.identity.run_id
        if commit.request is not None:
            request = commit.request
            own = (self.tenant, request.id, self.thread, "request", "", 0, None, "taken", run_id)
            rows["item_new"].append((*own, PRIORITY, None, None, None, request.digest))
        arrived = {row[1]: n for n, row in enumerate(rows["item_new"])} if self.writes.taken else {}
        for item_id in self.writes.taken:
            n = arrived.get(item_id)
            if n is None:
                rows["item_taken"].append((self.tenant, item_id, self.thread, "taken", run_id))
            else:
                row = rows["item_new"][n]
                rows["item_new"][n] = (*row[:7], "taken", run_id, *row[9:])

    def put_state(self, commit: Commit) -> None:
        if self.head is None:
            return
        head, now = self.head.log_head, self.writes.now
        for change in {(change.run_id, change.name): change for change in commit.state}.values():
            run = 0 if change.run_id is None else self.writes.run_numbers[change.run_id]
            payload = self.pack(change.value)
            self.rows["state"].append((self.thread, run, change.name, head, payload))
            if not run:
                self.rows["state_log"].append((self.thread, change.name, head, now, payload))


def _put_run(run: _RunColumns, rows: Rows) -> None:
    if run.made is not None:
        first, last, more = run.made
        own = (run.no, *first, *run.indexed, *run.step, run.answer, run.finished_at, run.payload)
        rows["run_new"].append((*own, *last, run.outcome, run.waits, *more))
    elif run.is_step:
        rows["run_step"].append((run.no, *run.step, run.answer, run.waits, run.payload))
    else:
        own = (run.no, *run.indexed, *run.step, run.answer, run.finished_at)
        rows["run"].append((*own, run.waits, run.outcome, run.payload))


def _merge_records(records: Records, changes: dict[RecordKey, _RecordChange]) -> None:
    for record, is_removed in [*[(one, True) for one in records.removed], *[(one, False) for one in records.put]]:
        before = changes.get(record_key(record))
        is_new = record.revision == 1 and not is_removed if before is None else before.is_new
        changes[record_key(record)] = _RecordChange(record, is_new, is_removed)


def _put_record(tenant: str, packer: Packer, change: _RecordChange, rows: Rows) -> None:
    record, key = change.record, (tenant, *record_key(change.record))
    if isinstance(record, MemoryNote) and not packer.has_codec:
        number = row_number(tenant, record.id)
        if change.is_removed:
            rows["memory_drop"].append((number,))
        else:
            rows["memory"].append((number, owner_of(tenant, record.owner), record.id, index_text(record)))
    if not change.is_removed:
        row = (*key, record_time(record), record.revision, packer.pack_whole(encode(record)))
        if change.is_new:
            rows["record_new"].append((*row, record.digest))
        else:
            rows["record"].append(row)
    elif not change.is_new:
        rows["record_drop"].append(key)


def _merge_upserts(rows: Rows) -> None:
    """Keep the last row of each key: a statement of Postgres may write a row once."""
    for name, found in rows.items():
        operation = OPERATIONS[name]
        if operation.verb == "upsert":
            key = [n for n, column in enumerate(operation.columns) if column.name in operation.key]
            rows[name] = list({tuple([row[n] for n in key]): row for row in found}.values())


def _put_thread(
    tenant: str, before: Head, after: Head, about: _About, commit_id: str | None, now: int, rows: Rows
) -> None:
    """Put the row of a thread, as the group leaves it."""
    title, metadata = about
    run = None if after.open_run is None else after.open_run.no
    if not before.no:
        own = (after.no, tenant, after.id, after.parent, after.version, after.log_head, after.epoch, after.claim)
        more = (after.handed, after.inbox_head, after.wakes, run, after.last_run, title, metadata, now, now)
        rows["thread_new"].append((*own, *more, commit_id, after.principal))
    else:
        is_same_owner = before.claim == after.claim and before.epoch == after.epoch
        is_described = title is not None or metadata is not None
        inbox_head = after.inbox_head if after.inbox_head != before.inbox_head else None
        is_written = before.version != after.version or not is_same_owner
        before_run = None if before.open_run is None else before.open_run.no
        is_same_run = before_run == run and before.last_run == after.last_run
        is_step = is_same_owner and is_same_run and not is_described and inbox_head is None
        if not (is_written or is_described):
            if inbox_head is not None:
                rows["thread_inbox"].append((after.no, inbox_head))
        elif is_step and commit_id is None:
            rows["thread_step"].append((after.no, after.version, after.log_head, after.wakes, now))
        else:
            own = (after.no, after.version, after.log_head, after.epoch, after.claim, after.handed, inbox_head)
            more = (after.wakes, run, after.last_run, title, metadata, now if is_written else None, commit_id)
            rows["thread"].append((*own, *more))


def _put_dispatch(tenant: str, before: Head, after: Head, rows: Rows) -> None:
    """Put the row of a thread's dispatch."""
    dispatch = after.dispatch
    if dispatch is None:
        if before.dispatch is not None:
            rows["dispatch_drop"].append((after.no,))
    elif dispatch != before.dispatch:
        own = (dispatch.agent, dispatch.priority, dispatch.due_at, dispatch.attempts, int(dispatch.held))
        rows["dispatch"].append((after.no, tenant, *own, dispatch.mark, dispatch.dead_at, dispatch.error))
