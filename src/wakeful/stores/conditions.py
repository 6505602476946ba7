"""Conditions that rules and stores share: changes, wake words, due times, inbox limits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import ConfigurationError, Conflict, InboxFull, RequestReused, UsageError
from ..types.events import MessageAdded
from ..types.inbox import InboxItem, InputItem, Request
from ..types.messages import Message
from ..types.records import AuditEntry, Record
from ..types.runs import RunRecord
from .heads import IDLE_WAKES, RecordKey
from .records import Commit, Records

__all__ = [
    "FOR_RUNS",
    "MAX_PENDING",
    "RESERVE",
    "answers",
    "changes_records",
    "checked_tenant",
    "due_time",
    "makes_thread",
    "no_place",
    "no_room",
    "not_idle",
    "principal_of",
    "record_key",
    "record_kind",
    "record_time",
    "refuse_fork",
    "refuse_reuse",
    "reused",
    "room_for",
    "root_of",
    "wakes_of",
    "woken",
    "writes",
]

MAX_PENDING = 1000
# Room in an inbox for items other than input: decisions, task results, cancellations.
RESERVE = 100
# Kinds of items that only an open run can use.
FOR_RUNS = ("cancel", "decision", "pause", "unpause")


def checked_tenant(name: Any) -> str:
    """Check the name of a tenant."""
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"a tenant is named by a text, not {name!r:.80}")
    return name


def no_place(thread_id: str, head: int, at: int) -> UsageError:
    """The error of a fork at an entry that the thread doesn't have."""
    has = f"has entries 1 to {head}" if head else "has no entries yet"
    return UsageError(f"thread {thread_id!r} {has}; it can't be forked at {at}")


def writes(commit: Commit) -> bool:
    """Whether a commit has a new version: it changes more than inboxes, relays, records, title and metadata."""
    return bool(
        commit.log
        or commit.runs
        or commit.calls
        or commit.tickets
        or commit.state
        or commit.tasks
        or commit.taken
        or commit.decisions
        or commit.chunks
        or commit.request
        or commit.usage
    )


def not_idle(commit: Commit) -> Conflict:
    """The refusal of a commit for an idle thread."""
    return Conflict(f"thread {commit.thread_id!r} has an owner or an open run, or was given this before")


def makes_thread(item: InboxItem) -> bool:
    """Whether an item makes its thread if there is none. A task result doesn't: its owner was deleted."""
    return item.kind != "task"


def room_for(item: InboxItem) -> int:
    """The most pending items of an inbox that an item of this kind is added to."""
    return MAX_PENDING if item.kind == "input" else MAX_PENDING + RESERVE


def no_room(thread_id: str) -> InboxFull:
    """The refusal of an item for a full inbox."""
    return InboxFull(
        f"the inbox of thread {thread_id!r} has {MAX_PENDING:,} pending items or more; try again later", thread_id
    )


def answers(commit: Commit) -> bool:
    """Whether the commit's log has an answer, which replaces its chunks."""
    for entry in commit.log:
        message = entry.message if isinstance(entry, MessageAdded) else entry
        if isinstance(message, Message) and message.role == "assistant":
            return True
    return False


def record_kind(kind: type[Record]) -> str:
    """The name of a kind of records."""
    return str(kind.__struct_config__.tag)


def record_key(record: Record) -> RecordKey:
    """The kind and the id of a record."""
    return record_kind(type(record)), record.id


def record_time(record: Record) -> int:
    """The time by which records are listed."""
    return record.at if isinstance(record, AuditEntry) else record.created_at


def changes_records(records: Records | None) -> bool:
    """Whether stored records are changed or removed, rather than new ones added."""
    return records is not None and bool(records.removed or any(record.revision > 1 for record in records.put))


def refuse_reuse(request_id: str, known: str, given: str) -> RequestReused | None:
    """The refusal of a request whose id was used with another digest; None if it is a repetition."""
    return reused(request_id) if known and given and known != given else None


def refuse_fork(request: Request, known: str, base_id: str | None, thread_id: str) -> RequestReused | None:
    """The refusal of a fork whose request's id was used; None if it made a fork of the same thread."""
    return refuse_reuse(request.id, known, request.digest) if base_id == thread_id else reused(request.id)


def reused(request_id: str) -> RequestReused:
    """The refusal of a request whose id another request has."""
    return RequestReused(
        f"request {request_id!r} was made before, and asked for something else; nothing was changed: give every "
        "request an id of its own, and repeat one exactly as it was",
        request_id,
    )


def wakes_of(run: RunRecord | None) -> str:
    """The wake words of a thread with this open run, separated by spaces. See `Item.wake`."""
    if run is None:
        return IDLE_WAKES
    if run.waiting is None:
        return ""
    return " ".join([*["steer" if kind == "input" else kind for kind in run.waiting.wakes], "cancel"])


def principal_of(source: RunRecord | InboxItem) -> str | None:
    """The id of the principal that owns a run, or that an input is of; None for trusted code."""
    if isinstance(source, RunRecord):
        return source.owner_id
    principal = source.principal if isinstance(source, InputItem) else None
    return None if principal is None else principal.id


def root_of(run: RunRecord) -> str | None:
    """The id of the root run, if that is another run."""
    root = run.identity.root_run_id
    return None if root == run.identity.run_id else root


def woken(wakes: str, pending: Iterable[str]) -> bool:
    """Whether one of the items' wake words is among those of the thread."""
    words = wakes.split()
    return any(wake in words for wake in pending)


def due_time(run: RunRecord, now: int) -> int | None:
    """The time a run without an owner is due: now, or the time it waits for; None if it waits for items."""
    return now if run.waiting is None else run.waiting.until
