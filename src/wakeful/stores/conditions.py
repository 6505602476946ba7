"""Conditions that rules and stores share: changes, wake words, due times, inbox limits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import ConfigurationError, Conflict, InboxFull, UsageError
from ..types.events import MessageAdded
from ..types.inbox import InboxItem
from ..types.messages import Message
from ..types.runs import RunRecord
from .heads import IDLE_WAKES
from .records import Commit

__all__ = [
    "FOR_RUNS",
    "MAX_PENDING",
    "RESERVE",
    "answers",
    "checked_tenant",
    "due_time",
    "makes_thread",
    "no_place",
    "no_room",
    "not_idle",
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
    """Whether a commit changes more than inboxes, relays, title and metadata: such a commit has a new version."""
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


def wakes_of(run: RunRecord | None) -> str:
    """The wake words of a thread with this open run, separated by spaces. See `Item.wake`."""
    if run is None:
        return IDLE_WAKES
    if run.waiting is None:
        return ""
    return " ".join([*["steer" if kind == "input" else kind for kind in run.waiting.wakes], "cancel"])


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
