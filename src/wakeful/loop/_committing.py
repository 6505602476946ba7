"""What an activation commits, and what comes of it: events are shown, notices delivered, others are told; and the
phases, before whose hooks all is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import zip_longest
from time import monotonic
from typing import TypeVar, cast

from ..agents import Hook
from ..bus import Channel
from ..clock import Clock
from ..errors import InboxFull
from ..plugins import HookContext
from ..state import SentNotice
from ..stores import Commit, Committed, InboxItem, number
from ..types.events import Event, MessageAdded
from ..types.messages import Message
from ._environment import Environment
from ._phases import STRAY, run_actions, run_hooks, told_to_stop
from ._rides import Ride
from ._writer import ACTIONS, Writer

__all__ = ["Committer"]

H = TypeVar("H", bound=HookContext)


class Committer(Writer):
    """The committing half of an activation, which gives all of this its values."""

    __slots__ = ("channel", "clock", "env", "head", "inbox_head", "version")

    channel: Channel
    clock: Clock
    env: Environment
    # Where the thread's log and its inbox end, and its version, as far as is known here.
    head: int
    inbox_head: int
    version: int

    async def catch_up(self) -> None:
        """Read what others put into the thread's inbox."""
        raise NotImplementedError

    def board(self, items: Sequence[InboxItem]) -> Awaitable[Sequence[Ride]]:
        """Begin here with what is about to be put into the inboxes of others."""
        raise NotImplementedError

    def being_cancelled(self) -> bool:
        """Whether somebody asked for it: the run's owner or its caller."""
        raise NotImplementedError

    async def flush(self, *, release: bool = False, inbox_head: int | None = None, unsynced: bool = False) -> None:
        """Commit the draft, then show its events and deliver its notices. With `unsynced` the run goes on before
        the commit is safe from a loss of power, if nobody is shown or sent anything of it."""
        draft = self.draft
        if not (draft.log or release or draft):
            return
        store, notices = self.env.store, draft.notices
        commit = draft.commit(self.now, release, inbox_head)
        try:
            if commit.more and (commit.inbox or draft.ride is not None):
                committed = await self._write_along(commit)
            else:
                committed = await (self._write(commit, unsynced) if store.durable else store.commit(commit))
        except BaseException as error:
            draft.put_back(commit)
            if isinstance(error, InboxFull) and self._divert(error):
                await self.flush(release=release, inbox_head=inbox_head, unsynced=unsynced)
                return
            raise
        self.head, self.version = committed.head, committed.version
        number(commit.log, committed.head)
        if commit.more:
            draft.clear(commit, committed)
            if commit.inbox or commit.relays:
                self._send(commit)
        if draft.begun is not None:
            draft.tell_begun()
        if committed.inbox_head > self.inbox_head and not release:
            await self.catch_up()
        channel = self.channel
        if (channel.readers or channel.above) and channel.watched():
            self._publish(commit.log)
        for notice in notices:
            await self._deliver(notice)
        if store.durable and not release and self.being_cancelled():
            await asyncio.sleep(0)  # A commit can't be interrupted: what came meanwhile is heard of now.

    def _divert(self, full: InboxFull) -> bool:
        """Have relays take what an inbox has no room for: what the run did is written once, and what it has to
        tell goes on its way when there is room. False if there is no such thing."""
        run, divert = self.identity, self.env.post.divert
        return self.draft.divert(full.thread_id, lambda item: divert(run, item, self.now))

    def _send(self, commit: Commit) -> None:
        """Tell those whom a commit has something for, and who didn't begin with it."""
        begun = [one.thread_id for one in commit.then]
        for item in commit.inbox:
            if item.thread_id in begun:
                continue
            if item.task is not None:
                self.view.tree.apart = True  # Whoever begins with it has a count of its own.
            self.env.children.wake(item.thread_id, item.agent_id)
        if commit.relays:
            self.env.post.look()

    async def _write_along(self, commit: Commit) -> Committed:
        """Write a commit together with the first ones of what it begins or wakes in this process; or as one of
        those."""
        ride, self.draft.ride = self.draft.ride, None
        if ride is not None:
            return await ride.take(commit)
        rides = await self.board(commit.inbox)
        commit.then = [ride.commit for ride in rides if ride.commit is not None]
        then: tuple[Committed | None, ...] = ()
        try:
            committed = await self._write(commit, False)
            then = committed.then
        finally:
            for ride, one in zip_longest(rides, then):
                ride.end(one)
        return committed

    async def _write(self, commit: Commit, unsynced: bool) -> Committed:
        """Give a commit to a store that takes its time for it."""
        env, draft = self.env, self.draft
        if unsynced:
            shown = self.channel.readers or self.channel.above
            commit.unsynced = not (shown or draft.more or draft.claim is not None)
        if (timed := env.timed) is None:
            return await env.store.commit(commit)
        began = monotonic()
        try:
            committed = await env.store.commit(commit)
        except Exception as error:
            timed(monotonic() - began, error)
            raise
        timed(monotonic() - began, None)
        return committed

    def _publish(self, logged: Sequence[Message | Event]) -> None:
        for entry in logged:
            if type(entry) is Message:
                entry = MessageAdded(self.identity, entry.seq, entry.created_at, entry)
            self.channel.publish(cast(Event, entry))

    async def _deliver(self, notice: SentNotice) -> None:
        handler = self.env.registry.catalog.notices[notice.name]
        try:
            await handler.function(handler.payload.decode(notice.payload))
        except asyncio.CancelledError:
            if told_to_stop():
                raise
            self.note(STRAY, f"notice {notice.name!r}")
        except Exception as error:
            self.note(error, f"notice {notice.name!r}")

    # -- hooks -----------------------------------------------------------------------------------------------

    async def phase(
        self,
        name: str,
        hooks: tuple[Hook, ...] | list[Hook],
        kind: type[H],
        prepare: Callable[[H], None] | None = None,
    ) -> list[H]:
        """Run a phase's hooks and actions. What came before is committed first."""
        if not hooks and ACTIONS not in self.state.values:
            return []
        await self.flush()
        contexts: list[H] = []

        def context(hook: Hook) -> H:
            snapshot, run = self.state.snapshot(), self.view.run
            ctx = kind(self.identity, run.steps, snapshot, run.principal, self.env.registry.catalog, hook.config)
            if prepare is not None:
                prepare(ctx)
            return ctx

        if hooks:
            contexts = await run_hooks(name, hooks, context, self.apply)
            self.now = self.clock.now()
        if ACTIONS in self.state.values:
            catalog, configs = self.env.registry.catalog, self.agent.configs
            done, problems = await run_actions(name, catalog, configs, self.state, context, self.apply)
            contexts += done
            for problem in problems:
                self.note(problem, name)
        return contexts
