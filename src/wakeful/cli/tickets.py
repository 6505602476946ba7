"""`wakeful tickets`: list and answer tickets from any shell that reaches the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from ..dispatch import RunResult, pending_decisions
from ..errors import UsageError
from ..runtime import TenantRuntime
from ..types.codec import encode
from ..types.runs import Principal, Waiting
from ..types.tickets import Answer, Decision, Ticket
from .exit_codes import exit_code, reported
from .ids import find_run, find_ticket
from .locations import PLACE, Json, Place, Tenant, ask, is_target, runtime_of, show, with_runtime
from .prompts import decider, read_value, ways
from .render import Renderer
from .tables import print_list, shorten_ids
from .text import arguments_text, one_line, time_text
from .waits import explain_idle

__all__ = ["tickets_app"]

tickets_app = typer.Typer(
    name="tickets",
    help=f"List and answer tickets. STORE: {PLACE} With module:runtime the run continues in this process, else in "
    "a worker. An id may be shortened to an unambiguous prefix.",
    no_args_is_help=True,
)

TicketId = Annotated[str, typer.Argument(metavar="TICKET", help="The ticket's id.", show_default=False)]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason; it is kept.")]
Who = Annotated[
    str | None, typer.Option("--as", metavar="WHO", help="The decider; the user of this shell by default.")
]


class Status(StrEnum):
    """The status of the tickets to list."""

    open = "open"
    answered = "answered"
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

    async def look(runtime: TenantRuntime) -> tuple[Sequence[Ticket], dict[str, Decision]]:
        shown, answers = list[Ticket](), dict[str, Decision]()
        seen = None if after is None else await find_ticket(runtime, after)
        above = None if run is None else await find_run(runtime, run)
        while len(shown) < limit:
            found = await runtime.tickets.list(
                above, thread=thread, status=wanted, assignee=assignee, after=seen, limit=limit
            )
            left = await pending_decisions(runtime.store, found)
            answers.update(left)
            shown += [ticket for ticket in found if status is not Status.open or ticket.id not in left]
            if len(found) < limit:
                break
            seen = found[-1].id
        return shown[:limit], answers

    tickets, answers = ask(place, tenant, look)
    values = [
        {**msgspec.to_builtins(ticket), "left": answers[ticket.id]} if ticket.id in answers else ticket
        for ticket in tickets
    ]
    short = shorten_ids([ticket.id for ticket in tickets])
    rows = [(short[ticket.id], *_cells(ticket, answers.get(ticket.id))) for ticket in tickets]
    columns = ("TICKET", "STATUS", "ASSIGNEE", "DEADLINE", "TOOL", "QUESTION")
    print_list(json, values, columns, rows, "no tickets")


@tickets_app.command(name="show")
def show_(place: Place, ticket_id: TicketId, tenant: Tenant = None, json: Json = False) -> None:
    """Show a ticket in full, with its decisions."""

    async def look(runtime: TenantRuntime) -> tuple[Ticket, list[Decision], Decision | None]:
        ticket = await _find(runtime, ticket_id)
        left = await pending_decisions(runtime.store, [ticket])
        return ticket, list(await runtime.tickets.decisions(ticket.id)), left.get(ticket.id)

    ticket, decisions, left = ask(place, tenant, look)
    found = {"ticket": ticket, "decisions": decisions, "left": left}
    show(json, found, "\n".join(_page(ticket, decisions, left)))


@tickets_app.command()
def approve(
    place: Place,
    ticket_id: TicketId,
    reason: Reason = "",
    who: Who = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Approve the call; a call of unknown outcome runs again."""
    _answer(place, ticket_id, lambda ticket: ticket.approve(), reason, who, tenant, json)


@tickets_app.command()
def deny(
    place: Place,
    ticket_id: TicketId,
    reason: Reason = "",
    who: Who = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Deny the call: it doesn't run, and the model gets the reason."""
    _answer(place, ticket_id, lambda ticket: ticket.deny(), reason, who, tenant, json)


@tickets_app.command()
def answer(
    place: Place,
    ticket_id: TicketId,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Text, or JSON where that is asked for.")],
    reason: Reason = "",
    who: Who = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Answer a question with a value."""
    _answer(place, ticket_id, lambda ticket: ticket.answer(_value(value, ticket)), reason, who, tenant, json)


@tickets_app.command()
def result(
    place: Place,
    ticket_id: TicketId,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Text, or a JSON object or list.")],
    reason: Reason = "",
    who: Who = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Give the call's result; the tool doesn't run."""
    _answer(place, ticket_id, lambda ticket: ticket.result(_value(value, ticket)), reason, who, tenant, json)


@tickets_app.command()
def edit(
    place: Place,
    ticket_id: TicketId,
    arguments: Annotated[str, typer.Argument(metavar="JSON", help="The new arguments, an object.")],
    reason: Reason = "",
    who: Who = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Run the call with other arguments. With a store alone, a worker checks them: if they don't fit the tool, the
    ticket stays open and says why."""
    _answer(place, ticket_id, lambda ticket: ticket.edit(_object(arguments)), reason, who, tenant, json)


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
        return await runtime.tickets.reassign(found, to, reason=reason, principal=Principal(decider(who)))

    ticket = ask(place, tenant, give)
    show(json, ticket, f"ticket {ticket.id} is with {ticket.assignee} now")


def _answer(
    place: str,
    ticket_id: str,
    decide: Callable[[Ticket], Decision],
    reason: str,
    who: str | None,
    tenant: str | None,
    json: bool,
) -> None:
    here = is_target(place)

    async def give(runtime: TenantRuntime) -> tuple[RunResult | Ticket, Waiting | None]:
        ticket = await _find(runtime, ticket_id)
        principal = decider(who)
        decision = msgspec.structs.replace(decide(ticket), reason=reason, principal_id=principal)
        _check_verb(ticket, decision)
        if here:
            result = await runtime.tickets.answer(ticket.id, decision)
            return result, (await runtime.runs.get(result.run_id)).waiting
        return await runtime.tickets.submit(decision), None

    with reported(Renderer()):
        done, waiting = with_runtime(runtime_of(place), tenant, give)
    if isinstance(done, Ticket):
        text = f"the answer to {done.id} waits for a worker that has {done.tool}"
        show(json, {"ticket": done.id, "left": True}, text)
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


def _cells(ticket: Ticket, left: Decision | None) -> tuple[str, ...]:
    deadline = "-" if ticket.deadline is None else time_text(ticket.deadline)
    question = one_line(ticket.message, 80)
    question = question if left is None else f"{question}  (left: {_describe(left)})"
    return ticket.status, ticket.assignee or "-", deadline, ticket.tool, question


def _page(ticket: Ticket, decisions: list[Decision], left: Decision | None) -> list[str]:
    lines = [
        ticket.message,
        f"  ticket {ticket.id}, {ticket.status}, asked by {ticket.asked_by} at {time_text(ticket.created_at)}",
        f"  thread {ticket.thread_id}, run {ticket.run_id}, call {ticket.call_id}",
        f"  {ticket.tool} {arguments_text(ticket.arguments, indent=2)}",
        f"  takes {', '.join(ticket.accepts)}, or deny",
    ]
    if ticket.schema is not None:
        lines.append(f"  the answer fits {encode(ticket.schema).decode()}")
    if ticket.assignee is not None:
        lines.append(f"  assigned to {ticket.assignee}")
    if ticket.deadline is not None:
        given = ticket.on_deadline
        then = f"goes to {ticket.escalate[0].to}" if ticket.escalate else f"is decided: {given}"
        if isinstance(given, Answer) and not ticket.escalate:
            then = f"is answered with {encode(given.value).decode()}"
        lines.append(f"  at {time_text(ticket.deadline)} it {then}")
    lines += [f"  {_describe(decision)}" for decision in decisions]
    if left is not None:
        lines.append(f"  {_describe(left)}; waits for a worker that has {ticket.tool}")
    return lines


def _describe(decision: Decision) -> str:
    """The decision with its time, decider and reason."""
    why = f": {one_line(decision.reason)}" if decision.reason else ""
    return f"{time_text(decision.at)} {_what(decision)} by {decision.principal_id or 'somebody'}{why}"


def _what(decision: Decision) -> str:
    if decision.verdict == "reassign":
        return f"reassign to {decision.value}"
    if decision.verdict == "approve" and decision.mode == "arguments":
        return f"edit {arguments_text(decision.value)}"
    if decision.verdict == "approve" and (decision.mode == "result" or decision.value is not None):
        verb = "result" if decision.mode == "result" else "answer"
        return f"{verb} {one_line(encode(decision.value).decode())}"
    return decision.verdict
