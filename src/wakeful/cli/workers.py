"""`wakeful workers`: list workers and dispatches, and revive dead ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, cast

import typer

from ..errors import UsageError
from ..runtime import Runtime, TenantRuntime
from ..stores import Dispatch, WorkerSeen
from .ids import find_thread
from .locations import Json, Place, Tenant, ask, show
from .tables import print_list, shorten_ids
from .text import one_line, time_text

__all__ = ["workers_app"]

workers_app = typer.Typer(
    name="workers",
    help="List workers and their dispatches.\n\nAn id may be shortened to an unambiguous prefix.",
    no_args_is_help=True,
)


@workers_app.command("list")
def list_(
    place: Place,
    limit: Annotated[int, typer.Option(min=1, help="The number of workers at most.")] = 100,
    json: Json = False,
) -> None:
    """List the workers of all tenants: those with a lease, and lost ones whose claims wait for a takeover."""

    async def look(runtime: TenantRuntime) -> Sequence[WorkerSeen]:
        return await cast(Runtime, runtime).workers.list(limit=limit)

    workers = ask(place, None, look)
    rows = [
        (one.id, one.state, str(one.claims), time_text(one.started_at), time_text(one.until)) for one in workers
    ]
    print_list(json, workers, ("WORKER", "STATE", "CLAIMS", "STARTED", "LEASE UNTIL"), rows, "no workers")


@workers_app.command()
def dispatches(
    place: Place,
    dead: Annotated[bool, typer.Option("--dead", help="Only dead dispatches.")] = False,
    after: Annotated[str | None, typer.Option(metavar="THREAD", help="Only those of later thread ids.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The number of dispatches at most.")] = 100,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """List dispatches: due, claimed by a worker, or dead after too many attempts."""

    async def find(runtime: TenantRuntime) -> Sequence[Dispatch]:
        return await runtime.workers.dispatches(dead=True if dead else None, after=after, limit=limit)

    found = ask(place, tenant, find)
    short = shorten_ids([one for item in found for one in (item.thread_id, item.run_id)])
    rows = [
        (
            short[item.thread_id],
            short[item.run_id],
            item.agent_id,
            str(item.priority),
            str(item.attempts),
            one_line(_state_of(item), 100),
        )
        for item in found
    ]
    columns = ("THREAD", "RUN", "AGENT", "PRIORITY", "ATTEMPTS", "STATE")
    print_list(json, found, columns, rows, "no dispatches")


@workers_app.command()
def revive(
    place: Place,
    thread: Annotated[str, typer.Argument(metavar="THREAD", help="The thread of the dead dispatch.")],
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Put a dead dispatch back, with a new count of attempts."""

    async def put_back(runtime: TenantRuntime) -> str:
        found = await find_thread(runtime, thread)
        if not await runtime.workers.revive(found):
            raise UsageError(
                f"the dispatch of thread {found!r} isn't dead; wakeful workers dispatches --dead lists dead ones"
            )
        return found

    found = ask(place, tenant, put_back)
    show(json, {"thread": found, "revived": True}, f"thread {found!r} is due again")


def _state_of(item: Dispatch) -> str:
    why = "" if not item.attempts else f": {item.error or 'its worker ended during the run'}"
    if item.dead_at is not None:
        return f"dead{why}"
    if item.claimed_by is not None:
        return f"claimed by worker {item.claimed_by}"
    return f"due {time_text(item.due_at)}{why}"
