"""Work in the background as the application begins it and looks after it; and letting runs stand still."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from ..errors import Conflict, UnknownRun, UnknownTask, UsageError
from ..loop import outcome_of
from ..stores import Commit, InboxItem, Store
from ..tools import ChildRequest
from ..types.ids import new_id
from ..types.runs import FUNCTION, Identity, Principal, RunRecord, TaskRecord, TaskRef, TaskStatus
from ._answering import cancel
from ._beginning import check_name
from ._local import Dispatcher

__all__ = ["cancel_task", "find_task", "set_paused", "spawn", "tasks_of"]


async def spawn(
    dispatch: Dispatcher,
    child: ChildRequest,
    owner: str | None,
    principal: Principal | None,
    request_id: str | None,
) -> TaskRecord:
    """Begin work that a thread owns, or nobody. A request that was made before begins nothing."""
    dispatch.check_open()
    store = dispatch.env.store
    if request_id is not None and (known := await store.item(request_id)) is not None:
        return await find_task(store, known.run_id or known.taken_by or "")
    run_id = new_id()
    prefix = "task" if child.agent_id.startswith(FUNCTION) else "sub-agent"
    thread_id = f"{prefix}-{run_id}"
    record = TaskRecord(
        id=run_id,
        thread_id=owner or "",
        name=child.name,
        agent_id=child.agent_id,
        target=run_id,
        target_thread=thread_id,
        background=True,
        durable=True,
        created_at=dispatch.env.clock.now(),
    )
    depth = 0 if owner is None else 1
    item = InboxItem(
        id=request_id or run_id,
        thread_id=thread_id,
        kind="input",
        message=child.message,
        agent_id=child.agent_id,
        principal=principal,
        run_id=run_id,
        seed=child.state,
        lineage=Identity(run_id, thread_id, child.agent_id, run_id, None, owner, None, "task", depth),
    )
    if owner is None:
        if not await dispatch.offer(item):
            await dispatch.deliver(item)
    else:
        await _own(dispatch, record, item, child)
        dispatch.left(item)
    if request_id is not None and (first := await store.item(request_id)) is not None and first.run_id != run_id:
        # Somebody else made it in the same moment.
        return await find_task(store, first.run_id or first.taken_by or "")
    await dispatch.pump(thread_id)
    return record


async def _own(dispatch: Dispatcher, record: TaskRecord, item: InboxItem, child: ChildRequest) -> None:
    """Write a task down on the thread that owns it, with its input. While somebody else may write to the thread it
    finds the task in its inbox."""
    store, owner, taken = dispatch.env.store, record.thread_id, False
    while True:
        stored = await store.load(owner)
        check_name(child.name, await tasks_of(store, owner, status="running"))
        last = None if stored is None else stored.thread.last_agent_id
        if child.wake == "run" and last is None:
            raise UsageError(
                f"thread {owner!r} has had no run, so no agent is there to begin one: use wake='inbox'"
            )
        task = TaskRef(record.id, 1, background=True, wake=child.wake, owner=last or "")
        inbox = [replace(item, task=task)]
        if stored is not None and (stored.thread.claimed or taken or item.id != item.run_id):
            # The ids of both are the request's, so that neither is there twice.
            known = InboxItem(
                id=f"{item.id}:task", thread_id=owner, kind="task", task_id=record.id, adopted=record
            )
            await store.commit(Commit(owner, inbox=[*inbox, known]))
            dispatch.wake(owner)
            return
        version = 0 if stored is None else stored.thread.version
        try:
            await store.commit(Commit(owner, version=version, tasks=[record], inbox=inbox))
        except Conflict:
            taken = True  # By somebody, who may have died since.
            continue
        return


async def tasks_of(store: Store, thread_id: str, *, status: TaskStatus | None = None) -> list[TaskRecord]:
    """The tasks that a thread owns, oldest first, as they are now: its next run may not know yet."""
    stored = await store.load(thread_id)
    adopted = [] if stored is None else [i.adopted for i in stored.inbox if i.adopted is not None]
    found = [await _present(store, task) for task in (*await store.tasks(thread_id), *adopted)]
    return sorted([t for t in found if status in (None, t.status)], key=lambda task: task.id)


async def _present(store: Store, task: TaskRecord) -> TaskRecord:
    if task.status != "running" or not task.background:
        return task
    run = await store.run(task.target)
    if run is None or run.status != "done":
        return task
    outcome = outcome_of(run, await store.answer(run.id))
    return replace(task, status=outcome.status, error=outcome.error, finished_at=run.finished_at)


async def find_task(store: Store, task_id: str) -> TaskRecord:
    """A task by its id, whoever owns it."""
    run = await store.run(task_id)
    item = await store.item_of_run(task_id) if run is None else None
    identity = run.identity if run is not None else None if item is None else item.lineage
    if identity is None or identity.origin not in ("task", "subagent"):
        raise UnknownTask(f"no task {task_id!r} in this store; see runtime.tasks(thread)")
    owner = identity.parent_thread_id
    owned: Sequence[TaskRecord] = [] if owner is None else await tasks_of(store, owner)
    for task in owned:
        if task.id == task_id:
            return task
    agent_id, thread_id = identity.agent_id, identity.thread_id
    bare = TaskRecord(task_id, owner or "", None, None, "running", agent_id, task_id, thread_id, background=True)
    return await _present(store, bare)


async def cancel_task(dispatch: Dispatcher, task: TaskRecord, reason: str) -> bool:
    """Stop a task with all that works for it; False if it was done before."""
    return await cancel(dispatch, task.target, reason)


async def set_paused(dispatch: Dispatcher, run_id: str, kind: Literal["pause", "unpause"]) -> bool:
    """Tell a run to stand still at its next step, or to go on, whichever process has it; False if it is done."""
    dispatch.check_open()
    run = await dispatch.env.store.run(run_id)
    if run is None:
        raise UnknownRun(f"no run {run_id!r} in this store")
    if run.status == "done":
        return False
    if await _set_at_rest(dispatch, run, paused=kind == "pause"):
        return True
    await dispatch.deliver(InboxItem(id=new_id(), thread_id=run.thread_id, kind=kind, run_id=run_id))
    await dispatch.pump(run.thread_id)
    return True


async def _set_at_rest(dispatch: Dispatcher, run: RunRecord, *, paused: bool) -> bool:
    """Write it into the record of a run that waits for something else, which nothing has to be woken for; False if
    it doesn't, or if somebody was faster."""
    stored = await dispatch.env.store.load(run.thread_id)
    if stored is None or stored.run is None or stored.run.id != run.id or stored.thread.claimed:
        return False
    waits, waiting = stored.run, stored.run.waiting
    if waiting is None or waiting.reason == "manual_pause" or run.thread_id in dispatch.active:
        return False
    changed = replace(waits, paused=paused, updated_at=dispatch.env.clock.now())
    commit = Commit(run.thread_id, run.identity, version=stored.thread.version, runs=[changed])
    try:
        await dispatch.env.store.commit(commit)
    except Conflict:
        return False
    return True
