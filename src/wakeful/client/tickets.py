"""The tickets of a client."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ..api.runs import MAX_WAIT, DecisionBody
from ..api.tickets import (
    AnswerTicket,
    AnswerTickets,
    CommentTicket,
    LeftView,
    ListTickets,
    ReassignTicket,
    TicketOutcome,
    WithdrawAnswer,
)
from ..dispatch import LeftAnswer, RunResult
from ..errors import InvalidDecision, UnknownTicket
from ..stores import Tally, TicketOrder
from ..types.tickets import Decision, Ticket, TicketStatus
from .http import Http, path_of
from .nouns import Noun, Settled, checked, ms, pages

__all__ = ["Tickets", "answer_body", "decision_body"]


class Tickets(Noun):
    """`client.tickets`: see `runtime.tickets`."""

    def __init__(self, http: Http, settled: Settled) -> None:
        super().__init__(http)
        self._settled = settled

    async def get(self, ticket_id: str) -> Ticket:
        """A ticket; raises `UnknownTicket`."""
        if not ticket_id:
            raise UnknownTicket("a ticket is named by its id, a text that isn't empty")
        return await self._http.get(path_of("/v1/tickets/{}", ticket_id), Ticket)

    async def list(
        self,
        run_id: str | None = None,
        *,
        thread: str | None = None,
        status: TicketStatus | None = None,
        agent: str | None = None,
        tool: str | None = None,
        asked_by: str | None = None,
        assignee: str | None = None,
        requester: str | None = None,
        due_before: datetime | None = None,
        order: TicketOrder = "created",
        after: str | tuple[int | None, str] | None = None,
        limit: int | None = None,
    ) -> Sequence[Ticket]:
        """Tickets in any status, oldest first or by deadline; see `runtime.tickets.list`.

        The `assignee` may be `me` for those that the caller may answer, and `my-groups` for those of them that are
        for its groups and roles.
        """
        query = ListTickets(
            run=run_id,
            thread=thread,
            status=status,
            agent=agent,
            tool=tool,
            asked_by=asked_by,
            assignee=assignee,
            requester=requester,
            due_before=ms(due_before),
            order=order,
        )
        if isinstance(after, str):
            after = ((await self.get(after)).deadline if order == "deadline" else None), after
        key = None if after is None else f"{'' if after[0] is None else after[0]} {after[1]}"
        return await pages(self._http, "/v1/tickets", Ticket, query, limit, key)

    async def count(
        self,
        run_id: str | None = None,
        *,
        thread: str | None = None,
        status: TicketStatus | None = None,
        agent: str | None = None,
        tool: str | None = None,
        asked_by: str | None = None,
        assignee: str | None = None,
        requester: str | None = None,
        due_before: datetime | None = None,
    ) -> Tally:
        """The number of tickets, counted up to 10,000; the filters are those of `list`."""
        return await self._http.get(
            "/v1/tickets:count",
            Tally,
            run=run_id,
            thread=thread,
            status=status,
            agent=agent,
            tool=tool,
            asked_by=asked_by,
            assignee=assignee,
            requester=requester,
            due_before=ms(due_before),
        )

    async def decisions(self, ticket_id: str) -> Sequence[Decision]:
        """The decisions about a ticket and the comments on it."""
        return await self._http.get(path_of("/v1/tickets/{}/decisions", ticket_id), list[Decision])

    async def left(self, ticket_id: str) -> LeftAnswer | None:
        """The answer to a ticket that no run has taken yet, and why it can't be taken; None if there is none."""
        found = await self._http.get(path_of("/v1/tickets/{}/left", ticket_id), LeftView)
        return None if found.decision is None else LeftAnswer(found.decision, found.problem)

    async def answer(
        self,
        ticket_id: str,
        value: Decision | Any,
        *,
        reason: str = "",
        request_id: str | None = None,
        replace: bool = False,
        check: bool = True,
    ) -> RunResult[Any]:
        """Answer a ticket by its id, and continue its run; see `runtime.tickets.answer`."""
        if isinstance(value, Decision) and value.ticket_id != ticket_id:
            raise InvalidDecision(f"the decision is about ticket {value.ticket_id!r}, not {ticket_id!r}")
        given = decision_body(value) if isinstance(value, Decision) else answer_body(ticket_id, value)
        body = AnswerTicket(
            verdict=given.verdict,
            mode=given.mode,
            value=given.value,
            reason=reason or given.reason,
            seen=given.seen,
            remember=given.remember,
            replace=replace,
            wait=MAX_WAIT,
        )
        path = path_of("/v1/tickets/{}/answer", ticket_id)
        found = await self._http.post(path, RunResult[Any], body, request_id=request_id)
        return checked(await self._settled(found), check=check)

    async def submit(self, decision: Decision, *, request_id: str | None = None, replace: bool = False) -> Ticket:
        """Store a decision without waiting for the run; see `runtime.tickets.submit`."""
        given = decision_body(decision)
        body = AnswerTicket(
            verdict=given.verdict,
            mode=given.mode,
            value=given.value,
            reason=given.reason,
            seen=given.seen,
            remember=given.remember,
            replace=replace,
        )
        path = path_of("/v1/tickets/{}/answer", decision.ticket_id)
        await self._http.post(path, RunResult[Any], body, request_id=request_id)
        return await self.get(decision.ticket_id)

    async def answer_many(self, *decisions: Decision, request_id: str | None = None) -> Sequence[TicketOutcome]:
        """Answer several tickets of any runs; each is judged alone."""
        body = AnswerTickets(answers=tuple([decision_body(each) for each in decisions]))
        return await self._http.post("/v1/tickets:answer", list[TicketOutcome], body, request_id=request_id)

    async def withdraw(self, ticket_id: str, *, reason: str = "", request_id: str | None = None) -> Ticket:
        """Withdraw an answer that no run has taken yet."""
        path, body = path_of("/v1/tickets/{}/withdraw", ticket_id), WithdrawAnswer(reason=reason)
        return await self._http.post(path, Ticket, body, request_id=request_id)

    async def reassign(
        self, ticket_id: str, to: str, *, reason: str = "", request_id: str | None = None
    ) -> Ticket:
        """Give an open ticket to another assignee."""
        path, body = path_of("/v1/tickets/{}/reassign", ticket_id), ReassignTicket(to=to, reason=reason)
        return await self._http.post(path, Ticket, body, request_id=request_id)

    async def comment(self, ticket_id: str, text: str, *, request_id: str | None = None) -> Ticket:
        """Comment on an open ticket."""
        path = path_of("/v1/tickets/{}/comments", ticket_id)
        return await self._http.post(path, Ticket, CommentTicket(text=text), request_id=request_id)


def decision_body(decision: Decision) -> DecisionBody:
    """A decision as a request has it."""
    return DecisionBody(
        ticket_id=decision.ticket_id,
        verdict=decision.verdict,
        mode=decision.mode,
        value=decision.value,
        reason=decision.reason,
        seen=decision.seen,
        remember=decision.remember,
    )


def answer_body(ticket_id: str, value: Any) -> DecisionBody:
    """A plain value as an answer: True and False approve and deny an approval."""
    return DecisionBody(ticket_id=ticket_id, value=value)
