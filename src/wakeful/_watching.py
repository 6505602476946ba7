"""Watching threads: what the log has of them, and what happens on them as it happens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

from ._checks import cursor_of, id_of
from ._following import Follower
from .bus import LocalBus, Subscription
from .dispatch import Dispatcher, Signals
from .loop import Environment
from .state import State
from .stores import Store
from .types.copies import own, own_event
from .types.events import AnyEvent, Event, MessagesSnapshot, StateSnapshot
from .types.runs import Identity

__all__ = ["Watching"]


class Watching:
    """What a runtime shows of its threads while they go on."""

    _env: Environment
    _bus: LocalBus
    _signals: Signals
    _dispatch: Dispatcher

    def _check_open(self) -> None:
        """Raise `RuntimeClosed` if it was closed."""
        raise NotImplementedError

    @property
    def _store(self) -> Store:
        """The store, for as long as the runtime is open."""
        self._check_open()
        return self._env.store

    async def events(
        self, thread: str, *, after: int | str = 0, follow: bool = True, snapshot: bool = False
    ) -> AsyncIterator[AnyEvent]:
        """A thread's events from behind a cursor: first from the log, then, with `follow`, as they happen.

        With `snapshot` the conversation and the state as they stand come first, and events from there on. They end
        when the thread is deleted.
        """
        self._check_open()
        follower = Follower(self._env, id_of(thread, "thread"), *cursor_of(after))
        subscription = self._bus.watch(thread) if follow and not self._dispatch.closed else None
        try:
            if subscription is not None and not self._runs_here(thread):
                self._follow(thread, subscription)
            if snapshot:
                async for event in self._snapshot(thread):
                    follower.last = event.seq
                    yield event
            async for event in follower.log():
                yield event
            if subscription is not None:
                async for event in self._catch_up(thread, subscription, follower):
                    yield event
            while subscription is not None:
                while subscription.events:
                    if subscription.lagged:
                        subscription.lagged = False
                        async for event in follower.log():
                            yield event
                        continue
                    event = subscription.events.popleft()
                    if not isinstance(event, Event):
                        async for shown in follower.heard(event):
                            yield shown
                        continue
                    if event.run.thread_id == thread:
                        if event.seq <= follower.last if event.durable else event.seq < follower.last:
                            continue
                        if follower.missed(event):
                            async for logged in follower.log(event.seq - event.durable):
                                yield logged
                        if (reset := follower.seen(event)) is not None:
                            yield reset
                    yield own_event(cast(AnyEvent, event))
                if subscription.closed:
                    return
                if not await self._news(thread, subscription, follower):
                    async for event in follower.look(subscription.events):
                        yield event
                    if await follower.gone():
                        return
        finally:
            if subscription is not None:
                self._signals.leave(self._dispatch.tenant, thread, subscription)
                subscription.close()

    async def _catch_up(
        self, thread: str, subscription: Subscription, follower: Follower
    ) -> AsyncIterator[AnyEvent]:
        """Show a reader that comes while this process streams an answer what there is of it."""
        active, behind = self._dispatch.active, True
        while (act := active.get(thread)) is not None and (answer := act.streamed) is not None:
            last = follower.last
            if behind and last < answer.seq:
                async for event in follower.log():
                    yield event
                behind = follower.last > last  # What comes next may have been pruned.
                continue
            subscription.skip(answer.message_id)
            for event in list(follower.join(act.identity, answer.shown())):
                yield event
            return

    def _follow(self, thread: str, subscription: Subscription) -> None:
        """Have other processes show what they do on a thread."""
        self._signals.watch(self._dispatch.tenant, thread, subscription)

    async def _news(self, thread: str, subscription: Subscription, follower: Follower) -> bool:
        """Wait until there is something to take; False if it is time to look whether others did something."""
        if self._runs_here(thread):
            return await subscription.wait()
        if await subscription.wait(follower.pause(bus=self._signals.healthy)):
            return True
        self._follow(thread, subscription)
        return False

    def _runs_here(self, thread: str) -> bool:
        return thread in self._dispatch.active

    async def _snapshot(self, thread: str) -> AsyncIterator[AnyEvent]:
        stored = await self._store.load(thread)
        if stored is None:
            return
        run = stored.run or await self._store.run(stored.thread.last_run_id or "")
        identity = Identity("", thread, "", "") if run is None else run.identity
        now, head = self._env.clock.now(), stored.thread.head
        messages = await self._store.messages(thread)
        yield MessagesSnapshot(identity, head, now, tuple(own(m) for m in messages if m.seq <= head))
        yield StateSnapshot(identity, head, now, await self.state(thread))

    async def state(self, thread: str) -> dict[str, Any]:
        """The persistent state of a thread, and of its open run if it has one, by the keys' names."""
        stored = await self._store.load(id_of(thread, "thread"))
        if stored is None:
            return {}
        return State.of(self._env.registry.catalog.keys, {**stored.state, **stored.run_state}).export()
