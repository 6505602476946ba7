"""Telling runs something, whichever process has them: input, answers, to stop, to try again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from ..errors import (
    Conflict,
    RunNotFailed,
    RunNotWaiting,
    StaleFence,
    ThreadBusy,
    TicketClosed,
    UnknownAgent,
    UnknownInput,
    UnknownRun,
    UsageError,
)
from ..loop import Activation, agent_of, check_value, match_decision, unknown_ticket
from ..messaging import retract
from ..stores import Beside, Commit, InboxItem, InputPolicy, Store, ThreadView
from ..types.ids import new_id
from ..types.mail import Receipt
from ..types.runs import Failed, RunRecord, Stopped
from ..types.tickets import Decision, Ticket
from ._intake import is_answered
from ._local import Dispatcher
from ._parked import check_resumable
from ._results import NewRun, RunResult, item_of
from ._tickets import check_id, check_pending, closed_error, find_ticket, item_for, other_id
from ._trees import is_below, owner_of, settle, tickets_below, until_quiet, waits_for_tasks
from ._waiting import Watch

__all__ = ["answer", "cancel", "resume", "retry", "send"]


async def send(dispatch: Dispatcher, new: NewRun, policy: InputPolicy | None) -> Receipt:
    """Put input into the thread's inbox, or start a run in the background if the thread is free. The receipt of a
    request that was made before is the first one's."""
    dispatch.check_open()
    if new.at is not None or dispatch.keeper.claims_only or dispatch.leaves(new.agent_id):
        await dispatch.check_room()
    # Whoever is asked may begin and not be able to say so: its run is none to be rejected for, or to interrupt.
    ask = policy not in ("reject", "interrupt")
    first: InboxItem | None = None
    if not await dispatch.offer(item_of(new, policy or "queue"), ask=ask):
        await _send_to_busy(dispatch, new, policy)
        first = None if new.request_id is None else await dispatch.env.store.item(new.request_id)
    thread_id = new.thread_id if first is None else first.thread_id
    if dispatch.execute:
        await dispatch.pump(thread_id)
    return Receipt(await _message_id(dispatch.env.store, new, first), thread_id)


async def _message_id(store: Store, new: NewRun, first: InboxItem | None) -> str:
    """The id of the message that input is, as it was given first. A run that took it in at once began with it."""
    message = new.message if first is None else first.message
    if message is None and first is not None and first.taken_by is not None:
        run = await store.run(first.taken_by)
        begun = [] if run is None else await store.messages(run.thread_id, after=run.first_seq - 1, limit=1)
        message = begun[0] if begun else None
    return "" if message is None else message.id


async def _send_to_busy(dispatch: Dispatcher, new: NewRun, policy: InputPolicy | None) -> None:
    item = item_of(new, policy or "queue")
    if (known := await dispatch.env.store.item(item.id)) is not None:
        # It is there once, perhaps on another thread; whoever may run it is told again.
        await dispatch.deliver(replace(item, thread_id=known.thread_id))
        return
    thread = await dispatch.env.store.thread(new.thread_id)
    # What waits there is read only if something does.
    waits = thread is not None and thread.open_run_id is not None
    stored = await dispatch.env.store.load(new.thread_id) if waits else None
    busy = stored is not None or (thread is not None and thread.claimed)
    if busy and policy == "reject":
        raise ThreadBusy(f"thread {new.thread_id!r} has an open run; wait for it or choose another policy")
    if policy is None:
        waiting = stored.run.waiting if stored is not None and stored.run is not None else None
        steers = waiting is not None and ("input" in waiting.wakes or waiting.reason == "timer")
        policy = "steer" if steers else "queue"
    await dispatch.deliver(item_of(new, policy))
    if busy and policy == "interrupt" and stored is not None and stored.run is not None:
        await cancel(dispatch, stored.run.id, "interrupted by new input", leave_tasks=True)


async def answer(dispatch: Dispatcher, decision: Decision) -> RunResult:
    """Answer a ticket, whichever run it belongs to, and go on with that. Giving the same decision twice is giving
    it once."""
    dispatch.check_open()
    store = dispatch.env.store
    while True:
        ticket = await find_ticket(store, decision.ticket_id)
        if ticket.status != "open":
            if any(d.id == decision.id for d in await store.decisions(ticket.id)):
                return await dispatch.wait(await _root_of(dispatch, ticket.run_id))
            raise await closed_error(store, ticket)
        try:
            return await resume(dispatch, await _root_of(dispatch, ticket.run_id), [decision])
        except RunNotWaiting:
            if await store.ticket(ticket.id) == ticket:
                raise  # It isn't that the ticket was closed meanwhile.


async def _root_of(dispatch: Dispatcher, run_id: str) -> str:
    """The run at the top, as far up as runs are still there: those above a detached child were deleted."""
    run = await dispatch.env.store.run(run_id)
    while run is not None:
        run_id, above = run.id, await owner_of(dispatch.env.store, run)
        run = None if above is None else await dispatch.env.store.run(above)
    return run_id


async def resume(
    dispatch: Dispatcher, run_id: str, decisions: Sequence[Decision], said: Beside | None = None
) -> RunResult:
    """Answer tickets of a run and of those below it, and go on with them; nothing is changed if one doesn't fit. A
    decision that was taken in before does nothing. What is `said` beside them is for the run itself."""
    dispatch.check_open()
    found = await _find(dispatch, run_id)
    groups = await _by_run(dispatch, *found, decisions)
    beside = None if said is None else replace(said, thread_id=found[0].thread_id, agent_id=found[0].agent_id)
    if not any(one != run_id for one in groups):
        return await dispatch.whole(await _resume(dispatch, run_id, decisions, beside, found))
    for one, given in groups.items():
        await _match(dispatch, *await _find(dispatch, one), given)
    # It goes along with one of them: with which makes no difference, for all of them fit.
    first = next(iter(groups))
    await asyncio.gather(
        *[_resume(dispatch, one, given, beside if one == first else None) for one, given in groups.items()]
    )
    return await settle(dispatch, run_id)


async def _by_run(
    dispatch: Dispatcher, run: RunRecord, stored: ThreadView, decisions: Sequence[Decision]
) -> dict[str, list[Decision]]:
    """The decisions by the run whose ticket they answer: this one, or one below it."""
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
            owner = run_id  # It is told that it has no such ticket.
        groups.setdefault(owner, []).append(decision)
    return groups


async def _resume(
    dispatch: Dispatcher,
    run_id: str,
    decisions: Sequence[Decision],
    beside: Beside | None,
    found: tuple[RunRecord, ThreadView] | None = None,
) -> RunResult:
    """Answer tickets of one run, which may have been found before, and go on with it. What is said beside them
    goes along with the first."""
    while True:
        run, stored = found or await _find(dispatch, run_id)
        found = None
        free = not stored.thread.claimed and run.thread_id not in dispatch.active
        if free and dispatch.runs(run.agent_id) and stored.run is run and is_answered(dispatch, stored, run):
            # An answer was left for whoever runs it: that one counts first.
            with suppress(Conflict, StaleFence):
                act = await dispatch.opener.reopen(stored, run, "wake")
                await act.drive(dispatch)
            continue
        try:
            new = await _match(dispatch, run, stored, decisions)
        except UsageError as error:
            if run.status == "done":
                raise RunNotWaiting(f"run {run_id} is done; there is nothing to answer") from error
            raise
        if not new:
            return await dispatch.wait(run_id)
        items = [item_for(run.thread_id, decision) for decision in new]
        items[0] = replace(items[0], beside=beside)
        act = dispatch.active.get(run.thread_id)
        if act is not None or stored.thread.claimed or not dispatch.runs(run.agent_id):
            for item in items:
                await dispatch.deliver(item)
            result = await _after(dispatch, act, run, items)
            await _check_counted(dispatch.env.store, new)
            return result
        check_resumable(dispatch.env.registry, stored, run, new)
        act = await dispatch.opener.reopen(stored, run, "resume")
        for item in items:
            act.answer(item)
        try:
            await act.drive(dispatch)
        except (Conflict, StaleFence):
            continue
        return dispatch.result(act)


async def _check_counted(store: Store, decisions: Sequence[Decision]) -> None:
    """Refuse an answer that was left for a run while another one's was on its way: the first counted."""
    for decision in decisions:
        ticket = await store.ticket(decision.ticket_id)
        if ticket is not None and ticket.status == "answered" and await store.decision(decision.id) is None:
            raise await closed_error(store, ticket)


async def _after(
    dispatch: Dispatcher, act: Activation | None, run: RunRecord, items: Sequence[InboxItem]
) -> RunResult:
    """What a run came to once it took these items in, in the activation that ran or in one after it."""
    with Watch(dispatch, run.thread_id) as watch:
        return await _after_that(dispatch, act, run, items, watch)


async def _after_that(
    dispatch: Dispatcher, act: Activation | None, run: RunRecord, items: Sequence[InboxItem], watch: Watch
) -> RunResult:
    while True:
        if act is None:
            await watch.news()
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
            return await dispatch.recall(run.id)
        if all(pending.id != item.id for item in items for pending in stored.inbox):
            return await dispatch.recall(run.id)
        if not dispatch.runs(run.agent_id):
            continue
        check_resumable(dispatch.env.registry, stored, open_run, [i.decision for i in stored.inbox if i.decision])
        act = await dispatch.opener.reopen(stored, open_run, "wake")
        try:
            await act.drive(dispatch)
        except (Conflict, StaleFence):
            act = dispatch.active.get(run.thread_id)


async def _match(
    dispatch: Dispatcher, run: RunRecord, stored: ThreadView, decisions: Sequence[Decision]
) -> list[Decision]:
    """The decisions in full form, for the open tickets they answer; without those that were taken in before."""
    store, closed = dispatch.env.store, dict[str, Ticket]()
    tickets = {ticket.id: ticket for ticket in stored.tickets if ticket.run_id == run.id}
    if any(d.ticket_id not in tickets for d in decisions):
        closed = {t.id: t for t in await store.tickets(run.id) if t.status != "open"}
    try:
        tools = agent_of(dispatch.env.registry, run).tools
    except UnknownAgent:
        tools = {}  # Whoever goes on with the run knows its tools; or says that nobody does.
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


async def cancel(dispatch: Dispatcher, run_id: str, reason: str, *, leave_tasks: bool = False) -> bool:
    """Cancel a run and wait until it is quiet; False if it was done before. With `leave_tasks` what works for it
    in the background goes on, for the next run."""
    while True:
        try:
            with Watch(dispatch, None) as watch:
                return await _cancel(dispatch, run_id, reason, watch, leave_tasks=leave_tasks)
        except UnknownRun:
            item = await dispatch.env.store.item_of_run(run_id)
            if item is None or (item.status == "taken" and await dispatch.env.store.run(run_id) is None):
                raise
            if item.status == "retracted":
                return False
            if item.status == "pending" and await _cancel_unbegun(dispatch, run_id, item, reason):
                return True


async def _cancel_unbegun(dispatch: Dispatcher, run_id: str, item: InboxItem, reason: str) -> bool:
    """Cancel a run whose input waits its turn: a task is told when it begins, and stops with that, so that its
    owner hears of it; other input is taken back. False if it began meanwhile."""
    if item.lineage is None or item.lineage.origin not in ("task", "subagent"):
        try:
            await retract(dispatch.env.store, item.id, None)
        except UnknownInput:
            return False
        dispatch.turns.withdrawn(item.thread_id, item.id)
        return True
    told = InboxItem(id=new_id(), thread_id=item.thread_id, kind="cancel", run_id=run_id, reason=reason)
    await dispatch.deliver(told)
    await dispatch.pump(item.thread_id, at_once=True)  # It only stops.
    await dispatch.wait(run_id)
    return True


async def _cancel(dispatch: Dispatcher, run_id: str, reason: str, watch: Watch, *, leave_tasks: bool) -> bool:
    told = here = False
    while True:
        run, stored = await _find(dispatch, run_id)
        if run.status == "done":
            await until_quiet(dispatch, run)
            return told or here
        act = dispatch.active.get(run.thread_id)
        if act is not None and act.view.run.id == run_id:
            act.cancel(reason, leave_tasks=leave_tasks)
            await act.ended()
            if act.view.run.status != "done":
                continue  # It was about to wait, and does so now: it is cancelled there.
            await until_quiet(dispatch, run)
            return True
        if stored.thread.claimed or act is not None or not dispatch.execute:
            if not told:
                told = True
                item = InboxItem(
                    id=new_id(),
                    thread_id=run.thread_id,
                    kind="cancel",
                    policy="interrupt" if leave_tasks else "queue",
                    run_id=run_id,
                    reason=reason,
                )
                watch.on(run.thread_id)
                await dispatch.deliver(item)
            await watch.news()
            continue
        act = await dispatch.opener.reopen(stored, run, "wake", ends=True)
        act.cancel(reason, leave_tasks=leave_tasks)
        try:
            await act.drive(dispatch)
        except (Conflict, StaleFence):
            continue
        await until_quiet(dispatch, run)
        return True


async def retry(dispatch: Dispatcher, run_id: str) -> RunResult:
    """Go on with a run that failed or whose dispatch is a dead letter, from its last committed step."""
    while True:
        run, stored = await _find(dispatch, run_id)
        if run.status != "done" and await dispatch.env.store.revive(run.thread_id):
            dispatch.keeper.look()
            return await settle(dispatch, run_id)
        ending = run.outcome.termination if run.outcome is not None else None
        failed = isinstance(ending, Failed) or (
            isinstance(ending, Stopped) and ending.policy == "consecutive_errors"
        )
        if not failed:
            raise RunNotFailed(f"run {run_id} is {run.status} and hasn't failed; only a failed run can be retried")
        if stored.run is not None or stored.thread.last_run_id != run_id:
            raise RunNotFailed(
                f"thread {run.thread_id!r} went on with another run after {run_id}; run the agent again instead, "
                "or fork the thread where it failed"
            )
        fresh = replace(run, status="running", outcome=None, finished_at=None, failures=0, ending=None)
        try:
            if not dispatch.runs(run.agent_id):
                left = Commit(run.thread_id, run.identity, version=stored.thread.version, runs=[fresh])
                await dispatch.opener.write(left, fresh)
                dispatch.signals.wake(dispatch.tenant, run.thread_id, run.agent_id)
                return await settle(dispatch, run_id)
            act = await dispatch.opener.reopen(stored, fresh, "retry")
            act.view.answer = await dispatch.env.store.answer(run_id)
            await act.drive(dispatch)
            return await dispatch.whole(dispatch.result(act))
        except (Conflict, StaleFence):
            continue


async def _find(dispatch: Dispatcher, run_id: str) -> tuple[RunRecord, ThreadView]:
    store = dispatch.env.store
    run = await store.run(run_id)
    stored = None if run is None else await store.load(run.thread_id)
    if run is None or stored is None:
        raise UnknownRun(f"no run {run_id!r} in this store")
    if stored.run is not None and stored.run.id == run_id:
        run = stored.run  # Both were read, the view later: it knows more.
    elif run.status != "done":
        run = await store.run(run_id) or run
    return run, stored
