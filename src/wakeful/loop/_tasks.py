"""Tasks as a run sees them: what its calls wait for, what works for it in the background, and being one itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct
from msgspec.structs import replace

from ..stores import InboxItem, ThreadView, report
from ..types.codec import encode
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
    from ._writer import Writer

__all__ = [
    "cancel_item",
    "end_task",
    "end_with_run",
    "ended_as",
    "give_up_task",
    "hear_of_tasks",
    "inherit_tasks",
    "outcome_of",
    "report_of",
    "stop_task",
    "tell_item",
    "tell_news",
]


class Ended(Struct, frozen=True, gc=False):
    """How a run ended, as its owner is told."""

    status: TaskStatus
    error: str | None = None


_COMPLETED = Ended("completed")


def ended_as(termination: Termination | None) -> Ended:
    """How a run that is done ended, in the words that its owner is told."""
    match termination:
        case NaturalEnd() | BehaviourRequested():
            return _COMPLETED
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
    task, outcome = run.task, run.outcome
    ended = ended_as(None if outcome is None else outcome.termination)
    text = answer.text if answer is not None else ""
    epoch = 1 if task is None else task.epoch
    steps = run.steps if outcome is not None and outcome.output is UNSET else None
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
        kind="tell",
        task_id=task.id,
        run_id=task.target,
    )


# How many events of one task a model is shown at once; of more it is told how many there were.
MAX_SHOWN = 20


def hear_of_tasks(act: Activation, items: Sequence[InboxItem]) -> None:
    """Tasks have something to say, or are over: calls that wait for one go on, and the model is told of the
    others, of all at once. What comes of an older epoch, or of a task that was given up, counts no more."""
    told: list[str] = []
    events: dict[str, list[str]] = {}
    for item in items:
        if item.adopted is not None:
            act.adopt(item.adopted)
        task = _known(act, item)
        if task is None:
            continue
        if item.event is not None:
            events.setdefault(task.id, []).append(_shown(task, item.event.kind, _json(item.event.payload)))
        elif item.outcome is not None and item.outcome.epoch == task.epoch:
            told += _latest(task, events.pop(task.id, []))
            if (ended := _ended(act, task, item.outcome)) is not None:
                told.append(ended)
    for task_id, shown in events.items():
        told += _latest(next(t for t in (*act.view.tasks, *act.view.detached) if t.id == task_id), shown)
    if told:
        act.set_run(news=(*act.view.run.news, *told))
        if act.view.run.stage != "acting":
            tell_news(act)


def _known(act: Activation, item: InboxItem) -> TaskRecord | None:
    return next((t for t in (*act.view.tasks, *act.view.detached) if t.id == item.task_id), None)


def _ended(act: Activation, task: TaskRecord, outcome: TaskOutcome) -> str | None:
    """Write a task's end down; what the model is told, unless a call waited for it."""
    end_task(act, task, outcome)
    if _go_on(act, task):
        return None
    said = outcome.error if outcome.error is not None else outcome.text
    return _shown(task, outcome.status, said) if task.background else None


def _go_on(act: Writer, task: TaskRecord) -> bool:
    """Have the call go on that waits for a task; False if none does."""
    for call in act.view.calls.values():
        if call.task_id == task.id:
            act.view.calls[call.id] = act.draft.calls[call.id] = replace(call, state="requested", task_id=None)
            return True
    return False


def tell_news(act: Activation) -> None:
    """Tell the model what came of its tasks; never between calls and their results, where nothing may stand."""
    run = act.view.run
    act.hint("\n".join(run.news))
    act.set_run(news=(), ending=None if isinstance(run.ending, NaturalEnd) else run.ending)


def _shown(task: TaskRecord, kind: str, said: str) -> str:
    name = (task.name or "").replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    named = f' name="{name}"' if name else ""
    whose = f'agent="{task.agent_id}"' if task.function is None else f'function="{task.function}"'
    said = said.replace("<background-task-event", "&lt;background-task-event")
    said = said.replace("</background-task-event", "&lt;/background-task-event")  # It can't speak for others.
    return (
        f'<background-task-event task_id="{task.id}"{named} {whose} kind="{kind}">\n'
        f"{said}\n</background-task-event>"
    )


def _json(payload: object) -> str:
    return payload if isinstance(payload, str) else encode(payload).decode()


def _latest(task: TaskRecord, shown: list[str]) -> list[str]:
    """The latest of a task's events, and how many came before them."""
    if (more := len(shown) - MAX_SHOWN) <= 0:
        return shown
    return [_shown(task, "omitted", f"{more} earlier events are left out"), *shown[more:]]


def end_task(act: Activation, task: TaskRecord, outcome: TaskOutcome) -> None:
    """Write down what became of a task."""
    _forget(act, task)
    act.draft.put_task(replace(task, status=outcome.status, error=outcome.error, finished_at=act.now))
    if task.run_id is not None:  # A detached one is of no run's tree.
        act.set_run(descendants=act.view.run.descendants + outcome.usage, tree_calls=act.view.tree.calls)


def _forget(act: Writer, task: TaskRecord) -> None:
    view = act.view
    view.tasks = tuple([t for t in view.tasks if t.id != task.id])
    if view.detached:
        view.detached = tuple([t for t in view.detached if t.id != task.id])


def stop_task(act: Writer, task: TaskRecord, reason: str) -> None:
    """Give a task up: its run is told to stop by the same commit."""
    _forget(act, task)
    act.draft.put_task(replace(task, status="cancelled", error=reason, finished_at=act.now))
    if task.target_thread:
        act.draft.put_item(cancel_item(task, reason))


def give_up_task(act: Writer, task: TaskRecord, reason: str) -> None:
    """Give a task up for its run, which goes on; so does a call that waits for it."""
    stop_task(act, task, reason)
    _go_on(act, task)


def end_with_run(act: Activation, run: RunRecord) -> None:
    """What belongs to a run ends with it, unless it was interrupted: then what works in the background stays for
    the next run. If the run is a task that nobody here waits for, its owner is told."""
    for task in act.view.tasks:
        if not (run.leaves_tasks and task.background):
            stop_task(act, task, f"run {run.id} ended")
    if not act.attached and (told := report_of(run, act.view.answer)) is not None:
        act.draft.put_item(told)


def inherit_tasks(act: Activation, stored: ThreadView) -> None:
    """Have a new run own, from its first commit on, what a run before it left. As long as none has begun, it is
    that run's: nothing is lost if the process ends in between."""
    open_id = None if stored.run is None else stored.run.id
    for task in stored.tasks:
        if task.background and task.run_id not in (None, open_id):
            act.adopt(replace(task, run_id=act.identity.run_id))


def report_of(run: RunRecord, answer: Message | None) -> InboxItem | None:
    """What the owner of a task is told when its run is done; None for a run that is nobody's task."""
    return None if run.task is None else report(run, outcome_of(run, answer))
