"""Tickets: finding them, submitting decisions to the inbox, reassigning."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from msgspec.structs import replace

from ..errors import Conflict, InboxMoved, InvalidDecision, TicketClosed, UnknownTicket
from ..loop import check_value, match_decision, reassigned
from ..stores import Commit, Store, ThreadView
from ..types.inbox import DecisionItem, InboxItem, decisions_in
from ..types.tickets import Decision, Ticket
from .dispatcher import Dispatcher
from .waits import POLL

__all__ = [
    "check_id",
    "check_pending",
    "closed_error",
    "find_ticket",
    "item_for",
    "other_id",
    "pending_decisions",
    "reassign",
    "submit_decision",
]


async def find_ticket(store: Store, ticket_id: str) -> Ticket:
    """The ticket of that id."""
    ticket = await store.ticket(ticket_id)
    if ticket is None:
        raise UnknownTicket(f"no ticket {ticket_id!r} in this store")
    return ticket


def item_for(thread_id: str, decision: Decision) -> DecisionItem:
    """The inbox item of a decision."""
    return DecisionItem(id=decision.id, thread_id=thread_id, decision=decision)


async def closed_error(store: Store, ticket: Ticket) -> TicketClosed:
    """The error for a closed ticket: who answered it, when and why, or how its run ended."""
    about = f"ticket {ticket.id} for {ticket.tool}"
    if ticket.status == "answered":
        made = [d for d in await store.decisions(ticket.id) if d.verdict != "reassign"]
        how = f" {_describe(made[-1])}" if made else ""
        return TicketClosed(f"{about} was answered before{how}; nothing was changed", ticket.id)
    why = "new input took its run's place" if ticket.status == "superseded" else "its run ended"
    return TicketClosed(f"{about} was {ticket.status}: {why}; nothing was changed", ticket.id)


def _describe(decision: Decision) -> str:
    verb = "denied" if decision.verdict == "deny" else "approved"
    who = f" by {decision.principal_id}" if decision.principal_id else ""
    when = f" at {datetime.fromtimestamp(decision.at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC" if decision.at else ""
    why = f": {decision.reason}" if decision.reason else ""
    return f"({verb}{who}{when}{why})"


def check_pending(stored: ThreadView, ticket: Ticket, decision: Decision) -> None:
    """Raise if another decision about the ticket is in the inbox."""
    for first in _pending(stored.inbox):
        if first.ticket_id == ticket.id and first.id != decision.id:
            raise TicketClosed(
                f"ticket {ticket.id} for {ticket.tool} was answered before {_describe(first)}, and its run will "
                "resume with that; nothing was changed",
                ticket.id,
            )


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


def other_id(decision: Decision, ticket_id: str | None) -> InvalidDecision:
    """The error for an id that another decision or request has."""
    had = "another request has" if ticket_id is None else f"the decision about ticket {ticket_id} has"
    return InvalidDecision(
        f"{had} the id {decision.id!r:.80}, which can't be this decision's too; nothing was changed: give each an "
        "id or a request_id of its own"
    )


def _pending(inbox: Sequence[InboxItem]) -> Iterable[Decision]:
    return [one for one in decisions_in(inbox) if one.verdict != "reassign"]


async def pending_decisions(store: Store, tickets: Iterable[Ticket]) -> dict[str, Decision]:
    """Decisions about open tickets that are in an inbox, by ticket id."""
    left: dict[str, Decision] = {}
    for thread_id in dict.fromkeys([ticket.thread_id for ticket in tickets if ticket.status == "open"]):
        stored = await store.load(thread_id)
        left.update({one.ticket_id: one for one in _pending(() if stored is None else stored.inbox)})
    return left


async def submit_decision(store: Store, decision: Decision, now: int) -> Ticket:
    """Put a decision into the inbox of the ticket's thread, for a process that has the code of the run."""
    while True:
        ticket = await find_ticket(store, decision.ticket_id)
        stored = await store.load(ticket.thread_id)
        if ticket.status != "open" or stored is None:
            if any(d.id == decision.id for d in await store.decisions(ticket.id)):
                return ticket
            raise await closed_error(store, ticket)
        check_pending(stored, ticket, decision)
        await check_id(store, ticket, decision)
        _, full = match_decision(decision, {ticket.id: ticket}, {})
        full = replace(check_value(None, ticket, full), at=full.at or now)
        items, seen = [item_for(ticket.thread_id, full)], stored.thread.inbox_head
        with suppress(InboxMoved):  # Another decision may have come first.
            await store.commit(Commit(ticket.thread_id, inbox=items, inbox_head=seen))
            return ticket


async def reassign(dispatch: Dispatcher, decision: Decision) -> Ticket:
    """Assign a ticket to another principal.

    On an idle thread the ticket, the decision and the event are one commit at the version that was read. If the
    thread has an owner, because a sibling of the call still runs, the decision goes to its inbox and the owner
    writes the same.
    """
    store, now, is_delivered = dispatch.env.store, dispatch.env.clock.now(), False
    while True:
        ticket = await find_ticket(store, decision.ticket_id)
        done = next((d for d in await store.decisions(ticket.id) if d.id == decision.id), None)
        if done is not None:
            return ticket
        stored = await store.load(ticket.thread_id)
        run = None if stored is None else stored.run
        if ticket.status != "open" or stored is None or run is None:
            raise await closed_error(store, ticket)
        if not is_delivered:
            check_pending(stored, ticket, decision)
            await check_id(store, ticket, decision)
        decision = replace(decision, asked_by=ticket.asked_by, at=decision.at or now)
        if stored.thread.claimed:
            if not is_delivered:
                await dispatch.deliver(item_for(ticket.thread_id, decision))
                is_delivered = True
            await asyncio.sleep(POLL)
            continue
        row = replace(ticket, assignee=decision.value)
        identity = replace(run.identity, agent_id=run.agent_id)
        commit = Commit(
            ticket.thread_id,
            identity,
            version=stored.thread.version,
            log=[reassigned(row, decision, identity, now)],
            tickets=[row],
            decisions=[decision],
            taken=[decision.id] if is_delivered else [],
        )
        try:
            await dispatch.activations.write(commit, run)
        except Conflict:
            continue
        return row
