"""Tasks of a run: their outcomes, the reports to their owner, and their cancellation."""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from ..stores import report
from ..types.base import Data
from ..types.ids import new_id
from ..types.inbox import CancelItem, InboxItem, NotifyItem
from ..types.messages import Message
from ..types.runs import (
    Blocked,
    Cancelled,
    EndRequested,
    Failed,
    NaturalEnd,
    RunRecord,
    Stopped,
    TaskOutcome,
    TaskRecord,
    TaskStatus,
    Termination,
)
from .draft import Draft
from .moves import RunView

__all__ = [
    "cancel_item",
    "cancel_task",
    "ended_as",
    "notify_item",
    "outcome_of",
    "release_call",
    "remove_task",
    "report_of",
    "stop_task",
]


class TaskEnd(Data):
    """The end of a run in the words for its owner."""

    status: TaskStatus
    error: str | None = None


_COMPLETED = TaskEnd("completed")


def ended_as(termination: Termination | None) -> TaskEnd:
    """Convert a run's termination for its owner."""
    match termination:
        case NaturalEnd() | EndRequested():
            return _COMPLETED
        case Cancelled(reason):
            return TaskEnd("cancelled", f"cancelled: {reason}" if reason else "cancelled")
        case Stopped(policy, detail):
            return TaskEnd("failed", f"stopped: {policy}: {detail}" if detail else f"stopped: {policy}")
        case Blocked(reason):
            return TaskEnd("failed", f"blocked: {reason}")
        case Failed(_, message):
            return TaskEnd("failed", message)
        case other:
            return TaskEnd("failed", f"ended in a way that is not known here: {other!r:.80}")


def outcome_of(run: RunRecord, answer: Message | None) -> TaskOutcome:
    """The outcome of a finished run, for its owner."""
    task, outcome = run.task, run.outcome
    ended = ended_as(None if outcome is None else outcome.termination)
    text = answer.text if answer is not None else ""
    epoch = 1 if task is None else task.epoch
    steps = run.steps if outcome is not None and outcome.output is UNSET else None
    return TaskOutcome(epoch, ended.status, text, ended.error, run.usage + run.descendants, steps, run.stopped)


def report_of(run: RunRecord, answer: Message | None) -> InboxItem | None:
    """The report of a finished run to its task's owner; None for a run that carries out no task."""
    return None if run.task is None else report(run, outcome_of(run, answer))


def cancel_item(task: TaskRecord, reason: str) -> InboxItem:
    """The item by which an owner cancels a task's run, wherever that runs."""
    return CancelItem(id=new_id(), thread_id=task.target_thread, run_id=task.target, reason=reason, by_owner=True)


def notify_item(task: TaskRecord, fence: int) -> InboxItem:
    """The item by which a call's new owner asks a child in another process to report its end.

    The process that ran the call before may believe that it still does, and report to nobody.
    """
    return NotifyItem(id=f"{task.target}:notify:{fence}", thread_id=task.target_thread, run_id=task.target)


def remove_task(view: RunView, task: TaskRecord) -> None:
    """Remove a task from the open ones."""
    view.tasks = tuple([t for t in view.tasks if t.id != task.id])
    if view.detached:
        view.detached = tuple([t for t in view.detached if t.id != task.id])


def stop_task(view: RunView, draft: Draft, task: TaskRecord, reason: str, now: int) -> None:
    """Cancel a task, and its run by the same commit."""
    remove_task(view, task)
    draft.put_task(replace(task, status="cancelled", error=reason, finished_at=now))
    if task.run_id is not None and task.target:
        view.run = draft.run = replace(view.run, stopped=(*view.run.stopped, task.target))
    if task.target_thread:
        draft.put_item(cancel_item(task, reason))


def cancel_task(view: RunView, draft: Draft, task: TaskRecord, reason: str, now: int) -> None:
    """Cancel a task; a call that waits for it continues."""
    stop_task(view, draft, task, reason, now)
    release_call(view, draft, task)


def release_call(view: RunView, draft: Draft, task: TaskRecord) -> bool:
    """Let the call continue that waits for a task; False if none does."""
    for call in view.calls.values():
        if call.task_id == task.id:
            view.calls[call.id] = draft.calls[call.id] = replace(call, state="requested", task_id=None)
            return True
    return False
