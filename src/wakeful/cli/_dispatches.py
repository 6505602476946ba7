"""`wakeful dispatches`: what waits for a worker, what is a dead letter, and putting it back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from ..errors import UsageError
from ..runtime import Runtime
from ..stores import Dispatch
from ._places import PLACE, Json, Place, Tenant, ask, show

__all__ = ["dispatches_app"]

dispatches_app = typer.Typer(
    name="dispatches", help=f"Look at what waits for a worker. STORE: {PLACE}", no_args_is_help=True
)


@dispatches_app.command("list")
def list_(
    place: Place,
    dead: Annotated[bool, typer.Option("--dead", help="Only dead letters.")] = False,
    tenant: Tenant = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
    json: Json = False,
) -> None:
    """Show dispatches: those that wait, those that a worker has, and dead letters."""

    async def find(runtime: Runtime) -> list[Dispatch]:
        return await runtime.dispatches(dead=True if dead else None, limit=limit)

    found = ask(place, tenant, find)
    show(json, found, "\n".join([_line(one) for one in found]) or "nothing waits")


@dispatches_app.command()
def retry(
    place: Place,
    thread: Annotated[str, typer.Argument(metavar="THREAD", help="The thread of the dead letter.")],
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Put a dead letter back: a worker claims it, with all its attempts."""

    async def revive(runtime: Runtime) -> bool:
        if not await runtime.store.revive(thread):
            raise UsageError(
                f"the dispatch of thread {thread!r} is no dead letter; wakeful dispatches list --dead shows those"
            )
        return True

    show(json, {"thread": thread, "revived": ask(place, tenant, revive)}, f"thread {thread!r} is due again")


def _attempts(one: Dispatch) -> str:
    """How often it was tried; nobody says why if its worker ended with it."""
    count = f"{one.attempts} attempt{'' if one.attempts == 1 else 's'}"
    return f"{count}: {one.error or 'its worker ended with it'}"


def _line(one: Dispatch) -> str:
    run = f" run {one.run_id}" if one.run_id else ""
    line = f"thread {one.thread_id!r}{run} of agent {one.agent_id!r}, priority {one.priority}: "
    if one.dead_at is not None:
        return f"{line}dead after {_attempts(one)}"
    if one.claimed_by is not None:
        return f"{line}claimed by worker {one.claimed_by}"
    due = datetime.fromtimestamp(one.due_at / 1000, UTC).isoformat(timespec="seconds")
    tried = f", after {_attempts(one)}" if one.attempts else ""
    return f"{line}due {due}{tried}"
