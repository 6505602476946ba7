"""`wakeful tasks`: list and cancel the background tasks of a thread."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from ..runtime import TenantRuntime
from ..types.runs import TaskRecord
from .ids import find_run, find_thread
from .locations import Json, Place, Tenant, ask, show
from .tables import print_list, shorten_ids
from .text import one_line, time_text

__all__ = ["tasks_app"]

tasks_app = typer.Typer(
    name="tasks",
    help="List and cancel background tasks.\n\nAn id may be shortened to an unambiguous prefix.",
    no_args_is_help=True,
)

ThreadId = Annotated[str, typer.Argument(metavar="THREAD", help="The thread that owns them.", show_default=False)]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="The reason; it is kept.")]


class Status(StrEnum):
    """The status of the tasks to list."""

    running = "running"
    completed = "completed"
    failed = "failed"
    cancelled = "cancelled"
    all = "all"


@tasks_app.command("list")
def list_(
    place: Place,
    thread: ThreadId,
    status: Annotated[Status, typer.Option(help="The status of the tasks.")] = Status.all,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """List the tasks that a thread owns, oldest first."""
    wanted = None if status is Status.all else status.value

    async def look(runtime: TenantRuntime) -> Sequence[TaskRecord]:
        return await runtime.tasks.list(await find_thread(runtime, thread), status=wanted)

    tasks = ask(place, tenant, look)
    short = shorten_ids([one for task in tasks for one in (task.id, task.run_id)])
    rows = [
        (
            short[task.id],
            task.function or task.agent_id,
            task.status,
            "background" if task.background else "call",
            short[task.run_id or None],
            time_text(task.created_at),
            one_line(task.name or "", 40),
        )
        for task in tasks
    ]
    print_list(json, tasks, ("TASK", "TARGET", "STATUS", "KIND", "RUN", "CREATED", "NAME"), rows, "no tasks")


@tasks_app.command()
def cancel(
    place: Place,
    task_id: Annotated[str, typer.Argument(metavar="TASK", help="The task's id.", show_default=False)],
    reason: Reason = "cancelled by request",
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Cancel a task with everything below it."""

    async def stop(runtime: TenantRuntime) -> tuple[str, bool]:
        found = await find_run(runtime, task_id)  # A task has the id of its run.
        return found, await runtime.tasks.cancel(found, reason)

    found, cancelled = ask(place, tenant, stop)
    text = f"task {found} {'is cancelled' if cancelled else 'was done'}"
    show(json, {"task": found, "cancelled": cancelled}, text)
