"""Reports of tasks: waiting calls continue, and the model gets news of background work between steps."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..stores import ThreadView
from ..types.codec import encode
from ..types.inbox import TaskItem
from ..types.runs import NaturalEnd, RunRecord, TaskOutcome, TaskRecord
from .activation import Activation
from .tasks import release_call, remove_task, report_of, stop_task

__all__ = ["apply_reports", "end_task", "end_tasks_with_run", "inherit_tasks", "read_tasks", "tell_news"]

# Events of one task that a model is shown at once; of more it is told the number.
MAX_SHOWN = 20


def apply_reports(act: Activation, items: Sequence[TaskItem]) -> None:
    """Apply events and outcomes of tasks: waiting calls continue, the model gets news of the others.

    Reports of an older epoch, or of a task that was given up, are ignored.
    """
    news: list[str] = []
    events: dict[str, list[str]] = {}
    for item in items:
        if item.adopted is not None:
            act.adopt(item.adopted)
        task = _find(act, item.task_id)
        if task is None:
            continue
        if item.event is not None:
            events.setdefault(task.id, []).append(_format(task, item.event.kind, _json(item.event.payload)))
        elif item.outcome is not None and item.outcome.epoch == task.epoch:
            news += _latest(task, events.pop(task.id, []))
            news += _apply_outcome(act, task, item.outcome)
    for task_id, shown in events.items():
        if (task := _find(act, task_id)) is not None:
            news += _latest(task, shown)
    if news:
        act.set_run(news=(*act.view.run.news, *news))
        if act.view.run.stage != "acting":
            tell_news(act)


def _find(act: Activation, task_id: str) -> TaskRecord | None:
    return next((t for t in (*act.view.tasks, *act.view.detached) if t.id == task_id), None)


def _apply_outcome(act: Activation, task: TaskRecord, outcome: TaskOutcome) -> list[str]:
    """Record a task's end; returns the news for the model unless a call waited for the task."""
    end_task(act, task, outcome)
    if release_call(act.view, act.draft, task) or not task.background:
        return []
    return [_format(task, outcome.status, outcome.error if outcome.error is not None else outcome.text)]


def tell_news(act: Activation) -> None:
    """Tell the model the news of its tasks; never between calls and their results, where vendors allow nothing."""
    run = act.view.run
    act.hint("\n".join(run.news))
    act.set_run(news=(), ending=None if isinstance(run.ending, NaturalEnd) else run.ending)


def _format(task: TaskRecord, kind: str, text: str) -> str:
    name = (task.name or "").replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    named = f' name="{name}"' if name else ""
    worker = f'agent="{task.agent_id}"' if task.function is None else f'function="{task.function}"'
    # Escaped, so that a task can't forge the event of another one.
    text = text.replace("<background-task-event", "&lt;background-task-event")
    text = text.replace("</background-task-event", "&lt;/background-task-event")
    return (
        f'<background-task-event task_id="{task.id}"{named} {worker} kind="{kind}">\n'
        f"{text}\n</background-task-event>"
    )


def _json(payload: object) -> str:
    return payload if isinstance(payload, str) else encode(payload).decode()


def _latest(task: TaskRecord, shown: list[str]) -> list[str]:
    """The latest events of a task, after a note on the number of those left out."""
    if (more := len(shown) - MAX_SHOWN) <= 0:
        return shown
    return [_format(task, "omitted", f"{more} earlier events are left out"), *shown[more:]]


async def read_tasks(act: Activation) -> list[TaskRecord]:
    """The tasks of the thread, oldest first, with uncommitted changes."""
    return [act.draft.task(task) for task in await act.env.store.tasks(act.identity.thread_id)]


def end_task(act: Activation, task: TaskRecord, outcome: TaskOutcome) -> None:
    """Record the outcome of a task; the usage of an attached one counts in the run's tree."""
    remove_task(act.view, task)
    act.draft.put_task(replace(task, status=outcome.status, error=outcome.error, finished_at=act.now))
    if task.run_id is not None:
        run = act.view.run
        used, stopped = run.descendants + outcome.usage, (*run.stopped, *outcome.stopped)
        act.set_run(descendants=used, tree_calls=act.view.tree.calls, stopped=stopped)


def end_tasks_with_run(act: Activation, run: RunRecord) -> RunRecord:
    """Cancel the tasks of a run that ends, and report the run's end to its own owner; returns its record.

    An interrupted run leaves its background tasks to the next run. No report is needed if a call in this process
    waits for the run.
    """
    for task in act.view.tasks:
        if not (run.leaves_tasks and task.background):
            stop_task(act.view, act.draft, task, f"run {run.id} ended", act.now)
    run = replace(run, stopped=act.view.run.stopped)
    if not act.attached and (report := report_of(run, act.view.answer)) is not None:
        act.draft.put_item(report)
    return run


def inherit_tasks(act: Activation, stored: ThreadView) -> None:
    """Let a new run adopt the tasks that an earlier run left, with its first commit."""
    open_id = None if stored.run is None else stored.run.id
    for task in stored.tasks:
        if task.background and task.run_id not in (None, open_id):
            act.adopt(replace(task, run_id=act.identity.run_id))
