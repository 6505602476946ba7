"""Reports to the owners of tasks: a run ended, or its thread was deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from ..types.inbox import InboxItem, InputItem, TaskItem
from ..types.runs import RunRecord, TaskOutcome, TaskRecord

__all__ = ["DELETED", "last_words", "report"]

DELETED = "cancelled: its thread was deleted"


def report(run: RunRecord, outcome: TaskOutcome) -> InboxItem | None:
    """The item that reports a run's outcome to the owner of its task; None if the run is no task."""
    owner, task = run.identity.parent_thread_id, run.task
    if task is None or owner is None:
        return None
    item = TaskItem(
        id=_id(run.id, task.epoch),
        thread_id=owner,
        task_id=task.id,
        outcome=outcome,
        background=task.background,
        agent_id=task.owner or None,
    )
    if task.wake != "run":
        return item
    return replace(item, starts_run=True, principal=run.principal, owner=run.owner)


def last_words(
    thread_id: str, run: RunRecord | None, inbox: Iterable[InboxItem], owned: Iterable[TaskRecord]
) -> list[InboxItem]:
    """The reports that the deletion of a thread sends, from its open run and its pending items.

    `owned` are the running tasks of the parent thread: they cover rows of the deleted thread that can't be read,
    and outcomes that never reached the owner.
    """
    reports = {item.id: item for item in _from_thread(run, inbox)}
    for task in owned:
        if task.target_thread == thread_id and (report_id := _id(task.target, task.epoch)) not in reports:
            reports[report_id] = TaskItem(
                id=report_id,
                thread_id=task.thread_id,
                task_id=task.id,
                outcome=TaskOutcome(task.epoch, "cancelled", error=DELETED),
                background=task.background,
            )
    return list(reports.values())


def _from_thread(run: RunRecord | None, inbox: Iterable[InboxItem]) -> Iterator[InboxItem]:
    begun = [] if run is None else [run]
    yet_to_begin = [
        RunRecord(
            identity=item.lineage,
            agent_id=item.lineage.agent_id,
            task=item.task,
            principal=item.principal,
            owner=item.owner,
            created_at=0,
        )
        for item in inbox
        if isinstance(item, InputItem) and item.lineage is not None
    ]
    for one in (*begun, *yet_to_begin):
        epoch = 1 if one.task is None else one.task.epoch
        outcome = TaskOutcome(epoch, "cancelled", "", DELETED, one.usage + one.descendants, one.steps, one.stopped)
        if (item := report(one, outcome)) is not None:
            yield item


def _id(run_id: str, epoch: int) -> str:
    return f"{run_id}:done:{epoch}"
