"""Decisions on tickets: a call continues, ends, or asks again; a ticket goes to another person."""

from __future__ import annotations

from msgspec.structs import replace

from ...tools import MAX_RESULT_BYTES
from ...types.inbox import DecisionItem
from ...types.tickets import Decision, Ticket
from ..activation import Activation
from .ledger import answered, asked_again, edit_fault, reassigned

__all__ = ["apply_decision", "apply_decision_item", "reassign_ticket"]


def apply_decision_item(act: Activation, item: DecisionItem) -> None:
    """Apply a decision from the inbox.

    Its sender may not have had the tool at hand: edited arguments that don't fit the tool are refused, and the
    ticket stays open.
    """
    decision = item.decision
    ticket = act.view.tickets.get(decision.ticket_id)
    fault = None if ticket is None else edit_fault(act.agent.tools.get(ticket.tool), ticket, decision)
    if ticket is not None and fault is not None:
        act.change(asked_again(act.view.calls[ticket.call_id], ticket, fault, act.identity, act.now))
        return
    apply_decision(act, decision)
    if ticket is not None and (follow_up := item.follow_up) is not None:
        act.draft.put_item(follow_up)
        if follow_up.thread_id == act.identity.thread_id:
            act.view.inbox[follow_up.id] = follow_up  # The next step may come before the next commit.


def apply_decision(act: Activation, decision: Decision) -> None:
    """Apply a decision to its call; does nothing if the ticket is closed."""
    ticket = act.view.tickets.get(decision.ticket_id)
    if ticket is None:
        return
    if decision.verdict == "reassign":
        reassign_ticket(act, replace(ticket, assignee=decision.value), decision)
        return
    tool = act.agent.tools.get(ticket.tool)
    limit = MAX_RESULT_BYTES if tool is None else tool.max_result_bytes
    change = answered(act.view.calls[ticket.call_id], ticket, decision, act.identity, act.now, limit)
    act.draft.put_decision(change.call.decisions[-1])
    if change.call.state == "finished" and act.has_hooks("after_tool"):
        change = replace(change, call=replace(change.call, hooks_due=True))
    act.change(change)


def reassign_ticket(act: Activation, ticket: Ticket, decision: Decision) -> None:
    """Write a ticket with its new assignee."""
    act.view.tickets[ticket.id] = ticket
    act.draft.put_ticket(ticket)
    act.draft.put_decision(decision)
    act.log(reassigned(ticket, decision, act.identity, act.now))
