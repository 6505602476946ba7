"""Answering tickets: match decisions to tickets and resume their runs, whichever process has them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Conflict, RequestReused, RunNotWaiting, StaleFence, TicketClosed, UnknownAgent, UsageError
from ..identity.rights import permit
from ..loop import (
    Activation,
    agent_of,
    apply_decision_item,
    change_ticket,
    check_value,
    drive,
    match_decision,
    unknown_ticket,
)
from ..stores import Store, ThreadView
from ..types.inbox import DecisionItem, InboxItem, InputItem, decisions_in
from ..types.runs import Author, RunRecord
from ..types.tickets import Decision, NotTaken, Ticket
from .callers import Caller
from .dispatcher import Dispatcher
from .left_answers import replaced_item, supersede_left
from .parked import check_resumable
from .results import RunResult
from .tickets import (
    author_of,
    check_id,
    closed_error,
    find_ticket,
    item_for,
    not_taken,
    other_id,
    was_taken,
    write_change,
)
from .tree import find_run, is_below, owner_of, tickets_below, waits_for_tasks
from .waits import Watch, complete, stored_result, wait_for_run

__all__ = ["answer", "resume"]


class _Matched(Struct):
    """Decisions that fit their tickets: `answers` resolve them, `votes` leave them open with a new row.

    `left` are the answers in the inbox that they replace.
    """

    answers: list[Decision] = []
    votes: list[tuple[Ticket, Decision]] = []
    left: list[DecisionItem] = []


async def answer(
    dispatch: Dispatcher, decision: Decision, author: Author | None = None, *, replaces: bool = False
) -> RunResult:
    """Answer a ticket of any run and resume the run. A repeated decision has no effect.

    The author's rights are checked; without an author, those of the principal that the decision names. With
    `replaces` the decision takes the place of an answer that no run has taken yet.
    """
    dispatch.check_open()
    store = dispatch.env.store
    while True:
        ticket = await find_ticket(store, decision.ticket_id)
        if ticket.status != "open":
            if await was_taken(store, ticket, decision):
                return await wait_for_run(dispatch, await _root_of(store, ticket.run_id))
            raise await closed_error(store, ticket)
        try:
            return await resume(
                dispatch, await _root_of(store, ticket.run_id), [decision], author, replaces=replaces
            )
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
    dispatch: Dispatcher,
    run_id: str,
    decisions: Sequence[Decision],
    author: Author | None = None,
    follow_up: InputItem | None = None,
    *,
    replaces: bool = False,
) -> RunResult:
    """Answer tickets of a run and of runs below it, and resume them. One invalid decision refuses them all.

    A repeated decision has no effect. `follow_up` is input for the run itself.
    """
    dispatch.check_open()
    with Caller(dispatch, run_id):
        return await _resume_tree(dispatch, run_id, decisions, author, follow_up, replaces)


async def _resume_tree(
    dispatch: Dispatcher,
    run_id: str,
    decisions: Sequence[Decision],
    author: Author | None,
    follow_up: InputItem | None,
    replaces: bool,
) -> RunResult:
    found = await find_run(dispatch.env.store, run_id)
    groups, remote = await _by_run(dispatch, *found, decisions)
    if follow_up is not None:
        follow_up = replace(follow_up, thread_id=found[0].thread_id, agent_id=found[0].agent_id)
    if not any(one != run_id for one in groups):
        done = await _resume(dispatch, run_id, decisions, author, follow_up, replaces, found)
        result = await complete(dispatch, done)
        await _check_taken(dispatch.env.store, remote)
        return result
    for one, given in groups.items():
        await _match(dispatch, *await find_run(dispatch.env.store, one), given, author, replaces)
    # All decisions are valid, so the follow-up may go with any of them.
    first = next(iter(groups))
    await asyncio.gather(
        *[
            _resume(dispatch, one, given, author, follow_up if one == first else None, replaces)
            for one, given in groups.items()
        ]
    )
    result = await wait_for_run(dispatch, run_id)
    await _check_taken(dispatch.env.store, remote)
    return result


async def _check_taken(store: Store, decisions: Sequence[Decision]) -> None:
    """Raise if a remote agent refused a decision and no longer asks."""
    for decision in decisions:
        found = await store.decision(decision.id)
        ticket = None if found is None else await store.ticket(found.ticket_id)
        if found is not None and ticket is not None and _is_refused(found) and ticket.status != "open":
            raise not_taken(ticket, cast(NotTaken, found.not_taken))


def _is_refused(decision: Decision) -> bool:
    return decision.not_taken is not None and decision.not_taken.cause == "refused"


async def _by_run(
    dispatch: Dispatcher, run: RunRecord, stored: ThreadView, decisions: Sequence[Decision]
) -> tuple[dict[str, list[Decision]], list[Decision]]:
    """Decisions grouped by the run of their ticket, this run or one below it; and those for remote agents."""
    store, run_id = dispatch.env.store, run.id
    groups, remote = dict[str, list[Decision]](), list[Decision]()
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
        if ticket is not None and ticket.asked_by == "remote":
            remote.append(decision)
    return groups, remote


async def _resume(
    dispatch: Dispatcher,
    run_id: str,
    decisions: Sequence[Decision],
    author: Author | None,
    follow_up: InputItem | None,
    replaces: bool,
    found: tuple[RunRecord, ThreadView] | None = None,
) -> RunResult:
    """Answer tickets of one run and resume it. The follow-up goes with the first decision."""
    while True:
        run, stored = found or await find_run(dispatch.env.store, run_id)
        found = None
        if not replaces and await _take_earlier(dispatch, run, stored):
            continue
        matched = await _match_open(dispatch, run, stored, decisions, author, replaces)
        answers, votes, before = matched.answers, matched.votes, matched.left
        if not answers and not votes:
            return await wait_for_run(dispatch, run_id)
        if votes and _can_vote_here(dispatch, stored, run, votes[0][1]):
            beside = [] if follow_up is None else [follow_up]
            if await write_change(dispatch, stored, run, *votes[0], inbox=beside):
                follow_up = None
            continue
        new = [*[decision for _, decision in votes], *answers]
        env = dispatch.env
        items = [item_for(env, run.thread_id, decision, author_of(decision, author)) for decision in new]
        items[0] = replace(items[0], follow_up=follow_up)
        is_elsewhere = _is_elsewhere(dispatch, stored, run)
        if not is_elsewhere:
            check_resumable(dispatch.env.registry, stored, run, new)
        if before:
            # The next pass finds the new answer in the inbox, in the place of the first one left there.
            if await _supersede(dispatch, stored, run, before[0], items):
                replaces = replaces and len(before) > 1
            continue
        if is_elsewhere:
            return await _answer_elsewhere(dispatch, dispatch.active.get(run.thread_id), run, items)
        act = await dispatch.activations.reopen(stored, run, "resume")
        for item in items:
            apply_decision_item(act, item)
        with suppress(Conflict, StaleFence):
            await drive(act, dispatch)
            return dispatch.result(act)


def _is_elsewhere(dispatch: Dispatcher, stored: ThreadView, run: RunRecord) -> bool:
    """Whether another activation has the thread, or only another process has the agent's code."""
    return run.thread_id in dispatch.active or stored.thread.claimed or not dispatch.runs_agent(run.agent_id)


async def _take_earlier(dispatch: Dispatcher, run: RunRecord, stored: ThreadView) -> bool:
    """Resume a free run with a decision in its inbox, which counts first; False if there is none."""
    if _is_elsewhere(dispatch, stored, run) or stored.run is not run or not dispatch.has_decision(stored, run):
        return False
    with suppress(Conflict, StaleFence):
        act = await dispatch.activations.reopen(stored, run, "wake")
        await drive(act, dispatch)
    return True


async def _supersede(
    dispatch: Dispatcher, stored: ThreadView, run: RunRecord, before: DecisionItem, items: Sequence[DecisionItem]
) -> bool:
    """Put the new answer of a ticket in the place of its left one."""
    item = next(item for item in items if item.decision.ticket_id == before.decision.ticket_id)
    return await supersede_left(dispatch, stored, run, before, item)


def _can_vote_here(dispatch: Dispatcher, stored: ThreadView, run: RunRecord, vote: Decision) -> bool:
    """Whether a vote can be written at once: nobody has the thread, and edited arguments were checked here."""
    if stored.thread.claimed or run.thread_id in dispatch.active:
        return False
    return vote.mode != "arguments" or dispatch.runs_agent(run.agent_id)


async def _answer_elsewhere(
    dispatch: Dispatcher, act: Activation | None, run: RunRecord, items: Sequence[DecisionItem]
) -> RunResult:
    """Send decisions to the run's owner, and wait for what they lead to."""
    for item in items:
        await dispatch.deliver(item)
    result = await _result_after(dispatch, act, run, items)
    await _check_accepted(dispatch.env.store, [item.decision for item in items])
    return result


async def _check_accepted(store: Store, decisions: Sequence[Decision]) -> None:
    """Raise if another decision reached a ticket first."""
    for decision in decisions:
        ticket, found = await store.ticket(decision.ticket_id), await store.decision(decision.id)
        if ticket is not None and found is not None and found.not_taken is not None and not _is_refused(found):
            raise not_taken(ticket, found.not_taken)
        if ticket is not None and ticket.status == "answered" and found is None:
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


async def _match_open(
    dispatch: Dispatcher,
    run: RunRecord,
    stored: ThreadView,
    decisions: Sequence[Decision],
    author: Author | None,
    replaces: bool,
) -> _Matched:
    """`_match`, with an error of its own for a run that is done."""
    try:
        return await _match(dispatch, run, stored, decisions, author, replaces)
    except UsageError as error:
        if run.status == "done" and not isinstance(error, RequestReused):
            raise RunNotWaiting(f"run {run.id} is done; there is nothing to answer") from error
        raise


async def _match(
    dispatch: Dispatcher,
    run: RunRecord,
    stored: ThreadView,
    decisions: Sequence[Decision],
    author: Author | None,
    replaces: bool,
) -> _Matched:
    """Complete and check decisions for the open tickets they answer, without those that were accepted before."""
    store, closed = dispatch.env.store, dict[str, Ticket]()
    tickets = {ticket.id: ticket for ticket in stored.tickets if ticket.run_id == run.id}
    if any(d.ticket_id not in tickets for d in decisions):
        closed = {t.id: t for t in await store.tickets(run.id) if t.status != "open"}
    try:
        tools = agent_of(dispatch.env.registry, run).tools
    except UnknownAgent:
        tools = {}  # The process that resumes the run knows its tools.
    matched, now = _Matched(), dispatch.env.clock.now()
    for decision in decisions:
        try:
            ticket, full = match_decision(decision, tickets, closed)
        except TicketClosed as error:
            if await was_taken(store, closed[error.ticket_id], decision):
                continue
            raise await closed_error(store, closed[error.ticket_id]) from error
        if ticket.quorum > 1 and await was_taken(store, ticket, full):
            continue
        full = permit(ticket, full, author_of(full, author))
        left = await replaced_item(dispatch, stored, ticket, full, replaces=replaces)
        matched.left += [] if left is None else [left]
        await check_id(store, ticket, full)
        before = [*matched.answers, *[vote for _, vote in matched.votes]]
        if (other := next((d for d in before if d.id == full.id), None)) is not None:
            raise other_id(full, other.ticket_id)
        full = check_value(tools.get(ticket.tool), ticket, full)
        full = replace(full, at=full.at or now)
        changed = change_ticket(ticket, full, now)
        if changed is None:
            matched.answers.append(full)
            closed[ticket.id] = replace(tickets.pop(ticket.id), status="answered")
        elif changed is not ticket:
            matched.votes.append((changed, replace(full, asked_by=ticket.asked_by)))
            tickets[ticket.id] = changed
    return matched
