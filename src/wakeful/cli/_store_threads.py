"""`wakeful store`, the part about threads: listing, exporting, importing, deleting, forking."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UsageError
from ..runtime import Runtime
from ..types.codec import encode
from ._exit import reported
from ._places import Json, Place, Tenant, ask, show
from ._render import Renderer
from ._text import one_line

__all__ = ["delete", "export", "fork", "import_", "threads"]

Thread = Annotated[str, typer.Argument(metavar="THREAD", help="The thread's id.", show_default=False)]


def threads(
    place: Place,
    limit: Annotated[int, typer.Option(min=1, help="How many, the newest first.")] = 100,
    before: Annotated[str | None, typer.Option(metavar="THREAD", help="Only older ones than this.")] = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """List threads, newest first: id, last activity, what its open run does, title."""
    renderer = Renderer()
    for row in ask(place, tenant, lambda runtime: _threads(runtime, limit, before)):
        record = row["thread"]
        if json:
            typer.echo(encode(row))
            continue
        last = datetime.fromtimestamp(record.updated_at / 1000, UTC)
        words = (f"{record.id:<36}", f"{last:%Y-%m-%d %H:%M:%SZ}", f"{row['run'] or 'idle':<7}")
        renderer.line("  ".join([*words, one_line(record.title or "")]).rstrip())


async def _threads(runtime: Runtime, limit: int, before: str | None) -> list[dict[str, Any]]:
    if before is not None:
        await runtime.get_thread(before)
    rows: list[dict[str, Any]] = []
    for record in await runtime.threads(before=before, limit=limit):
        run = None if record.open_run_id is None else await runtime.store.run(record.open_run_id)
        rows.append({"thread": record, "run": None if run is None else run.status})
    return rows


def export(
    place: Place,
    thread: Thread,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A new file; stdout by default.", show_default=False)
    ] = None,
    tenant: Tenant = None,
) -> None:
    """Write a thread as lines of JSON: runs, messages, events, calls, tickets, decisions and state."""
    with reported(Renderer()):
        if file is not None and file.exists():
            raise UsageError(f"{file} is there already; export into a new file")
    if file is None:
        ask(place, tenant, lambda runtime: _export(runtime, thread, sys.stdout.buffer))
        return
    part = file.with_name(f"{file.name}.part")
    try:
        with reported(Renderer()), _explained(file, "written"), part.open("wb") as out:
            ask(place, tenant, lambda runtime: _export(runtime, thread, out))
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    Renderer().line(f"exported thread {thread!r} into {file}")


async def _export(runtime: Runtime, thread: str, out: Any) -> None:
    async for line in runtime.export_thread(thread):
        out.write(line)
    out.flush()


def import_(
    place: Place,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="What was exported; - for stdin.", show_default=False)
    ],
    into: Annotated[
        str | None, typer.Option("--as", metavar="THREAD", help="Make a copy: a thread of this id, with new ids.")
    ] = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Write a thread that was exported into a store, all of it or nothing.

    A store's file that isn't there is made.
    """
    with reported(Renderer()), _explained(file, "read"), _lines(file) as lines:
        thread = ask(place, tenant, lambda runtime: runtime.import_thread(lines, into=into), may_be_new=True)
    show(json, {"thread": thread}, f"imported thread {thread!r}")


@contextmanager
def _lines(file: Path) -> Generator[Any, None, None]:
    if str(file) == "-":
        yield sys.stdin.buffer
    else:
        with file.open("rb") as opened:
            yield opened


@contextmanager
def _explained(file: Path, what: str) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{file} can't be {what}: {error.strerror or error}") from error


class Children(StrEnum):
    """What becomes of the threads of delegated runs."""

    reject = "reject"
    detach = "detach"
    cascade = "cascade"


def delete(
    place: Place,
    thread: Thread,
    children: Annotated[Children, typer.Option(help="What becomes of its delegates' threads.")] = Children.reject,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Remove a thread and everything of it."""
    removed = ask(place, tenant, lambda runtime: runtime.delete(thread, children=children.value))
    show(json, {"threads": removed}, f"deleted {removed} thread{'' if removed == 1 else 's'}")


def fork(
    place: Place,
    thread: Thread,
    at: Annotated[int | None, typer.Option(help="The last entry to share; all of them by default.")] = None,
    into: Annotated[str | None, typer.Option("--as", metavar="THREAD", help="The new thread's id.")] = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Make a thread that shares another one's conversation up to an entry, and print its id."""
    forked = ask(place, tenant, lambda runtime: runtime.fork(thread, at=at, into=into))
    show(json, {"thread": forked}, forked)
