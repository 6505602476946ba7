"""Tasks that a backend executes: their backend, their status and their cancellation."""

from __future__ import annotations

from msgspec.structs import replace

from ..agents import Backend, Registry, resolve_child
from ..errors import StoreError, ToolError, UnknownAgent
from ..loop import outcome_of
from ..types.runs import FUNCTION, TaskRecord
from .dispatcher import Dispatcher

__all__ = [
    "InvalidState",
    "NotStored",
    "UnknownRemote",
    "backend_of_task",
    "check_stoppable",
    "is_remote",
    "refresh",
    "thread_for",
]


class InvalidState(ToolError):
    """The task isn't in a state that allows this."""

    kind = "invalid_state"


class UnknownRemote(ToolError):
    """This process has no agent that can continue the task."""

    kind = "unknown_agent"


class NotStored(ToolError):
    """The task's outcome could not be written or read."""

    kind = "store_error"


def thread_for(run_id: str) -> str:
    """The thread of a child that doesn't run inside its owner's call."""
    return f"sub-agent-{run_id}"


def is_remote(registry: Registry, agent_id: str) -> bool:
    """Whether a task of this agent is executed by the agent's backend; functions are the runtime's own."""
    backend = resolve_child(registry, agent_id).backend
    return backend is not None and not agent_id.startswith(FUNCTION)


def backend_of_task(registry: Registry | None, task: TaskRecord) -> Backend | None:
    """The backend of a task; None if the loop runs it. The record says which, the registry has the backend."""
    if not task.remote:
        return None
    if registry is None:
        raise InvalidState("remote agent backend resolution requires a wakeful-bound catalog")
    try:
        backend = registry.resolve(task.agent_id).backend
    except UnknownAgent as error:
        raise UnknownRemote(f"Unknown remote agent: {task.agent_id}") from error
    if backend is None:
        raise InvalidState(f"Agent '{task.agent_id}' is not backed by remote A2A")
    return backend


def check_stoppable(registry: Registry, task: TaskRecord) -> None:
    """Raise if a remote task's agent is local by now: its remote side would continue after a cancellation.

    An agent that isn't known here is left to the process that knows it.
    """
    if task.remote and task.agent_id in registry.agents and registry.resolve(task.agent_id).backend is None:
        raise InvalidState(f"Run '{task.id}' is not backed by a remote agent backend")


async def refresh(dispatch: Dispatcher, task: TaskRecord) -> TaskRecord:
    """The present status of a remote task. An orphaned one is continued here.

    Its outcome, its status and the report to its owner are one commit.
    """
    if backend_of_task(dispatch.env.registry, task) is None:
        raise InvalidState(f"Run '{task.id}' is not a remote delegated run")
    task = replace(task, target_thread=task.target_thread or thread_for(task.target))
    try:
        stored = await dispatch.env.store.load(task.target_thread)
        is_orphan = stored is not None and not stored.thread.claimed
        if is_orphan and await dispatch.start_if_due(task.target_thread) and not dispatch.execute:
            raise InvalidState(f"Run '{task.id}' cannot be refreshed without a live executor")
        run = await dispatch.env.store.run(task.target)
        if run is None or run.status != "done":
            return task
        outcome = outcome_of(run, await dispatch.env.store.answer(run.id))
    except StoreError as error:
        raise NotStored(str(error)) from error
    return replace(task, status=outcome.status, error=outcome.error, finished_at=run.finished_at)
