"""Operations of background tasks."""

from __future__ import annotations

from typing import Any

from ...api.operators import CreateTask, ListTasks
from ...api.runs import CancelRun, Wanted
from ...errors import Overloaded, UnknownAgent, UnknownThread
from ...identity import Resource
from ...types.runs import TaskRecord
from .call import Call, Reply
from .operation import op
from .threads import check_thread, thread_of

__all__: list[str] = []


@op(
    "tasks.create",
    "POST",
    "/v1/tasks",
    scope="tasks:write",
    reply=TaskRecord,
    statuses=(201,),
    errors=(UnknownAgent, Overloaded),
    repeatable=True,
)
async def create(call: Call, body: CreateTask) -> Any:
    """Start an agent's run in the background. The owner thread is told the outcome."""
    call.check_agent(body.agent)
    if body.thread is not None:
        await check_thread(call, body.thread)
    handle = await call.runtime.tasks.spawn(
        body.agent,
        body.input,
        thread=body.thread,
        name=body.name,
        wake=body.wake,
        principal=call.caller.principal,
        request_id=call.request_id,
    )
    return Reply(await handle.record(), location=f"/v1/tasks/{handle.id}")


@op("tasks.list", "GET", "/v1/tasks", scope="tasks:read", reply=list[TaskRecord], errors=(UnknownThread,))
async def list_(call: Call, query: ListTasks) -> Any:
    """The tasks that a thread owns, oldest first."""
    await thread_of(call, query.thread)
    return await call.runtime.tasks.list(query.thread, status=query.status)


@op("tasks.get", "GET", "/v1/tasks/{task}", scope="tasks:read", reply=TaskRecord)
async def get(call: Call, task: str) -> Any:
    """A task's record."""
    return await _task_of(call, task)


@op("tasks.cancel", "POST", "/v1/tasks/{task}/cancel", scope="tasks:write", reply=Wanted)
async def cancel(call: Call, task: str, body: CancelRun) -> Any:
    """Cancel a task with everything below it, and wait until that has ended."""
    await _task_of(call, task)
    return Wanted(changed=await call.serving.finish(call.runtime.tasks.cancel(task, body.reason)))


async def _task_of(call: Call, task: str) -> TaskRecord:
    """A task that the caller may use: one of its principal's run."""
    handle = await call.find(lambda: call.runtime.tasks.get(task), "task", task)
    found = await handle.record()
    run = await call.runtime.store.run(found.target)
    if run is None and found.run_id is not None:
        run = await call.runtime.store.run(found.run_id)
    owner = None if run is None else run.owner_id
    await call.require(Resource("task", task, owner, found.agent_id))
    return found
