"""Tickets and decisions as text."""

from __future__ import annotations

from typing import Any

from ..dispatch import LeftAnswer
from ..types.codec import encode
from ..types.tickets import Answer, Decision, Ticket
from .prompts import votes_text
from .text import arguments_text, one_line, time_text

__all__ = ["cells", "describe", "left_fields", "page"]


def cells(ticket: Ticket, left: LeftAnswer | None) -> tuple[str, ...]:
    deadline = "-" if ticket.deadline is None else time_text(ticket.deadline)
    question = one_line(ticket.message, 80)
    if left is None:
        return ticket.status, ticket.assignee or "-", deadline, ticket.tool, question
    problem = f"; can't be taken: {one_line(left.problem, 200)}" if left.problem else ""
    question = f"{question}  (left: {describe(left.decision)}{problem})"
    return "left", ticket.assignee or "-", deadline, ticket.tool, question


def left_fields(left: LeftAnswer) -> dict[str, Any]:
    """The fields of a left answer in JSON."""
    return {"left": left.decision, "left_problem": left.problem}


def page(ticket: Ticket, decisions: list[Decision], left: LeftAnswer | None) -> list[str]:
    lines = [
        ticket.message,
        f"  ticket {ticket.id}, {ticket.status}, asked by {ticket.asked_by} at {time_text(ticket.created_at)}",
        f"  thread {ticket.thread_id}, run {ticket.run_id}, call {ticket.call_id}",
        f"  {ticket.tool} {arguments_text(ticket.arguments, indent=2)}",
        f"  takes {', '.join(ticket.accepts)}, or deny; its digest is {ticket.digest}",
    ]
    if ticket.schema is not None:
        lines.append(f"  the answer fits {encode(ticket.schema).decode()}")
    if (offer := ticket.offer) is not None:
        lines.append(f"  its approval may be remembered for the {', '.join(offer.scopes)}:")
        lines += [f"    {one_line(pattern)}" for pattern in offer.patterns]
    if ticket.assignee is not None:
        lines.append(f"  assigned to {ticket.assignee}")
    if ticket.groups:
        lines.append(f"  for {', '.join(f'group:{group}' for group in ticket.groups)}")
    if ticket.requester is not None:
        lines.append(f"  requested by {ticket.requester}")
    if votes := votes_text(ticket):
        lines.append(f"  {votes}")
    if ticket.deadline is not None:
        given = ticket.on_deadline
        then = f"goes to {ticket.escalate[0].to}" if ticket.escalate else f"is decided: {given}"
        if isinstance(given, Answer) and not ticket.escalate:
            then = f"is answered with {encode(given.value).decode()}"
        then = "is settled by the remote agent" if ticket.asked_by == "remote" else then
        lines.append(f"  at {time_text(ticket.deadline)} it {then}")
    lines += [f"  {describe(decision)}" for decision in decisions]
    if left is not None:
        wait = f"can't be taken: {left.problem}" if left.problem else f"waits for a worker that has {ticket.tool}"
        lines.append(f"  left: {describe(left.decision)}; {wait}")
    return lines


def describe(decision: Decision) -> str:
    """The decision with its time, decider and reason."""
    why = f": {one_line(decision.reason)}" if decision.reason else ""
    whose = " (override)" if decision.override else ""
    text = f"{time_text(decision.at)} {_what(decision)} by {decision.principal_id or 'somebody'}{whose}{why}"
    if (cause := decision.not_taken) is None:
        return text
    why = f": {one_line(cause.reason)}" if cause.reason else ""
    who = "the remote agent" if cause.cause == "refused" else cause.principal_id or "somebody"
    return f"{text} ({cause.cause} {time_text(cause.at)} by {who}{why})"


def _what(decision: Decision) -> str:
    if decision.verdict == "reassign":
        return f"reassign to {decision.value}"
    if decision.verdict == "comment":
        return "comment"
    if decision.verdict == "approve" and decision.mode == "arguments":
        return f"edit {arguments_text(decision.value)}"
    if decision.verdict == "approve" and (decision.mode == "result" or decision.value is not None):
        verb = "result" if decision.mode == "result" else "answer"
        return f"{verb} {one_line(encode(decision.value).decode())}"
    return decision.verdict
