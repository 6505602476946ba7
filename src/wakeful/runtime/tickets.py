"""Tickets: list, answer and reassign the questions that runs wait on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast, get_args

from msgspec.structs import replace

from ..dispatch import RunResult, answer, reassign, submit_decision, threads_below
from ..errors import InvalidDecision, UnknownTicket, UsageError
from ..types.content import clean_text, require_text
from ..types.copies import copy_mutable
from ..types.ids import new_id
from ..types.runs import Principal
from ..types.tickets import Decision, Ticket, TicketStatus
from .arguments import (
    check_choice,
    check_count,
    check_decider,
    check_decision,
    check_id,
    check_ids,
    check_instance,
    check_request_id,
    make_decisions,
)
from .runs import find_run
from .scope import Scope

__all__ = ["Tickets"]


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
        assignee: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Sequence[Ticket]:
        """Tickets in any status, oldest first: of one run or thread with everything below it, or all."""
        check_choice(status, get_args(TicketStatus), "status")
        check_ids(thread=thread, ticket=after)
        check_instance(assignee, str, "assignee")
        assignee = None if assignee is None else clean_text(assignee)  # Tickets keep it cleaned, too.
        store, most, above = self._scope.store, check_count(limit, "limit"), thread
        if run_id is not None:
            above = (await find_run(store, run_id)).thread_id
        wanted: dict[str, Any] = {"status": status, "assignee": assignee, "after": after, "limit": most}
        found = [*await store.tickets(run_id, thread_id=thread, **wanted)]
        if above is None:
            return copy_mutable(found)
        for below in await threads_below(store, above, run_id):
            found += await store.tickets(thread_id=below, **wanted)
        return copy_mutable(sorted(found, key=lambda ticket: ticket.id)[:most])

    async def decisions(self, ticket_id: str) -> Sequence[Decision]:
        """The decisions about a ticket, with who made each, when and why."""
        return copy_mutable(await self._scope.store.decisions(check_id(ticket_id, "ticket")))

    async def answer(
        self,
        ticket_id: str,
        value: Decision | Any,
        *,
        principal: Principal | None = None,
        reason: str = "",
        request_id: str | None = None,
    ) -> RunResult:
        """Answer a ticket by its id, from any process, and continue its run.

        `value` is a decision (`ticket.approve()`) or a plain value: True or False for an approval, else the value
        asked for. `decisions(ticket_id)` shows who answered, when and why. Repeating a decision or a `request_id`
        has no effect.
        """
        self._scope.bind()
        check_instance(principal, Principal, "principal")
        reason = require_text(reason, "the reason")
        _checked_id(ticket_id)
        if isinstance(value, Decision):
            if value.ticket_id != ticket_id:
                raise InvalidDecision(f"the decision is about ticket {value.ticket_id!r}, not {ticket_id!r}")
            given = make_decisions([value], None, principal, check_request_id(request_id))
        else:
            given = make_decisions([], {ticket_id: value}, principal, check_request_id(request_id))
        decision = replace(given[0], reason=reason) if reason else given[0]
        return await answer(self._scope.dispatch, decision)

    async def submit(self, decision: Decision) -> Ticket:
        """Commit a decision without continuing the run here. A worker that serves the agent continues it; none of
        the run's code is needed in this process."""
        self._scope.bind()
        check_instance(decision, Decision, "decision")
        ticket = await submit_decision(self._scope.store, check_decision(decision), self._scope.env.clock.now())
        await self._scope.dispatch.notify_others(ticket.thread_id, None)
        return ticket

    async def reassign(
        self,
        ticket_id: str,
        to: str,
        *,
        principal: Principal | None = None,
        reason: str = "",
        request_id: str | None = None,
    ) -> Ticket:
        """Give an open ticket to another assignee. Its deadline stays. The change is kept among its decisions."""
        self._scope.bind()
        check_instance(principal, Principal, "principal")
        reason = require_text(reason, "the reason")
        _checked_id(ticket_id)
        if not isinstance(cast(Any, to), str) or not to.strip():
            raise UsageError(f"a ticket is given to somebody by a text, not {to!r:.80}")
        to = clean_text(to)
        who = None if principal is None else principal.id
        check_decider(who)
        decision = Decision(
            ticket_id,
            "reassign",
            value=to,
            reason=reason,
            principal_id=who,
            id=check_request_id(request_id) or new_id(),
        )
        return await reassign(self._scope.dispatch, decision)


def _checked_id(ticket_id: Any) -> str:
    if not check_id(ticket_id, "ticket"):
        raise UsageError("the ticket is named by its id, a text that isn't empty")
    return ticket_id
