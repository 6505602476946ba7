"""Tasks: background work of agents and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from ..agents import Agent
from ..dispatch import cancel_task, child_of, find_task, spawn, tasks_of
from ..errors import InvalidArguments
from ..errors.arguments import checked_methods
from ..tools import SpawnRequest
from ..tools.checks import check_task, close_on_error, merge_arguments
from ..types.content import require_text
from ..types.inbox import Request
from ..types.runs import Principal, TaskRecord, TaskStatus, TaskWake
from .arguments import check_choice, check_id, check_instance, check_request_id, check_thread_id, make_message
from .handles import TaskHandle
from .requests import Input, input_for
from .scope import Scope

__all__ = ["Tasks"]


@checked_methods("runtime.tasks")
class Tasks:
    """`runtime.tasks`: the background tasks of one tenant."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def spawn(
        self,
        target: str | Agent | Callable[..., Any],
        prompt: Input | None = None,
        *,
        thread: str | None = None,
        name: str | None = None,
        wake: TaskWake = "inbox",
        principal: Principal | None = None,
        request_id: str | Request | None = None,
        arguments: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> TaskHandle:
        """Start background work, and return once it is in the store: an agent with a prompt, or a function of
        `Runtime(tasks=...)` with its arguments.

        The owner `thread` is told the outcome: an open run at its next step, else the next run, or with
        `wake="run"` a run that starts for it. `name` is the owner's name for the task. Repeating a `request_id`
        starts nothing and returns the first task. Arguments named like an option here go into `arguments`.
        """
        scope = self._scope
        with close_on_error(target):
            scope.bind()
            check_task(name, True, wake)
            given = merge_arguments(arguments, more)
            check_instance(principal, Principal, "principal")
            agent = target.id if isinstance(target, Agent) else target
            message = None
            if prompt is not None:
                message = make_message(input_for(scope.env.registry, agent, prompt), principal)
            request = SpawnRequest(agent, message, given, name, {}, True, wake)
            child = child_of(scope.dispatch, scope.shared.task_registry, request, self.spawn)
        owner = None if thread is None else check_thread_id(thread)
        if owner is None and name is not None:
            raise InvalidArguments(
                f"{name!r:.80} would name nothing: a task's name is for the thread that owns it, and this one has "
                "none; give a thread, or keep the handle's id"
            )
        task = await spawn(scope.dispatch, child, owner, principal, check_request_id(request_id))
        return TaskHandle(task.id, task.thread_id or None, scope)

    async def get(self, task_id: str) -> TaskHandle:
        """The handle of a task, whichever run or process started it."""
        self._scope.bind()
        found = await find_task(self._scope.store, check_id(task_id, "task"))
        return TaskHandle(found.id, found.thread_id or None, self._scope)

    async def list(self, thread: str, *, status: TaskStatus | None = None) -> Sequence[TaskRecord]:
        """The tasks that a thread owns, oldest first, with the run and the call that started each."""
        check_choice(status, get_args(TaskStatus), "status")
        return await tasks_of(self._scope.store, check_thread_id(thread), status=status)

    async def cancel(self, task_id: str, reason: str = "cancelled by request") -> bool:
        """Cancel a task with everything below it; False if it was done before."""
        return await (await self.get(task_id)).cancel(reason)

    async def cancel_all(self, thread: str, reason: str = "cancelled by request") -> int:
        """Cancel all running tasks of a thread with everything below them; returns their number."""
        self._scope.bind()
        reason = require_text(reason, "the reason to cancel")
        running = await self.list(thread, status="running")
        return sum([await cancel_task(self._scope.dispatch, task, reason) for task in running])
