"""What the owner of a task is told when its run is over, or won't end because its thread is deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..types.runs import RunRecord, TaskOutcome, TaskRecord
from ._protocol import InboxItem

__all__ = ["DELETED", "last_words", "report"]

DELETED = "cancelled: its thread was deleted"


def report(run: RunRecord, outcome: TaskOutcome) -> InboxItem | None:
    """What the owner of a task is told of what its run came to; None for a run that is nobody's task."""
    owner, task = run.identity.parent_thread_id, run.task
    if task is None or owner is None:
        return None
    return InboxItem(
        id=_id(run.id, task.epoch),
        thread_id=owner,
        kind="task",
        task_id=task.id,
        outcome=outcome,
        background=task.background,
        policy="steer" if task.wake == "run" else "queue",
        agent_id=task.owner or None,
    )


def last_words(
    thread_id: str, run: RunRecord | None, inbox: Iterable[InboxItem], owned: Iterable[TaskRecord]
) -> list[InboxItem]:
    """What owners are told when a thread is deleted that has this open run and these items. `owned` are the live
    tasks of the thread that it was delegated from: what can't be read on the thread itself is known from them, and
    what ended there without its owner having heard."""
    told = {item.id: item for item in _from_thread(run, inbox)}
    for task in owned:
        if task.target_thread == thread_id and (told_id := _id(task.target, task.epoch)) not in told:
            told[told_id] = InboxItem(
                id=told_id,
                thread_id=task.thread_id,
                kind="task",
                task_id=task.id,
                outcome=TaskOutcome(task.epoch, "cancelled", error=DELETED),
                background=task.background,
            )
    return list(told.values())


def _from_thread(run: RunRecord | None, inbox: Iterable[InboxItem]) -> Iterator[InboxItem]:
    begun = [] if run is None else [run]
    yet_to_begin = [
        RunRecord(identity=item.lineage, agent_id=item.lineage.agent_id, task=item.task, created_at=0)
        for item in inbox
        if item.lineage is not None
    ]
    for one in (*begun, *yet_to_begin):
        epoch = 1 if one.task is None else one.task.epoch
        outcome = TaskOutcome(epoch, "cancelled", "", DELETED, one.usage + one.descendants, one.steps)
        if (told := report(one, outcome)) is not None:
            yield told


def _id(run_id: str, epoch: int) -> str:
    return f"{run_id}:done:{epoch}"
