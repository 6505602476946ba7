"""Tickets by their id: answering them, leaving an answer for whoever runs, giving them to somebody else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from msgspec.structs import replace

from ..errors import Conflict, InboxMoved, InvalidDecision, TicketClosed, UnknownTicket
from ..loop import check_value, match_decision, reassigned
from ..stores import Commit, InboxItem, Store, ThreadView
from ..types.tickets import Decision, Ticket
from ._local import Dispatcher
from ._trees import POLL

__all__ = [
    "check_id",
    "check_pending",
    "closed_error",
    "find_ticket",
    "item_for",
    "leave_decision",
    "left_answers",
    "other_id",
    "reassign",
]


async def find_ticket(store: Store, ticket_id: str) -> Ticket:
    """The ticket of that id."""
    ticket = await store.ticket(ticket_id)
    if ticket is None:
        raise UnknownTicket(f"no ticket {ticket_id!r} in this store")
    return ticket


def item_for(thread_id: str, decision: Decision) -> InboxItem:
    """A decision as it waits in its thread's inbox."""
    return InboxItem(id=decision.id, thread_id=thread_id, kind="decision", decision=decision)


async def closed_error(store: Store, ticket: Ticket) -> TicketClosed:
    """Why a ticket can't be answered any more: who answered it, when and why, or what became of its run."""
    about = f"ticket {ticket.id} for {ticket.tool}"
    if ticket.status == "answered":
        made = [d for d in await store.decisions(ticket.id) if d.verdict != "reassign"]
        how = f" {_told(made[-1])}" if made else ""
        return TicketClosed(f"{about} was answered before{how}; nothing was changed", ticket.id)
    why = "new input took its run's place" if ticket.status == "superseded" else "its run ended"
    return TicketClosed(f"{about} was {ticket.status}: {why}; nothing was changed", ticket.id)


def _told(decision: Decision) -> str:
    verb = "denied" if decision.verdict == "deny" else "approved"
    who = f" by {decision.principal_id}" if decision.principal_id else ""
    when = f" at {datetime.fromtimestamp(decision.at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC" if decision.at else ""
    why = f": {decision.reason}" if decision.reason else ""
    return f"({verb}{who}{when}{why})"


def check_pending(stored: ThreadView, ticket: Ticket, decision: Decision) -> None:
    """Refuse a second answer while the first is in the inbox and not taken in yet."""
    for first in _pending(stored.inbox):
        if first.ticket_id == ticket.id and first.id != decision.id:
            raise TicketClosed(
                f"ticket {ticket.id} for {ticket.tool} was answered before {_told(first)}, and its run will go on "
                "with that; nothing was changed",
                ticket.id,
            )


async def check_id(store: Store, ticket: Ticket, decision: Decision) -> None:
    """Refuse a decision whose id something else has: it would be taken for that, and not be kept."""
    if not await store.has_id(decision.id):
        return
    found = await store.decision(decision.id)
    if found is None:
        item = await store.item(decision.id)
        found = None if item is None else item.decision
    if found is None or found.ticket_id != ticket.id:
        raise other_id(decision, None if found is None else found.ticket_id)


def other_id(decision: Decision, ticket_id: str | None) -> InvalidDecision:
    """Why a decision can't have the id that it has: one about another ticket has it, or another request."""
    had = "another request has" if ticket_id is None else f"the decision about ticket {ticket_id} has"
    return InvalidDecision(
        f"{had} the id {decision.id!r:.80}, which can't be this decision's too; nothing was changed: give each an "
        "id or a request_id of its own"
    )


def _pending(inbox: Sequence[InboxItem]) -> Iterable[Decision]:
    return [i.decision for i in inbox if i.decision is not None and i.decision.verdict != "reassign"]


async def left_answers(store: Store, tickets: Iterable[Ticket]) -> dict[str, Decision]:
    """The answers to some open tickets that were left for whoever runs, and that no run has taken in yet; by the
    ticket's id."""
    left: dict[str, Decision] = {}
    for thread_id in dict.fromkeys([ticket.thread_id for ticket in tickets if ticket.status == "open"]):
        stored = await store.load(thread_id)
        left.update({one.ticket_id: one for one in _pending(() if stored is None else stored.inbox)})
    return left


async def leave_decision(store: Store, decision: Decision, now: int) -> Ticket:
    """Put an answer into the inbox of the ticket's thread, for whoever has the code to go on with the run."""
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
        with suppress(InboxMoved):  # Another answer may have come first.
            await store.commit(Commit(ticket.thread_id, inbox=items, inbox_head=seen))
            return ticket


async def reassign(dispatch: Dispatcher, decision: Decision) -> Ticket:
    """Give a ticket to somebody else.

    Nobody owns the thread of a run that waits: the ticket's row, the decision and the event are one commit on the
    version that was read. Where somebody does, a sibling of the call still runs: the owner is told through the
    inbox, as it is of answers, and writes the same.
    """
    store, now, told = dispatch.env.store, dispatch.env.clock.now(), False
    while True:
        ticket = await find_ticket(store, decision.ticket_id)
        done = next((d for d in await store.decisions(ticket.id) if d.id == decision.id), None)
        if done is not None:
            return ticket
        stored = await store.load(ticket.thread_id)
        run = None if stored is None else stored.run
        if ticket.status != "open" or stored is None or run is None:
            raise await closed_error(store, ticket)
        if not told:
            check_pending(stored, ticket, decision)
            await check_id(store, ticket, decision)
        decision = replace(decision, asked_by=ticket.asked_by, at=decision.at or now)
        if stored.thread.claimed:
            if not told:
                await dispatch.deliver(item_for(ticket.thread_id, decision))
                told = True
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
            taken=[decision.id] if told else [],
        )
        try:
            await dispatch.opener.write(commit, run)
        except Conflict:
            continue
        return row
