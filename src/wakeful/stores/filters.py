"""Filters of lists: the conditions on runs and tickets that stores evaluate inside their queries."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypedDict

from ..types.addressees import addressees_of, barred_from, group_names, names_of
from ..types.runs import Principal, RunRecord, RunStatus, WaitReason
from ..types.tickets import Ticket, TicketStatus

__all__ = [
    "NO_DEADLINE",
    "OutcomeKind",
    "RunFilters",
    "TicketFilters",
    "TicketOrder",
    "due_of",
    "matches_run",
    "matches_ticket",
    "outcome_of",
]

OutcomeKind = Literal["natural_end", "end_requested", "stopped", "cancelled", "blocked", "error"]
TicketOrder = Literal["created", "deadline"]

# The deadline of tickets without one, in the order of deadlines.
NO_DEADLINE = 2**62


class RunFilters(TypedDict, total=False):
    """Conditions on runs, all of which hold. None stands for any.

    - `principal`: the id of the principal that owns the run.
    - `agents`: the run is of one of these agents.
    - `root_run_id`: the run is below this one; `parent_run_id`: directly below it.
    - `outcome`: why it ended; `waits_for`: the reason why it waits.
    - `since`, `until`: it was created from this time on, and before that one, in milliseconds.
    """

    thread_id: str | None
    status: RunStatus | None
    agent_id: str | None
    agents: Collection[str] | None
    principal: str | None
    root_run_id: str | None
    parent_run_id: str | None
    outcome: OutcomeKind | None
    waits_for: WaitReason | None
    since: int | None
    until: int | None


class TicketFilters(TypedDict, total=False):
    """Conditions on tickets, all of which hold. None stands for any.

    - `below`: threads whose tickets are listed beside those of the `run_id` and the `thread_id`.
    - `agents`: the ticket is of one of these agents.
    - `answerable_by`: this principal is one of those who may answer it; `in_groups_of`: as a member of one of its
      groups, or in one of its roles.
    - `visible_to`: this principal is its requester, or one of those who may answer it.
    - `due_before`: its deadline is before this time, in milliseconds.
    """

    thread_id: str | None
    below: Collection[str]
    status: TicketStatus | None
    agent_id: str | None
    agents: Collection[str] | None
    tool: str | None
    asked_by: str | None
    assignee: str | None
    requester: str | None
    answerable_by: Principal | None
    in_groups_of: Principal | None
    visible_to: Principal | None
    due_before: int | None


def outcome_of(run: RunRecord) -> str | None:
    """The kind of a run's outcome; None while it is open."""
    return None if run.outcome is None else str(type(run.outcome.termination).__struct_config__.tag)


def due_of(ticket: Ticket) -> int:
    """The position of a ticket in the order of deadlines."""
    return NO_DEADLINE if ticket.deadline is None else ticket.deadline


def matches_run(run: RunRecord, where: RunFilters) -> bool:
    """Whether a run meets the conditions, apart from `thread_id` and `root_run_id`."""
    agents, since, until = where.get("agents"), where.get("since"), where.get("until")
    return (
        where.get("status") in (None, run.status)
        and where.get("agent_id") in (None, run.agent_id)
        and (agents is None or run.agent_id in agents)
        and where.get("principal") in (None, run.owner_id)
        and where.get("parent_run_id") in (None, run.identity.parent_run_id)
        and where.get("outcome") in (None, outcome_of(run))
        and where.get("waits_for") in (None, None if run.waiting is None else run.waiting.reason)
        and (since is None or run.created_at >= since)
        and (until is None or run.created_at < until)
    )


def matches_ticket(ticket: Ticket, run_id: str | None, where: TicketFilters) -> bool:
    """Whether a ticket meets the conditions."""
    agents, before = where.get("agents"), where.get("due_before")
    is_there = run_id in (None, ticket.run_id) and where.get("thread_id") in (None, ticket.thread_id)
    return (
        (is_there or ticket.thread_id in where.get("below", ()))
        and where.get("status") in (None, ticket.status)
        and where.get("agent_id") in (None, ticket.agent_id)
        and (agents is None or ticket.agent_id in agents)
        and where.get("tool") in (None, ticket.tool)
        and where.get("asked_by") in (None, ticket.asked_by)
        and where.get("assignee") in (None, ticket.assignee)
        and where.get("requester") in (None, ticket.requester)
        and (before is None or due_of(ticket) < before)
        and _matches_people(ticket, where)
    )


def _matches_people(ticket: Ticket, where: TicketFilters) -> bool:
    names = frozenset(addressees_of(ticket))
    for person, wanted in ((where.get("answerable_by"), names_of), (where.get("in_groups_of"), group_names)):
        if person is not None and (barred_from(ticket) == person.id or names.isdisjoint(wanted(person))):
            return False
    reader = where.get("visible_to")
    return reader is None or ticket.requester == reader.id or not names.isdisjoint(names_of(reader))
