"""Filters of lists: arguments of callers as conditions of the store."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import cast, get_args

from ..dispatch import threads_below
from ..errors import UnknownRun, UsageError
from ..stores import OutcomeKind, RunFilters, Store, TicketFilters, TicketOrder
from ..types.content import clean_text
from ..types.runs import Principal, RunStatus, WaitReason
from ..types.tickets import TicketStatus, plain_assignee
from .arguments import check_choice, check_id, check_ids, check_instance, parse_time

__all__ = ["check_agents", "run_filters", "ticket_filters"]


def run_filters(
    *,
    thread: str | None,
    status: RunStatus | None,
    agent: str | Collection[str] | None,
    principal: str | None,
    root: str | None,
    parent: str | None,
    outcome: OutcomeKind | None,
    waits_for: WaitReason | None,
    since: datetime | None,
    until: datetime | None,
) -> RunFilters:
    """The conditions of a list of runs."""
    check_choice(status, get_args(RunStatus), "status")
    check_choice(outcome, get_args(OutcomeKind), "outcome")
    check_choice(waits_for, get_args(WaitReason), "waits_for")
    check_ids(thread=thread, principal=principal, run=root)
    check_ids(run=parent)
    return {
        "thread_id": thread,
        "status": status,
        "agents": check_agents(agent),
        "principal": principal,
        "root_run_id": root,
        "parent_run_id": parent,
        "outcome": outcome,
        "waits_for": waits_for,
        "since": parse_time(None, since, 0),
        "until": parse_time(None, until, 0),
    }


async def ticket_filters(
    store: Store,
    run_id: str | None,
    *,
    thread: str | None,
    status: TicketStatus | None,
    agent: str | Collection[str] | None,
    tool: str | None,
    asked_by: str | None,
    assignee: str | None,
    requester: str | None,
    answerable_by: Principal | None,
    in_groups_of: Principal | None,
    visible_to: Principal | None,
    due_before: datetime | None,
    order: TicketOrder = "created",
) -> TicketFilters:
    """The conditions of a list of tickets. Raises `UnknownRun`."""
    check_choice(status, get_args(TicketStatus), "status")
    check_choice(order, get_args(TicketOrder), "order")
    check_ids(thread=thread, principal=requester)
    for name, given in (("tool", tool), ("asked_by", asked_by), ("assignee", assignee)):
        check_instance(given, str, name)
    for name, person in (("answerable_by", answerable_by), ("in_groups_of", in_groups_of)):
        check_instance(person, Principal, name)
    check_instance(visible_to, Principal, "visible_to")
    if order == "deadline" and status is None:
        raise UsageError("tickets in the order of their deadlines have one status: give status='open'")
    above, below = thread, list[str]()
    if run_id is not None:
        run = await store.run(check_id(run_id, "run"))
        if run is None:
            raise UnknownRun(f"no run {run_id!r} in this store")
        above = run.thread_id
    if above is not None:
        below = await threads_below(store, above, run_id)
    return {
        "thread_id": thread,
        "below": below,
        "status": status,
        "agents": check_agents(agent),
        "tool": tool,
        "asked_by": asked_by,
        "assignee": None if assignee is None else plain_assignee(clean_text(assignee)),  # As tickets keep it.
        "requester": requester,
        "answerable_by": answerable_by,
        "in_groups_of": in_groups_of,
        "visible_to": visible_to,
        "due_before": parse_time(None, due_before, 0),
    }


def check_agents(given: str | Collection[str] | None) -> tuple[str, ...] | None:
    """The ids of one or several agents."""
    if given is None:
        return None
    found = tuple(given) if isinstance(given, list | tuple | set | frozenset) else (cast(str, given),)
    for agent in found:
        check_ids(agent=agent)
    return found
