"""Cancelling, retrying and pausing runs, whichever process has them."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from ..errors import Conflict, DuplicateRequest, RunNotFailed, StaleFence, UnknownInput, UnknownRun
from ..loop import drive
from ..messaging import retract
from ..stores import Commit, reused
from ..types.ids import new_id
from ..types.inbox import CancelItem, InboxItem, InputItem, PauseItem, Request, UnpauseItem
from ..types.runs import Failed, RunRecord, Stopped
from .callers import Caller
from .dispatcher import Dispatcher
from .results import RunResult, first_item
from .tree import find_run
from .waits import Watch, complete, until_quiet, wait_for_run

__all__ = ["cancel", "retry", "set_paused"]


async def cancel(dispatch: Dispatcher, run_id: str, reason: str, *, leave_tasks: bool = False) -> bool:
    """Cancel a run and wait until its tree is quiet; False if it was done before.

    With `leave_tasks` its background tasks go to the thread's next run.
    """
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
            if item.status == "pending" and await _cancel_unstarted(dispatch, run_id, item, reason):
                return True


async def _cancel_unstarted(dispatch: Dispatcher, run_id: str, item: InboxItem, reason: str) -> bool:
    """Cancel a run whose input is queued; False if it started meanwhile.

    A task starts and is cancelled at once, so that its owner gets a report. Other input is retracted.
    """
    lineage = item.lineage if isinstance(item, InputItem) else None
    if lineage is None or lineage.origin not in ("task", "subagent"):
        try:
            await retract(dispatch.env.store, item.id, None)
        except UnknownInput:
            return False
        dispatch.retracted(item.thread_id, item.id)
        return True
    await dispatch.deliver(CancelItem(id=new_id(), thread_id=item.thread_id, run_id=run_id, reason=reason))
    await dispatch.start_if_due(item.thread_id, at_once=True)
    await wait_for_run(dispatch, run_id)
    return True


async def _cancel(dispatch: Dispatcher, run_id: str, reason: str, watch: Watch, *, leave_tasks: bool) -> bool:
    is_told = False
    while True:
        run, stored = await find_run(dispatch.env.store, run_id)
        if run.status == "done":
            await until_quiet(dispatch, run)
            return is_told
        act = dispatch.active.get(run.thread_id)
        if act is not None and act.view.run.id == run_id:
            act.cancel(reason, leave_tasks=leave_tasks)
            await act.ended()
            if act.view.run.status != "done":
                continue  # It was about to wait: it is cancelled there.
            await until_quiet(dispatch, run)
            return True
        if stored.thread.claimed or act is not None or not dispatch.execute:
            if not is_told:
                is_told = True
                item = CancelItem(
                    id=new_id(),
                    thread_id=run.thread_id,
                    leaves_tasks=leave_tasks,
                    run_id=run_id,
                    reason=reason,
                )
                watch.set_thread(run.thread_id)
                await dispatch.deliver(item)
            await watch.next_look()
            continue
        act = await dispatch.activations.reopen(stored, run, "wake", ends=True)
        act.cancel(reason, leave_tasks=leave_tasks)
        try:
            await drive(act, dispatch)
        except (Conflict, StaleFence):
            continue
        await until_quiet(dispatch, run)
        return True


async def retry(dispatch: Dispatcher, run_id: str, request: Request | None = None) -> RunResult:
    """Continue a failed run, or one whose dispatch is a dead letter, from its last committed step.

    A repeated request continues nothing.
    """
    with Caller(dispatch, run_id):
        return await _retry(dispatch, run_id, request)


async def _retry(dispatch: Dispatcher, run_id: str, request: Request | None) -> RunResult:
    while True:
        run, stored = await find_run(dispatch.env.store, run_id)
        if request is not None and (first := await first_item(dispatch.env.store, request)) is not None:
            if first.taken_by != run_id:
                raise reused(request.id)
            return await wait_for_run(dispatch, run_id)
        if run.status != "done" and await dispatch.env.store.revive(run.thread_id, request=request):
            dispatch.worker.look()
            return await wait_for_run(dispatch, run_id)
        if run.status != "done" and await first_item(dispatch.env.store, request) is not None:
            continue  # The same request was made at the same time.
        _check_failed(run)
        if stored.run is not None or stored.thread.last_run_id != run_id:
            raise RunNotFailed(
                f"thread {run.thread_id!r} went on with another run after {run_id}; run the agent again instead, "
                "or fork the thread where it failed"
            )
        fresh = replace(run, status="running", outcome=None, finished_at=None, failures=0, ending=None)
        try:
            if not dispatch.runs_agent(run.agent_id):
                commit = Commit(
                    run.thread_id, run.identity, version=stored.thread.version, runs=[fresh], request=request
                )
                await dispatch.activations.write(commit, fresh)
                dispatch.signals.wake(dispatch.tenant, run.thread_id, run.agent_id)
                return await wait_for_run(dispatch, run_id)
            act = await dispatch.activations.reopen(stored, fresh, "retry")
            act.view.answer = await dispatch.env.store.answer(run_id)
            act.draft.request = request
            await drive(act, dispatch)
            return await complete(dispatch, dispatch.result(act))
        except (Conflict, StaleFence, DuplicateRequest):
            continue


def _check_failed(run: RunRecord) -> None:
    ending = run.outcome.termination if run.outcome is not None else None
    too_many_errors = isinstance(ending, Stopped) and ending.policy == "consecutive_errors"
    if not (isinstance(ending, Failed) or too_many_errors):
        raise RunNotFailed(f"run {run.id} is {run.status} and hasn't failed; only a failed run can be retried")


async def set_paused(dispatch: Dispatcher, run_id: str, kind: Literal["pause", "unpause"]) -> bool:
    """Pause a run at its next step, or let it continue; False if it is done."""
    dispatch.check_open()
    run = await dispatch.env.store.run(run_id)
    if run is None:
        raise UnknownRun(f"no run {run_id!r} in this store")
    if run.status == "done":
        return False
    if await _set_waiting_paused(dispatch, run, paused=kind == "pause"):
        return True
    item = PauseItem if kind == "pause" else UnpauseItem
    await dispatch.deliver(item(id=new_id(), thread_id=run.thread_id, run_id=run_id))
    await dispatch.start_if_due(run.thread_id)
    return True


async def _set_waiting_paused(dispatch: Dispatcher, run: RunRecord, *, paused: bool) -> bool:
    """Write the pause into the record of a waiting run, without waking it; False if it doesn't wait."""
    stored = await dispatch.env.store.load(run.thread_id)
    if stored is None or stored.run is None or stored.run.id != run.id or stored.thread.claimed:
        return False
    waiting = stored.run.waiting
    if waiting is None or waiting.reason == "manual_pause" or run.thread_id in dispatch.active:
        return False
    changed = replace(stored.run, paused=paused, updated_at=dispatch.env.clock.now())
    try:
        await dispatch.env.store.commit(
            Commit(run.thread_id, run.identity, version=stored.thread.version, runs=[changed])
        )
    except Conflict:
        return False
    return True
