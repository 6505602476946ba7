"""`wakeful schedules`: list, run, pause and delete schedules."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import UsageError
from ..runtime import TenantRuntime
from ..tasks import Schedule
from .locations import Json, Place, Tenant, ask, show
from .tables import print_list
from .text import time_text

__all__ = ["schedules_app"]

Name = Annotated[str, typer.Argument(metavar="SCHEDULE", help="The schedule's name.", show_default=False)]

schedules_app = typer.Typer(name="schedules", help="List, run, pause and delete schedules.", no_args_is_help=True)


@schedules_app.command("list")
def list_(place: Place, tenant: Tenant = None, json: Json = False) -> None:
    """List schedules by name."""
    schedules = ask(place, tenant, lambda runtime: runtime.schedules.list())
    rows = [
        (
            one.name,
            one.target,
            _times_of(one),
            _time_or_dash(one.last_at),
            "paused" if one.paused else _time_or_dash(one.next_at),
            one.thread or "-",
        )
        for one in schedules
    ]
    columns = ("SCHEDULE", "TARGET", "TIMES", "LAST", "NEXT", "THREAD")
    print_list(json, schedules, columns, rows, "no schedules")


@schedules_app.command("run-now")
def run_now(place: Place, name: Name, tenant: Tenant = None, json: Json = False) -> None:
    """Start an occurrence at once, also of a paused schedule; its other times stay."""
    receipt = ask(place, tenant, lambda runtime: runtime.schedules.run_now(name))
    show(json, receipt, f"schedule {name!r} starts on thread {receipt.thread_id!r}")


@schedules_app.command()
def pause(place: Place, name: Name, tenant: Tenant = None, json: Json = False) -> None:
    """Start no more occurrences until the schedule is continued."""
    show(json, ask(place, tenant, lambda runtime: runtime.schedules.pause(name)), f"paused schedule {name!r}")


@schedules_app.command()
def unpause(place: Place, name: Name, tenant: Tenant = None, json: Json = False) -> None:
    """Continue a paused schedule with its first time from now on."""
    schedule = ask(place, tenant, lambda runtime: runtime.schedules.unpause(name))
    show(json, schedule, f"schedule {name!r} continues; its next time is {_time_or_dash(schedule.next_at)}")


@schedules_app.command()
def delete(
    place: Place,
    name: Name,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Delete a schedule; runs that it started continue."""

    async def remove(runtime: TenantRuntime) -> bool:
        if not await runtime.schedules.delete(name):
            raise UsageError(f"no schedule {name!r:.80} in this store; see wakeful schedules list")
        return True

    show(json, {"schedule": name, "deleted": ask(place, tenant, remove)}, f"deleted schedule {name!r}")


def _times_of(schedule: Schedule) -> str:
    return f"{schedule.cron} {schedule.tz}" if schedule.cron else "once"


def _time_or_dash(at: int | None) -> str:
    return "-" if at is None else time_text(at)
