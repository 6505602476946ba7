"""Runs for new input: started at once if the thread is free, else queued."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

from msgspec.structs import replace

from ..errors import Conflict, DuplicateRequest, StaleFence, UnknownInput, UsageError
from ..loop import drive
from ..messaging import retract
from ..stores import Store, ThreadView
from ..types.inbox import InboxItem, InputItem
from .dispatcher import Dispatcher
from .host import enclosing_threads, is_inside_run
from .results import NewRun, RunResult, first_item, item_of
from .turns import retracted
from .waits import Watch, complete, wait_for_run

__all__ = ["run_new"]

Opened = Callable[[str], None]
Started = asyncio.Future[None]


async def run_new(
    dispatch: Dispatcher,
    new: NewRun,
    *,
    fresh: bool,
    opened: Opened | None = None,
    started: Started | None = None,
) -> RunResult[Any]:
    """Run new input and return its result. A repeated request returns the result of the first one.

    `fresh` says that the thread is new. `opened` is called with the id of the run that takes the input; `started`
    is done once that is committed.
    """
    if dispatch.closed:
        dispatch.check_open()
    first = await first_item(dispatch.env.store, new.request)
    thread_id = new.thread_id if first is None else first.thread_id
    if thread_id in dispatch.active and thread_id in enclosing_threads.get():
        raise UsageError(
            f"thread {thread_id!r} is running this very call, which would wait for itself; use another "
            "thread, ctx.run_agent(...), or send(...) to leave the thread a message"
        )
    if started is not None and (enclosing := enclosing_threads.get()):
        enclosing_threads.set((*enclosing, ""))  # The caller doesn't wait for this task.
    if first is not None:
        return await _repeat(dispatch, new, first, opened, started)
    stored = await dispatch.env.store.load(thread_id) if dispatch.execute and not fresh else None
    while True:
        try:
            result = await _run_now(dispatch, new, stored, opened, started)
            return result or await _run_in_turn(dispatch, new, started)
        except Conflict:
            stored = await dispatch.env.store.load(thread_id)
        except DuplicateRequest:  # The same request was made at the same time.
            return await run_new(dispatch, new, fresh=fresh, opened=opened, started=started)


async def _run_now(
    dispatch: Dispatcher,
    new: NewRun,
    stored: ThreadView | None,
    opened: Opened | None,
    started: Started | None,
) -> RunResult | None:
    """Run new input at once; None if it is queued."""
    act, was_lost, slot = None, False, await _take_slot(dispatch, new, stored)
    try:
        if slot == "none":
            pass
        elif stored is None:
            act = dispatch.activations.new(new)
        else:
            act = await dispatch.open_run(new, stored)
        if opened is not None:
            opened(new.run_id if act is None else act.identity.root_run_id)
        if act is None:
            return None
        if started is not None:
            act.draft.started = started
        await drive(act, dispatch)
    except StaleFence:
        was_lost = True  # Another process took the thread over and continues the run.
    finally:
        if slot == "taken":
            dispatch.worker.free_slot()
    if act is None or was_lost:
        return await wait_for_run(dispatch, new.run_id if act is None else act.identity.run_id)
    result = dispatch.result(act)
    return result if result.status == "done" else await complete(dispatch, result, act)


async def _take_slot(
    dispatch: Dispatcher, new: NewRun, stored: ThreadView | None
) -> Literal["taken", "unneeded", "none"]:
    """Take a slot of the worker for new input, if it may start here and needs one.

    It needs none if it continues or supersedes an open run, or if a run of this process waits for it.
    """
    if new.thread_id in dispatch.active or not dispatch.runs_agent(new.agent_id):
        return "none"
    if not dispatch.worker.must_claim or (stored is not None and stored.run is not None) or is_inside_run():
        return "unneeded"
    return "taken" if await dispatch.worker.take_slot() else "none"


async def _repeat(
    dispatch: Dispatcher, new: NewRun, first: InboxItem, opened: Opened | None, started: Started | None
) -> RunResult[Any]:
    """The result of the request that was made first."""
    if first.status == "retracted":
        raise retracted(first)
    if opened is not None:
        opened(first.taken_by or first.run_id or new.run_id)
    if started is not None and not started.done():
        started.set_result(None)
    if first.taken_by is not None:
        return await wait_for_run(dispatch, first.taken_by)
    return await _run_in_turn(dispatch, replace(new, thread_id=first.thread_id), None)


# -- queued input --------------------------------------------------------------------------------------------


class _CallerLeft(Exception):
    """The caller that made the request first doesn't wait any more."""


async def _run_in_turn(dispatch: Dispatcher, new: NewRun, started: Started | None) -> RunResult[Any]:
    """Put input into its thread's inbox, and wait for the run that takes it and for its result."""
    item = item_of(new, "queue")
    if (same := dispatch.turns.find(item.id)) is not None:
        try:
            result = await asyncio.shield(same)
        except _CallerLeft:
            return await _run_in_turn(dispatch, new, started)  # The input is still in the inbox.
        await first_item(dispatch.env.store, new.request)
        return result
    turn = dispatch.turns.add(item.id)
    try:
        result = await _await_turn(dispatch, new, item, turn, started)
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError):
            _withdraw(dispatch, item, new)
            error = _CallerLeft()
        if not turn.done():
            turn.set_exception(error)
        raise
    finally:
        dispatch.turns.remove(item.id)
    if not turn.done():
        turn.set_result(result)
    return await complete(dispatch, result)


async def _await_turn(
    dispatch: Dispatcher,
    new: NewRun,
    item: InputItem,
    turn: asyncio.Future[RunResult],
    started: Started | None,
) -> RunResult[Any]:
    await dispatch.check_room()
    if dispatch.execute or not await dispatch.deliver_if_idle(item, ask=True):
        await dispatch.deliver(item)
    if started is not None and not started.done():
        started.set_result(None)
    if dispatch.execute:
        await dispatch.start_if_due(new.thread_id, at_once=is_inside_run())
    with Watch(dispatch, new.thread_id) as watch:
        while not turn.done():
            if new.thread_id in dispatch.active:
                await asyncio.wait({turn}, timeout=1)
            else:
                await watch.next_look(turn)
            run_id = None if turn.done() else await _taken_by(dispatch.env.store, item)
            if not turn.done() and new.thread_id not in dispatch.active:
                if run_id is not None:
                    return await wait_for_run(dispatch, run_id, watch)
                if dispatch.execute:
                    await dispatch.start_if_due(new.thread_id, at_once=is_inside_run())
    return turn.result()


async def _taken_by(store: Store, item: InboxItem) -> str | None:
    """The run that took an item, or would have if its thread weren't deleted."""
    stored = await store.item(item.id)
    if stored is not None and stored.status == "retracted":
        raise retracted(stored)
    return item.run_id if stored is None else stored.taken_by


def _withdraw(dispatch: Dispatcher, item: InboxItem, new: NewRun) -> None:
    """Cancel the run of a caller that left, or retract its input. A request with an id stays for a repetition."""
    act = dispatch.active.get(new.thread_id)
    if new.request is not None and (act is None or act.view.run.id != new.run_id):
        return
    if act is None:
        dispatch.spawn(_retract(dispatch.env.store, item))
    elif act.view.run.id == new.run_id:
        act.cancel("the caller was cancelled")
    elif item.id in act.view.inbox:
        del act.view.inbox[item.id]
        act.take(item.id)


async def _retract(store: Store, item: InboxItem) -> None:
    with suppress(UnknownInput):  # A run has taken it.
        await retract(store, item.id, None)
