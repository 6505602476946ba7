"""The tools that manage background tasks."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from ..errors import ToolError
from ..tools import Tool, ToolContext
from ..types.calls import Effect
from ..types.runs import TaskRecord

__all__ = ["CancelTool", "OutputTool", "ResumeTool", "StatusTool", "UnknownTask"]


class UnknownTask(ToolError):
    """The thread has no such task."""

    kind = "unknown_run"


async def _find(ctx: ToolContext, task_id: str) -> TaskRecord:
    """A task of the caller's thread, by id, or the newest of that name."""
    tasks = await ctx.tasks()
    named = [t for t in reversed(tasks) if t.name == task_id]
    for task in [t for t in tasks if t.id == task_id] + named:
        return task
    raise UnknownTask(f"Unknown task_id: {task_id}")


def _summary(task: TaskRecord) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "task_id": task.id,
        "name": task.name,
        "agent_id": task.agent_id if task.function is None else None,
        "function": task.function,
        "status": task.status,
        "error": task.error,
    }
    return {name: value for name, value in shown.items() if value is not None}


class StatusTool(Tool):
    """`task_status`: one task, or all tasks of the thread."""

    name = "task_status"
    description = "The status of background tasks: one task, or all of this conversation's."
    effect: Effect = "pure"

    async def run(self, ctx: ToolContext, task_id: str = "") -> dict[str, Any]:
        """Read the status.

        Args:
            task_id: The task's id or name; all of them if left out.
        """
        if task_id:
            return _summary(await ctx.refresh_task(await _find(ctx, task_id)))
        tasks = [_summary(task) for task in await ctx.tasks()]
        return {"tasks": tasks, "total": len(tasks)}


class OutputTool(Tool):
    """`task_output`: the last answer of a task."""

    name = "task_output"
    description = "The output of a task: the agent's last answer."
    effect: Effect = "pure"

    async def run(self, task_id: str, ctx: ToolContext) -> dict[str, Any]:
        """Read the output.

        Args:
            task_id: The task's id or name.
        """
        task = await _find(ctx, task_id)
        return {**_summary(task), "output": await ctx.task_output(task)}


class Target(Struct, frozen=True):
    """The task to cancel."""

    relation: Literal["self", "child"]
    name: str = ""


class CancelTool(Tool):
    """`cancel_task`: cancel a task of the caller, or the task that the caller belongs to."""

    name = "cancel_task"
    description = "Stop a task and all that works for it, or with the relation 'self' your own work."
    effect: Effect = "idempotent"

    async def run(self, target: Target, ctx: ToolContext) -> dict[str, Any]:
        """Cancel the task.

        Args:
            target: `{"relation": "self"}`, or `{"relation": "child", "name": ...}` with a task's name or id.
        """
        if target.relation == "self":
            root_id, count = await ctx.cancel_self("stopped by itself")
            return {"status": "accepted", "root_task_id": root_id, "cancelled_count": count}
        running = [task for task in await ctx.tasks() if task.status == "running"]
        found = [t for t in running if t.id == target.name] + [t for t in running if t.name == target.name]
        if not found:
            return {"status": "failed", "cancelled_count": 0, "error": "task_not_found"}
        why = "remote cancellation requested" if found[0].remote else "stopped by owner request"
        count = await ctx.cancel_task(found[0], why)
        return {"status": "accepted", "root_task_id": found[0].id, "cancelled_count": count}


class ResumeTool(Tool):
    """`resume_task`: continue a cancelled task."""

    name = "resume_task"
    description = "Continue a cancelled task in the background; for other tasks the status is returned."
    effect: Effect = "idempotent"

    async def run(self, task_id: str, ctx: ToolContext, prompt: str = "") -> dict[str, Any]:
        """Continue the task.

        Args:
            task_id: The task's id.
            prompt: What else the agent should know.
        """
        task = await _find(ctx, task_id)
        return _summary(await ctx.resume_task(task, prompt))
