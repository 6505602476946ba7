"""Children: agents that a tool call runs and waits for, or leaves to work in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from inspect import iscoroutine
from typing import Any

from ..errors import Conflict, RemoteError, StaleFence, StoreError, WakefulError
from ..loop import Activation, Ride, end_task, outcome_of, tell_item
from ..state import Snapshot, State
from ..stores import DELETED, Commit, InboxItem, Store, ThreadView
from ..tasks import TaskBook
from ..tools import ChildRequest, ChildResult, SpawnRequest, ToolContext
from ..types.runs import Failed, RunRecord, TaskOutcome, TaskRecord, TaskRef
from ._beginning import (
    begin,
    child_of,
    identity_of,
    item_of_task,
    keep_here,
    new_task,
    open_task,
    recorded,
    resume,
    seed_of,
    visible_to,
)
from ._boarding import board
from ._local import Dispatcher
from ._remote_tasks import NotStored, check_stoppable, refresh
from ._repeating import check_same
from ._results import output_of
from ._trees import POLL, measure, open_below

__all__ = ["ChildRuns"]

# The place of a call's first child.
FIRST = 1

_REMOTE = RemoteError.__name__


class ChildRuns:
    """What the runs of one tenant have below them."""

    def __init__(self, dispatcher: Callable[[], Dispatcher], book: TaskBook) -> None:
        self._dispatcher = dispatcher
        self._book = book

    def run(
        self, act: Activation, context: ToolContext, request: ChildRequest
    ) -> Coroutine[Any, Any, ChildResult]:
        """Run an agent below a call."""
        return _run(self._dispatcher(), act, context, request)

    def begin(self, act: Activation, call_id: str, request: ChildRequest) -> TaskRecord | None:
        """Begin a call's only child by the run's next commit; None where the call itself will be refused it."""
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

    async def spawn(self, act: Activation, context: ToolContext, request: SpawnRequest) -> TaskRecord:
        """Begin work in the background for a call."""
        dispatch, target = self._dispatcher(), request.target
        if iscoroutine(target):
            return await keep_here(dispatch, self._book, act, context, target, request)
        found = child_of(dispatch, self._book, request, ToolContext.spawn)
        done = await _run(dispatch, act, context, found)
        return next(task for task in await context.tasks() if task.id == done.task_id)

    async def resume(self, act: Activation, context: ToolContext, task: TaskRecord, prompt: str) -> TaskRecord:
        """Let a stopped task go on."""
        return await resume(self._dispatcher(), act, context, task, prompt)

    async def refresh(self, task: TaskRecord) -> TaskRecord:
        """How a task stands that a backend carries out."""
        return await refresh(self._dispatcher(), task)

    def check_stoppable(self, task: TaskRecord) -> None:
        """Refuse to stop a task that nothing here can reach."""
        check_stoppable(self._dispatcher().env.registry, task)

    async def below(self, thread_id: str, run_id: str) -> int:
        """How many open tasks a run has below it, at any depth."""
        return len(await open_below(self._dispatcher().env.store, thread_id, run_id))

    async def measure(self, act: Activation) -> None:
        """Read what the run's whole tree used."""
        await measure(self._dispatcher().env.store, act)

    def wake(self, thread_id: str, agent_id: str | None = None) -> None:
        """Something was put into a thread's inbox."""
        self._dispatcher().wake(thread_id, agent_id)

    async def board(self, act: Activation, items: Sequence[InboxItem]) -> Sequence[Ride]:
        """Begin here with what a run is about to put into the inboxes of others."""
        return await board(self._dispatcher(), act, items)


async def _run(
    dispatch: Dispatcher, parent: Activation, context: ToolContext, request: ChildRequest
) -> ChildResult:
    """Run an agent below a tool call. A call that is made again finds the child that it began before."""
    place, first = context.next_place(), context.attempt == 1
    task = open_task(parent, context, place) if first else await recorded(dispatch, parent, context, place)
    fresh = first or task is None
    if task is None:
        task = await begin(dispatch, parent, context, place, request)
    elif not first:
        await check_same(dispatch.env.store, context, task, request)
    if request.background:
        return ChildResult(task.target, task.agent_id, "running", "", 0, task_id=task.id)
    if task.status == "running" and not task.durable:
        stored = None if fresh else await dispatch.env.store.load(task.target_thread)
        if stored is None:  # Or the process died before the child's first commit.
            act = _new(dispatch, parent, task, request)
        else:
            act = await _reopened(dispatch, parent, task, stored)
        try:
            result = None if act is None else await _attend(dispatch, parent, context, task, act)
        except (Conflict, StaleFence):
            result = None  # Somebody else runs it, and it will be heard of.
        except StoreError as error:
            raise NotStored(str(error)) from error
        if context.unwinding is not None:
            raise context.park(task.id)  # What is left of a tool that was unwound goes no further.
        if result is not None:
            return result
    while True:
        run = await dispatch.env.store.run(task.target)
        if run is not None and run.status == "done":
            return await _collect(dispatch, parent, task, run)
        if run is None and await dispatch.env.store.load(task.target_thread) is None:
            return _gone(parent, task)
        if context.suspendable and _is_open(parent, task):  # Of one that was given up nobody would tell.
            if await _reports(dispatch, context, task):
                raise context.park(task.id)
            continue
        await _look(dispatch, task)


# -- while it runs -------------------------------------------------------------------------------------------


async def _attend(
    dispatch: Dispatcher, parent: Activation, context: ToolContext, task: TaskRecord, act: Activation
) -> ChildResult | None:
    """Run the child here, as far as it goes; what it came to, if it is done."""
    act.attached = True
    below = parent.executor.below
    below[act] = context.call_id
    try:
        if context.one_child:
            await act.drive(dispatch)
        else:
            await _beside(dispatch, act, context, task)
    finally:
        del below[act]
        if act.stopping == "now" and parent.stopping != "now":
            dispatch.hand_back(act)  # Its caller was lost, and nobody here goes on with it.
        run, outcome = act.view.run, None
        if act.left and run.status == "done":
            outcome = outcome_of(run, act.view.answer)
            if _is_open(parent, task):  # Though its end may be told besides.
                end_task(parent, task, outcome)
    return None if outcome is None else _result(dispatch, task, run, outcome, act.state.snapshot())


async def _beside(dispatch: Dispatcher, act: Activation, context: ToolContext, task: TaskRecord) -> None:
    """Run the child beside the tool: a tool that is unwound because it waits for another child leaves this one."""
    running = asyncio.get_running_loop().create_task(act.drive(dispatch))
    dispatch.track(running, heard=True)
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


def _new(dispatch: Dispatcher, parent: Activation, task: TaskRecord, request: ChildRequest) -> Activation:
    """What begins the child here."""
    ref, history = TaskRef(task.id, task.epoch), visible_to(parent) if request.fork else ()
    seed = seed_of(parent, request)
    return dispatch.opener.child(parent, identity_of(parent, task), ref, request.message, seed, history)


async def _reopened(
    dispatch: Dispatcher, parent: Activation, task: TaskRecord, stored: ThreadView
) -> Activation | None:
    """What goes on with the child here; None if it runs already, is done, or waits for somebody."""
    run = stored.run
    busy = task.target_thread in dispatch.active or stored.thread.claimed
    if busy or run is None or run.waiting is not None:
        return None
    return await dispatch.opener.reopen(stored, run, "recover", parent)


async def _reports(dispatch: Dispatcher, context: ToolContext, task: TaskRecord) -> bool:
    """See to it that the owner will be told of a child's end, and not an earlier attempt at the call, which ran it
    here or in another process. False once it has ended unheard."""
    act = dispatch.active.get(task.target_thread)
    if act is None and not task.durable:
        return await _asked_to_tell(dispatch.env.store, tell_item(task, context.fence))
    if act is None or not act.attached:
        return True
    if act.view.run.status == "done":
        await act.ended()
        return False
    act.attached = False
    return True


async def _asked_to_tell(store: Store, item: InboxItem) -> bool:
    """Have a child that another process runs tell of its end, which it can't come to without having seen this.
    Whoever goes on with one that waits tells anyway. False if it had ended before."""
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
        with suppress(Conflict):  # Whoever has the thread now takes it.
            await store.commit(Commit(item.thread_id, version=stored.thread.version, taken=[item.id]))
    return False


async def _look(dispatch: Dispatcher, task: TaskRecord) -> None:
    """Wait a while for a child that this process doesn't attend to."""
    dispatch.check_open()
    await dispatch.pump(task.target_thread, at_once=True)
    act = dispatch.active.get(task.target_thread)
    if act is None:
        await asyncio.sleep(POLL)
    else:
        await act.ended()


# -- what came of it -----------------------------------------------------------------------------------------


def _is_open(parent: Activation, task: TaskRecord) -> bool:
    return task.id in [t.id for t in parent.view.tasks]


def _gone(parent: Activation, task: TaskRecord) -> ChildResult:
    """What is said of a child whose thread was deleted."""
    if _is_open(parent, task):
        end_task(parent, task, TaskOutcome(task.epoch, "cancelled", error=DELETED))
    return ChildResult(task.target, task.agent_id, "cancelled", "", 0, DELETED, task_id=task.id)


async def _collect(dispatch: Dispatcher, parent: Activation, task: TaskRecord, run: RunRecord) -> ChildResult:
    """What a child came to that was done elsewhere, or before."""
    store = dispatch.env.store
    outcome = outcome_of(run, await store.answer(run.id))
    if _is_open(parent, task):
        end_task(parent, task, outcome)
    stored = await store.load(run.thread_id)
    state = State.of(dispatch.env.registry.catalog.keys, {} if stored is None else stored.state)
    return _result(dispatch, task, run, outcome, state.snapshot())


def _result(
    dispatch: Dispatcher, task: TaskRecord, run: RunRecord, outcome: TaskOutcome, state: Snapshot
) -> ChildResult:
    done = run.outcome
    output = output_of(dispatch.env.registry, run, outcome.text)
    remote = done is not None and isinstance(done.termination, Failed) and done.termination.error == _REMOTE
    return ChildResult(
        run.id,
        task.agent_id,
        outcome.status,
        outcome.text,
        run.steps,
        outcome.error,
        output,
        state,
        task.id,
        "remote_error" if remote else "failed",
    )
