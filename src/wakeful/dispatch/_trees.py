"""Trees of runs: what is open below a run, whom it waits for, what it used, and when it is quiet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..errors import InputRetracted, RunGivenUp, UnknownRun
from ..stores import Store
from ..types.runs import RunRecord, TaskRecord, Usage
from ..types.tickets import Ticket
from ._waiting import Watch

if TYPE_CHECKING:
    from ..loop import Activation
    from ._local import Dispatcher
    from ._results import RunResult

__all__ = [
    "dead_letter",
    "follow",
    "is_below",
    "measure",
    "open_below",
    "owner_of",
    "settle",
    "threads_below",
    "tickets_below",
    "until_quiet",
    "waits_for_tasks",
]

# How often it is looked whether something was begun besides what is waited for here, in seconds.
POLL = 0.1
# How long it takes until something that was begun in this process runs, in seconds.
BRIEF = 0.001

MAX_TREE = 10_000


async def open_below(store: Store, thread_id: str, run_id: str) -> list[TaskRecord]:
    """The tasks that a run and all below it wait for or have in the background, those nearest to it first."""
    found: list[TaskRecord] = []
    level = [(thread_id, run_id)]
    while level:
        tasks: list[TaskRecord] = []
        for thread, run in level:
            tasks += [task for task in await store.tasks(thread, status="running") if task.run_id == run]
        found += tasks
        level = [(task.target_thread, task.target) for task in tasks if task.target_thread]
    return found


async def tickets_below(store: Store, thread_id: str, run_id: str) -> list[Ticket]:
    """The questions that the runs below a run wait on, oldest first."""
    found: list[Ticket] = []
    for task in await open_below(store, thread_id, run_id):
        found += await store.tickets(task.target, status="open")
    return sorted(found, key=lambda ticket: ticket.id)


async def threads_below(store: Store, thread_id: str, run_id: str | None = None) -> list[str]:
    """The threads of all tasks that a thread, or one run of it, ever had below it; the nearest first."""
    found: dict[str, None] = {}
    level = [task.target_thread for task in await store.tasks(thread_id) if run_id in (None, task.run_id)]
    while level := [thread for thread in dict.fromkeys(level) if thread and thread not in found]:
        found.update(dict.fromkeys(level))
        if len(found) >= MAX_TREE:
            break
        level = [task.target_thread for thread in level for task in await store.tasks(thread)]
    return list(found)


async def is_below(store: Store, run_id: str, root_id: str) -> bool:
    """Whether a run is below another one."""
    run = await store.run(run_id)
    while run is not None and (above := await owner_of(store, run)) is not None:
        if above == root_id:
            return True
        run = await store.run(above)
    return False


async def owner_of(store: Store, run: RunRecord) -> str | None:
    """The run that has another one below it: the one that began it, or the one that it was left to since."""
    above, thread = run.identity.parent_run_id, run.identity.parent_thread_id
    if above is None or thread is None or run.task is None or not run.task.background:
        return above
    return next((task.run_id for task in await store.tasks(thread) if task.target == run.id), above)


def waits_for_tasks(run: RunRecord) -> bool:
    """Whether a run waits for others."""
    return run.waiting is not None and bool(run.waiting.tasks)


async def follow(dispatch: Dispatcher, parked: Activation) -> RunResult | None:
    """What a run that waits for its tasks comes to, as long as it and they go on in this process: no need to look
    into the store then."""
    own, act = parked.identity.thread_id, parked
    while act.left and act.view.run.id == parked.view.run.id:
        if act.view.run.status == "done":
            return dispatch.result(act)
        threads = [own, *[task.target_thread for task in act.view.tasks]]
        after = dispatch.after(own)
        try:
            # Its next activation may begin and end before this is heard of.
            while not after.done() and (here := [one for one in threads if dispatch.goes_on(one)]):
                ends = [one.ended() for thread in here if (one := dispatch.active.get(thread)) is not None]
                timeout = POLL if ends else BRIEF
                await asyncio.wait([after, *ends], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            dispatch.forget(own, after)
        if not after.done():
            return None
        act = after.result()
    return None


async def settle(dispatch: Dispatcher, run_id: str, watch: Watch | None = None) -> RunResult:
    """Wait until a run is done, or waits and nothing below it goes on any more without a person."""
    if watch is not None:
        return await _settle(dispatch, run_id, watch)
    with Watch(dispatch, None) as watch:
        return await _settle(dispatch, run_id, watch)


async def _settle(dispatch: Dispatcher, run_id: str, watch: Watch) -> RunResult:
    store, still, gone = dispatch.env.store, None, False
    while True:
        dispatch.check_open()
        run = await store.run(run_id)
        if run is None:  # It is to be begun by input that waits its turn.
            item = await store.item_of_run(run_id)
            if item is not None and item.status == "retracted":
                raise InputRetracted(
                    f"input {item.id!r} of thread {item.thread_id!r} was retracted before run {run_id} began"
                )
            if item is None or item.status == "taken":
                if gone:  # Seen twice: it didn't begin while it was looked for.
                    raise UnknownRun(f"run {run_id!r} isn't in this store any more: it was deleted, or pruned")
                gone = True
            elif dispatch.within():
                await dispatch.pump(item.thread_id, at_once=True)
            await watch.news()
            continue
        if run.status == "done":
            return await dispatch.recall(run_id)
        if run.thread_id in dispatch.waking:
            await asyncio.sleep(BRIEF)
            continue
        act = dispatch.active.get(run.thread_id)
        if act is not None and act.view.run.id == run_id:
            await act.ended()
            if act.left and act.view.run.status == "done":
                return dispatch.result(act)
            continue
        below = await open_below(store, run.thread_id, run_id) if waits_for_tasks(run) else []
        watch.on(run.thread_id)
        # Owners last: what ended before it was looked at has told its owner by then.
        threads = [*[task.target_thread for task in reversed(below)], run.thread_id]
        epochs = await _epochs(store, threads)
        busy = await _busy(dispatch, threads, watch)
        if not busy and run.status == "waiting":
            # While it was looked at, one may have begun another and stood still again: nothing goes on only if the
            # same was seen twice, and nobody ran in between, nor while it was read what it came to.
            seen = (run, below, epochs)
            if seen == still:
                result = await dispatch.recall(run_id)
                if await _epochs(store, threads) == epochs:
                    return result
            still = seen
            continue
        still = None
        if not busy and (thread := await store.thread(run.thread_id)) is not None and thread.dead:
            raise dead_letter(run)


async def _epochs(store: Store, threads: list[str]) -> list[int]:
    """How often each of these threads was taken by somebody who runs it."""
    found = [await store.thread(thread) for thread in threads if thread]
    return [0 if thread is None else thread.epoch for thread in found]


def dead_letter(run: RunRecord) -> RunGivenUp:
    """What is said to those who wait for a run that nobody tries to go on with."""
    return RunGivenUp(
        f"run {run.id} is a dead letter: its last attempt failed; see why with runtime.dispatches(dead=True), "
        f'then runtime.retry("{run.id}") or runtime.cancel("{run.id}")'
    )


async def _busy(
    dispatch: Dispatcher, threads: list[str], watch: Watch, *, until: str = asyncio.FIRST_COMPLETED
) -> bool:
    """Whether something goes on on one of these threads, or may; if so, wait for a while, or until one or all of
    those that run here have ended."""
    at_once = dispatch.within()
    busy = [thread for thread in threads if thread and await dispatch.pump(thread, at_once=at_once)]
    if not busy:
        return False
    ends = [act.ended() for thread in busy if (act := dispatch.active.get(thread)) is not None]
    if ends:
        await asyncio.wait(ends, timeout=POLL, return_when=until)
    elif any(thread in dispatch.waking for thread in busy):
        await asyncio.sleep(BRIEF)
    else:
        await watch.news()
    return True


async def until_quiet(dispatch: Dispatcher, run: RunRecord) -> None:
    """Wait until all that was below a run which ended has ended too."""
    with Watch(dispatch, run.thread_id) as watch:
        await _until_quiet(dispatch, run, watch)


async def _until_quiet(dispatch: Dispatcher, run: RunRecord, watch: Watch) -> None:
    while threads := await _left_below(dispatch.env.store, run):
        if not await _busy(dispatch, threads, watch, until=asyncio.ALL_COMPLETED):
            return


async def _left_below(store: Store, run: RunRecord) -> list[str]:
    """The threads of what hasn't ended below a run that has. Owners come first: those that ended before they were
    looked at have told what is below them by then."""
    tasks = await store.tasks(run.thread_id)
    # What is still to go on was left to the next run, whichever began it.
    owners = {task.target: None if task.status == "running" else task.run_id for task in tasks}
    runs = {one.id: one for one in await store.runs(root_run_id=run.identity.root_run_id, limit=MAX_TREE)}
    for task in tasks:  # What a run before this one began is of another tree.
        if task.run_id == run.id and task.target not in runs and (one := await store.run(task.target)) is not None:
            tree = await store.runs(root_run_id=one.identity.root_run_id, limit=MAX_TREE)
            runs |= {one.id: one for one in tree}
    left = [one for one in runs.values() if one.status != "done" and _under(one, run.id, runs, owners)]
    return [one.thread_id for one in sorted(left, key=lambda one: one.identity.depth)]


def _under(run: RunRecord, root_id: str, runs: dict[str, RunRecord], owners: dict[str, str | None]) -> bool:
    one: RunRecord | None = run
    while one is not None:
        parent = owners.get(one.id, one.identity.parent_run_id)
        if parent == root_id:
            return True
        one = None if parent is None else runs.get(parent)
    return False


async def measure(store: Store, act: Activation) -> None:
    """Read what a whole tree used so far: each run's record has what it used, written with its last answer."""
    root_id, tree = act.identity.root_run_id, act.view.tree
    root = act.view.run if act.identity.run_id == root_id else await store.run(root_id)
    if root is None:
        return
    runs = [root, *await store.runs(root_run_id=root_id, limit=MAX_TREE)]
    tree.usage = sum([run.usage for run in runs], Usage())
    tree.calls = sum(run.calls for run in runs)
    tree.started_at = root.started_at or root.created_at
