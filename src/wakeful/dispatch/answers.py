"""Answering tickets: match decisions to tickets and resume their runs, whichever process has them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from ..errors import Conflict, RunNotWaiting, StaleFence, TicketClosed, UnknownAgent, UsageError
from ..loop import Activation, agent_of, apply_decision_item, check_value, drive, match_decision, unknown_ticket
from ..stores import Store, ThreadView
from ..types.inbox import InboxItem, InputItem, decisions_in
from ..types.runs import RunRecord
from ..types.tickets import Decision, Ticket
from .dispatcher import Dispatcher
from .parked import check_resumable
from .results import RunResult
from .tickets import check_id, check_pending, closed_error, find_ticket, item_for, other_id
from .tree import find_run, is_below, owner_of, tickets_below, waits_for_tasks
from .waits import Watch, complete, stored_result, wait_for_run

__all__ = ["answer", "resume"]


async def answer(dispatch: Dispatcher, decision: Decision) -> RunResult:
    """Answer a ticket of any run and resume the run. A repeated decision has no effect."""
    dispatch.check_open()
    store = dispatch.env.store
    while True:
        ticket = await find_ticket(store, decision.ticket_id)
        if ticket.status != "open":
            if any(d.id == decision.id for d in await store.decisions(ticket.id)):
                return await wait_for_run(dispatch, await _root_of(store, ticket.run_id))
            raise await closed_error(store, ticket)
        try:
            return await resume(dispatch, await _root_of(store, ticket.run_id), [decision])
        except RunNotWaiting:
            if await store.ticket(ticket.id) == ticket:
                raise  # The ticket wasn't closed meanwhile.


async def _root_of(store: Store, run_id: str) -> str:
    """The topmost run above a run that is still in the store."""
    run = await store.run(run_id)
    while run is not None:
        run_id, above = run.id, await owner_of(store, run)
        run = None if above is None else await store.run(above)
    return run_id


async def resume(
    dispatch: Dispatcher, run_id: str, decisions: Sequence[Decision], follow_up: InputItem | None = None
) -> RunResult:
    """Answer tickets of a run and of runs below it, and resume them. One invalid decision refuses them all.

    A repeated decision has no effect. `follow_up` is input for the run itself.
    """
    dispatch.check_open()
    found = await find_run(dispatch.env.store, run_id)
    groups = await _by_run(dispatch, *found, decisions)
    if follow_up is not None:
        follow_up = replace(follow_up, thread_id=found[0].thread_id, agent_id=found[0].agent_id)
    if not any(one != run_id for one in groups):
        return await complete(dispatch, await _resume(dispatch, run_id, decisions, follow_up, found))
    for one, given in groups.items():
        await _match(dispatch, *await find_run(dispatch.env.store, one), given)
    # All decisions are valid, so the follow-up may go with any of them.
    first = next(iter(groups))
    await asyncio.gather(
        *[_resume(dispatch, one, given, follow_up if one == first else None) for one, given in groups.items()]
    )
    return await wait_for_run(dispatch, run_id)


async def _by_run(
    dispatch: Dispatcher, run: RunRecord, stored: ThreadView, decisions: Sequence[Decision]
) -> dict[str, list[Decision]]:
    """Decisions grouped by the run of their ticket: this run, or one below it."""
    store, run_id, groups = dispatch.env.store, run.id, dict[str, list[Decision]]()
    below = await tickets_below(store, run.thread_id, run_id) if waits_for_tasks(run) else []
    own: Sequence[Ticket] = await store.tickets(run_id) if below else stored.tickets
    for decision in decisions:
        ticket = next((t for t in (*below, *own) if decision.ticket_id in (t.id, t.call_id)), None)
        ticket = ticket or await store.ticket(decision.ticket_id)
        if ticket is None and below:
            raise unknown_ticket(decision.ticket_id, [*[t for t in own if t.status == "open"], *below])
        owner = run_id if ticket is None else ticket.run_id
        if owner != run_id and not await is_below(store, owner, run_id):
            owner = run_id  # The error will name the run that has no such ticket.
        groups.setdefault(owner, []).append(decision)
    return groups


async def _resume(
    dispatch: Dispatcher,
    run_id: str,
    decisions: Sequence[Decision],
    follow_up: InputItem | None,
    found: tuple[RunRecord, ThreadView] | None = None,
) -> RunResult:
    """Answer tickets of one run and resume it. The follow-up goes with the first decision."""
    while True:
        run, stored = found or await find_run(dispatch.env.store, run_id)
        found = None
        is_free = not stored.thread.claimed and run.thread_id not in dispatch.active
        is_open = is_free and dispatch.runs_agent(run.agent_id) and stored.run is run
        if is_open and dispatch.has_decision(stored, run):
            # An earlier decision in the inbox counts first.
            with suppress(Conflict, StaleFence):
                act = await dispatch.activations.reopen(stored, run, "wake")
                await drive(act, dispatch)
            continue
        try:
            new = await _match(dispatch, run, stored, decisions)
        except UsageError as error:
            if run.status == "done":
                raise RunNotWaiting(f"run {run_id} is done; there is nothing to answer") from error
            raise
        if not new:
            return await wait_for_run(dispatch, run_id)
        items = [item_for(run.thread_id, decision) for decision in new]
        items[0] = replace(items[0], follow_up=follow_up)
        act = dispatch.active.get(run.thread_id)
        if act is not None or stored.thread.claimed or not dispatch.runs_agent(run.agent_id):
            for item in items:
                await dispatch.deliver(item)
            result = await _result_after(dispatch, act, run, items)
            await _check_accepted(dispatch.env.store, new)
            return result
        check_resumable(dispatch.env.registry, stored, run, new)
        act = await dispatch.activations.reopen(stored, run, "resume")
        for item in items:
            apply_decision_item(act, item)
        try:
            await drive(act, dispatch)
        except (Conflict, StaleFence):
            continue
        return dispatch.result(act)


async def _check_accepted(store: Store, decisions: Sequence[Decision]) -> None:
    """Raise if another decision reached a ticket first."""
    for decision in decisions:
        ticket = await store.ticket(decision.ticket_id)
        if ticket is not None and ticket.status == "answered" and await store.decision(decision.id) is None:
            raise await closed_error(store, ticket)


async def _result_after(
    dispatch: Dispatcher, act: Activation | None, run: RunRecord, items: Sequence[InboxItem]
) -> RunResult:
    """The result of a run once it took these items, in its present activation or in a later one."""
    with Watch(dispatch, run.thread_id) as watch:
        while True:
            if act is None:
                await watch.next_look()
            else:
                await act.ended()
                if act.has_taken(items):
                    return dispatch.result(act)
            stored = await dispatch.env.store.load(run.thread_id)
            act = dispatch.active.get(run.thread_id)
            if act is not None or (stored is not None and stored.thread.claimed):
                continue
            open_run = None if stored is None else stored.run
            if stored is None or open_run is None or open_run.id != run.id:
                return await stored_result(dispatch, run.id)
            if all(pending.id != item.id for item in items for pending in stored.inbox):
                return await stored_result(dispatch, run.id)
            if dispatch.runs_agent(run.agent_id):
                act = await _take_pending(dispatch, stored, open_run)


async def _take_pending(dispatch: Dispatcher, stored: ThreadView, run: RunRecord) -> Activation | None:
    """Resume a run with the decisions in its inbox; returns the activation that has the thread now."""
    check_resumable(dispatch.env.registry, stored, run, decisions_in(stored.inbox))
    act = await dispatch.activations.reopen(stored, run, "wake")
    try:
        await drive(act, dispatch)
    except (Conflict, StaleFence):
        return dispatch.active.get(run.thread_id)
    return act


async def _match(
    dispatch: Dispatcher, run: RunRecord, stored: ThreadView, decisions: Sequence[Decision]
) -> list[Decision]:
    """Complete and check decisions for the open tickets they answer, without those that were accepted before."""
    store, closed = dispatch.env.store, dict[str, Ticket]()
    tickets = {ticket.id: ticket for ticket in stored.tickets if ticket.run_id == run.id}
    if any(d.ticket_id not in tickets for d in decisions):
        closed = {t.id: t for t in await store.tickets(run.id) if t.status != "open"}
    try:
        tools = agent_of(dispatch.env.registry, run).tools
    except UnknownAgent:
        tools = {}  # The process that resumes the run knows its tools.
    matched: list[Decision] = []
    for decision in decisions:
        try:
            ticket, full = match_decision(decision, tickets, closed)
        except TicketClosed as error:
            if any(d.id == decision.id for d in await store.decisions(error.ticket_id)):
                continue
            raise await closed_error(store, closed[error.ticket_id]) from error
        check_pending(stored, ticket, full)
        await check_id(store, ticket, full)
        if (other := next((d for d in matched if d.id == full.id), None)) is not None:
            raise other_id(full, other.ticket_id)
        full = check_value(tools.get(ticket.tool), ticket, full)
        matched.append(replace(full, at=full.at or dispatch.env.clock.now()))
        closed[ticket.id] = replace(tickets.pop(ticket.id), status="answered")
    return matched
