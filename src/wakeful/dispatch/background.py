"""Background tasks and schedules as the application starts and manages them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..errors import Conflict, UnknownTask, UsageError
from ..loop import outcome_of
from ..stores import Commit, Store
from ..tasks import SCHEDULE, Schedule
from ..tools import ChildRequest
from ..types.ids import new_id
from ..types.inbox import InboxItem, InputItem, Request, TaskItem
from ..types.mail import Receipt
from ..types.runs import FUNCTION, Identity, Principal, TaskRecord, TaskRef, TaskStatus
from .control import cancel
from .dispatcher import Dispatcher
from .remote_tasks import is_remote
from .results import first_item
from .schedules import input_now, schedule_thread, write_paused, write_schedule
from .task_start import check_name

__all__ = ["cancel_task", "find_task", "pause_schedule", "put_schedule", "run_schedule", "spawn", "tasks_of"]


async def spawn(
    dispatch: Dispatcher,
    child: ChildRequest,
    owner: str | None,
    principal: Principal | None,
    request: Request | None,
) -> TaskRecord:
    """Start a background task that a thread owns, or nobody. A repeated request starts nothing."""
    dispatch.check_open()
    store = dispatch.env.store
    if (known := await first_item(store, request)) is not None:
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
        remote=is_remote(dispatch.env.registry, child.agent_id),
        created_at=dispatch.env.clock.now(),
    )
    depth, tracer = 0 if owner is None else 1, dispatch.env.tracer
    item = InputItem(
        id=run_id if request is None else request.id,
        thread_id=thread_id,
        message=child.message,
        agent_id=child.agent_id,
        principal=principal,
        run_id=run_id,
        seed=child.state,
        lineage=Identity(run_id, thread_id, child.agent_id, run_id, None, owner, None, "task", depth),
        digest="" if request is None else request.digest,
        trace=None if tracer is None else tracer.capture(detached=True),
    )
    if owner is None:
        if not await dispatch.deliver_if_idle(item):
            await dispatch.deliver(item)
    else:
        await _own(dispatch, record, item, child)
        dispatch.announce(item)
    if (first := await first_item(store, request)) is not None and first.run_id != run_id:
        # The same request was made at the same time.
        return await find_task(store, first.run_id or first.taken_by or "")
    await dispatch.start_if_due(thread_id)
    return record


async def _own(dispatch: Dispatcher, record: TaskRecord, item: InboxItem, child: ChildRequest) -> None:
    """Write a task to the thread that owns it, with its input.

    While another process owns the thread, the task goes to the thread's inbox for its run to adopt.
    """
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
            # Both ids derive from the request's, so that a repetition adds neither.
            known = TaskItem(id=f"{item.id}:task", thread_id=owner, task_id=record.id, adopted=record)
            await store.commit(Commit(owner, inbox=[*inbox, known]))
            dispatch.wake(owner)
            return
        version = 0 if stored is None else stored.thread.version
        try:
            await store.commit(Commit(owner, version=version, tasks=[record], inbox=inbox))
        except Conflict:
            taken = True  # Its owner may have died since.
            continue
        return


async def tasks_of(store: Store, thread_id: str, *, status: TaskStatus | None = None) -> list[TaskRecord]:
    """The tasks of a thread, oldest first, with their present status.

    The thread's next run may not know of their end yet.
    """
    stored = await store.load(thread_id)
    adopted = [] if stored is None else _adopted(stored.inbox)
    found = [await _present(store, task) for task in (*await store.tasks(thread_id), *adopted)]
    return sorted([t for t in found if status in (None, t.status)], key=lambda task: task.id)


def _adopted(inbox: Sequence[InboxItem]) -> list[TaskRecord]:
    return [i.adopted for i in inbox if isinstance(i, TaskItem) and i.adopted is not None]


async def _present(store: Store, task: TaskRecord) -> TaskRecord:
    if task.status != "running" or not task.background:
        return task
    run = await store.run(task.target)
    if run is None or run.status != "done":
        return task
    outcome = outcome_of(run, await store.answer(run.id))
    return replace(task, status=outcome.status, error=outcome.error, finished_at=run.finished_at)


async def find_task(store: Store, task_id: str) -> TaskRecord:
    """A task by its id, whichever thread owns it."""
    run = await store.run(task_id)
    item = await store.item_of_run(task_id) if run is None else None
    identity = run.identity if run is not None else item.lineage if isinstance(item, InputItem) else None
    if identity is None or identity.origin not in ("task", "subagent"):
        raise UnknownTask(f"no task {task_id!r} in this store; see runtime.tasks.list(thread)")
    owner = identity.parent_thread_id
    owned: Sequence[TaskRecord] = [] if owner is None else await tasks_of(store, owner)
    for task in owned:
        if task.id == task_id:
            return task
    agent_id, thread_id = identity.agent_id, identity.thread_id
    bare = TaskRecord(task_id, owner or "", None, None, "running", agent_id, task_id, thread_id, background=True)
    return await _present(store, bare)


async def cancel_task(dispatch: Dispatcher, task: TaskRecord, reason: str) -> bool:
    """Cancel a task and all runs below it; False if it was done before."""
    return await cancel(dispatch, task.target, reason)


async def put_schedule(dispatch: Dispatcher, schedule: Schedule, request: Request | None = None) -> Schedule:
    """Write a schedule and have the workers look when it is due."""
    return _watched(dispatch, await write_schedule(dispatch.activations, schedule, request))


async def pause_schedule(dispatch: Dispatcher, name: str, *, paused: bool) -> Schedule:
    """Pause or continue a schedule; raises `UnknownSchedule`."""
    return _watched(dispatch, await write_paused(dispatch.activations, name, paused=paused))


def _watched(dispatch: Dispatcher, schedule: Schedule) -> Schedule:
    """Have the workers look when a schedule is due."""
    dispatch.worker.look()
    if not dispatch.execute:
        dispatch.signals.wake(dispatch.tenant, schedule_thread(schedule.name), SCHEDULE)
    return schedule


async def run_schedule(dispatch: Dispatcher, name: str, request: Request | None = None) -> Receipt:
    """Start an occurrence of a schedule at once; a repeated request starts nothing."""
    first = await first_item(dispatch.env.store, request)
    if first is None:
        dispatch.check_open()
        await dispatch.check_room()
        first = await input_now(dispatch.env.store, name, dispatch.env.clock.now(), request)
        await dispatch.deliver(first)
        dispatch.wake(first.thread_id, first.agent_id)
    message_id = first.message.id if isinstance(first, InputItem) else first.id
    return Receipt(message_id, first.thread_id)
