"""Operations of tickets."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ...api.numbers import time_of
from ...api.pages import Page, page_of, position_of
from ...api.runs import DecisionBody
from ...api.tickets import (
    AnswerTicket,
    AnswerTickets,
    CommentTicket,
    CountTickets,
    LeftView,
    ListTickets,
    ReassignTicket,
    TicketOutcome,
    WithdrawAnswer,
)
from ...dispatch import RunResult
from ...errors import (
    CannotResume,
    InvalidDecision,
    NotAllowed,
    StaleDecision,
    TicketClosed,
    UnknownRun,
    UnknownTicket,
    WakefulError,
)
from ...identity import Deny, Filter, Resource
from ...identity.rights import is_candidate
from ...stores import Tally
from ...types.runs import Principal
from ...types.tickets import Decision, Ticket
from ..problems import problem_of_error
from .call import Call, Reply
from .operation import op
from .runs import settle

__all__ = ["is_visible", "ticket_of"]


@op("tickets.list", "GET", "/v1/tickets", scope="tickets:read", reply=Page[Ticket], errors=(UnknownRun,))
async def list_(call: Call, query: ListTickets) -> Any:
    """List tickets that the caller asked, may answer, or operates: oldest first, or by deadline."""
    found = await call.runtime.tickets.list(
        query.run, order=query.order, after=_after(query), limit=query.limit + 1, **await _filters(call, query)
    )
    return page_of(query, found, _key)


@op("tickets.count", "GET", "/v1/tickets:count", scope="tickets:read", reply=Tally, errors=(UnknownRun,))
async def count(call: Call, query: CountTickets) -> Any:
    """Count tickets by the filters of `tickets.list`, up to 10,000."""
    return await call.runtime.tickets.count(query.run, **await _filters(call, query))


@op("tickets.get", "GET", "/v1/tickets/{ticket}", scope="tickets:read", reply=Ticket)
async def get(call: Call, ticket: str) -> Any:
    """A ticket. Its `digest` is what a decision's `seen` refers to."""
    return await ticket_of(call, ticket)


@op("tickets.decisions", "GET", "/v1/tickets/{ticket}/decisions", scope="tickets:read", reply=list[Decision])
async def decisions(call: Call, ticket: str) -> Any:
    """The decisions about a ticket and the comments on it, with who made each, when and why."""
    await ticket_of(call, ticket)
    return await call.runtime.tickets.decisions(ticket)


@op("tickets.left", "GET", "/v1/tickets/{ticket}/left", scope="tickets:read", reply=LeftView)
async def left(call: Call, ticket: str) -> Any:
    """The answer to a ticket that no run has taken yet, and why it can't be taken."""
    await ticket_of(call, ticket)
    found = await call.runtime.tickets.left(ticket)
    return LeftView() if found is None else LeftView(decision=found.decision, problem=found.problem)


@op(
    "tickets.answer",
    "POST",
    "/v1/tickets/{ticket}/answer",
    scope="tickets:answer",
    reply=RunResult[Any],
    statuses=(200, 202),
    errors=(TicketClosed, CannotResume, InvalidDecision, StaleDecision),
    repeatable=True,
)
async def answer(call: Call, ticket: str, body: AnswerTicket) -> Any:
    """Answer a ticket, and continue its run. 202 if the run still runs, or more approvals are missing."""
    found = await ticket_of(call, ticket)
    if not body.wait:
        await _submit(call, found, body)
        return Reply(await call.runtime.runs.result(found.run_id), 202)
    work = call.runtime.tickets.answer(
        found.id,
        body.decision(found.id),
        principal=call.author,
        request_id=call.request_id,
        replace=body.replace,
        check=False,
    )
    return await settle(call, found.run_id, work, body.wait)


@op(
    "tickets.answer_many",
    "POST",
    "/v1/tickets:answer",
    scope="tickets:answer",
    reply=list[TicketOutcome],
    repeatable=True,
)
async def answer_many(call: Call, body: AnswerTickets) -> Any:
    """Answer several tickets. Each is judged alone; the outcomes are in the order of the answers."""
    return [await _answer_one(call, each) for each in body.answers]


@op(
    "tickets.withdraw",
    "POST",
    "/v1/tickets/{ticket}/withdraw",
    scope="tickets:answer",
    reply=Ticket,
    errors=(TicketClosed,),
    repeatable=True,
)
async def withdraw(call: Call, ticket: str, body: WithdrawAnswer) -> Any:
    """Withdraw an answer that no run has taken yet."""
    found = await ticket_of(call, ticket)
    return await call.runtime.tickets.withdraw(
        found.id, principal=call.author, reason=body.reason, request_id=call.request_id
    )


@op(
    "tickets.reassign",
    "POST",
    "/v1/tickets/{ticket}/reassign",
    scope="tickets:reassign",
    reply=Ticket,
    errors=(TicketClosed,),
    repeatable=True,
)
async def reassign(call: Call, ticket: str, body: ReassignTicket) -> Any:
    """Give an open ticket to another assignee."""
    found = await ticket_of(call, ticket)
    return await call.runtime.tickets.reassign(
        found.id, body.to, principal=call.author, reason=body.reason, request_id=call.request_id
    )


@op(
    "tickets.comment",
    "POST",
    "/v1/tickets/{ticket}/comments",
    scope="tickets:answer",
    reply=Ticket,
    statuses=(201,),
    errors=(TicketClosed,),
    repeatable=True,
)
async def comment(call: Call, ticket: str, body: CommentTicket) -> Any:
    """Comment on an open ticket."""
    found = await ticket_of(call, ticket)
    return await call.runtime.tickets.comment(
        found.id, body.text, principal=call.author, request_id=call.request_id
    )


async def ticket_of(call: Call, ticket: str) -> Ticket:
    """A ticket that the caller may use for the operation; raises `UnknownTicket` for one that it may not see."""
    found = await call.find(lambda: call.runtime.tickets.get(ticket), "ticket", ticket)
    if not await is_visible(call, found):
        await call.audit("denied", "ticket", found.id)
        raise UnknownTicket(f"no ticket {ticket!r:.80} for this caller")
    action = call.operation.scope
    if action == "tickets:read":
        return found
    # Which tickets are a caller's to decide is checked where the decision is made.
    verdict = await call.serving.authorize(call.caller, action, _resource(found))
    if isinstance(verdict, Deny) or not call.caller.may(action, found.agent_id):
        await call.audit("denied", "ticket", found.id, action)
        raise call.refused(action, verdict.reason if isinstance(verdict, Deny) else "")
    return found


async def is_visible(call: Call, ticket: Ticket) -> bool:
    """Whether the caller may see a ticket: as its requester, as one who may answer it, or as an operator."""
    if not call.caller.may("tickets:read", ticket.agent_id):
        return False
    principal = call.caller.principal
    match await call.serving.authorize(call.caller, "tickets:read", _resource(ticket)):
        case Deny():
            return False
        case Filter(owner, agents):
            if agents is not None and ticket.agent_id not in agents:
                return False
            is_theirs = principal is not None and is_candidate(ticket, principal)
            return owner in (None, ticket.requester) or is_theirs or call.caller.may("tickets:override")
        case _:
            return True


def _resource(ticket: Ticket) -> Resource:
    return Resource("ticket", ticket.id, ticket.requester, ticket.agent_id)


async def _filters(call: Call, query: CountTickets) -> dict[str, Any]:
    """The conditions of a list: those that the caller asks for, and those that show it no more than it may see."""
    narrowed, principal = await call.narrow("ticket"), call.caller.principal
    found: dict[str, Any] = {
        "thread": query.thread,
        "status": query.status,
        "agent": call.agents_of(narrowed, query.agent),
        "tool": query.tool,
        "asked_by": query.asked_by,
        "requester": query.requester,
        "due_before": time_of(query.due_before),
    }
    if narrowed.owner is not None and not call.caller.may("tickets:override"):
        # An owner is a requester here, and whoever may answer a ticket sees it, too.
        found["visible_to"] = (
            principal if principal and principal.id == narrowed.owner else Principal(narrowed.owner)
        )
    match query.assignee:
        case "me" | "my-groups" if principal is None:
            pass  # A caller with every right may answer every ticket.
        case "me":
            found["answerable_by"] = principal
        case "my-groups":
            found["in_groups_of"] = principal
        case _:
            found["assignee"] = query.assignee
    return found


def _key(ticket: Ticket) -> str:
    return f"{'' if ticket.deadline is None else ticket.deadline} {ticket.id}"


def _after(query: ListTickets) -> tuple[int | None, str] | None:
    position = position_of(query)
    if position is None:
        return None
    deadline, _, ticket_id = position.partition(" ")
    return int(deadline) if deadline else None, ticket_id


async def _answer_one(call: Call, body: DecisionBody) -> TicketOutcome:
    try:
        done = await _submit(call, await ticket_of(call, body.ticket_id), body)
    except WakefulError as error:
        if isinstance(error, NotAllowed):
            await call.audit_refusal("ticket", body.ticket_id)
        return TicketOutcome(ticket_id=body.ticket_id, problem=problem_of_error(error))
    return TicketOutcome(ticket_id=body.ticket_id, status=done.status)


async def _submit(call: Call, ticket: Ticket, body: DecisionBody) -> Ticket:
    """Commit an answer; a process that serves the agent continues the run."""
    decision, request = body.decision(ticket.id), call.request_id
    if request is not None:
        decision = replace(decision, id=f"{request.id}:{ticket.id}", request_digest=request.digest)
    return await call.runtime.tickets.submit(decision, principal=call.author, replace=body.replace)
