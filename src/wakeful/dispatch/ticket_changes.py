"""Reassigning tickets and commenting on them: changes that leave a ticket open."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from ..identity.rights import permit
from ..loop import change_ticket
from ..types.runs import Author
from ..types.tickets import Decision, Ticket
from .dispatcher import Dispatcher
from .left_answers import replaced_item
from .tickets import check_id, check_reuse, closed_error, item_for, load_ticket, not_taken, write_change
from .waits import POLL

__all__ = ["change_open_ticket"]


async def change_open_ticket(dispatch: Dispatcher, decision: Decision, author: Author | None) -> Ticket:
    """Assign a ticket to another principal, or comment on it.

    On an idle thread the ticket, the decision and the event are one commit at the version that was read. If the
    thread has an owner, because a sibling of the call still runs, the decision goes to its inbox and the owner
    writes the same.
    """
    store, now, is_delivered = dispatch.env.store, dispatch.env.clock.now(), False
    while True:
        ticket, stored = await load_ticket(store, decision.ticket_id)
        done = next((d for d in await store.decisions(ticket.id) if d.id == decision.id), None)
        if done is not None and done.not_taken is not None:
            raise not_taken(ticket, done.not_taken)
        if done is not None:
            check_reuse(done, decision)
            return (await load_ticket(store, ticket.id))[0]  # The decision may be newer than the first read.
        run = None if stored is None else stored.run
        if ticket.status != "open" or stored is None or run is None:
            raise await closed_error(store, ticket)
        if not is_delivered:
            decision = permit(ticket, decision, author)
            if decision.verdict == "reassign":
                await replaced_item(dispatch, stored, ticket, decision)
            await check_id(store, ticket, decision)
        decision = replace(decision, asked_by=ticket.asked_by, at=decision.at or now)
        if stored.thread.claimed:
            if not is_delivered:
                await dispatch.deliver(item_for(dispatch.env, ticket.thread_id, decision, author))
                is_delivered = True
            await asyncio.sleep(POLL)
            continue
        row = change_ticket(ticket, decision, now) or ticket
        if await write_change(dispatch, stored, run, row, decision, taken=[decision.id] if is_delivered else []):
            return row
