"""Going on with a thread that was claimed: what it is due for, or giving it back; and beginning with one that is
claimed by that."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..errors import (
    Conflict,
    InboxMoved,
    RuntimeClosed,
    StaleFence,
    StoreError,
    StoreUnavailable,
    UsageError,
    explain,
    report,
)
from ..loop import Activation
from ..stores import Claimed, Commit, Fence, InboxItem, ThreadView
from ..types.runs import RunRecord
from ._results import RunResult, begins_run, new_run_of
from ._schedules import fire, is_time

if TYPE_CHECKING:
    from ._local import Dispatcher

__all__ = ["begin", "go_on", "is_due", "next_input"]

_log = logging.getLogger("wakeful")

# How long a thread is left alone that this process can't go on with, at first and at last, and one that was
# claimed for nothing; in milliseconds. Another process may know what to do with it.
FIRST_PAUSE, LONGEST_PAUSE = 1_000, 30_000
LOOK_AGAIN = 250


async def go_on(dispatch: Dispatcher, claimed: Claimed, fence: Fence) -> None:
    """Run what the thread is due for. Whatever happens, the claim is used or given back."""
    thread_id, since = claimed.thread_id, asyncio.get_running_loop().time()
    heard = False
    try:
        stored = claimed.view or await dispatch.env.store.load(thread_id)
        if (
            stored is None
            or stored.thread.epoch != fence.epoch
            or (dispatch.closed and dispatch.env.store.durable)
        ):
            await _release(dispatch, thread_id, fence)
            return
        first = partial(_first, dispatch, claimed, since)
        run, now = stored.run, dispatch.env.clock.now()
        item = None if run is not None else next_input(stored, now)
        if item is not None:
            heard = item.id in dispatch.turns
            await dispatch.turns.take(item, lambda: _run_input(dispatch, stored, item, fence, first))
        elif run is not None and is_time(run, now):
            await fire(dispatch, stored, run, fence)
        elif (act := await _reopened(dispatch, stored, fence)) is not None:
            await first(act).drive(dispatch)
        else:
            later = _later(dispatch, stored, claimed)
            await _release(dispatch, thread_id, fence, later=later, seen=stored.thread.inbox_head)
    except (Conflict, StaleFence, RuntimeClosed):
        # Somebody else has it, or will; perhaps this very process, which began with it while it was claimed. It
        # may even have this fence: a store that crashed may forget a claim, and give the same one again.
        running = dispatch.active.get(thread_id)
        if running is None or running.draft.fence != fence:
            await _release(dispatch, thread_id, fence)
    except UsageError as error:
        _log.warning("thread %r is due and can't go on here: %s", thread_id, explain(error))
        await _release(dispatch, thread_id, fence, later=dispatch.env.clock.now() + _pause(dispatch, thread_id))
    except Exception as error:
        if not heard:
            report(_log, error, "thread %r is due, and going on with it failed", thread_id)
        await _release(dispatch, thread_id, fence, failed=explain(error))


async def begin(dispatch: Dispatcher, item: InboxItem, begun: asyncio.Future[bool]) -> None:
    """Run input that another process has, on a thread that nobody runs. The first commit takes it in and claims
    the thread; `begun` says whether that was made. Most threads are new, and are taken to be at first."""
    thread_id, since = item.thread_id, asyncio.get_running_loop().time()
    new, act = replace(new_run_of(item), item_id=None, request_id=item.id), None
    try:
        try:
            act = _counted(dispatch, since, dispatch.opener.new(new, None, []), begun)
            act.draft.inbox_head = 0
            await act.drive(dispatch)
        except (Conflict, InboxMoved):
            if _fence(act) is not None:
                raise
            stored = await dispatch.env.store.load(thread_id)
            if stored is None or stored.thread.claimed or stored.thread.dead or stored.run or stored.inbox:
                return  # Something else has its turn.
            history = await dispatch.opener.history(stored, new.agent_id) if stored.thread.head else []
            act = _counted(dispatch, since, dispatch.opener.new(new, stored, history), begun)
            act.draft.inbox_head = stored.thread.inbox_head
            await act.drive(dispatch)
    except Exception as error:
        if (fence := _fence(act)) is None:
            if isinstance(error, StoreUnavailable):
                dispatch.keeper.suspect()
            return  # Whoever asked keeps the input.
        if isinstance(error, Conflict | StaleFence | RuntimeClosed):
            await _release(dispatch, thread_id, fence)
        else:
            report(_log, error, "thread %r was begun with, and going on with it failed", thread_id)
            await _release(dispatch, thread_id, fence, failed=explain(error))
    finally:
        if not begun.done():
            begun.set_result(_fence(act) is not None)


def _fence(act: Activation | None) -> Fence | None:
    """What an activation writes with once its first commit is made."""
    return None if act is None else act.draft.fence


def _counted(dispatch: Dispatcher, since: float, act: Activation, begun: asyncio.Future[bool]) -> Activation:
    """Have it said and counted when the activation's first commit claims its thread."""
    loop, metrics = asyncio.get_running_loop(), dispatch.keeper.metrics

    def count(_: asyncio.Future[None]) -> None:
        if not begun.done():
            begun.set_result(True)
        metrics.claimed(loop.time() - since)
        metrics.first_step(loop.time() - since)

    act.draft.begun = loop.create_future()
    act.draft.begun.add_done_callback(count)
    return act


def _first(dispatch: Dispatcher, claimed: Claimed, since: float, act: Activation) -> Activation:
    """Have it counted how long the dispatch was due when the activation made its first commit."""
    loop, metrics = asyncio.get_running_loop(), dispatch.keeper.metrics
    act.draft.begun = loop.create_future()
    act.draft.begun.add_done_callback(lambda _: metrics.first_step(claimed.waited / 1000 + loop.time() - since))
    return act


async def _run_input(
    dispatch: Dispatcher,
    stored: ThreadView,
    item: InboxItem,
    fence: Fence,
    first: Callable[[Activation], Activation],
) -> RunResult | None:
    new, opener = new_run_of(item), dispatch.opener
    history = await opener.history(stored, new.agent_id) if stored.thread.head else []
    act = opener.new(new, stored, history, fence)
    if new.lineage is not None:
        await opener.join_tree(act)
    await first(act).drive(dispatch)
    return dispatch.result(act)


async def _reopened(dispatch: Dispatcher, stored: ThreadView, fence: Fence) -> Activation | None:
    run = stored.run
    if run is None:
        return None
    if run.waiting is None:
        return await dispatch.opener.reopen(stored, run, "recover", fence=fence)
    if not is_due(stored, run, dispatch.env.clock.now()) or dispatch.is_stuck(stored, run):
        return None
    return await dispatch.opener.reopen(stored, run, "wake", fence=fence)


def _later(dispatch: Dispatcher, stored: ThreadView, claimed: Claimed) -> int:
    """When to look again at a thread that can't go on here, or had nothing to do by this process's clock: that may
    be slow, and the store's goes by what is claimed."""
    now, waiting = dispatch.env.clock.now(), stored.run.waiting if stored.run is not None else None
    if stored.run is not None and is_due(stored, stored.run, now):
        return now + _pause(dispatch, stored.thread.id)
    times = [i.at for i in stored.inbox if i.at is not None]
    if waiting is not None and waiting.until is not None:
        times.append(waiting.until)
    stores_now = claimed.due_at + claimed.waited
    soon = max(now, stores_now) + LOOK_AGAIN
    return min([time if time > stores_now else soon for time in times if time > now], default=soon)


def _pause(dispatch: Dispatcher, thread_id: str) -> int:
    times = dispatch.put_off[thread_id] = dispatch.put_off.get(thread_id, -1) + 1
    return min(FIRST_PAUSE * 2 ** min(times, 10), LONGEST_PAUSE)


async def _release(
    dispatch: Dispatcher,
    thread_id: str,
    fence: Fence,
    *,
    later: int | None = None,
    seen: int | None = None,
    failed: str | None = None,
) -> None:
    """Give a thread back: due as it is, after a failure, or later, unless its inbox isn't as it was `seen`."""
    commit = Commit(thread_id, fence=fence, release=True, later=later, inbox_head=seen, failed=failed)
    try:
        await dispatch.env.store.commit(commit)
    except InboxMoved:
        await _release(dispatch, thread_id, fence)  # What came meanwhile made no dispatch, and isn't put off.
    except (Conflict, StaleFence):
        pass  # It was given back, or taken, before.
    except StoreError as error:
        _log.warning("thread %r could not be given back, and will be later: %s", thread_id, error)
        dispatch.keeper.suspect()


def next_input(stored: ThreadView, now: int) -> InboxItem | None:
    """The input that has its turn on a thread without a run."""
    return next((i for i in stored.inbox if begins_run(i) and (i.at is None or i.at <= now)), None)


def is_due(stored: ThreadView, run: RunRecord, now: int) -> bool:
    """Whether there is a reason to wake a run that waits: an item of a kind it waits for, or the time."""
    waiting = run.waiting
    if waiting is None:
        return False
    wakes = ["cancel", *["steer" if kind == "input" else kind for kind in waiting.wakes]]
    return (waiting.until is not None and waiting.until <= now) or any(
        i.wake in wakes and (i.at is None or i.at <= now) for i in stored.inbox
    )
