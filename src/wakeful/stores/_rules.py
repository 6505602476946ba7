"""The rules of a commit that all stores share: what counts as a change, what wakes a thread, when it is due."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import ConfigurationError, Conflict, InboxFull, UsageError
from ..types.events import MessageAdded
from ..types.messages import Message
from ..types.runs import RunRecord
from ._protocol import Commit, InboxItem

__all__ = [
    "FOR_RUNS",
    "IDLE_WAKES",
    "MAX_PENDING",
    "RESERVE",
    "answers",
    "checked_tenant",
    "due_time",
    "going_on",
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
# How much more an inbox holds of what isn't input: answers, what comes of tasks, to stop. No sender can use it up.
RESERVE = 100
IDLE_WAKES = "queue steer"
# Items that mean something to an open run only.
FOR_RUNS = ("cancel", "decision", "pause", "unpause")


def checked_tenant(name: Any) -> str:
    """The name, if a tenant may have it."""
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"a tenant is named by a text, not {name!r:.80}")
    return name


def no_place(thread_id: str, head: int, at: int) -> UsageError:
    """Why a thread can't be forked where somebody wants to."""
    has = f"has entries 1 to {head}" if head else "has no entries yet"
    return UsageError(f"thread {thread_id!r} {has}; it can't be forked at {at}")


def writes(commit: Commit) -> bool:
    """Whether the commit changes more than inboxes and what the application says about the thread."""
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


def going_on(commit: Commit) -> RunRecord | None:
    """The run that the commit's owner goes on with, if the commit does nothing else."""
    if commit.fence is None or commit.release or commit.claim is not None or len(commit.runs) != 1:
        return None
    run = commit.runs[0]
    own = commit.identity
    if run.status == "done" or not commit.log or own is None or own.run_id != run.identity.run_id:
        return None
    if not commit.more:
        return run
    rare = commit.tickets or commit.decisions or commit.state or commit.tasks or commit.inbox or commit.taken
    more = commit.chunks or commit.relays or commit.pending or commit.seen or commit.request or commit.about
    return None if rare or more else run


def not_idle(commit: Commit) -> Conflict:
    """What a commit is told that was for an idle thread."""
    return Conflict(f"thread {commit.thread_id!r} has an owner or an open run, or was given this before")


def makes_thread(item: InboxItem) -> bool:
    """Whether a thread comes about that is given this and isn't there. What is said of a task is for its owner: if
    that is gone, nobody is told."""
    return item.kind != "task"


def room_for(item: InboxItem) -> int:
    """How many items may be pending in an inbox that takes this one too, with it."""
    return MAX_PENDING if item.kind == "input" else MAX_PENDING + RESERVE


def no_room(thread_id: str) -> InboxFull:
    """What a commit is told whose item finds no room."""
    return InboxFull(
        f"the inbox of thread {thread_id!r} has {MAX_PENDING:,} pending items or more; try again later", thread_id
    )


def answers(commit: Commit) -> bool:
    """Whether the commit's log has an answer, which is what chunks were kept for."""
    for entry in commit.log:
        message = entry.message if isinstance(entry, MessageAdded) else entry
        if isinstance(message, Message) and message.role == "assistant":
            return True
    return False


def wakes_of(run: RunRecord | None) -> str:
    """What wakes a thread with this open run: the words that stand for items of its inbox."""
    if run is None:
        return IDLE_WAKES
    if run.waiting is None:
        return ""
    return " ".join([*["steer" if kind == "input" else kind for kind in run.waiting.wakes], "cancel"])


def root_of(run: RunRecord) -> str | None:
    """The run that this one is below of."""
    root = run.identity.root_run_id
    return None if root == run.identity.run_id else root


def woken(wakes: str, pending: Iterable[str]) -> bool:
    """Whether one of the pending items wakes a thread that these words wake."""
    words = wakes.split()
    return any(wake in words for wake in pending)


def due_time(run: RunRecord, now: int) -> int | None:
    """When a run that nobody owns may go on by itself: at once if it was left in the middle, else at the time that
    it waits for, if it waits for one."""
    return now if run.waiting is None else run.waiting.until
