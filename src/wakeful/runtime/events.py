"""Event streams: the log of a thread, then its live events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

from ..bus import Subscription, Update
from ..dispatch import Caller, NewRun, raise_if_failed, run_new
from ..loop import Environment
from ..state import State
from ..types.copies import copy_event, copy_mutable
from ..types.events import AnyEvent, Event, MessagesSnapshot, StateSnapshot
from ..types.runs import Identity
from .arguments import check_id, parse_cursor
from .follower import Follower
from .scope import Scope

__all__ = ["read_state", "run_events", "thread_events"]


def thread_events(
    scope: Scope, thread: str, *, after: int | str = 0, follow: bool = True, snapshot: bool = False
) -> AsyncIterator[AnyEvent]:
    """A thread's events after a cursor; see `Runtime.events`. Wrong arguments raise here, not while iterating."""
    scope.shared.check_open()
    follower = Follower(scope.env, check_id(thread, "thread"), *parse_cursor(after))
    return _thread_events(scope, thread, follower, follow=follow, snapshot=snapshot)


async def _thread_events(
    scope: Scope, thread: str, follower: Follower, *, follow: bool, snapshot: bool
) -> AsyncIterator[AnyEvent]:
    subscription = scope.bus.watch(thread) if follow and not scope.dispatch.closed else None
    try:
        if subscription is not None and thread not in scope.dispatch.active:
            _watch(scope, thread, subscription)
        if subscription is not None:
            await follower.look_back()
        if snapshot:
            async for event in _snapshot(scope.env, thread):
                follower.last = event.seq
                yield event
        async for event in follower.log():
            yield event
        if subscription is None:
            return
        async for event in _join_answer(scope, thread, subscription, follower):
            yield event
        async for event in _live_events(scope, thread, subscription, follower):
            yield event
    finally:
        if subscription is not None:
            _leave(scope, thread, subscription)


async def run_events(
    scope: Scope, make: Callable[[], NewRun], *, fresh: bool, check: bool
) -> AsyncIterator[AnyEvent]:
    """Start a run and yield its events and those of the runs below it; see `Runtime.stream`."""
    scope.bind()
    new, roots = make(), set[str]()
    subscription = scope.bus.watch(new.thread_id)
    caller, is_left = Caller(scope.dispatch), True

    def opened(run_id: str) -> None:
        roots.add(run_id)
        caller.opened(run_id)

    work = run_new(scope.dispatch, new, fresh=fresh, opened=opened)
    task = asyncio.get_running_loop().create_task(work)
    scope.dispatch.track(task, is_awaited=True)  # The stream raises the run's errors.
    task.add_done_callback(lambda _: subscription.end())
    follower = Follower(scope.env, new.thread_id, roots=roots)
    if not scope.dispatch.execute:
        _watch(scope, new.thread_id, subscription)
    try:
        async for event in _live_events(scope, new.thread_id, subscription, follower):
            yield event
        await asyncio.wait([task])
        result = task.result()
        async for event in follower.remaining():
            yield event
        caller.close()
        is_left = False
        if check:
            raise_if_failed(scope.dispatch, result)
    finally:
        if is_left:
            caller.leave(task)
        _leave(scope, new.thread_id, subscription)


async def _live_events(
    scope: Scope, thread: str, subscription: Subscription, follower: Follower
) -> AsyncIterator[AnyEvent]:
    """Yield events as they happen, until the subscription ends or the thread is deleted."""
    queue = cast("deque[AnyEvent | Update]", subscription.events)
    while True:
        while queue:
            if subscription.lagged:
                subscription.lagged = False
                async for event in follower.log():
                    yield event
                continue
            event = queue.popleft()
            if not isinstance(event, Event):
                async for shown in follower.apply_update(event):
                    yield shown
            elif not follower.follows(event.run):
                continue
            elif event.run.thread_id != thread:
                yield copy_event(event)
            elif follower.has_gap(event) or follower.lacks_before(event):
                async for shown in _fill_gap(scope, thread, subscription, follower, event):
                    yield shown
            else:
                for shown in follower.record(event):
                    yield shown
        if subscription.closed:
            return
        if not await _wait(scope, thread, subscription, follower) and follower.has_begun:
            async for event in follower.poll(queue):
                yield event
            if await follower.is_deleted():
                return


async def _fill_gap(
    scope: Scope, thread: str, subscription: Subscription, follower: Follower, event: AnyEvent
) -> AsyncIterator[AnyEvent]:
    """Yield what the reader lacks before a live event, then the event."""
    if follower.has_gap(event):
        async for logged in follower.log(event.seq - event.durable):
            yield logged
    if follower.lacks_before(event):
        async for shown in _join_answer(scope, thread, subscription, follower):
            yield shown  # The event is part of the answer.
    else:
        for shown in follower.record(event):
            yield shown


async def _join_answer(
    scope: Scope, thread: str, subscription: Subscription, follower: Follower
) -> AsyncIterator[AnyEvent]:
    """Yield the part of an answer that this process has streamed and the reader lacks: it came later, or lagged.

    If the answer is complete by now, its message follows.
    """
    active, behind = scope.dispatch.active, True
    while (act := active.get(thread)) is not None and (answer := act.streamed) is not None:
        last = follower.last
        if behind and last < answer.seq:
            async for event in follower.log():
                yield event
            behind = follower.last > last  # The entries before the answer may have been pruned.
            continue
        subscription.skip(answer.message_id)
        for event in list(follower.join_answer(act.identity, answer.shown())):
            yield event
        return


def _watch(scope: Scope, thread: str, subscription: Subscription) -> None:
    """Ask other processes to publish the thread's live events."""
    scope.shared.signals.watch(scope.tenant, thread, subscription)


def _leave(scope: Scope, thread: str, subscription: Subscription) -> None:
    scope.shared.signals.leave(scope.tenant, thread, subscription)
    subscription.close()


async def _wait(scope: Scope, thread: str, subscription: Subscription, follower: Follower) -> bool:
    """Wait for an event; False when it is time to poll the store for the work of other processes."""
    if thread in scope.dispatch.active:
        return await subscription.wait()
    if await subscription.wait(follower.poll_interval(bus=scope.shared.signals.healthy)):
        return True
    _watch(scope, thread, subscription)
    return False


async def _snapshot(env: Environment, thread: str) -> AsyncIterator[AnyEvent]:
    stored = await env.store.load(thread)
    if stored is None:
        return
    run = stored.run or await env.store.run(stored.thread.last_run_id or "")
    identity = Identity("", thread, "", "") if run is None else run.identity
    now, head = env.clock.now(), stored.thread.head
    messages = await env.store.messages(thread)
    yield MessagesSnapshot(identity, head, now, tuple(copy_mutable(m) for m in messages if m.seq <= head))
    yield StateSnapshot(identity, head, now, await read_state(env, thread))


async def read_state(env: Environment, thread: str) -> dict[str, Any]:
    """The persistent state of a thread and of its open run, by the names of the keys."""
    stored = await env.store.load(thread)
    if stored is None:
        return {}
    return State.load(env.registry.catalog.keys, {**stored.state, **stored.run_state}).export()
