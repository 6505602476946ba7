"""Tasks as a run sees them: what its calls wait for, what works for it in the background, and being one itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Struct
from msgspec.structs import replace

from ..stores import InboxItem
from ..types.ids import new_id
from ..types.messages import Message
from ..types.runs import (
    BehaviourRequested,
    Blocked,
    Cancelled,
    Failed,
    NaturalEnd,
    RunRecord,
    Stopped,
    TaskOutcome,
    TaskRecord,
    TaskStatus,
    Termination,
)

if TYPE_CHECKING:
    from ._activation import Activation

__all__ = [
    "cancel_item",
    "end_task",
    "end_with_run",
    "ended_as",
    "hear_of_task",
    "outcome_of",
    "report_of",
    "stop_task",
    "tell_item",
    "tell_news",
]


class Ended(Struct, frozen=True):
    """How a run ended, as its owner is told."""

    status: TaskStatus
    error: str | None = None


def ended_as(termination: Termination | None) -> Ended:
    """How a run that is done ended, in the words that its owner is told."""
    match termination:
        case NaturalEnd() | BehaviourRequested():
            return Ended("completed")
        case Cancelled(reason):
            return Ended("cancelled", f"cancelled: {reason}" if reason else "cancelled")
        case Stopped(policy, detail):
            return Ended("failed", f"stopped: {policy}: {detail}" if detail else f"stopped: {policy}")
        case Blocked(reason):
            return Ended("failed", f"blocked: {reason}")
        case Failed(_, message):
            return Ended("failed", message)
        case other:
            return Ended("failed", f"ended in a way that is not known here: {other!r:.80}")


def outcome_of(run: RunRecord, answer: Message | None) -> TaskOutcome:
    """What a run that is done came to, as its owner is told."""
    ended = ended_as(None if run.outcome is None else run.outcome.termination)
    text = answer.text if answer is not None else ""
    epoch = 1 if run.task is None else run.task.epoch
    steps = run.steps if run.outcome is not None and run.outcome.output is UNSET else None
    return TaskOutcome(epoch, ended.status, text, ended.error, run.usage + run.descendants, steps)


def cancel_item(task: TaskRecord, reason: str) -> InboxItem:
    """What its owner tells a task's run to stop with, whoever runs it."""
    return InboxItem(
        id=new_id(),
        thread_id=task.target_thread,
        kind="cancel",
        run_id=task.target,
        reason=reason,
        task_id=task.id,
    )


def tell_item(task: TaskRecord, fence: int) -> InboxItem:
    """What a call's new owner puts into the inbox of a child that another process runs: to tell of its end. The
    process that ran the call before may think that it still does, and tell nobody."""
    return InboxItem(
        id=f"{task.target}:tell:{fence}",
        thread_id=task.target_thread,
        kind="task",
        task_id=task.id,
        run_id=task.target,
    )


def hear_of_task(act: Activation, item: InboxItem) -> None:
    """A task is over: the call that waits for it goes on, or the model is told. What comes of an older epoch, or
    of a task that was given up, counts no more."""
    outcome = item.outcome
    task = next((t for t in act.view.tasks if t.id == item.task_id), None)
    if task is None or outcome is None or outcome.epoch != task.epoch:
        return
    end_task(act, task, outcome)
    for call in act.view.calls.values():
        if call.task_id == task.id:
            act.view.calls[call.id] = act.draft.calls[call.id] = replace(call, state="requested", task_id=None)
            return
    if task.background:
        act.set_run(news=(*act.view.run.news, _told(task, outcome)))
        if act.view.run.stage != "acting":
            tell_news(act)


def tell_news(act: Activation) -> None:
    """Tell the model what came of its tasks; never between calls and their results, where nothing may stand."""
    run = act.view.run
    for text in run.news:
        act.hint(text)
    act.set_run(news=(), ending=None if isinstance(run.ending, NaturalEnd) else run.ending)


def _told(task: TaskRecord, outcome: TaskOutcome) -> str:
    name = (task.name or "").replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    named = f' name="{name}"' if name else ""
    said = outcome.error if outcome.error is not None else outcome.text
    said = said.replace("<background-task-event", "&lt;background-task-event")
    said = said.replace("</background-task-event", "&lt;/background-task-event")  # It can't speak for others.
    return (
        f'<background-task-event task_id="{task.id}"{named} agent="{task.agent_id}" kind="{outcome.status}">\n'
        f"{said}\n</background-task-event>"
    )


def end_task(act: Activation, task: TaskRecord, outcome: TaskOutcome) -> None:
    """Write down what became of a task."""
    act.view.tasks = tuple([t for t in act.view.tasks if t.id != task.id])
    act.draft.put_task(replace(task, status=outcome.status, error=outcome.error, finished_at=act.now))
    act.set_run(descendants=act.view.run.descendants + outcome.usage, tree_calls=act.view.tree.calls)


def stop_task(act: Activation, task: TaskRecord, reason: str) -> None:
    """Give a task up: its run is told to stop by the same commit."""
    act.view.tasks = tuple([t for t in act.view.tasks if t.id != task.id])
    act.draft.put_task(replace(task, status="cancelled", error=reason, finished_at=act.now))
    if task.target_thread:
        act.draft.put_item(cancel_item(task, reason))


def end_with_run(act: Activation, run: RunRecord) -> None:
    """What belongs to a run ends with it; and if it is a task that nobody here waits for, its owner is told."""
    for task in act.view.tasks:
        stop_task(act, task, f"run {run.id} ended")
    if not act.attached and (told := report_of(run, act.view.answer)) is not None:
        act.draft.put_item(told)


def report_of(run: RunRecord, answer: Message | None) -> InboxItem | None:
    """What the owner of a task is told when its run is done; None for a run that is nobody's task."""
    owner, task = run.identity.parent_thread_id, run.task
    if task is None or owner is None:
        return None
    return InboxItem(
        id=f"{run.id}:done:{task.epoch}",
        thread_id=owner,
        kind="task",
        task_id=task.id,
        outcome=outcome_of(run, answer),
    )
