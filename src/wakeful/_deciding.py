"""Answering tickets by their id and giving them to others: what people do about runs that wait."""

from __future__ import annotations

from typing import Any, cast

from msgspec.structs import replace

from ._checks import check_decider, decision_of, decisions_of, id_of, instance_of, request_of
from ._reading import Reading
from .dispatch import RunResult, answer, leave_decision, reassign
from .errors import InvalidDecision, UsageError
from .types.content import clean_text, given_text
from .types.ids import new_id
from .types.runs import Principal
from .types.tickets import Decision, Ticket

__all__ = ["Deciding"]


class Deciding(Reading):
    """What a runtime does for those who decide."""

    def _bind(self) -> None:
        """Belong to the running event loop from now on."""
        raise NotImplementedError

    async def answer(
        self,
        ticket_id: str,
        value: Decision | Any,
        *,
        principal: Principal | None = None,
        reason: str = "",
        request_id: str | None = None,
    ) -> RunResult:
        """Answer a ticket by its id, from any process, and go on with its run.

        The answer is a decision (`ticket.approve()`), or a value: True or False for an approval, else what was
        asked for. Who answered, when and why are kept: `decisions(ticket_id)`. Giving the same decision twice does
        no harm, nor does repeating a `request_id`.
        """
        self._bind()
        instance_of(principal, Principal, "principal")
        reason = given_text(reason, "the reason")
        _check_id(ticket_id)
        if isinstance(value, Decision):
            if value.ticket_id != ticket_id:
                raise InvalidDecision(f"the decision is about ticket {value.ticket_id!r}, not {ticket_id!r}")
            given = decisions_of([value], None, principal, request_of(request_id))
        else:
            given = decisions_of([], {ticket_id: value}, principal, request_of(request_id))
        decision = replace(given[0], reason=reason) if reason else given[0]
        return await answer(self._dispatch, decision)

    async def leave_answer(self, decision: Decision) -> Ticket:
        """Answer a ticket and leave it to whoever runs its agent to go on: nothing is waited for, and none of the
        run's code is needed here."""
        self._bind()
        instance_of(decision, Decision, "decision")
        ticket = await leave_decision(self._store, decision_of(decision), self._env.clock.now())
        await self._signals.tell(self._dispatch, ticket.thread_id, None)
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
        """Give an open ticket to somebody else; its deadline stays. That is kept like an answer."""
        self._bind()
        instance_of(principal, Principal, "principal")
        reason = given_text(reason, "the reason")
        _check_id(ticket_id)
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
            id=request_of(request_id) or new_id(),
        )
        return await reassign(self._dispatch, decision)


def _check_id(ticket_id: Any) -> None:
    if not id_of(ticket_id, "ticket"):
        raise UsageError("the ticket is named by its id, a text that isn't empty")
