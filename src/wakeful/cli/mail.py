"""`wakeful mail`: dead letters and pending input, from any shell that reaches the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ..errors import UnknownMessage
from ..messaging import PendingInput
from ..runtime import TenantRuntime
from ..types.mail import DeadLetter
from .ids import find_message, find_thread
from .locations import Json, Place, Tenant, ask, show
from .tables import print_list, shorten_ids
from .text import one_line, plain, time_text

__all__ = ["mail_app"]

mail_app = typer.Typer(name="mail", help="Look after dead letters and pending input.", no_args_is_help=True)
dead_app = typer.Typer(
    name="dead",
    help="Messages to addresses outside the store whose delivery was given up.",
    no_args_is_help=True,
)
pending_app = typer.Typer(name="pending", help="Input that no run has taken yet.", no_args_is_help=True)
mail_app.add_typer(dead_app)
mail_app.add_typer(pending_app)

MessageId = Annotated[
    str,
    typer.Argument(
        metavar="MESSAGE", help="The message's id, or an unambiguous prefix of it.", show_default=False
    ),
]
InputId = Annotated[str, typer.Argument(metavar="INPUT", help="The input's id.", show_default=False)]
ThreadId = Annotated[str, typer.Argument(metavar="THREAD", help="The thread's id.", show_default=False)]
Revision = Annotated[int | None, typer.Option(min=0, help="Only if it has this revision.", show_default=False)]

# -- dead letters --------------------------------------------------------------------------------------------


@dead_app.command("list")
def list_dead(
    place: Place,
    thread: Annotated[str | None, typer.Option(metavar="ID", help="The thread that sent them.")] = None,
    after: Annotated[
        str | None, typer.Option(metavar="MESSAGE", help="Only newer messages than this one.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="The number of messages at most.")] = 100,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """List dead letters, oldest first."""

    def look(runtime: TenantRuntime) -> Any:
        return runtime.mail.dead_letters(thread=thread, after=after, limit=limit)

    found = ask(place, tenant, look)
    short = shorten_ids([one.id for one in found])
    rows = [
        (short[one.id], time_text(one.sent_at), str(one.attempts), one_line(one.to, 40), one_line(one.error, 80))
        for one in found
    ]
    print_list(json, found, ("MESSAGE", "SENT", "ATTEMPTS", "TO", "ERROR"), rows, "no dead letters")


@dead_app.command("show")
def show_dead(place: Place, message_id: MessageId, tenant: Tenant = None, json: Json = False) -> None:
    """Show a dead letter in full."""

    async def look(runtime: TenantRuntime) -> DeadLetter:
        found = await find_message(runtime, message_id)
        for one in await runtime.mail.dead_letters():
            if one.id == found:
                return one
        raise UnknownMessage(f"no message {message_id!r:.80} was given up; list those that were")

    one = ask(place, tenant, look)
    lines = [
        f"message {one.id}, sent at {time_text(one.sent_at)} from thread {one.thread_id}, run {one.run_id}",
        f"to {one.to}: given up after {one.attempts} attempts: {one.error}",
        one.text,
    ]
    show(json, one, plain("\n".join(lines)))


@dead_app.command("replay")
def replay_dead(place: Place, message_id: MessageId, tenant: Tenant = None, json: Json = False) -> None:
    """Deliver a dead letter again, under its id, by a process that serves the store."""

    async def replay(runtime: TenantRuntime) -> str:
        return (await runtime.mail.replay(await find_message(runtime, message_id))).id

    found = ask(place, tenant, replay)
    show(json, {"message_id": found, "status": "live"}, f"message {found} will be delivered again")


@dead_app.command("drop")
def drop_dead(place: Place, message_id: MessageId, tenant: Tenant = None, json: Json = False) -> None:
    """Delete a dead letter."""

    async def drop(runtime: TenantRuntime) -> str:
        found = await find_message(runtime, message_id)
        await runtime.mail.drop(found)
        return found

    found = ask(place, tenant, drop)
    show(json, {"message_id": found, "status": "dropped"}, f"message {found} was dropped")


# -- pending input -------------------------------------------------------------------------------------------


@pending_app.command("list")
def list_pending(place: Place, thread: ThreadId, tenant: Tenant = None, json: Json = False) -> None:
    """List the pending input of a thread, in its order."""

    async def look(runtime: TenantRuntime) -> Sequence[PendingInput]:
        return await runtime.mail.pending(await find_thread(runtime, thread))

    found = ask(place, tenant, look)
    print_list(json, found, _COLUMNS, [_cells(one) for one in found], "no pending input")


_COLUMNS = ("INPUT", "REVISION", "POLICY", "SENDER", "TEXT")


def _cells(one: PendingInput) -> tuple[str, ...]:
    return one.id, str(one.revision), one.policy, one.sender or "-", one_line(one.text, 80)


def _print_input(json: bool, one: PendingInput) -> None:
    print_list(json, [one], _COLUMNS, [_cells(one)], "")


@pending_app.command("edit")
def edit_pending(
    place: Place,
    input_id: InputId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The new text.", show_default=False)],
    revision: Revision = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Replace the text of pending input."""
    one = ask(place, tenant, lambda runtime: runtime.mail.edit(input_id, text, revision=revision))
    _print_input(json, one)


@pending_app.command("move")
def move_pending(
    place: Place,
    input_id: InputId,
    before: Annotated[str | None, typer.Option(metavar="INPUT", help="Move it before this one.")] = None,
    after: Annotated[str | None, typer.Option(metavar="INPUT", help="Move it after this one.")] = None,
    revision: Revision = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Move pending input; to the front by default."""
    one = ask(place, tenant, lambda r: r.mail.move(input_id, before=before, after=after, revision=revision))
    _print_input(json, one)


@pending_app.command("retract")
def retract_pending(
    place: Place, input_id: InputId, revision: Revision = None, tenant: Tenant = None, json: Json = False
) -> None:
    """Withdraw pending input before a run takes it."""
    one = ask(place, tenant, lambda runtime: runtime.mail.retract(input_id, revision=revision))
    show(json, one, f"input {one.id} was retracted")
