"""`wakeful tickets`: what people are asked, and answering it, from any shell that reaches the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from ..dispatch import RunResult, leave_decision, left_answers
from ..errors import UnknownTicket, UsageError
from ..runtime import Runtime
from ..types.codec import encode
from ..types.ids import now_ms
from ..types.runs import Principal, Waiting
from ..types.tickets import Answer, Decision, Ticket
from ._decide import decider, read_value, ways
from ._exit import exit_code, reported
from ._places import PLACE, Json, Place, Tenant, ask, is_target, runtime_of, show, with_runtime
from ._render import Renderer
from ._text import arguments_text, one_line, time_text
from ._waiting import explain_idle

__all__ = ["tickets_app"]

tickets_app = typer.Typer(
    name="tickets",
    help=f"List and answer what runs ask people. STORE: {PLACE} With module:runtime the run goes on here; "
    "else the answer is left for whoever runs it.",
    no_args_is_help=True,
)

TicketId = Annotated[str, typer.Argument(metavar="TICKET", help="The ticket's id.", show_default=False)]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is kept.")]
Who = Annotated[
    str | None, typer.Option("--as", metavar="WHO", help="Who decides; the user of this shell by default.")
]


class Status(StrEnum):
    """Which tickets."""

    open = "open"
    answered = "answered"
    superseded = "superseded"
    cancelled = "cancelled"
    all = "all"


@tickets_app.command("list")
def list_(
    place: Place,
    status: Annotated[Status, typer.Option(help="What became of them.")] = Status.open,
    assignee: Annotated[str | None, typer.Option(metavar="WHO", help="Who has to answer.")] = None,
    thread: Annotated[str | None, typer.Option(metavar="ID", help="Of one thread, and of all below it.")] = None,
    run: Annotated[str | None, typer.Option(metavar="ID", help="Of one run, and of all below it.")] = None,
    after: Annotated[str | None, typer.Option(metavar="TICKET", help="Only newer ones than this.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, the oldest first.")] = 100,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """List tickets, oldest first: id, status, who has it, its deadline, the tool, the question."""
    wanted = None if status is Status.all else status.value

    async def look(runtime: Runtime) -> tuple[Sequence[Ticket], dict[str, Decision]]:
        shown, answers, seen = list[Ticket](), dict[str, Decision](), after
        while len(shown) < limit:
            found = await runtime.tickets(
                run, thread=thread, status=wanted, assignee=assignee, after=seen, limit=limit
            )
            left = await left_answers(runtime.store, found)
            answers.update(left)
            shown += [ticket for ticket in found if status is not Status.open or ticket.id not in left]
            if len(found) < limit:
                break
            seen = found[-1].id
        return shown[:limit], answers

    renderer = Renderer()
    tickets, answers = ask(place, tenant, look)
    for ticket in tickets:
        left = answers.get(ticket.id)
        if json:
            typer.echo(encode(ticket if left is None else {**msgspec.to_builtins(ticket), "left": left}))
        else:
            renderer.line(_row(ticket, left))


@tickets_app.command(name="show")
def show_(place: Place, ticket_id: TicketId, tenant: Tenant = None, json: Json = False) -> None:
    """Show a ticket in full, and who decided what about it."""

    async def look(runtime: Runtime) -> tuple[Ticket, list[Decision], Decision | None]:
        ticket = await _find(runtime, ticket_id)
        left = await left_answers(runtime.store, [ticket])
        return ticket, list(await runtime.decisions(ticket_id)), left.get(ticket_id)

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
    """Let the call go on; a call of unknown outcome is run again."""
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
    """Say no: the call doesn't run, and the model is told why."""
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
    """Answer a question that takes more than yes or no."""
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
    """Give the call's result yourself; the tool doesn't run."""
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
    """Run the call with other arguments. Left for whoever runs it, they are checked there: if they don't fit, the
    ticket stays open and says why."""
    _answer(place, ticket_id, lambda ticket: ticket.edit(_object(arguments)), reason, who, tenant, json)


@tickets_app.command()
def reassign(
    place: Place,
    ticket_id: TicketId,
    to: Annotated[str, typer.Argument(metavar="WHO", help="Who has to answer from now on.")],
    reason: Reason = "",
    who: Who = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Give a ticket to somebody else."""

    def give(runtime: Runtime) -> Any:
        return runtime.reassign(ticket_id, to, reason=reason, principal=Principal(decider(who)))

    ticket = ask(place, tenant, give)
    show(json, ticket, f"ticket {ticket.id} is with {ticket.assignee} now")


# -- how it is done ------------------------------------------------------------------------------------------


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

    async def give(runtime: Runtime) -> tuple[RunResult | Ticket, Waiting | None]:
        ticket = await _find(runtime, ticket_id)
        principal = decider(who)
        decision = msgspec.structs.replace(decide(ticket), reason=reason, principal_id=principal)
        _check_verb(ticket, decision)
        if here:
            result = await runtime.answer(ticket_id, decision)
            return result, (await runtime.get_run(result.run_id)).waiting
        return await leave_decision(runtime.store, decision, now_ms()), None

    with reported(Renderer()):
        done, waiting = with_runtime(runtime_of(place), tenant, give)
    if isinstance(done, Ticket):
        text = f"the answer to {done.id} is left for whoever runs {done.tool}"
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
    """Refuse what a ticket doesn't take, and say it in this command's words."""
    if decision.verdict == "deny":
        return
    fits = decision.mode in ticket.accepts if decision.mode is not None else ticket.asks_value
    if fits or ticket.status != "open" or (decision.mode is None and ticket.asked_by == "remote"):
        return
    raise UsageError(
        f"ticket {ticket.id} for {ticket.tool} isn't answered like that: use `wakeful tickets` with "
        f"{', '.join(ways(ticket))} or deny"
    )


async def _find(runtime: Runtime, ticket_id: str) -> Ticket:
    ticket = await runtime.store.ticket(ticket_id)
    if ticket is None:
        raise UnknownTicket(f"no ticket {ticket_id!r} in this store")
    return ticket


def _value(said: str, ticket: Ticket) -> Any:
    try:
        return read_value(said, ticket.schema)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _object(said: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(said, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise UsageError(f"the new arguments are a JSON object, such as {{...}}: {error}") from error


def _row(ticket: Ticket, left: Decision | None) -> str:
    by = "-" if ticket.deadline is None else time_text(ticket.deadline)
    words = [ticket.id, f"{ticket.status:<10}", f"{ticket.assignee or '-':<12}", f"{by:<20}", ticket.tool]
    words.append(one_line(ticket.message, 80))
    return "  ".join(words if left is None else [*words, f"(left: {_said(left)})"]).rstrip()


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
        lines.append(f"  {ticket.assignee} has it")
    if ticket.deadline is not None:
        given = ticket.on_deadline
        then = f"goes to {ticket.escalate[0].to}" if ticket.escalate else f"is decided: {given}"
        if isinstance(given, Answer) and not ticket.escalate:
            then = f"is answered with {encode(given.value).decode()}"
        lines.append(f"  at {time_text(ticket.deadline)} it {then}")
    lines += [f"  {_said(decision)}" for decision in decisions]
    if left is not None:
        lines.append(f"  {_said(left)}; left for whoever runs {ticket.tool}, and not taken in yet")
    return lines


def _said(decision: Decision) -> str:
    """Who decided what, when and why."""
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
