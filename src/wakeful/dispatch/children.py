"""Child runs: agents that a tool call runs and awaits, or starts as background tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from inspect import iscoroutine
from typing import Any

from msgspec import UNSET

from ..errors import Conflict, RemoteError, StaleFence, StoreError, WakefulError
from ..loop import Activation, JoinedCommit, drive, end_task, notify_item, outcome_of, read_tasks
from ..state import Snapshot, State
from ..stores import DELETED, Commit, Store, ThreadView
from ..tasks import TaskRegistry
from ..tools import CallContext, ChildRequest, ChildResult, SpawnRequest, ToolContext
from ..types.inbox import InboxItem
from ..types.runs import Failed, RunRecord, TaskOutcome, TaskRecord, TaskRef
from .dispatcher import Dispatcher
from .joint_commits import start_with_commit
from .remote_tasks import NotStored, check_stoppable, refresh
from .repeats import check_same
from .results import output_of
from .task_start import (
    child_of,
    find_task_of_call,
    identity_of,
    item_of_task,
    new_task,
    open_task,
    resume,
    run_coroutine,
    seed_of,
    start_child,
    visible_to,
)
from .tree import measure, open_below
from .waits import POLL

__all__ = ["ChildRuns"]

# The ordinal of a call's first child.
FIRST = 1

_REMOTE = RemoteError.__name__


class ChildRuns:
    """Runs children for the runs of one tenant."""

    def __init__(self, dispatcher: Callable[[], Dispatcher], task_registry: TaskRegistry) -> None:
        self._dispatcher = dispatcher
        self._task_registry = task_registry

    def run(
        self, act: Activation, context: CallContext, request: ChildRequest
    ) -> Coroutine[Any, Any, ChildResult]:
        """Run an agent below a call."""
        return _run(self._dispatcher(), act, context, request)

    def start_child(self, act: Activation, call_id: str, request: ChildRequest) -> TaskRecord | None:
        """Start a call's only child with the run's next commit; None if the call will be refused the child."""
        try:
            task = new_task(self._dispatcher(), act, call_id, FIRST, request)
        except WakefulError:
            return None
        act.draft.put_task(task)
        if task.durable:
            act.draft.put_item(item_of_task(act, task, request))
            act.set_run(apart=True)
        act.view.tasks = (*act.view.tasks, task)
        return task

    async def spawn(self, act: Activation, context: CallContext, request: SpawnRequest) -> TaskRecord:
        """Start a background task for a call."""
        dispatch, target = self._dispatcher(), request.target
        if iscoroutine(target):
            return await run_coroutine(dispatch, self._task_registry, act, context, target, request)
        found = child_of(dispatch, self._task_registry, request, ToolContext.spawn)
        done = await _run(dispatch, act, context, found)
        tasks = await read_tasks(act)
        return next(task for task in tasks if task.id == done.task_id)

    async def resume(self, act: Activation, context: CallContext, task: TaskRecord, prompt: str) -> TaskRecord:
        """Continue a cancelled task."""
        return await resume(self._dispatcher(), act, context, task, prompt)

    async def refresh(self, task: TaskRecord) -> TaskRecord:
        """The present status of a task that a backend executes."""
        return await refresh(self._dispatcher(), task)

    def check_stoppable(self, task: TaskRecord) -> None:
        """Raise if this process can't cancel a task."""
        check_stoppable(self._dispatcher().env.registry, task)

    async def count_below(self, thread_id: str, run_id: str) -> int:
        """The number of open tasks below a run, at any depth."""
        return len(await open_below(self._dispatcher().env.store, thread_id, run_id))

    async def read_tree_usage(self, act: Activation) -> None:
        """Read what the run's whole tree used."""
        await measure(self._dispatcher().env.store, act)

    def wake(self, thread_id: str, agent_id: str | None = None) -> None:
        """React to new items in a thread's inbox."""
        self._dispatcher().wake(thread_id, agent_id)

    async def start_with_commit(self, act: Activation, items: Sequence[InboxItem]) -> Sequence[JoinedCommit]:
        """Start the runs of items that a run is about to deliver, in the same transaction."""
        return await start_with_commit(self._dispatcher(), act, items)


async def _run(
    dispatch: Dispatcher, parent: Activation, context: CallContext, request: ChildRequest
) -> ChildResult:
    """Run an agent below a tool call. A repeated call finds the child that it started before."""
    place, first = context.next_place(), context.attempt == 1
    task = (
        open_task(parent, context, place) if first else await find_task_of_call(dispatch, parent, context, place)
    )
    fresh = first or task is None
    if task is None:
        task = await start_child(dispatch, parent, context, place, request)
    elif not first:
        await check_same(dispatch.env.store, context, task, request)
    if request.background:
        return ChildResult(task.target, task.agent_id, "running", "", 0, task_id=task.id)
    result = None
    if task.status == "running" and not task.durable:
        stored = None if fresh else await dispatch.env.store.load(task.target_thread)
        result = await _run_here(dispatch, parent, context, task, request, stored)
    return result or await _wait_elsewhere(dispatch, parent, context, task)


async def _run_here(
    dispatch: Dispatcher,
    parent: Activation,
    context: CallContext,
    task: TaskRecord,
    request: ChildRequest,
    stored: ThreadView | None,
) -> ChildResult | None:
    """Start or continue an ephemeral child in this process; its result if it is done."""
    if stored is None:  # New, or its process died before the first commit.
        act = _open_new(dispatch, parent, task, request)
    else:
        act = await _reopen(dispatch, parent, task, stored)
    try:
        result = None if act is None else await _attend(dispatch, parent, context, task, act)
    except (Conflict, StaleFence):
        result = None  # Another process runs it, and it will report.
    except StoreError as error:
        raise NotStored(str(error)) from error
    if context.unwinding is not None:
        raise context.park(task.id)  # The rest of an unwound tool ends here.
    return result


async def _wait_elsewhere(
    dispatch: Dispatcher, parent: Activation, context: CallContext, task: TaskRecord
) -> ChildResult:
    """The result of a child that this call doesn't run itself. Parks the call until then, if it can."""
    while True:
        run = await dispatch.env.store.run(task.target)
        if run is not None and run.status == "done":
            return await _collect(dispatch, parent, task, run)
        if run is None and await dispatch.env.store.load(task.target_thread) is None:
            return _deleted(parent, task)
        if context.can_suspend and _is_open(parent, task):  # A task that was given up doesn't report.
            if await _will_report(dispatch, context, task):
                raise context.park(task.id)
            continue
        await _poll(dispatch, task)


# -- while it runs -------------------------------------------------------------------------------------------


async def _attend(
    dispatch: Dispatcher, parent: Activation, context: CallContext, task: TaskRecord, act: Activation
) -> ChildResult | None:
    """Run the child in this process; its result if it is done."""
    act.attached = True
    detach = parent.attach_child(context.call_id, act)
    try:
        if context.is_delegation:
            await drive(act, dispatch)
        else:
            await _run_beside(dispatch, act, context, task)
    finally:
        detach()
        if act.stopping == "now" and parent.stopping != "now":
            dispatch.release(act)  # Its parent lost its thread: another process continues both.
        run, outcome = act.view.run, None
        if act.left and run.status == "done":
            outcome = outcome_of(run, act.view.answer)
            if _is_open(parent, task):  # A report may come as well.
                end_task(parent, task, outcome)
    return None if outcome is None else _result(dispatch, task, run, outcome, act.state.snapshot())


async def _run_beside(dispatch: Dispatcher, act: Activation, context: CallContext, task: TaskRecord) -> None:
    """Run the child in its own asyncio task: a tool that is unwound for another child leaves it running."""
    running = asyncio.get_running_loop().create_task(drive(act, dispatch))
    dispatch.track(running, is_awaited=True)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        if running.done():
            raise
        if context.unwinding is not None:
            act.attached = False
            raise
        act.cancel("the call that waited for it was stopped")
        await asyncio.wait({running})
        raise


def _open_new(dispatch: Dispatcher, parent: Activation, task: TaskRecord, request: ChildRequest) -> Activation:
    """An activation that starts the child."""
    ref, history = TaskRef(task.id, task.epoch), visible_to(parent) if request.fork else ()
    seed = seed_of(parent, request)
    return dispatch.activations.child(parent, identity_of(parent, task), ref, request.message, seed, history)


async def _reopen(
    dispatch: Dispatcher, parent: Activation, task: TaskRecord, stored: ThreadView
) -> Activation | None:
    """An activation that continues the child; None if it is active, done, or waits."""
    run = stored.run
    busy = task.target_thread in dispatch.active or stored.thread.claimed
    if busy or run is None or run.waiting is not None:
        return None
    return await dispatch.activations.reopen(stored, run, "recover", parent)


async def _will_report(dispatch: Dispatcher, context: CallContext, task: TaskRecord) -> bool:
    """Make sure that the child reports its end to its owner's inbox; False if it ended without a report.

    An earlier attempt of the call may have attended to it, here or in another process.
    """
    act = dispatch.active.get(task.target_thread)
    if act is None and not task.durable:
        return await _request_report(dispatch.env.store, notify_item(task, context.fence))
    if act is None or not act.attached:
        return True
    if act.view.run.status == "done":
        await act.ended()
        return False
    act.attached = False
    return True


async def _request_report(store: Store, item: InboxItem) -> bool:
    """Ask a child that another process runs to report its end; False if it ended before.

    The child can't end without having taken the item. A child that waits reports in any case.
    """
    stored = await store.load(item.thread_id)
    if stored is None or (stored.run is not None and stored.run.waiting is not None):
        return True
    if stored.run is None:
        return False
    await store.commit(Commit(item.thread_id, inbox=[item]))
    stored = await store.load(item.thread_id)
    if stored is None or stored.run is not None:
        return True
    if any(pending.id == item.id for pending in stored.inbox):
        with suppress(Conflict):  # Its new owner takes it.
            await store.commit(Commit(item.thread_id, version=stored.thread.version, taken=[item.id]))
    return False


async def _poll(dispatch: Dispatcher, task: TaskRecord) -> None:
    """Wait for a child that this process doesn't attend to."""
    dispatch.check_open()
    await dispatch.start_if_due(task.target_thread, at_once=True)
    act = dispatch.active.get(task.target_thread)
    if act is None:
        await asyncio.sleep(POLL)
    else:
        await act.ended()


# -- results -------------------------------------------------------------------------------------------------


def _is_open(parent: Activation, task: TaskRecord) -> bool:
    return task.id in [t.id for t in parent.view.tasks]


def _deleted(parent: Activation, task: TaskRecord) -> ChildResult:
    """The result of a child whose thread was deleted."""
    if _is_open(parent, task):
        end_task(parent, task, TaskOutcome(task.epoch, "cancelled", error=DELETED))
    return ChildResult(task.target, task.agent_id, "cancelled", "", 0, DELETED, task_id=task.id)


async def _collect(dispatch: Dispatcher, parent: Activation, task: TaskRecord, run: RunRecord) -> ChildResult:
    """The result of a child that ended elsewhere, or before."""
    store = dispatch.env.store
    outcome = outcome_of(run, await store.answer(run.id))
    if _is_open(parent, task):
        end_task(parent, task, outcome)
    stored = await store.load(run.thread_id)
    state = State.load(dispatch.env.registry.catalog.keys, {} if stored is None else stored.state)
    return _result(dispatch, task, run, outcome, state.snapshot())


def _result(
    dispatch: Dispatcher, task: TaskRecord, run: RunRecord, outcome: TaskOutcome, state: Snapshot
) -> ChildResult:
    done = run.outcome
    registry = dispatch.env.registry
    output = output_of(registry, run, outcome.text) if run.agent_id in registry.outputs else None
    remote = done is not None and isinstance(done.termination, Failed) and done.termination.error == _REMOTE
    return ChildResult(
        run.id,
        task.agent_id,
        outcome.status,
        outcome.text,
        run.steps,
        outcome.error,
        None if output is UNSET else output,
        state,
        task.id,
        "remote_error" if remote else "failed",
    )
