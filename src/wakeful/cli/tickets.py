"""`wakeful tickets`: list, answer and comment on tickets from any shell that reaches the store."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from ..dispatch import LeftAnswer, RunResult
from ..errors import UsageError
from ..runtime import TenantRuntime
from ..types.codec import encode
from ..types.runs import Waiting
from ..types.tickets import Decision, Remember, Ticket
from .exit_codes import exit_code, reported
from .ids import find_run, find_ticket
from .locations import Json, Place, Tenant, ask, is_target, is_url, show
from .prompts import decider, read_value, votes_text, ways
from .render import Renderer
from .tables import print_list, shorten_ids
from .text import parse_seconds
from .ticket_text import cells, left_fields, page
from .waits import explain_idle

__all__ = ["Scope", "Who", "author_of", "tickets_app"]

tickets_app = typer.Typer(
    name="tickets",
    help="List and answer tickets.\n\nWith module:runtime the run continues in this process, else in a worker or "
    "in the server. An id may be shortened to an unambiguous prefix.",
    no_args_is_help=True,
)

TicketId = Annotated[str, typer.Argument(metavar="TICKET", help="The ticket's id.", show_default=False)]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason; it is kept.")]
Instead = Annotated[bool, typer.Option("--replace", help="Replace an answer that no run has taken yet.")]
Who = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="WHO",
        help="The decider, as in ann,group:finance,role:lead; its rights are checked. By default the user of this "
        "shell, who may override.",
    ),
]
Seen = Annotated[
    str | None, typer.Option("--seen", metavar="DIGEST", help="Refuse if the ticket isn't the one of this digest.")
]


class Scope(StrEnum):
    """Whom a grant is for."""

    run = "run"
    thread = "thread"
    user = "user"
    agent = "agent"


class Status(StrEnum):
    """The status of the tickets to list."""

    open = "open"
    answered = "answered"
    settled = "settled"
    superseded = "superseded"
    cancelled = "cancelled"
    all = "all"


@tickets_app.command("list")
def list_(
    place: Place,
    status: Annotated[Status, typer.Option(help="The status of the tickets.")] = Status.open,
    assignee: Annotated[str | None, typer.Option(metavar="WHO", help="The assignee of the tickets.")] = None,
    thread: Annotated[str | None, typer.Option(metavar="ID", help="A thread, with everything below it.")] = None,
    run: Annotated[str | None, typer.Option(metavar="ID", help="A run, with everything below it.")] = None,
    after: Annotated[str | None, typer.Option(metavar="TICKET", help="Only newer tickets than this one.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The number of tickets at most.")] = 100,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """List tickets, oldest first."""
    wanted = None if status is Status.all else status.value

    async def look(runtime: TenantRuntime) -> list[tuple[Ticket, LeftAnswer | None]]:
        seen = None if after is None else await find_ticket(runtime, after)
        above = None if run is None else await find_run(runtime, run)
        found = await runtime.tickets.list(
            above, thread=thread, status=wanted, assignee=assignee, after=seen, limit=limit
        )
        return [(ticket, await runtime.tickets.left(ticket.id)) for ticket in found]

    tickets = ask(place, tenant, look)
    values = [
        ticket if left is None else {**msgspec.to_builtins(ticket), **left_fields(left)}
        for ticket, left in tickets
    ]
    short = shorten_ids([ticket.id for ticket, _ in tickets])
    rows = [(short[ticket.id], *cells(ticket, left)) for ticket, left in tickets]
    columns = ("TICKET", "STATUS", "ASSIGNEE", "DEADLINE", "TOOL", "QUESTION")
    print_list(json, values, columns, rows, "no tickets")


@tickets_app.command(name="show")
def show_(place: Place, ticket_id: TicketId, tenant: Tenant = None, json: Json = False) -> None:
    """Show a ticket in full, with its decisions."""

    async def look(runtime: TenantRuntime) -> tuple[Ticket, list[Decision], LeftAnswer | None]:
        ticket = await _find(runtime, ticket_id)
        return ticket, list(await runtime.tickets.decisions(ticket.id)), await runtime.tickets.left(ticket.id)

    ticket, decisions, left = ask(place, tenant, look)
    found = {
        "ticket": ticket,
        "decisions": decisions,
        "left": None,
        **({} if left is None else left_fields(left)),
    }
    show(json, found, "\n".join(page(ticket, decisions, left)))


@tickets_app.command()
def approve(
    place: Place,
    ticket_id: TicketId,
    reason: Reason = "",
    remember: Annotated[
        Scope | None,
        typer.Option(help="Grant later calls, too: of the run, the thread, the user or the agent."),
    ] = None,
    pattern: Annotated[
        str, typer.Option(metavar="PATTERN", help="The pattern of the grant, one that the ticket offers.")
    ] = "",
    lasts: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="How long the grant lasts: 30d, 12h, 30m.")
    ] = None,
    who: Who = None,
    seen: Seen = None,
    instead: Instead = False,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Approve the call; a call of unknown outcome runs again."""
    with reported(Renderer()):
        kept = _remember(remember, pattern, lasts)
    _answer(
        place,
        ticket_id,
        lambda ticket: ticket.approve(remember=kept),
        reason,
        who,
        seen,
        tenant,
        json,
        instead,
    )


@tickets_app.command()
def deny(
    place: Place,
    ticket_id: TicketId,
    reason: Reason = "",
    who: Who = None,
    seen: Seen = None,
    instead: Instead = False,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Deny the call: it doesn't run, and the model gets the reason."""
    _answer(place, ticket_id, lambda ticket: ticket.deny(), reason, who, seen, tenant, json, instead)


@tickets_app.command()
def answer(
    place: Place,
    ticket_id: TicketId,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Text, or JSON where that is asked for.")],
    reason: Reason = "",
    who: Who = None,
    seen: Seen = None,
    instead: Instead = False,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Answer a question with a value."""
    _answer(
        place,
        ticket_id,
        lambda ticket: ticket.answer(_value(value, ticket)),
        reason,
        who,
        seen,
        tenant,
        json,
        instead,
    )


@tickets_app.command()
def result(
    place: Place,
    ticket_id: TicketId,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Text, or a JSON object or list.")],
    reason: Reason = "",
    who: Who = None,
    seen: Seen = None,
    instead: Instead = False,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Give the call's result; the tool doesn't run."""
    _answer(
        place,
        ticket_id,
        lambda ticket: ticket.result(_value(value, ticket)),
        reason,
        who,
        seen,
        tenant,
        json,
        instead,
    )


@tickets_app.command()
def edit(
    place: Place,
    ticket_id: TicketId,
    arguments: Annotated[str, typer.Argument(metavar="JSON", help="The new arguments, an object.")],
    reason: Reason = "",
    who: Who = None,
    seen: Seen = None,
    instead: Instead = False,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Run the call with other arguments. With a store alone, a worker checks them: if they don't fit the tool, the
    ticket stays open and says why."""
    _answer(
        place, ticket_id, lambda ticket: ticket.edit(_object(arguments)), reason, who, seen, tenant, json, instead
    )


@tickets_app.command()
def withdraw(
    place: Place,
    ticket_id: TicketId,
    reason: Reason = "",
    who: Who = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Withdraw an answer that no run has taken yet; the ticket is open again, and the answer is kept."""

    async def undo(runtime: TenantRuntime) -> Ticket:
        found = await find_ticket(runtime, ticket_id)
        return await runtime.tickets.withdraw(found, reason=reason, **author_of(place, who))

    ticket = ask(place, tenant, undo)
    show(json, ticket, f"the answer to {ticket.id} is withdrawn; the ticket is open")


@tickets_app.command()
def reassign(
    place: Place,
    ticket_id: TicketId,
    to: Annotated[str, typer.Argument(metavar="WHO", help="The new assignee.")],
    reason: Reason = "",
    who: Who = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Give a ticket to another assignee."""

    async def give(runtime: TenantRuntime) -> Ticket:
        found = await find_ticket(runtime, ticket_id)
        return await runtime.tickets.reassign(found, to, reason=reason, **author_of(place, who))

    ticket = ask(place, tenant, give)
    show(json, ticket, f"ticket {ticket.id} is with {ticket.assignee} now")


@tickets_app.command()
def comment(
    place: Place,
    ticket_id: TicketId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The comment; it is kept, and decides nothing.")],
    who: Who = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Comment on an open ticket."""

    async def add(runtime: TenantRuntime) -> Ticket:
        return await runtime.tickets.comment(await find_ticket(runtime, ticket_id), text, **author_of(place, who))

    ticket = ask(place, tenant, add)
    show(json, ticket, f"the comment on {ticket.id} is kept")


def _answer(
    place: str,
    ticket_id: str,
    decide: Callable[[Ticket], Decision],
    reason: str,
    who: str | None,
    seen: str | None,
    tenant: str | None,
    json: bool,
    instead: bool,
) -> None:
    here = is_target(place)

    async def give(runtime: TenantRuntime) -> tuple[RunResult | Ticket, Waiting | None]:
        ticket = await _find(runtime, ticket_id)
        author = author_of(place, who)
        decision = msgspec.structs.replace(decide(ticket), reason=reason, seen=seen)
        _check_verb(ticket, decision)
        if here:
            result = await runtime.tickets.answer(ticket.id, decision, check=False, replace=instead, **author)
            return result, (await runtime.runs.get(result.run_id)).waiting
        return await runtime.tickets.submit(decision, replace=instead, **author), None

    done, waiting = ask(place, tenant, give)
    if isinstance(done, Ticket):
        text = f"the answer to {done.id} waits for a worker that has {done.tool}"
        text = votes_text(done) or text
        show(json, {"ticket": done.id, "left": not done.approvals, "missing": done.missing}, text)
        return
    renderer = Renderer()
    if json:
        typer.echo(encode(done))
    else:
        if done.text:
            renderer.line(done.text)
        if waiting is not None and not done.tickets:
            explain_idle(renderer, done.run_id, waiting, place)
        else:
            renderer.note(f"run {done.run_id} is {done.status}" + (f": {done.error}" if done.error else ""))
        for ticket in done.tickets:
            renderer.ticket(ticket)
    raise typer.Exit(exit_code(done))


def _remember(scope: Scope | None, pattern: str, lasts: str | None) -> Remember | None:
    if scope is not None:
        return Remember(scope.value, pattern, None if lasts is None else parse_seconds(lasts))
    if pattern or lasts is not None:
        raise UsageError("--pattern and --for are about a grant: add --remember run, thread, user or agent")
    return None


def author_of(place: str, who: str | None) -> dict[str, Any]:
    """The decider as an argument. A server knows it by its key."""
    if not is_url(place):
        return {"principal": decider(who)}
    if who is not None:
        raise UsageError("a server knows the decider by the key in WAKEFUL_KEY; leave --as out")
    return {}


def _check_verb(ticket: Ticket, decision: Decision) -> None:
    """Refuse an answer that the ticket doesn't accept, and name the commands that fit."""
    if decision.verdict == "deny":
        return
    fits = decision.mode in ticket.accepts if decision.mode is not None else ticket.asks_value
    if fits or ticket.status != "open" or (decision.mode is None and ticket.asked_by == "remote"):
        return
    raise UsageError(
        f"ticket {ticket.id} for {ticket.tool} isn't answered like that: use `wakeful tickets` with "
        f"{', '.join(ways(ticket))} or deny"
    )


async def _find(runtime: TenantRuntime, ticket_id: str) -> Ticket:
    return await runtime.tickets.get(await find_ticket(runtime, ticket_id))


def _value(text: str, ticket: Ticket) -> Any:
    try:
        return read_value(text, ticket.schema)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise UsageError(f"the new arguments are a JSON object, such as {{...}}: {error}") from error
