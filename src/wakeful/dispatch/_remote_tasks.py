"""Tasks that a backend carries out: which backend that is, how they stand, and stopping them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..agents import Backend, Registry
from ..errors import StoreError, ToolError, UnknownAgent
from ..loop import outcome_of
from ..types.runs import TaskRecord

if TYPE_CHECKING:
    from ._local import Dispatcher

__all__ = [
    "InvalidState",
    "NotStored",
    "UnknownRemote",
    "backend_of_task",
    "check_stoppable",
    "refresh",
    "thread_for",
]


class InvalidState(ToolError):
    """The task isn't in a state that allows this."""

    kind = "invalid_state"


class UnknownRemote(ToolError):
    """The present code has no agent that goes on with the task."""

    kind = "unknown_agent"


class NotStored(ToolError):
    """What became of the task could not be written or read."""

    kind = "store_error"


def thread_for(run_id: str) -> str:
    """The thread of a child that isn't run inside its owner's call."""
    return f"sub-agent-{run_id}"


def backend_of_task(registry: Registry | None, task: TaskRecord) -> Backend | None:
    """What carries out a task; None if the loop does. The record says which, the present code has the rest."""
    if not task.remote:
        return None
    if registry is None:
        raise InvalidState("remote agent backend resolution requires an AgentOs-bound catalog")
    try:
        backend = registry.resolve(task.agent_id).backend
    except UnknownAgent as error:
        raise UnknownRemote(f"Unknown remote agent: {task.agent_id}") from error
    if backend is None:
        raise InvalidState(f"Agent '{task.agent_id}' is not backed by remote A2A")
    return backend


def check_stoppable(registry: Registry, task: TaskRecord) -> None:
    """Refuse to stop a remote task whose agent the present code runs itself: what it began elsewhere would go on,
    and be taken for stopped. An agent that isn't known here is another process's to stop."""
    if task.remote and task.agent_id in registry.agents and registry.resolve(task.agent_id).backend is None:
        raise InvalidState(f"Run '{task.id}' is not backed by a remote agent backend")


async def refresh(dispatch: Dispatcher, task: TaskRecord) -> TaskRecord:
    """How a remote task stands. One that nobody follows any more is followed from here on: what it comes to is
    written with its status, in one commit, and its owner is told by the same."""
    if backend_of_task(dispatch.env.registry, task) is None:
        raise InvalidState(f"Run '{task.id}' is not a remote delegated run")
    task = replace(task, target_thread=task.target_thread or thread_for(task.target))
    try:
        stored = await dispatch.env.store.load(task.target_thread)
        orphaned = stored is not None and not stored.thread.claimed and await dispatch.pump(task.target_thread)
        if orphaned and not dispatch.execute:
            raise InvalidState(f"Run '{task.id}' cannot be refreshed without a live executor")
        run = await dispatch.env.store.run(task.target)
        if run is None or run.status != "done":
            return task
        outcome = outcome_of(run, await dispatch.env.store.answer(run.id))
    except StoreError as error:
        raise NotStored(str(error)) from error
    return replace(task, status=outcome.status, error=outcome.error, finished_at=run.finished_at)
