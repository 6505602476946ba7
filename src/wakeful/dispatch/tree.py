"""Trees of runs in the store: a run, its tasks, their runs, and so on."""

from __future__ import annotations

from ..errors import RunDeadLettered, UnknownRun
from ..loop import Activation
from ..stores import Store, ThreadView
from ..types.runs import RunRecord, TaskRecord, Usage
from ..types.tickets import Ticket

__all__ = [
    "dead_letter",
    "find_run",
    "is_below",
    "measure",
    "open_below",
    "open_threads_below",
    "owner_of",
    "threads_below",
    "tickets_below",
    "waits_for_tasks",
]

MAX_TREE = 10_000


async def find_run(store: Store, run_id: str) -> tuple[RunRecord, ThreadView]:
    """A run and the view of its thread."""
    run = await store.run(run_id)
    stored = None if run is None else await store.load(run.thread_id)
    if run is None or stored is None:
        raise UnknownRun(f"no run {run_id!r} in this store")
    if stored.run is not None and stored.run.id == run_id:
        run = stored.run  # The view was read later.
    elif run.status != "done":
        run = await store.run(run_id) or run
    return run, stored


async def open_below(store: Store, thread_id: str, run_id: str) -> list[TaskRecord]:
    """The open tasks of a run and of all runs below it, breadth first."""
    found: list[TaskRecord] = []
    level = [(thread_id, run_id)]
    while level:
        tasks: list[TaskRecord] = []
        for thread, run in level:
            tasks += [task for task in await store.tasks(thread, status="running") if task.run_id == run]
        found += tasks
        level = [(task.target_thread, task.target) for task in tasks if task.target_thread]
    return found


async def tickets_below(store: Store, thread_id: str, run_id: str) -> list[Ticket]:
    """The open tickets of the runs below a run, oldest first."""
    found: list[Ticket] = []
    for task in await open_below(store, thread_id, run_id):
        found += await store.tickets(task.target, status="open")
    return sorted(found, key=lambda ticket: ticket.id)


async def threads_below(store: Store, thread_id: str, run_id: str | None = None) -> list[str]:
    """The threads of all tasks below a thread, or below one run of it, breadth first; finished tasks included."""
    found: dict[str, None] = {}
    level = [task.target_thread for task in await store.tasks(thread_id) if run_id in (None, task.run_id)]
    while level := [thread for thread in dict.fromkeys(level) if thread and thread not in found]:
        found.update(dict.fromkeys(level))
        if len(found) >= MAX_TREE:
            break
        level = [task.target_thread for thread in level for task in await store.tasks(thread)]
    return list(found)


async def is_below(store: Store, run_id: str, root_id: str) -> bool:
    """Whether a run is below another one."""
    run = await store.run(run_id)
    while run is not None and (above := await owner_of(store, run)) is not None:
        if above == root_id:
            return True
        run = await store.run(above)
    return False


async def owner_of(store: Store, run: RunRecord) -> str | None:
    """The run that owns another one: its parent, or the run that inherited it as a background task."""
    above, thread = run.identity.parent_run_id, run.identity.parent_thread_id
    if above is None or thread is None or run.task is None or not run.task.background:
        return above
    return next((task.run_id for task in await store.tasks(thread) if task.target == run.id), above)


def waits_for_tasks(run: RunRecord) -> bool:
    """Whether a run waits for tasks."""
    return run.waiting is not None and bool(run.waiting.tasks)


def dead_letter(run: RunRecord) -> RunDeadLettered:
    """The error for callers that wait for a run whose dispatch is a dead letter."""
    return RunDeadLettered(
        f"run {run.id} is a dead letter: its last attempt failed; see why with "
        f'runtime.workers.dispatches(dead=True), then runtime.runs.retry("{run.id}") or runtime.cancel("{run.id}")'
    )


async def open_threads_below(store: Store, run: RunRecord) -> list[str]:
    """The threads of open runs below a finished run, owners first.

    An owner that ended before it was read has cancelled its tasks by then.
    """
    tasks = await store.tasks(run.thread_id)
    # A task that still runs was left to the next run, whichever run started it.
    owners = {task.target: None if task.status == "running" else task.run_id for task in tasks}
    runs = {one.id: one for one in await store.runs(root_run_id=run.identity.root_run_id, limit=MAX_TREE)}
    for task in tasks:  # A task that an earlier run started belongs to another tree.
        if task.run_id == run.id and task.target not in runs and (one := await store.run(task.target)) is not None:
            tree = await store.runs(root_run_id=one.identity.root_run_id, limit=MAX_TREE)
            runs |= {one.id: one for one in tree}
    found = [one for one in runs.values() if one.status != "done" and _is_under(one, run.id, runs, owners)]
    return [one.thread_id for one in sorted(found, key=lambda one: one.identity.depth)]


def _is_under(run: RunRecord, root_id: str, runs: dict[str, RunRecord], owners: dict[str, str | None]) -> bool:
    one: RunRecord | None = run
    while one is not None:
        parent = owners.get(one.id, one.identity.parent_run_id)
        if parent == root_id:
            return True
        one = None if parent is None else runs.get(parent)
    return False


async def measure(store: Store, act: Activation) -> None:
    """Sum up what a run's whole tree used so far, from the records of its runs."""
    root_id, tree = act.identity.root_run_id, act.view.tree
    root = act.view.run if act.identity.run_id == root_id else await store.run(root_id)
    if root is None:
        return
    runs = [root, *await store.runs(root_run_id=root_id, limit=MAX_TREE)]
    tree.usage = sum([run.usage for run in runs], Usage())
    tree.calls = sum(run.calls for run in runs)
    tree.started_at = root.started_at or root.created_at
