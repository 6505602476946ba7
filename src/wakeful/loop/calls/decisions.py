"""Decisions on tickets: a call continues, ends, or asks again; a ticket gets a vote, a comment or an assignee."""

from __future__ import annotations

from msgspec.structs import replace

from ...errors import InvalidDecision, NotAllowed, StaleDecision
from ...identity.rights import permit
from ...tools import MAX_RESULT_BYTES
from ...types.events import TicketChanged
from ...types.ids import digest_of
from ...types.inbox import DecisionItem
from ...types.records import Grant, grant_prefix
from ...types.tickets import Decision, NotTaken, Ticket
from ..activation import Activation
from ..held import settle_held
from .ledger import answered, asked_again, change_ticket, edit_fault

__all__ = ["apply_decision", "apply_decision_item", "write_change"]


def apply_decision_item(act: Activation, item: DecisionItem) -> None:
    """Apply a decision from the inbox.

    The ticket may have changed since its sender looked: a decision that its author may no longer make is kept
    without effect. The sender may not have had the tool at hand: edited arguments that don't fit the tool are
    refused, and the ticket stays open.
    """
    decision = item.decision
    ticket = act.view.tickets.get(decision.ticket_id)
    if ticket is None:
        return
    act.link(item)
    try:
        decision = permit(ticket, decision, item.author)
    except (NotAllowed, StaleDecision, InvalidDecision) as error:
        cause = NotTaken("stale" if isinstance(error, StaleDecision) else "forbidden", None, str(error), act.now)
        write_change(act, ticket, replace(decision, asked_by=ticket.asked_by, not_taken=cause))
        return
    fault = edit_fault(act.agent.tools.get(ticket.tool), ticket, decision)
    if fault is not None:
        act.change(asked_again(act.view.calls[ticket.call_id], ticket, fault, act.identity, act.now))
        return
    apply_decision(act, decision)
    if (follow_up := item.follow_up) is not None:
        act.draft.put_item(follow_up)
        if follow_up.thread_id == act.identity.thread_id:
            act.view.inbox[follow_up.id] = follow_up  # The next step may come before the next commit.


def apply_decision(act: Activation, decision: Decision) -> None:
    """Apply a decision to its ticket and its call; does nothing if the ticket is closed."""
    ticket = act.view.tickets.get(decision.ticket_id)
    if ticket is None:
        return
    changed = change_ticket(ticket, decision, act.now)
    if changed is not None:
        if changed is not ticket or decision.verdict == "comment":
            write_change(act, changed, replace(decision, asked_by=ticket.asked_by, at=decision.at or act.now))
        return
    call, tool = act.view.calls[ticket.call_id], act.agent.tools.get(ticket.tool)
    if ticket.arguments != call.effective_arguments:
        call = replace(call, edited=ticket.arguments)  # An earlier vote edited them.
    limit = MAX_RESULT_BYTES if tool is None else tool.max_result_bytes
    change = answered(call, ticket, decision, act.identity, act.now, limit)
    act.draft.put_decision(change.call.decisions[-1])
    if (grant := _grant_of(act, ticket, change.call.decisions[-1])) is not None:
        act.draft.put_record(grant)
    if change.message is not None and act.has_hooks("after_tool"):
        change = replace(change, call=replace(change.call, hooks_due=True))
    act.change(change)
    if call.is_guardrail:
        settle_held(act, decision)


def _grant_of(act: Activation, ticket: Ticket, decision: Decision) -> Grant | None:
    """The grant that an approval gives; None if it is not to be remembered."""
    remember, offer, run = decision.remember, ticket.offer, act.view.run
    if remember is None or offer is None or decision.verdict != "approve":
        return None
    scope_ids = {"run": run.id, "thread": run.thread_id, "agent": ticket.agent_id, "user": ticket.requester}
    scope_id = scope_ids[remember.scope]
    if scope_id is None:
        return None
    seconds = offer.seconds if remember.seconds is None else remember.seconds
    return Grant(
        id=f"{grant_prefix(remember.scope, scope_id)}{digest_of(decision.id.encode())}",
        pattern=remember.pattern or offer.patterns[0],
        rule=offer.rule,
        scope=remember.scope,
        scope_id=scope_id,
        agent_id=ticket.agent_id,
        tool=ticket.tool,
        ticket_id=ticket.id,
        granted_by=decision.principal_id,
        reason=decision.reason,
        created_at=act.now,
        expires_at=act.now + seconds * 1000,
    )


def write_change(act: Activation, ticket: Ticket, decision: Decision) -> None:
    """Write an open ticket and the decision that changed it."""
    act.view.tickets[ticket.id] = ticket
    act.draft.put_ticket(ticket)
    act.draft.put_decision(decision)
    act.log(TicketChanged(act.identity, 0, act.now, ticket.call_id, ticket, decision))
