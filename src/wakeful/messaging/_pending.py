"""Input that no run took in yet: it can be read, edited, moved and retracted until one does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Conflict, UnknownInput, UsageError
from ..stores import Commit, InboxItem, Store, ThreadView
from ._letters import rewritten, said

__all__ = ["PendingInput", "edit", "move", "pending", "retract"]


class PendingInput(Struct, frozen=True, kw_only=True):
    """Input that waits on a thread. `sender` is the agent that wrote it, if one did; each change has the next
    `revision`."""

    id: str
    thread_id: str
    text: str
    revision: int
    policy: Literal["queue", "steer"]
    agent_id: str | None
    sender: str | None = None
    sender_thread_id: str | None = None
    sent_at: int = 0


def _is_open(item: InboxItem) -> bool:
    """Whether it is anybody's to change: what a task begins with belongs to the task."""
    return item.kind == "input" and item.message is not None and item.task is None


def _shown(item: InboxItem) -> PendingInput:
    message = item.message
    producer = None if message is None else message.producer
    return PendingInput(
        id=item.id,
        thread_id=item.thread_id,
        text="" if message is None else said(message),
        revision=item.revision,
        policy="steer" if item.policy == "steer" else "queue",
        agent_id=item.agent_id,
        sender=None if producer is None or producer.sender_thread_id is None else producer.agent_id,
        sender_thread_id=None if producer is None else producer.sender_thread_id,
        sent_at=0 if message is None else message.created_at,
    )


async def pending(store: Store, thread_id: str) -> list[PendingInput]:
    """What waits on a thread, in the order in which it will be taken in."""
    stored = await store.load(thread_id)
    return [_shown(item) for item in stored.inbox if _is_open(item)] if stored is not None else []


async def edit(store: Store, item_id: str, text: str, revision: int | None) -> PendingInput:
    """Give pending input another text."""

    def change(items: Sequence[InboxItem], item: InboxItem) -> list[InboxItem]:
        assert item.message is not None  # noqa: S101  # What can be changed has one.
        return [_next(item, message=rewritten(item.message, text))]

    return await _change(store, item_id, revision, change)


async def retract(store: Store, item_id: str, revision: int | None) -> PendingInput:
    """Take pending input back: no run will see it."""
    return await _change(store, item_id, revision, lambda _, item: [_next(item, status="retracted")])


async def move(
    store: Store, item_id: str, *, before: str | None, after: str | None, revision: int | None
) -> PendingInput:
    """Put pending input before or behind another of its thread; by default before all."""
    if before is not None and after is not None:
        raise UsageError("input is moved before another one or behind it, not both")
    if item_id in (before, after):
        raise UsageError(f"input {item_id!r:.80} can't be moved before or behind itself; name another one")

    def change(items: Sequence[InboxItem], item: InboxItem) -> list[InboxItem]:
        order = [other for other in items if other.id != item.id]
        there = before or after
        place = 0 if there is None else next((n for n, i in enumerate(order) if i.id == there), None)
        if place is None:
            raise UnknownInput(f"no input {there!r:.80} is pending on thread {item.thread_id!r}")
        order.insert(place + (after is not None), item)
        places = zip(order, items, strict=True)
        return [_next(one, position=was.position) for one, was in places if one.position != was.position]

    return await _change(store, item_id, revision, change)


def _next(item: InboxItem, **changes: object) -> InboxItem:
    return replace(item, revision=item.revision + 1, **changes)


Change = Callable[[Sequence[InboxItem], InboxItem], list[InboxItem]]


async def _change(store: Store, item_id: str, revision: int | None, change: Change) -> PendingInput:
    alone = False
    while True:
        stored, items, item = await _find(store, item_id)
        if revision is not None and revision != item.revision:
            raise Conflict(
                f"input {item_id!r} was changed meanwhile: it is at revision {item.revision}, not {revision}; "
                "look at it again"
            )
        changed = change(items, item)
        if not changed:
            return _shown(item)
        try:
            await store.commit(_commit(stored, changed, alone))
        except Conflict:
            alone = True  # A run took it, somebody changed it, or its thread's owner died: look again.
            continue
        return _shown(next((one for one in changed if one.id == item_id), item))


def _commit(stored: ThreadView, changed: list[InboxItem], alone: bool) -> Commit:
    """The change; with the record of a run that waits, so that the store sees whether it is still due."""
    thread, run = stored.thread, stored.run
    if run is None or run.waiting is None or thread.claimed or alone:
        return Commit(thread.id, pending=changed)
    return Commit(thread.id, run.identity, version=thread.version, runs=[run], pending=changed)


async def _find(store: Store, item_id: str) -> tuple[ThreadView, list[InboxItem], InboxItem]:
    known = await store.item(item_id)
    stored = None if known is None else await store.load(known.thread_id)
    items = [] if stored is None else [item for item in stored.inbox if item.kind == "input"]
    item = next((one for one in items if one.id == item_id), None)
    if stored is None or item is None:
        was = "" if known is None else f"; it was {'taken in' if known.status == 'taken' else known.status}"
        raise UnknownInput(f"no input {item_id!r:.80} is pending{was}")
    if not _is_open(item):
        raise UnknownInput(f"input {item_id!r:.80} belongs to a task: cancel the task instead")
    return stored, items, item
