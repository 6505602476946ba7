"""`wakeful runs`: list runs, show their calls and trees, and control them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Annotated

import typer

from ..dispatch import RunResult
from ..errors import NotAllowed
from ..runtime import RunTree, TenantRuntime
from ..types.calls import Call
from ..types.codec import encode
from ..types.runs import ErrorDetail, RunRecord
from .exit_codes import exit_code
from .ids import find_run
from .locations import Json, Place, Tenant, ask, show
from .render import Renderer
from .tables import print_list, shorten_ids
from .text import call_text, one_line, time_text
from .waits import waits_for

__all__ = ["runs_app"]

runs_app = typer.Typer(
    name="runs",
    help="List and control runs.\n\nAn id may be shortened to an unambiguous prefix.",
    no_args_is_help=True,
)

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.", show_default=False)]


class Status(StrEnum):
    """The status of the runs to list."""

    created = "created"
    running = "running"
    waiting = "waiting"
    done = "done"
    all = "all"


@runs_app.command("list")
def list_(
    place: Place,
    status: Annotated[Status, typer.Option(help="The status of the runs.")] = Status.all,
    thread: Annotated[str | None, typer.Option(metavar="ID", help="The thread of the runs.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="ID", help="The agent of the runs.")] = None,
    before: Annotated[str | None, typer.Option(metavar="RUN", help="Only older runs than this one.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The number of runs at most.")] = 100,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """List runs, newest first."""
    wanted = None if status is Status.all else status.value

    async def look(runtime: TenantRuntime) -> Sequence[RunRecord]:
        last = None if before is None else await find_run(runtime, before)
        return await runtime.runs.list(status=wanted, thread=thread, agent=agent, before=last, limit=limit)

    runs = ask(place, tenant, look)
    short = shorten_ids([one for run in runs for one in (run.id, run.thread_id)])
    rows = [
        (
            short[run.id],
            run.agent_id,
            run.status,
            str(run.steps),
            time_text(run.created_at),
            short[run.thread_id],
            one_line(_end_of(run), 80),
        )
        for run in runs
    ]
    print_list(json, runs, ("RUN", "AGENT", "STATUS", "STEPS", "CREATED", "THREAD", "OUTCOME"), rows, "no runs")


@runs_app.command("show")
def show_(place: Place, run_id: RunId, tenant: Tenant = None, json: Json = False) -> None:
    """Show a run with its tool calls and the texts of its unexpected exceptions."""

    async def look(runtime: TenantRuntime) -> tuple[RunRecord, Sequence[Call], Sequence[ErrorDetail]]:
        found = await find_run(runtime, run_id)
        runs, errors = runtime.runs, list[ErrorDetail]()
        with suppress(NotAllowed):  # A server shows the texts to operators.
            errors += await runs.errors(found)
        return await runs.get(found), await runs.calls(found), errors

    run, calls, errors = ask(place, tenant, look)
    lines = [
        f"run {run.id} of agent {run.agent_id}, {run.status}",
        f"  thread {run.thread_id}, created {time_text(run.created_at)}, {run.steps} steps",
    ]
    if end := _end_of(run):
        lines.append(f"  {one_line(end)}")
    lines += [f"  {call.outcome or call.state:<10}{call_text(call.name, call.arguments)}" for call in calls]
    lines += [f"  {error.reference}  {error.source}: {one_line(error.text, 200)}" for error in errors]
    show(json, {"run": run, "calls": calls, "errors": errors}, "\n".join(lines))


@runs_app.command()
def tree(place: Place, run_id: RunId, tenant: Tenant = None, json: Json = False) -> None:
    """Show a run with all runs below it."""

    async def look(runtime: TenantRuntime) -> RunTree:
        return await runtime.runs.tree(await find_run(runtime, run_id))

    found = ask(place, tenant, look)
    show(json, found, "\n".join(_branches(found)))


@runs_app.command()
def cancel(
    place: Place,
    run_id: RunId,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="The reason; it is kept.")] = "cancelled by request",
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Cancel a run with everything below it."""

    async def stop(runtime: TenantRuntime) -> tuple[str, bool]:
        found = await find_run(runtime, run_id)
        return found, await runtime.cancel(found, reason)

    found, cancelled = ask(place, tenant, stop)
    show(
        json, {"run": found, "cancelled": cancelled}, f"run {found} {'is cancelled' if cancelled else 'was done'}"
    )


@runs_app.command()
def pause(place: Place, run_id: RunId, tenant: Tenant = None, json: Json = False) -> None:
    """Pause a run at its next step."""
    _set_paused(place, run_id, tenant, json, paused=True)


@runs_app.command()
def unpause(place: Place, run_id: RunId, tenant: Tenant = None, json: Json = False) -> None:
    """Let a paused run continue; with a store alone, in a worker."""
    _set_paused(place, run_id, tenant, json, paused=False)


@runs_app.command()
def retry(place: Place, run_id: RunId, tenant: Tenant = None, json: Json = False) -> None:
    """Continue a failed run from its last committed step; needs module:runtime."""

    async def again(runtime: TenantRuntime) -> RunResult:
        return await runtime.runs.retry(await find_run(runtime, run_id), check=False)

    result = ask(place, tenant, again)
    if json:
        typer.echo(encode(result))
    else:
        renderer = Renderer()
        if result.text:
            renderer.line(result.text)
        renderer.note(f"run {result.run_id} is {result.status}" + (f": {result.error}" if result.error else ""))
    raise typer.Exit(exit_code(result))


def _set_paused(place: str, run_id: str, tenant: str | None, json: bool, *, paused: bool) -> None:
    async def change(runtime: TenantRuntime) -> tuple[str, bool]:
        found = await find_run(runtime, run_id)
        return found, await (runtime.runs.pause(found) if paused else runtime.runs.unpause(found))

    found, changed = ask(place, tenant, change)
    verb = "pauses at its next step" if paused else "continues"
    show(json, {"run": found, "changed": changed}, f"run {found} {verb if changed else 'was done'}")


def _end_of(run: RunRecord) -> str:
    """The end of a run, or the reason why it waits."""
    if run.waiting is not None:
        return waits_for(run.waiting)
    if run.outcome is None:
        return ""
    end = run.outcome.termination
    details = [str(getattr(end, name)) for name in end.__struct_fields__ if getattr(end, name)]
    return ": ".join([str(end.__struct_config__.tag), *details])


def _branches(tree: RunTree, depth: int = 0) -> Iterator[str]:
    run = tree.run
    kind = "" if tree.task is None else " (background)" if tree.task.background else " (delegate)"
    yield f"{'  ' * depth}{run.agent_id}  {run.status}  {run.id}{kind}"
    for child in tree.children:
        yield from _branches(child, depth + 1)
