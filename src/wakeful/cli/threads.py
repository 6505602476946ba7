"""`wakeful threads`: list, show, export, import, delete and fork threads."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UsageError
from ..runtime import TenantRuntime
from ..stores import ThreadRecord
from ..types.messages import Message
from .exit_codes import reported
from .ids import find_thread
from .locations import Json, Place, Tenant, ask, is_url, secret_of, show
from .render import Renderer
from .tables import print_list, shorten_ids
from .text import call_text, one_line, reply_text, time_text

__all__ = ["threads_app"]

threads_app = typer.Typer(
    name="threads",
    help="List, move and delete threads.\n\nAn id may be shortened to an unambiguous prefix.",
    no_args_is_help=True,
)

KeyEnv = Annotated[
    str | None, typer.Option("--key-env", metavar="NAME", help="A variable that holds the key of the signature.")
]
Thread = Annotated[
    str,
    typer.Argument(metavar="THREAD", help="The thread's id, or an unambiguous prefix of it.", show_default=False),
]


@threads_app.command("list")
def list_(
    place: Place,
    limit: Annotated[int, typer.Option(min=1, help="The number of threads at most.")] = 100,
    before: Annotated[str | None, typer.Option(metavar="THREAD", help="Only older threads than this one.")] = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """List threads, newest first."""
    found = ask(place, tenant, lambda runtime: _list(runtime, limit, before))
    short = shorten_ids([row["thread"].id for row in found])
    rows = [
        (
            short[row["thread"].id],
            time_text(row["thread"].updated_at),
            row["run"] or "idle",
            one_line(row["thread"].title or ""),
        )
        for row in found
    ]
    print_list(json, found, ("THREAD", "UPDATED", "RUN", "TITLE"), rows, "no threads")


@threads_app.command("show")
def show_(
    place: Place,
    thread: Thread,
    newest: Annotated[int, typer.Option(min=1, help="The number of messages at most, the newest.")] = 20,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Show a thread's record and its newest messages."""

    async def look(runtime: TenantRuntime) -> tuple[ThreadRecord, Sequence[Message]]:
        found = await find_thread(runtime, thread)
        return await runtime.threads.get(found), await runtime.threads.messages(found, newest=newest)

    record, messages = ask(place, tenant, look)
    lines = [f"thread {record.id}, updated {time_text(record.updated_at)}"]
    lines += [f"  {record.title}"] if record.title else []
    lines += [f"{message.seq:>6}  {message.role:<10}{one_line(_text_of(message))}" for message in messages]
    show(json, {"thread": record, "messages": messages}, "\n".join(lines))


def _text_of(message: Message) -> str:
    calls = [call_text(call.name, call.arguments) for call in message.calls]
    text = message.text if message.reply is None else reply_text(message.reply)
    return " ".join([text, *calls]).strip()


async def _list(runtime: TenantRuntime, limit: int, before: str | None) -> list[dict[str, Any]]:
    if before is not None:
        before = (await runtime.threads.get(await find_thread(runtime, before))).id
    rows: list[dict[str, Any]] = []
    for record in await runtime.threads.list(before=before, limit=limit):
        run = None if record.open_run_id is None else await runtime.runs.get(record.open_run_id)
        rows.append({"thread": record, "run": None if run is None else run.status})
    return rows


@threads_app.command()
def export(
    place: Place,
    thread: Thread,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A new file; stdout by default.", show_default=False)
    ] = None,
    key_env: KeyEnv = None,
    tenant: Tenant = None,
) -> None:
    """Write a thread as lines of JSON: runs, messages, events, calls, tickets, decisions and state. With a key the
    file is signed. A server signs with its own key."""
    with reported(Renderer()):
        options = _key_of(place, key_env)
        if file is not None and file.exists():
            raise UsageError(f"{file} is there already; export into a new file")
    if file is None:
        ask(place, tenant, lambda runtime: _export(runtime, thread, sys.stdout.buffer, options))
        return
    part = file.with_name(f"{file.name}.part")
    try:
        with reported(Renderer()), _explained(file, "written"), os.fdopen(_create(part), "wb") as out:
            ask(place, tenant, lambda runtime: _export(runtime, thread, out, options))
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    Renderer().line(f"exported thread {thread!r} into {file}")


def _create(file: Path) -> int:
    """Create a file for its owner alone."""
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)


def _key_of(place: str, name: str | None) -> dict[str, Any]:
    """The key of a signature as an argument. A server has its own key, and takes none."""
    if name is None:
        return {}
    if is_url(place):
        raise UsageError("a server signs with its own key; leave --key-env out")
    return {"key": secret_of(name).encode()}


async def _export(runtime: TenantRuntime, thread: str, out: Any, options: dict[str, Any]) -> None:
    async for line in runtime.threads.export(await find_thread(runtime, thread), **options):
        out.write(line)
    out.flush()


@threads_app.command("import")
def import_(
    place: Place,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The exported file; - for stdin.", show_default=False)
    ],
    into: Annotated[
        str | None, typer.Option("--as", metavar="THREAD", help="Make a copy: a thread of this id, with new ids.")
    ] = None,
    key_env: KeyEnv = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Write an exported thread into a store, in one commit. A missing file is created. With a key, a file without
    its signature is refused."""
    with reported(Renderer()), _explained(file, "read"), _lines(file) as lines:
        options = _key_of(place, key_env)
        thread = ask(
            place, tenant, lambda runtime: runtime.threads.import_(lines, into=into, **options), may_be_new=True
        )
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
    """The policy for threads of delegated runs."""

    reject = "reject"
    detach = "detach"
    cascade = "cascade"


@threads_app.command()
def delete(
    place: Place,
    thread: Thread,
    children: Annotated[
        Children, typer.Option(help="The policy for threads of delegated runs.")
    ] = Children.reject,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Delete a thread with everything it owns."""

    async def remove(runtime: TenantRuntime) -> int:
        return await runtime.threads.delete(await find_thread(runtime, thread), children=children.value)

    removed = ask(place, tenant, remove)
    show(json, {"threads": removed}, f"deleted {removed} thread{'' if removed == 1 else 's'}")


@threads_app.command()
def fork(
    place: Place,
    thread: Thread,
    at: Annotated[int | None, typer.Option(help="The last entry to share; all of them by default.")] = None,
    into: Annotated[str | None, typer.Option("--as", metavar="THREAD", help="The new thread's id.")] = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Make a thread that shares a conversation up to an entry, and print its id."""

    async def copy(runtime: TenantRuntime) -> str:
        return await runtime.threads.fork(await find_thread(runtime, thread), at=at, into=into)

    forked = ask(place, tenant, copy)
    show(json, {"thread": forked}, forked)
