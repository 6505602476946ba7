"""Left answers: decisions in an inbox that no run has taken yet. They can be replaced and withdrawn."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from msgspec.structs import replace

from ..errors import Conflict, DuplicateRequest, InboxMoved, InvalidDecision, TicketClosed
from ..identity.rights import check_withdrawal, permit
from ..loop import change_ticket, check_value, match_decision
from ..stores import Commit, ThreadView
from ..types.base import Data
from ..types.inbox import DecisionItem, Request, decisions_in
from ..types.runs import Author, RunRecord
from ..types.tickets import Decision, NotTaken, Ticket
from .dispatcher import Dispatcher
from .parked import resume_problems, settled_calls
from .results import first_item
from .tickets import (
    author_of,
    check_id,
    closed_error,
    describe_decision,
    find_ticket,
    item_for,
    load_ticket,
    was_taken,
    write_change,
)
from .waits import POLL

__all__ = [
    "LeftAnswer",
    "left_answer",
    "replaced_item",
    "submit_decision",
    "supersede_left",
    "withdraw",
]


class LeftAnswer(Data, omit_defaults=True):
    """An answer that no run has taken yet.

    `problem` says why it can't be taken: by the code of this process if it has the run's agent, else as the last
    worker said that tried.
    """

    decision: Decision
    problem: str = ""


async def left_answer(dispatch: Dispatcher, ticket: Ticket) -> LeftAnswer | None:
    """The answer to an open ticket that no run has taken yet; None if there is none."""
    stored = await dispatch.env.store.load(ticket.thread_id) if ticket.status == "open" else None
    item = None if stored is None else _find_item(stored, ticket.id)
    if stored is None or item is None:
        return None
    return LeftAnswer(item.decision, await _find_problem(dispatch, stored))


async def replaced_item(
    dispatch: Dispatcher, stored: ThreadView, ticket: Ticket, decision: Decision, *, replaces: bool = False
) -> DecisionItem | None:
    """The left answer that gives way to a decision; None if there is none.

    An answer that can't be taken gives way to any other. One that may still be taken gives way if the decision
    `replaces` it, else this raises `TicketClosed`. Votes towards a quorum stand beside each other.
    """
    item = _find_item(stored, ticket.id)
    if item is None or item.id == decision.id:
        return None
    if replaces or await _find_problem(dispatch, stored):
        return item
    if ticket.quorum > 1:
        return None
    raise TicketClosed(
        f"ticket {ticket.id} for {ticket.tool} was answered before {describe_decision(item.decision)}, and no run "
        "has taken that answer yet; nothing was changed: replace it (replace=True, --replace), or withdraw it",
        ticket.id,
    )


async def submit_decision(
    dispatch: Dispatcher, decision: Decision, author: Author | None = None, *, replaces: bool = False
) -> Ticket:
    """Leave a decision in the inbox of the ticket's thread, for a process that has the code of the run.

    A vote that leaves the ticket open is written at once, unless it edits the arguments.
    """
    author = author_of(decision, author)
    store = dispatch.env.store
    while True:
        ticket, stored = await load_ticket(store, decision.ticket_id)
        if ticket.status != "open" or stored is None or stored.run is None:
            if await was_taken(store, ticket, decision):
                return ticket
            raise await closed_error(store, ticket)
        if ticket.quorum > 1 and await was_taken(store, ticket, decision):
            return ticket
        _, full = match_decision(decision, {ticket.id: ticket}, {})
        full = permit(ticket, full, author)
        before = await replaced_item(dispatch, stored, ticket, decision, replaces=replaces)
        await check_id(store, ticket, decision)
        now = dispatch.env.clock.now()
        full = replace(check_value(None, ticket, full), at=full.at or now)
        changed = change_ticket(ticket, full, now)
        if changed is ticket:
            return ticket
        if changed is not None and full.mode != "arguments" and not stored.thread.claimed:
            vote = replace(full, asked_by=ticket.asked_by)
            if await write_change(dispatch, stored, stored.run, changed, vote):
                return changed
            continue
        item = item_for(dispatch.env, ticket.thread_id, full, author)
        if before is not None:
            if await supersede_left(dispatch, stored, stored.run, before, item):
                return ticket
            continue
        with suppress(InboxMoved):  # Another decision may have come first.
            await store.commit(Commit(ticket.thread_id, inbox=[item], inbox_head=stored.thread.inbox_head))
            return ticket


async def withdraw(
    dispatch: Dispatcher, ticket_id: str, author: Author | None, reason: str, request: Request | None = None
) -> Ticket:
    """Withdraw the answer to a ticket that no run has taken yet, and keep it among the ticket's decisions.

    A repeated request withdraws nothing.
    """
    store = dispatch.env.store
    while True:
        ticket = await find_ticket(store, ticket_id)
        if await first_item(store, request) is not None:
            return ticket
        stored = await store.load(ticket.thread_id)
        if ticket.status != "open" or stored is None or stored.run is None:
            raise await closed_error(store, ticket)
        item = _find_item(stored, ticket.id)
        if item is None:
            raise InvalidDecision(
                f"ticket {ticket.id} for {ticket.tool} has no answer that waits for its run; there is nothing to "
                "withdraw"
            )
        check_withdrawal(ticket, item.decision, author)
        who = None if author is None else author.principal.id
        cause = NotTaken("withdrawn", who, reason, dispatch.env.clock.now())
        if await _drop_left(dispatch, stored, stored.run, item, cause, request=request):
            return ticket


async def supersede_left(
    dispatch: Dispatcher, stored: ThreadView, run: RunRecord, before: DecisionItem, item: DecisionItem
) -> bool:
    """Put an answer in the place of a left one; False, without a change, if the thread changed since."""
    given = item.decision
    cause = NotTaken("replaced", given.principal_id, given.reason, given.at)
    return await _drop_left(dispatch, stored, run, before, cause, item)


async def _drop_left(
    dispatch: Dispatcher,
    stored: ThreadView,
    run: RunRecord,
    item: DecisionItem,
    cause: NotTaken,
    successor: DecisionItem | None = None,
    request: Request | None = None,
) -> bool:
    """Retract a left answer and record why; a `successor` takes its place in the same commit.

    Returns False, without a change, if the thread changed since it was loaded. The owner of a claimed thread is
    about to take the answer, so this waits a moment for it.
    """
    if stored.thread.claimed:
        await asyncio.sleep(POLL)
        return False
    commit = Commit(
        stored.thread.id,
        replace(run.identity, agent_id=run.agent_id),
        version=stored.thread.version,
        inbox_head=stored.thread.inbox_head,
        runs=[run],
        decisions=[replace(item.decision, not_taken=cause)],
        pending=[replace(item, status="retracted", revision=item.revision + 1)],
        inbox=[] if successor is None else [successor],
        request=request,
    )
    try:
        await dispatch.activations.write(commit, run)
    except (Conflict, DuplicateRequest, InboxMoved):
        return False
    return True


def _find_item(stored: ThreadView, ticket_id: str) -> DecisionItem | None:
    items = [item for item in stored.inbox if isinstance(item, DecisionItem)]
    answers = [item for item in items if item.decision.verdict in ("approve", "deny")]
    return next((item for item in answers if item.decision.ticket_id == ticket_id), None)


async def _find_problem(dispatch: Dispatcher, stored: ThreadView) -> str:
    run, registry = stored.run, dispatch.env.registry
    if run is None or run.waiting is None:
        return ""
    if registry.knows(run.agent_id):
        settled = settled_calls(stored, decisions_in(stored.inbox))
        return "; ".join(resume_problems(registry, stored, run, settled))
    found = await dispatch.env.store.dispatches(thread_id=run.thread_id)
    return found[0].error if found else ""
