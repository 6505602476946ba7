"""Tickets: list, answer, reassign and comment on the questions that runs wait on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ..dispatch import (
    LeftAnswer,
    RunResult,
    answer,
    change_open_ticket,
    check_result,
    left_answer,
    submit_decision,
    withdraw,
)
from ..errors import InvalidDecision, UnknownTicket, UsageError
from ..errors.arguments import checked_methods
from ..stores import NO_DEADLINE, Tally, TicketOrder, due_of
from ..types.content import clean_text, require_text
from ..types.copies import copy_mutable
from ..types.inbox import Request
from ..types.runs import Author, Principal
from ..types.tickets import Decision, Ticket, TicketStatus, is_assignee, plain_assignee
from .arguments import (
    check_author,
    check_count,
    check_id,
    check_ids,
    check_instance,
    check_request_id,
    make_decisions,
)
from .filters import ticket_filters
from .runs import MAX_COUNT
from .scope import Scope

__all__ = ["Tickets"]


@checked_methods("runtime.tickets")
class Tickets:
    """`runtime.tickets`: the tickets of one tenant."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def get(self, ticket_id: str) -> Ticket:
        """A ticket; raises `UnknownTicket`."""
        found = await self._scope.store.ticket(_checked_id(ticket_id))
        if found is None:
            raise UnknownTicket(f"no ticket {ticket_id!r} in this store")
        return copy_mutable(found)

    async def list(
        self,
        run_id: str | None = None,
        *,
        thread: str | None = None,
        status: TicketStatus | None = None,
        agent: str | Collection[str] | None = None,
        tool: str | None = None,
        asked_by: str | None = None,
        assignee: str | None = None,
        requester: str | None = None,
        answerable_by: Principal | None = None,
        in_groups_of: Principal | None = None,
        visible_to: Principal | None = None,
        due_before: datetime | None = None,
        order: TicketOrder = "created",
        after: str | tuple[int | None, str] | None = None,
        limit: int | None = None,
    ) -> Sequence[Ticket]:
        """Tickets in any status, oldest first: of one run or thread with everything below it, or all.

        - `agent`: one agent or several; `asked_by`: as in `Ticket`, such as `approval`.
        - `requester`: the id of the principal at the root of the run's tree.
        - `answerable_by`: tickets that this principal may answer; `in_groups_of`: as a member of one of its groups
          or in one of its roles; `visible_to`: those, and the tickets that it requested.
        - `order="deadline"`: the nearest deadline first, for tickets in one status.

        Pass the last ticket's id as `after` for the next page; in the order of deadlines, its deadline and its id.
        """
        store = self._scope.store
        where = await ticket_filters(
            store,
            run_id,
            thread=thread,
            status=status,
            agent=agent,
            tool=tool,
            asked_by=asked_by,
            assignee=assignee,
            requester=requester,
            answerable_by=answerable_by,
            in_groups_of=in_groups_of,
            visible_to=visible_to,
            due_before=due_before,
            order=order,
        )
        position = await self._position(after, order)
        found = await store.tickets(
            run_id, order=order, after=position, limit=check_count(limit, "limit"), **where
        )
        return copy_mutable(found)

    async def count(
        self,
        run_id: str | None = None,
        *,
        thread: str | None = None,
        status: TicketStatus | None = None,
        agent: str | Collection[str] | None = None,
        tool: str | None = None,
        asked_by: str | None = None,
        assignee: str | None = None,
        requester: str | None = None,
        answerable_by: Principal | None = None,
        in_groups_of: Principal | None = None,
        visible_to: Principal | None = None,
        due_before: datetime | None = None,
    ) -> Tally:
        """The number of tickets, counted up to 10,000; the filters are those of `list`."""
        store = self._scope.store
        where = await ticket_filters(
            store,
            run_id,
            thread=thread,
            status=status,
            agent=agent,
            tool=tool,
            asked_by=asked_by,
            assignee=assignee,
            requester=requester,
            answerable_by=answerable_by,
            in_groups_of=in_groups_of,
            visible_to=visible_to,
            due_before=due_before,
        )
        return await store.count_tickets(MAX_COUNT, run_id, **where)

    async def decisions(self, ticket_id: str) -> Sequence[Decision]:
        """The decisions about a ticket and the comments on it, with who made each, when and why."""
        return copy_mutable(await self._scope.store.decisions(check_id(ticket_id, "ticket")))

    async def answer(
        self,
        ticket_id: str,
        value: Decision | Any,
        *,
        principal: Principal | Author | None = None,
        reason: str = "",
        request_id: str | Request | None = None,
        replace: bool = False,
        check: bool = True,
    ) -> RunResult[Any]:
        """Answer a ticket by its id, from any process, and continue its run.

        `value` is a decision (`ticket.approve()`) or a plain value: True or False for an approval, else the value
        asked for. `decisions(ticket_id)` shows who answered, when and why. Repeating a decision or a `request_id`
        has no effect. With `replace` the answer takes the place of one that no run has taken yet; an answer that
        can't be taken is replaced in any case.

        With a `principal` its rights are checked: `NotAllowed` says what it lacks, `StaleDecision` that the ticket
        isn't what it saw. Until a quorum is reached, the answer is a vote, and the run waits on.

        Raises `RunFailed` if the run failed; with `check=False` the result says so.
        """
        self._scope.bind()
        author = check_author(principal)
        reason = require_text(reason, "the reason")
        _checked_id(ticket_id)
        if isinstance(value, Decision):
            if value.ticket_id != ticket_id:
                raise InvalidDecision(f"the decision is about ticket {value.ticket_id!r}, not {ticket_id!r}")
            given = make_decisions([value], None, author, check_request_id(request_id))
        else:
            given = make_decisions([], {ticket_id: value}, author, check_request_id(request_id))
        decision = msgspec.structs.replace(given[0], reason=reason) if reason else given[0]
        result = await answer(self._scope.dispatch, decision, author, replaces=replace)
        return await check_result(self._scope.dispatch, result, check=check)

    async def submit(
        self, decision: Decision, *, principal: Principal | Author | None = None, replace: bool = False
    ) -> Ticket:
        """Commit a decision without continuing the run here. A worker that serves the agent continues it; none of
        the run's code is needed in this process. `principal` and `replace` are as for `answer`."""
        self._scope.bind()
        author = check_author(principal)
        (given,) = make_decisions([decision], None, author, None)
        ticket = await submit_decision(self._scope.dispatch, given, author, replaces=replace)
        await self._scope.dispatch.notify_others(ticket.thread_id, None)
        self._scope.dispatch.worker.look()
        return ticket

    async def left(self, ticket_id: str) -> LeftAnswer | None:
        """The answer to a ticket that no run has taken yet, and why it can't be taken; None if there is none."""
        return copy_mutable(await left_answer(self._scope.dispatch, await self.get(ticket_id)))

    async def withdraw(
        self,
        ticket_id: str,
        *,
        principal: Principal | Author | None = None,
        reason: str = "",
        request_id: str | Request | None = None,
    ) -> Ticket:
        """Withdraw an answer that no run has taken yet. It is kept among the ticket's decisions as `not_taken`.
        Repeating a `request_id` withdraws nothing."""
        self._scope.bind()
        author, request = check_author(principal), check_request_id(request_id)
        reason = require_text(reason, "the reason")
        return copy_mutable(await withdraw(self._scope.dispatch, _checked_id(ticket_id), author, reason, request))

    async def reassign(
        self,
        ticket_id: str,
        to: str,
        *,
        principal: Principal | Author | None = None,
        reason: str = "",
        request_id: str | Request | None = None,
    ) -> Ticket:
        """Give an open ticket to another assignee: `user:<id>`, `group:<name>`, `role:<name>` or a user's id.

        Its deadline stays. The change is kept among its decisions.
        """
        reason = require_text(reason, "the reason")
        if not is_assignee(to):
            raise UsageError(
                f"a ticket is given to user:<id>, group:<name>, role:<name> or a user's id, a text, not {to!r:.80}"
            )
        decision = Decision(
            _checked_id(ticket_id), "reassign", value=plain_assignee(clean_text(to)), reason=reason
        )
        return await self._change(decision, principal, request_id)

    async def comment(
        self,
        ticket_id: str,
        text: str,
        *,
        principal: Principal | Author | None = None,
        request_id: str | Request | None = None,
    ) -> Ticket:
        """Comment on an open ticket. The comment is kept among its decisions, and decides nothing."""
        text = require_text(text, "a comment")
        if not text.strip():
            raise UsageError("a comment is a text that isn't empty")
        return await self._change(Decision(_checked_id(ticket_id), "comment", reason=text), principal, request_id)

    async def _position(
        self, after: str | tuple[int | None, str] | None, order: TicketOrder
    ) -> tuple[int, str] | None:
        if isinstance(after, tuple):
            due, ticket_id = after
            check_instance(due, int, "the deadline of after")
            return NO_DEADLINE if due is None else due, check_id(ticket_id, "ticket")
        check_ids(ticket=after)
        if after is None:
            return None
        return due_of(await self.get(after)) if order == "deadline" else 0, after

    async def _change(self, decision: Decision, principal: Any, request_id: str | Request | None) -> Ticket:
        self._scope.bind()
        author = check_author(principal)
        request = check_request_id(request_id) or Request(decision.id)
        given = msgspec.structs.replace(decision, id=request.id, request_digest=request.digest)
        return copy_mutable(await change_open_ticket(self._scope.dispatch, given, author))


def _checked_id(ticket_id: Any) -> str:
    if not check_id(ticket_id, "ticket"):
        raise UsageError("the ticket is named by its id, a text that isn't empty")
    return ticket_id
