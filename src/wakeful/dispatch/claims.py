"""Claimed threads: start their due work, or release the claim."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

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
from ..loop import Activation, drive
from ..stores import Claimed, Commit, Fence, ThreadView
from ..types.inbox import InboxItem, Request
from .dispatcher import Dispatcher
from .due import is_due, next_input
from .results import RunResult, new_run_of
from .schedules import is_schedule_due

__all__ = ["run_claimed", "start_requested"]

_log = logging.getLogger("wakeful")

# The backoff for a thread that this process can't run, and the pause for one that was claimed without a reason; in
# milliseconds. Another process may be able to run it.
FIRST_BACKOFF, MAX_BACKOFF = 1_000, 30_000
NOTHING_DUE_PAUSE = 250


async def run_claimed(dispatch: Dispatcher, claimed: Claimed, fence: Fence) -> None:
    """Start the due work of a claimed thread. In every case the claim is used or released."""
    thread_id, since = claimed.thread_id, asyncio.get_running_loop().time()
    has_caller = False
    try:
        stored = claimed.view or await dispatch.env.store.load(thread_id)
        is_stopping = dispatch.closed and dispatch.env.store.durable
        if stored is None or stored.thread.epoch != fence.epoch or is_stopping:
            await _release(dispatch, thread_id, fence)
            return
        item = None if stored.run is not None else next_input(stored, dispatch.env.clock.now())
        has_caller = item is not None and item.id in dispatch.turns
        await _run_due(dispatch, stored, item, claimed, fence, since)
    except (Conflict, StaleFence, RuntimeClosed):
        # Another owner has the thread, or will. It may be this process, which started the run while the thread was
        # claimed, even with this fence: a store that crashed may forget a claim and grant it again.
        running = dispatch.active.get(thread_id)
        if running is None or running.draft.fence != fence:
            await _release(dispatch, thread_id, fence)
    except UsageError as error:
        _log.warning("thread %r is due and can't run here: %s", thread_id, explain(error))
        later = dispatch.env.clock.now() + _next_backoff(dispatch, thread_id)
        await _release(dispatch, thread_id, fence, later=later, why=explain(error))
    except Exception as error:
        if not has_caller:
            report(_log, error, "thread %r was due and failed", thread_id)
        await _release(dispatch, thread_id, fence, failed=explain(error))


async def _run_due(
    dispatch: Dispatcher,
    stored: ThreadView,
    item: InboxItem | None,
    claimed: Claimed,
    fence: Fence,
    since: float,
) -> None:
    run, count = stored.run, partial(_count_first_step, dispatch, claimed, since)
    if item is not None:
        await dispatch.turns.run(item, lambda: _run_input(dispatch, stored, item, fence, count))
    elif run is not None and is_schedule_due(run, dispatch.env.clock.now()):
        await dispatch.fire_schedule(stored, run, fence)
    elif (act := await _reopen(dispatch, stored, fence)) is not None:
        await drive(count(act), dispatch)
    else:
        later, head = _next_look(dispatch, stored, claimed), stored.thread.inbox_head
        is_blocked = run is not None and run.waiting is not None and is_due(stored, run, dispatch.env.clock.now())
        problem = dispatch.find_problem(stored, run) if is_blocked and run is not None else None
        await _release(dispatch, stored.thread.id, fence, later=later, inbox_head=head, why=problem)


async def start_requested(dispatch: Dispatcher, item: InboxItem, started: asyncio.Future[bool]) -> None:
    """Run the input of another process on an idle thread.

    The first commit takes the input and claims the thread; `started` says whether it was written. Most threads are
    new, so the first attempt assumes that.
    """
    thread_id, since = item.thread_id, asyncio.get_running_loop().time()
    new, act = replace(new_run_of(item), item_id=None, request=Request(item.id, item.digest)), None
    try:
        try:
            act = _count_start(dispatch, since, dispatch.activations.new(new), started)
            act.draft.inbox_head = 0
            await drive(act, dispatch)
        except (Conflict, InboxMoved):
            if _fence(act) is not None:
                raise
            stored = await dispatch.env.store.load(thread_id)
            if stored is None or stored.thread.claimed or stored.thread.dead or stored.run or stored.inbox:
                return  # Other work comes first.
            history = await dispatch.activations.history(stored, new.agent_id)
            act = _count_start(dispatch, since, dispatch.activations.new(new, stored, history), started)
            act.draft.inbox_head = stored.thread.inbox_head
            await drive(act, dispatch)
    except Exception as error:
        if (fence := _fence(act)) is None:
            if isinstance(error, StoreUnavailable):
                dispatch.worker.suspect_strays()
            return  # The process that asked keeps the input.
        if isinstance(error, Conflict | StaleFence | RuntimeClosed):
            await _release(dispatch, thread_id, fence)
        else:
            report(_log, error, "thread %r was started on request and failed", thread_id)
            await _release(dispatch, thread_id, fence, failed=explain(error))
    finally:
        if not started.done():
            started.set_result(_fence(act) is not None)


def _fence(act: Activation | None) -> Fence | None:
    """The fence of an activation; None before its first commit."""
    return None if act is None else act.draft.fence


def _count_start(dispatch: Dispatcher, since: float, act: Activation, started: asyncio.Future[bool]) -> Activation:
    """Count the claim, and tell `started`, when the activation's first commit is written."""
    loop, metrics = asyncio.get_running_loop(), dispatch.worker.metrics

    def count(_: asyncio.Future[None]) -> None:
        if not started.done():
            started.set_result(True)
        metrics.claimed(loop.time() - since)
        metrics.first_step(loop.time() - since)

    act.draft.started = loop.create_future()
    act.draft.started.add_done_callback(count)
    return act


def _count_first_step(dispatch: Dispatcher, claimed: Claimed, since: float, act: Activation) -> Activation:
    """Measure how long the dispatch was due when the activation's first commit is written."""
    loop, metrics = asyncio.get_running_loop(), dispatch.worker.metrics
    act.draft.started = loop.create_future()
    act.draft.started.add_done_callback(lambda _: metrics.first_step(claimed.waited / 1000 + loop.time() - since))
    return act


async def _run_input(
    dispatch: Dispatcher,
    stored: ThreadView,
    item: InboxItem,
    fence: Fence,
    count: Callable[[Activation], Activation],
) -> RunResult | None:
    new, activations = new_run_of(item), dispatch.activations
    history = await activations.history(stored, new.agent_id)
    act = activations.new(new, stored, history, fence)
    if new.lineage is not None:
        await activations.join_tree(act)
    await drive(count(act), dispatch)
    return dispatch.result(act)


async def _reopen(dispatch: Dispatcher, stored: ThreadView, fence: Fence) -> Activation | None:
    """An activation of the thread's open run; None if it isn't due, or can't be resumed here."""
    run = stored.run
    if run is None:
        return None
    if run.waiting is None:
        return await dispatch.activations.reopen(stored, run, "recover", fence=fence)
    if not is_due(stored, run, dispatch.env.clock.now()) or dispatch.find_problem(stored, run) is not None:
        return None
    return await dispatch.activations.reopen(stored, run, "wake", fence=fence)


def _next_look(dispatch: Dispatcher, stored: ThreadView, claimed: Claimed) -> int:
    """When to look again at a thread that can't run here, or isn't due by this process's clock.

    Claims go by the store's clock, which may be ahead.
    """
    now, waiting = dispatch.env.clock.now(), stored.run.waiting if stored.run is not None else None
    if stored.run is not None and is_due(stored, stored.run, now):
        return now + _next_backoff(dispatch, stored.thread.id)
    times = [i.at for i in stored.inbox if i.at is not None]
    if waiting is not None and waiting.until is not None:
        times.append(waiting.until)
    store_now = claimed.due_at + claimed.waited
    soon = max(now, store_now) + NOTHING_DUE_PAUSE
    return min([time if time > store_now else soon for time in times if time > now], default=soon)


def _next_backoff(dispatch: Dispatcher, thread_id: str) -> int:
    times = dispatch.postponed[thread_id] = dispatch.postponed.get(thread_id, -1) + 1
    return min(FIRST_BACKOFF * 2 ** min(times, 10), MAX_BACKOFF)


async def _release(
    dispatch: Dispatcher,
    thread_id: str,
    fence: Fence,
    *,
    later: int | None = None,
    inbox_head: int | None = None,
    why: str | None = None,
    failed: str | None = None,
) -> None:
    """Release a thread: due as it is, after a failure, or `later` unless its inbox moved. `why` is kept."""
    commit = Commit(
        thread_id, fence=fence, release=True, later=later, inbox_head=inbox_head, why=why, failed=failed
    )
    try:
        await dispatch.env.store.commit(commit)
    except InboxMoved:
        await _release(dispatch, thread_id, fence)  # The new item isn't postponed.
    except (Conflict, StaleFence):
        pass  # It was released or taken over before.
    except StoreError as error:
        _log.warning("thread %r could not be released and will be later: %s", thread_id, error)
        dispatch.worker.suspect_strays()
