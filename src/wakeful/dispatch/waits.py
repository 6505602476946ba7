"""Waiting for runs: in this process by their activations, elsewhere by the bus and by polling the store."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from ..bus import LogAdvanced, Update
from ..errors import InputRetracted, UnknownRun
from ..loop import Activation
from ..stores import Store
from ..types.runs import RunRecord, TaskRecord
from .dispatcher import Dispatcher
from .host import is_inside_run
from .results import RunResult, result_of
from .tree import dead_letter, open_below, open_threads_below, tickets_below, waits_for_tasks

__all__ = [
    "POLL",
    "Watch",
    "complete",
    "pause_after",
    "settle",
    "stored_result",
    "until_quiet",
    "wait_for_run",
]

# How long to wait before the next look, in seconds: a part of the time waited so far, between these bounds.
PART = 0.25
SHORTEST = 0.02
LONGEST, LONGEST_WITH_BUS = 1.0, 2.0
# The least time between two looks, however many signals arrive.
GAP = 0.025
# Seconds between checks for work that was started beside the awaited run.
POLL = 0.1
# How long scheduled work takes to become active in this process, in seconds.
BRIEF = 0.001


def pause_after(waited: float, *, bus: bool) -> float:
    """The seconds to wait before the next look, after so many seconds of waiting."""
    return max(SHORTEST, min(waited * PART, LONGEST_WITH_BUS if bus else LONGEST))


class Watch:
    """Waits for changes on a thread that may run in another process. Signals of the bus shorten the wait."""

    def __init__(self, dispatch: Dispatcher, thread_id: str | None) -> None:
        self._signals = dispatch.signals
        self._tenant = dispatch.tenant
        self._durable = dispatch.env.store.durable
        self._thread_id = thread_id
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self._looked = self._started
        self._moved = asyncio.Event()

    def __enter__(self) -> Watch:
        self._join()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread_id is not None:
            self._signals.leave(self._tenant, self._thread_id, self)

    def set_thread(self, thread_id: str) -> None:
        """Set the thread to watch, once it is known."""
        if self._thread_id is None:
            self._thread_id = thread_id
            self._join()

    def _join(self) -> None:
        if self._thread_id is not None and self._durable:
            self._signals.watch(self._tenant, self._thread_id, self)

    def push(self, event: Update) -> None:
        """Take an event of the bus; only commits count."""
        if isinstance(event, LogAdvanced):
            self._moved.set()

    async def next_look(self, until: asyncio.Future[Any] | None = None) -> None:
        """Wait until it is worth a look at the store, or the future is done."""
        pause = pause_after(self._loop.time() - self._started, bus=self._signals.healthy)
        moved = asyncio.ensure_future(self._wait_moved())
        try:
            waiting = {moved} if until is None else {moved, until}
            await asyncio.wait(waiting, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        finally:
            moved.cancel()
        self._looked = self._loop.time()

    async def _wait_moved(self) -> None:
        await self._moved.wait()
        await asyncio.sleep(self._looked + GAP - self._loop.time())
        self._moved.clear()


async def stored_result(dispatch: Dispatcher, run_id: str) -> RunResult[Any]:
    """The result of a run so far, from the store alone."""
    store = dispatch.env.store
    run = await store.run(run_id)
    if run is None:
        raise UnknownRun(f"no run {run_id!r} in this store")
    tickets = tuple(await store.tickets(run_id, status="open"))
    if run.status == "waiting":
        tickets += tuple(await tickets_below(store, run.thread_id, run_id))
    return await _add_stopped(store, result_of(dispatch.env.registry, run, await store.answer(run_id), tickets))


async def settle(dispatch: Dispatcher, result: RunResult[Any]) -> RunResult[Any]:
    """The result of a finished run once the runs that it stopped have ended, or its grace is over."""
    run = await dispatch.env.store.run(result.run_id)
    if run is None:
        return result  # It was deleted.
    with suppress(TimeoutError):
        async with asyncio.timeout(dispatch.env.grace):
            await until_quiet(dispatch, run)
    return await stored_result(dispatch, result.run_id)


async def _add_stopped(store: Store, result: RunResult[Any]) -> RunResult[Any]:
    """Add the usage of runs that it stopped to the result of a finished run; `tasks` keeps those still open."""
    if result.status != "done" or not result.tasks:
        return result
    used, left, seen, level = result.usage, list[str](), set[str](), list(result.tasks)
    while level:
        seen.update(level)
        found = [run for run_id in level if (run := await store.run(run_id)) is not None]
        left += [run.id for run in found if run.status != "done"]
        used = sum([run.usage + run.descendants for run in found], used)
        level = [run_id for run in found for run_id in run.stopped if run_id not in seen]
    return replace(result, usage=used, tasks=tuple(left))


async def complete(dispatch: Dispatcher, result: RunResult, act: Activation | None = None) -> RunResult[Any]:
    """The result of a run once the tasks that it waits for have ended, or wait for a person.

    Background tasks aren't awaited, but their open tickets are part of the result.
    """
    if result.status != "waiting":
        return result
    if result.tasks == ():
        store, thread_id, run_id = dispatch.env.store, result.thread_id, result.run_id
        if not (await store.tasks(thread_id, status="running") if act is None else act.view.tasks):
            return result
        return replace(result, tickets=(*result.tickets, *await tickets_below(store, thread_id, run_id)))
    followed = None if act is None else await _follow(dispatch, act)
    return followed or await wait_for_run(dispatch, result.run_id)


async def _follow(dispatch: Dispatcher, parked: Activation) -> RunResult | None:
    """Follow a run that waits for its tasks while all of them are active here, without a read of the store."""
    own, act = parked.identity.thread_id, parked
    while act.left and act.view.run.id == parked.view.run.id:
        if act.view.run.status == "done":
            return dispatch.result(act)
        threads = [own, *[task.target_thread for task in act.view.tasks]]
        next_end = dispatch.next_end(own)
        try:
            # The run's next activation may start and end before this wakes up.
            while not next_end.done() and (busy := [one for one in threads if dispatch.is_busy(one)]):
                ends = [one.ended() for thread in busy if (one := dispatch.active.get(thread)) is not None]
                timeout = POLL if ends else BRIEF
                await asyncio.wait([next_end, *ends], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            dispatch.forget_end(own, next_end)
        if not next_end.done():
            return None
        act = next_end.result()
    return None


async def wait_for_run(dispatch: Dispatcher, run_id: str, watch: Watch | None = None) -> RunResult[Any]:
    """Wait until a run is done, or waits and nothing in its tree can continue without a person.

    A run whose owner died continues here.
    """
    if watch is not None:
        return await _wait(dispatch, run_id, watch)
    with Watch(dispatch, None) as watch:
        return await _wait(dispatch, run_id, watch)


async def _wait(dispatch: Dispatcher, run_id: str, watch: Watch) -> RunResult[Any]:
    store, gone, quiet = dispatch.env.store, False, None
    while True:
        dispatch.check_open()
        run = await store.run(run_id)
        if run is None:
            gone = await _wait_for_start(dispatch, run_id, watch, gone=gone)
            continue
        if run.status == "done":
            return await stored_result(dispatch, run_id)
        if run.thread_id in dispatch.starting:
            await asyncio.sleep(BRIEF)
            continue
        act = dispatch.active.get(run.thread_id)
        if act is not None and act.view.run.id == run_id:
            await act.ended()
            if act.left and act.view.run.status == "done":
                return dispatch.result(act)
            continue
        watch.set_thread(run.thread_id)
        seen = await _look_at_tree(dispatch, run, watch)
        if seen is None:
            quiet = None
        elif seen == quiet and (result := await _result_if_quiet(dispatch, run_id, seen)) is not None:
            return result
        elif run.status == "waiting":
            quiet = seen  # A run may have started another one during the look: it must be seen twice.
        elif (thread := await store.thread(run.thread_id)) is not None and thread.dead:
            raise dead_letter(run)


async def _wait_for_start(dispatch: Dispatcher, run_id: str, watch: Watch, *, gone: bool) -> bool:
    """Wait for a run whose input is queued; returns whether neither of them is in the store."""
    item = await dispatch.env.store.item_of_run(run_id)
    if item is not None and item.status == "retracted":
        raise InputRetracted(
            f"input {item.id!r} of thread {item.thread_id!r} was retracted before run {run_id} began"
        )
    is_gone = item is None or item.status == "taken"
    if is_gone and gone:  # Seen twice, so it didn't start between the two reads.
        raise UnknownRun(f"run {run_id!r} isn't in this store any more: it was deleted, or pruned")
    if item is not None and not is_gone and is_inside_run():
        await dispatch.start_if_due(item.thread_id, at_once=True)
    await watch.next_look()
    return gone or is_gone


_Seen = tuple[RunRecord, list[TaskRecord], list[str], list[int]]


async def _look_at_tree(dispatch: Dispatcher, run: RunRecord, watch: Watch) -> _Seen | None:
    """The state of a run's tree if none of its threads is busy; None after a wait for one that is."""
    store = dispatch.env.store
    below = await open_below(store, run.thread_id, run.id) if waits_for_tasks(run) else []
    # Owners come last: a run that ended before it was read has reported to its owner by then.
    threads = [*[task.target_thread for task in reversed(below)], run.thread_id]
    epochs = await _epochs(store, threads)
    if await _wait_while_busy(dispatch, threads, watch):
        return None
    return run, below, threads, epochs


async def _result_if_quiet(dispatch: Dispatcher, run_id: str, seen: _Seen) -> RunResult | None:
    """The result of a run, unless a thread of its tree was claimed while the result was read."""
    result = await stored_result(dispatch, run_id)
    return result if await _epochs(dispatch.env.store, seen[2]) == seen[3] else None


async def _epochs(store: Store, threads: list[str]) -> list[int]:
    """The epochs of threads, which grow with every claim."""
    found = [await store.thread(thread) for thread in threads if thread]
    return [0 if thread is None else thread.epoch for thread in found]


async def _wait_while_busy(
    dispatch: Dispatcher, threads: list[str], watch: Watch, *, until: str = asyncio.FIRST_COMPLETED
) -> bool:
    """Whether one of the threads has work; if so, wait a while, or until one or all of its activations end."""
    at_once = is_inside_run()
    busy = [thread for thread in threads if thread and await dispatch.start_if_due(thread, at_once=at_once)]
    if not busy:
        return False
    ends = [act.ended() for thread in busy if (act := dispatch.active.get(thread)) is not None]
    if ends:
        await asyncio.wait(ends, timeout=POLL, return_when=until)
    elif any(thread in dispatch.starting for thread in busy):
        await asyncio.sleep(BRIEF)
    else:
        await watch.next_look()
    return True


async def until_quiet(dispatch: Dispatcher, run: RunRecord) -> None:
    """Wait until every run below a finished run has ended."""
    with Watch(dispatch, run.thread_id) as watch:
        while threads := await open_threads_below(dispatch.env.store, run):
            if not await _wait_while_busy(dispatch, threads, watch, until=asyncio.ALL_COMPLETED):
                return
