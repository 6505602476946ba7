"""`wakeful messages`: messages that were given up, and input that waits, from any shell that reaches the store."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..errors import UnknownMessage
from ..messaging import PendingInput
from ..runtime import Runtime
from ..types.codec import encode
from ..types.mail import DeadLetter
from ._places import PLACE, Json, Place, Tenant, ask, show
from ._render import Renderer
from ._text import one_line, plain, time_text

__all__ = ["messages_app"]

messages_app = typer.Typer(
    name="messages", help=f"Look after what agents and people sent. STORE: {PLACE}", no_args_is_help=True
)
dead_app = typer.Typer(
    name="dead",
    help="Messages that could not be delivered outside the store, and were given up.",
    no_args_is_help=True,
)
pending_app = typer.Typer(name="pending", help="Input that no run has taken in yet.", no_args_is_help=True)
messages_app.add_typer(dead_app)
messages_app.add_typer(pending_app)

MessageId = Annotated[str, typer.Argument(metavar="MESSAGE", help="The message's id.", show_default=False)]
InputId = Annotated[str, typer.Argument(metavar="INPUT", help="The input's id.", show_default=False)]
ThreadId = Annotated[str, typer.Argument(metavar="THREAD", help="The thread's id.", show_default=False)]
Revision = Annotated[
    int | None, typer.Option(min=0, help="Only if it is still at this revision.", show_default=False)
]

# -- dead letters --------------------------------------------------------------------------------------------


@dead_app.command("list")
def list_dead(
    place: Place,
    thread: Annotated[str | None, typer.Option(metavar="ID", help="Sent from one thread.")] = None,
    after: Annotated[str | None, typer.Option(metavar="MESSAGE", help="Only newer ones than this.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, the oldest first.")] = 100,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """List them, oldest first: id, when it was sent, attempts, recipient, why it failed."""

    def look(runtime: Runtime) -> Any:
        return runtime.dead_letters(thread=thread, after=after, limit=limit)

    renderer = Renderer()
    for one in ask(place, tenant, look):
        if json:
            typer.echo(encode(one))
            continue
        words = [
            one.id,
            time_text(one.sent_at),
            f"{one.attempts:>3}",
            one_line(one.to, 40),
            one_line(one.error, 80),
        ]
        renderer.line("  ".join(words).rstrip())


@dead_app.command("show")
def show_dead(place: Place, message_id: MessageId, tenant: Tenant = None, json: Json = False) -> None:
    """Show one in full."""

    async def look(runtime: Runtime) -> DeadLetter:
        for one in await runtime.dead_letters():
            if one.id == message_id:
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
    """Have one delivered again, under its id, by whoever serves this store."""
    ask(place, tenant, lambda runtime: runtime.replay(message_id))
    show(json, {"message_id": message_id, "status": "live"}, f"message {message_id} will be tried again")


@dead_app.command("drop")
def drop_dead(place: Place, message_id: MessageId, tenant: Tenant = None, json: Json = False) -> None:
    """Forget one for good."""
    ask(place, tenant, lambda runtime: runtime.drop(message_id))
    show(json, {"message_id": message_id, "status": "dropped"}, f"message {message_id} was dropped")


# -- pending input -------------------------------------------------------------------------------------------


@pending_app.command("list")
def list_pending(place: Place, thread: ThreadId, tenant: Tenant = None, json: Json = False) -> None:
    """List what waits on a thread, in its order: id, revision, policy, who sent it, the text."""
    renderer = Renderer()
    for one in ask(place, tenant, lambda runtime: runtime.pending(thread)):
        if json:
            typer.echo(encode(one))
        else:
            renderer.line(_row(one))


def _row(one: PendingInput) -> str:
    return (
        f"{one.id}  {one.revision:>3}  {one.policy:<5}  {one.sender or '-':<12}  {one_line(one.text, 80)}".rstrip()
    )


@pending_app.command("edit")
def edit_pending(
    place: Place,
    input_id: InputId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What it says instead.", show_default=False)],
    revision: Revision = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Give input another text."""
    one = ask(place, tenant, lambda runtime: runtime.edit(input_id, text, revision=revision))
    show(json, one, _row(one))


@pending_app.command("move")
def move_pending(
    place: Place,
    input_id: InputId,
    before: Annotated[str | None, typer.Option(metavar="INPUT", help="Put it before this one.")] = None,
    after: Annotated[str | None, typer.Option(metavar="INPUT", help="Put it behind this one.")] = None,
    revision: Revision = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Put input elsewhere in the order; before all others by default."""
    one = ask(place, tenant, lambda r: r.move(input_id, before=before, after=after, revision=revision))
    show(json, one, _row(one))


@pending_app.command("retract")
def retract_pending(
    place: Place, input_id: InputId, revision: Revision = None, tenant: Tenant = None, json: Json = False
) -> None:
    """Take input back, so that no run takes it in."""
    one = ask(place, tenant, lambda runtime: runtime.retract(input_id, revision=revision))
    show(json, one, f"input {one.id} was retracted")
