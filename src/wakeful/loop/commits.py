"""Commits of a run: the draft is written, its events are published, notices delivered and recipients woken."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import zip_longest
from time import monotonic
from typing import cast

from ..bus import Channel
from ..errors import InboxFull
from ..state import SentNotice
from ..stores import Commit, Committed, number
from ..types.events import Event, MessageAdded
from ..types.inbox import InputItem
from ..types.messages import Message
from ..types.runs import Identity
from .activation import Activation
from .disclosure import note_error
from .hooks import STRAY, is_cancelled
from .inbox import deliver_items

__all__ = ["flush", "read_inbox"]


async def flush(act: Activation, *, release: bool = False, inbox_head: int | None = None) -> None:
    """Commit the draft, publish its events and deliver its notices; without changes, do nothing.

    With `release` the thread's claim ends. With `inbox_head` the commit is refused with `InboxMoved` if the inbox
    has newer items. A refused draft is kept.
    """
    draft, store = act.draft, act.env.store
    if not (draft.log or release or draft):
        return
    notices = draft.notices
    commit = draft.commit(act.now, release, inbox_head)
    try:
        if commit.more and (commit.inbox or draft.joined is not None):
            committed = await _write_joined(act, commit)
        else:
            committed = await (_write(act, commit) if store.durable else store.commit(commit))
    except BaseException as error:
        draft.put_back(commit)
        if isinstance(error, InboxFull) and _divert(act, error):
            await flush(act, release=release, inbox_head=inbox_head)
            return
        raise
    await _finish(act, commit, committed, notices)
    if store.durable and not release and act.cancellation.is_pending:
        await asyncio.sleep(0)  # Commits are shielded: a cancellation that came meanwhile is raised here.


async def _finish(act: Activation, commit: Commit, committed: Committed, notices: Sequence[SentNotice]) -> None:
    """Do what follows an acknowledged commit."""
    draft, channel = act.draft, act.channel
    act.head, act.version = committed.head, committed.version
    number(commit.log, committed.head)
    if commit.more:
        draft.clear(commit, committed)
        if commit.inbox or commit.relays:
            _wake_recipients(act, commit)
    if draft.started is not None:
        draft.tell_started()
    if committed.inbox_head > act.inbox_head and not commit.release:
        await read_inbox(act)
    if (channel.readers or channel.above) and channel.is_watched():
        _publish(act.identity, channel, commit.log)
    for notice in notices:
        await _deliver(act, notice)


async def read_inbox(act: Activation) -> None:
    """Read the thread's inbox into the view."""
    stored = await act.env.store.load(act.identity.thread_id)
    act.now = act.clock.now()
    if stored is not None:
        deliver_items(act, stored.inbox, stored.thread.inbox_head)


async def _write(act: Activation, commit: Commit) -> Committed:
    """Commit to a durable store, and measure how long that takes."""
    env = act.env
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


async def _write_joined(act: Activation, commit: Commit) -> Committed:
    """Write a commit with the first commits of the runs that it starts here, or join that of the parent."""
    joined, act.draft.joined = act.draft.joined, None
    if joined is not None:
        return await joined.write(commit)
    started = await act.env.children.start_with_commit(act, commit.inbox)
    commit.then = [one.commit for one in started if one.commit is not None]
    then: tuple[Committed | None, ...] = ()
    try:
        committed = await _write(act, commit)
        then = committed.then
    finally:
        for one, outcome in zip_longest(started, then):
            one.settle(outcome)
    return committed


def _divert(act: Activation, full: InboxFull) -> bool:
    """Replace the items that a full inbox refused by relays, which retry; False if there are none."""
    run, relay_for = act.identity, act.env.mailer.relay_for
    return act.draft.divert(full.thread_id, lambda item: relay_for(run, item, act.now))


def _wake_recipients(act: Activation, commit: Commit) -> None:
    """Wake the threads that got an item and weren't started with the commit."""
    started = [one.thread_id for one in commit.then]
    for item in commit.inbox:
        if item.thread_id in started:
            continue
        if isinstance(item, InputItem) and item.task is not None:
            act.view.tree.apart = True  # The child may run elsewhere, with a count of its own.
        act.env.children.wake(item.thread_id, item.agent_id)
    if commit.relays:
        act.env.mailer.wake()


def _publish(run: Identity, channel: Channel, logged: Sequence[Message | Event]) -> None:
    for entry in logged:
        if type(entry) is Message:
            entry = MessageAdded(run, entry.seq, entry.created_at, entry)
        channel.publish(cast(Event, entry))


async def _deliver(act: Activation, notice: SentNotice) -> None:
    handler = act.env.registry.catalog.notices[notice.name]
    try:
        await handler.function(handler.payload.decode(notice.payload))
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        note_error(act, STRAY, f"notice {notice.name!r}")
    except Exception as error:
        note_error(act, error, f"notice {notice.name!r}")
