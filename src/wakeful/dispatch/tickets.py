"""Tickets: finding and changing them, and the errors of closed tickets and repeated decisions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from ..errors import Conflict, InvalidDecision, NotAllowed, StaleDecision, TicketClosed, UnknownTicket, UsageError
from ..loop import Environment
from ..stores import Commit, Store, ThreadView, refuse_reuse
from ..types.events import TicketChanged
from ..types.inbox import DecisionItem, InboxItem
from ..types.runs import Author, Principal, RunRecord
from ..types.tickets import Decision, NotTaken, Ticket
from .dispatcher import Dispatcher

__all__ = [
    "author_of",
    "check_id",
    "check_reuse",
    "closed_error",
    "describe_decision",
    "find_ticket",
    "item_for",
    "load_ticket",
    "not_taken",
    "other_id",
    "was_taken",
    "write_change",
]


async def find_ticket(store: Store, ticket_id: str) -> Ticket:
    """The ticket of that id."""
    ticket = await store.ticket(ticket_id)
    if ticket is None:
        raise UnknownTicket(f"no ticket {ticket_id!r} in this store")
    return ticket


async def load_ticket(store: Store, ticket_id: str) -> tuple[Ticket, ThreadView | None]:
    """The ticket of that id with its thread; an open ticket is that of the view, which a commit may rest on."""
    ticket = await find_ticket(store, ticket_id)
    stored = await store.load(ticket.thread_id)
    if ticket.status == "open" and stored is not None:
        present = next((one for one in stored.tickets if one.id == ticket_id), None)
        ticket = await find_ticket(store, ticket_id) if present is None else present
    return ticket, stored


def author_of(decision: Decision, author: Author | None) -> Author | None:
    """The author of a decision: the one given, or the principal that it names; None for trusted code."""
    if author is not None or decision.principal_id is None:
        return author
    return Author(Principal(decision.principal_id))


def item_for(env: Environment, thread_id: str, decision: Decision, author: Author | None) -> DecisionItem:
    """The inbox item of a decision."""
    return DecisionItem(
        id=decision.id,
        thread_id=thread_id,
        decision=decision,
        author=author,
        digest=decision.request_digest,
        trace=None if env.tracer is None else env.tracer.capture(detached=True),
    )


_CLOSED = {
    "settled": "the remote agent that had asked continued without an answer from here",
    "superseded": "new input took its run's place",
    "cancelled": "its run ended",
}


async def closed_error(store: Store, ticket: Ticket) -> TicketClosed:
    """The error for a closed ticket: who answered it, when and why, or how its run ended."""
    about = f"ticket {ticket.id} for {ticket.tool}"
    if ticket.status == "answered":
        made = [
            d for d in await store.decisions(ticket.id) if d.verdict in ("approve", "deny") and d.not_taken is None
        ]
        how = f" {describe_decision(made[-1])}" if made else ""
        return TicketClosed(f"{about} was answered before{how}; nothing was changed", ticket.id)
    return TicketClosed(f"{about} was {ticket.status}: {_CLOSED[ticket.status]}; nothing was changed", ticket.id)


async def was_taken(store: Store, ticket: Ticket, decision: Decision) -> bool:
    """Whether a run took this decision about the ticket before. Raises `RequestReused` if it was another one."""
    taken = [d for d in await store.decisions(ticket.id) if d.id == decision.id and d.not_taken is None]
    for known in taken:
        check_reuse(known, decision)
    return bool(taken)


def check_reuse(known: Decision, decision: Decision) -> None:
    """Raise if a decision's id is derived from a request that asked for something else."""
    if error := refuse_reuse(decision.id, known.request_digest, decision.request_digest):
        raise error


def describe_decision(decision: Decision) -> str:
    """The verdict of a decision with who, when and why, in brackets."""
    verb = "denied" if decision.verdict == "deny" else "approved"
    who = f" by {decision.principal_id}" if decision.principal_id else ""
    when = f" at {datetime.fromtimestamp(decision.at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC" if decision.at else ""
    why = f": {decision.reason}" if decision.reason else ""
    return f"({verb}{who}{when}{why})"


def not_taken(ticket: Ticket, cause: NotTaken) -> UsageError:
    """The error of a caller who waits for the effect of a decision that no run took."""
    if cause.cause == "stale":
        return StaleDecision(cause.reason)
    if cause.cause == "forbidden":
        return NotAllowed(cause.reason)
    who = f" by {cause.principal_id}" if cause.principal_id else ""
    who = " by the remote agent that had asked" if cause.cause == "refused" else who
    why = f": {cause.reason}" if cause.reason else ""
    how = f"it was {cause.cause}{who}{why}"
    return TicketClosed(f"the answer to ticket {ticket.id} for {ticket.tool} had no effect: {how}", ticket.id)


async def check_id(store: Store, ticket: Ticket, decision: Decision) -> None:
    """Raise if a decision's id belongs to something else, for which the store would take it."""
    if not await store.has_id(decision.id):
        return
    found = await store.decision(decision.id)
    if found is None:
        item = await store.item(decision.id)
        found = item.decision if isinstance(item, DecisionItem) else None
    if found is None or found.ticket_id != ticket.id:
        raise other_id(decision, None if found is None else found.ticket_id)
    check_reuse(found, decision)
    if found.not_taken is not None:
        raise InvalidDecision(
            f"the decision {decision.id!r:.80} about ticket {ticket.id} was {found.not_taken.cause}, so it can't "
            "be given again; nothing was changed: make a new decision"
        )


def other_id(decision: Decision, ticket_id: str | None) -> InvalidDecision:
    """The error for an id that another decision or request has."""
    had = "another request has" if ticket_id is None else f"the decision about ticket {ticket_id} has"
    return InvalidDecision(
        f"{had} the id {decision.id!r:.80}, which can't be this decision's too; nothing was changed: give each an "
        "id or a request_id of its own"
    )


async def write_change(
    dispatch: Dispatcher,
    stored: ThreadView,
    run: RunRecord,
    row: Ticket,
    decision: Decision,
    *,
    inbox: Sequence[InboxItem] = (),
    taken: Sequence[str] = (),
) -> bool:
    """Write an open ticket, the decision that changed it and the event; False if the thread changed meanwhile."""
    identity = replace(run.identity, agent_id=run.agent_id)
    event = TicketChanged(identity, 0, dispatch.env.clock.now(), row.call_id, row, decision)
    commit = Commit(
        row.thread_id,
        identity,
        version=stored.thread.version,
        log=[event],
        tickets=[row],
        decisions=[decision],
        inbox=list(inbox),
        taken=list(taken),
    )
    try:
        await dispatch.activations.write(commit, run)
    except Conflict:
        return False
    return True
