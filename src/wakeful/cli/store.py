"""`wakeful store`: size, checks, pruning and backups of a store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from ..errors import UsageError
from ..runtime import Runtime, TenantRuntime
from ..stores import Pruned, Retention
from ..types.runs import RunStatus
from .exit_codes import ExitCode, reported
from .locations import PLACE, Json, StorePlace, Tenant, ask_store, is_target, runtime_of, show, with_runtime
from .render import Renderer

__all__ = ["store_app"]

store_app = typer.Typer(name="store", help="Look after a store.", no_args_is_help=True)


@store_app.command()
def info(place: StorePlace, tenant: Tenant = None, json: Json = False) -> None:
    """Show a store's version and size, and a tenant's counts."""
    found = ask_store(place, tenant, _info)
    lines = [f"{key:<18}{found[key]}" for key in ("store", "version") if key in found]
    lines += [f"{key:<18}{_size(found[key])}" for key in ("bytes", "free") if key in found]
    lines += [f"{key:<18}{count:,}" for key, count in found["counts"].items()]
    show(json, found, "\n".join(lines))


async def _info(runtime: TenantRuntime) -> dict[str, Any]:
    store = cast(Any, runtime.store)
    found: dict[str, Any] = {"store": str(getattr(store, "path", None) or repr(store))}
    if hasattr(store, "version"):
        found |= {"version": await store.version(), **(await store.size())}
    counts: Mapping[str, int] = await store.counts()
    statuses = get_args(RunStatus)
    others = {kind: count for kind, count in counts.items() if kind not in statuses}
    return {**found, "counts": others | {f"{s} runs": counts[s] for s in statuses if s in counts}}


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


@store_app.command()
def check(
    place: Annotated[str | None, typer.Argument(metavar="STORE", help=PLACE, show_default=False)] = None,
    target: Annotated[
        str | None, typer.Option(metavar="MODULE:RUNTIME", help="Whose code parked runs are held against.")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose parked runs; all tenants' by default.")
    ] = None,
    json: Json = False,
) -> None:
    """Look for damage, unreadable rows and contradictory records; with a runtime also for parked
    runs that its code can't resume, of all tenants or of one.

    The exit code is 1 if there is a problem.
    """
    with reported(Renderer()):
        if place is None and target is None:
            raise UsageError("say which store to check: wakeful store check app.db, or module:runtime")
        if target is None and place is not None and is_target(place):
            target = place
        runtime = runtime_of(cast(str, place or target))
        judge = runtime if target in (place, None) or place is None else runtime_of(target)
        found = with_runtime(runtime, tenant, lambda opened: _check(opened, judge if target else None, tenant))
    lines: list[str] = [*found["problems"]]
    for one in found["parked"]:
        run = f"run {one.run_id} of agent {one.agent_id!r}"
        whose = "" if one.tenant == runtime.store.tenant_name else f"tenant {one.tenant!r}, "
        lines.append(f"{whose}thread {one.thread_id!r}: {run} can't go on: {'; '.join(one.reasons)}")
    show(json, found, "\n".join(lines) or "all is well")
    if lines:
        raise typer.Exit(ExitCode.ERROR)


async def _check(runtime: TenantRuntime, judge: Runtime | None, tenant: str | None) -> dict[str, list[Any]]:
    store = cast(Any, runtime.store)
    problems: list[str] = await store.check() if hasattr(store, "check") else []
    if judge is None or problems:  # Parked runs in a damaged store can't be checked.
        return {"problems": problems, "parked": []}
    # A deployment serves all tenants.
    names: list[str] = await store.tenants() if tenant is None else [tenant]
    parked = [one for name in names for one in await judge.runs.check_parked(store.tenant(name))]
    return {"problems": problems, "parked": parked}


@store_app.command()
def prune(
    place: StorePlace,
    chunks: Annotated[str, typer.Option(metavar="AGE", help="Pieces of answers that never came.")] = "1d",
    events: Annotated[str, typer.Option(metavar="AGE", help="Events of finished runs; messages stay.")] = "30d",
    runs: Annotated[str, typer.Option(metavar="AGE", help="Finished runs; messages stay.")] = "never",
    runs_kept: Annotated[str, typer.Option(metavar="COUNT", help="Newest runs to keep in a thread.")] = "all",
    children: Annotated[str, typer.Option(metavar="AGE", help="Threads of delegated runs.")] = "30d",
    threads: Annotated[str, typer.Option(metavar="AGE", help="Threads that nothing waits on.")] = "never",
    threads_kept: Annotated[
        str, typer.Option(metavar="COUNT", help="Threads to keep, those that were active last.")
    ] = "all",
    usage: Annotated[str, typer.Option(metavar="AGE", help="Entries of the usage log.")] = "never",
    audit: Annotated[str, typer.Option(metavar="AGE", help="Audit entries.")] = "never",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how much would be removed.")] = False,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Delete everything older than an age, such as 30d or 12h, or beyond a count.

    'never' and 'all' keep everything.
    """
    with reported(Renderer()):
        retention = Retention(
            chunks=_age(chunks, "--chunks"),
            events=_age(events, "--events"),
            runs=_age(runs, "--runs"),
            runs_kept=_count(runs_kept, "--runs-kept"),
            children=_age(children, "--children"),
            threads=_age(threads, "--threads"),
            threads_kept=_count(threads_kept, "--threads-kept"),
            usage=_age(usage, "--usage"),
            audit=_age(audit, "--audit"),
        )
    done = ask_store(place, tenant, lambda runtime: _prune(runtime, retention, dry_run))
    counts = {name: getattr(done, name) for name in done.__struct_fields__}
    removed = ", ".join([f"{count:,} {name}" for name, count in counts.items() if count]) or "nothing"
    show(json, done, f"{'would remove' if dry_run else 'removed'} {removed}")


async def _prune(runtime: TenantRuntime, retention: Retention, dry_run: bool) -> Pruned:
    if not dry_run:
        return await runtime.threads.prune(retention)
    if not hasattr(runtime.store, "would_prune"):
        raise UsageError("this store can't tell beforehand what would be removed; --dry-run is for databases")
    return await cast(Any, runtime.store).would_prune(retention)


_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 24 * 3_600_000, "w": 7 * 24 * 3_600_000}


def _age(text: str, option: str) -> int | None:
    if text == "never":
        return None
    found = re.fullmatch(r"([0-9]{1,9})([smhdw])", text)
    if found is None:
        raise UsageError(f"{option} is an age such as 30d, 12h, 15m or 45s, or 'never', not {text!r:.40}")
    return int(found[1]) * _UNITS[found[2]]


def _count(text: str, option: str) -> int | None:
    if text == "all":
        return None
    if not re.fullmatch("[0-9]{1,9}", text):
        raise UsageError(f"{option} is a number, or 'all', not {text!r:.40}")
    return int(text)


@store_app.command()
def backup(
    place: StorePlace,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that isn't there yet.", show_default=False)],
    json: Json = False,
) -> None:
    """Copy a SQLite store, with all tenants, while it is in use.

    A plain copy of the file would miss the WAL.
    """
    with reported(Renderer()):
        if file.exists() or not file.absolute().parent.is_dir():
            what = "is there already" if file.exists() else "is in a folder that doesn't exist"
            raise UsageError(f"{file} {what}; back up into a new file")
    ask_store(place, None, lambda runtime: _backup(runtime, file))
    show(json, {"file": str(file), "bytes": file.stat().st_size}, f"backed up into {file}")


async def _backup(runtime: TenantRuntime, file: Path) -> None:
    store = cast(Any, runtime.store)
    if hasattr(store, "backup"):
        await store.backup(file)
    elif runtime.store.durable:
        raise UsageError("Postgres has a tool of its own for this: pg_dump --schema=wakeful, with the store's URL")
    else:
        raise UsageError("a store in memory can't be backed up; export its threads")
