"""Pending input: it can be read, edited, moved and retracted until a run takes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Conflict, UnknownInput, UsageError
from ..stores import Commit, Store, ThreadView
from ..types.inbox import InputItem
from .agent_messages import text_of_message, with_text

__all__ = ["PendingInput", "edit", "move", "pending", "retract"]


class PendingInput(Struct, frozen=True, kw_only=True):
    """Input that waits on a thread. `sender` is the agent that wrote it; every edit has the next `revision`."""

    id: str
    thread_id: str
    text: str
    revision: int
    policy: Literal["queue", "steer"]
    agent_id: str | None
    sender: str | None = None
    sender_thread_id: str | None = None
    sent_at: int = 0


def _view(item: InputItem) -> PendingInput:
    message, producer = item.message, item.message.producer
    return PendingInput(
        id=item.id,
        thread_id=item.thread_id,
        text=text_of_message(message),
        revision=item.revision,
        policy="steer" if item.policy == "steer" else "queue",
        agent_id=item.agent_id,
        sender=None if producer is None or producer.sender_thread_id is None else producer.agent_id,
        sender_thread_id=None if producer is None else producer.sender_thread_id,
        sent_at=message.created_at,
    )


async def pending(store: Store, thread_id: str) -> list[PendingInput]:
    """The pending input of a thread, in the order in which runs will take it."""
    stored = await store.load(thread_id)
    inbox = () if stored is None else stored.inbox
    return [_view(item) for item in inbox if isinstance(item, InputItem) and item.task is None]


async def edit(store: Store, item_id: str, text: str, revision: int | None) -> PendingInput:
    """Replace the text of pending input."""

    def change(items: Sequence[InputItem], item: InputItem) -> list[InputItem]:
        return [_next(item, message=with_text(item.message, text))]

    return await _change(store, item_id, revision, change)


async def retract(store: Store, item_id: str, revision: int | None) -> PendingInput:
    """Retract pending input: no run will take it."""
    return await _change(store, item_id, revision, lambda _, item: [_next(item, status="retracted")])


async def move(
    store: Store, item_id: str, *, before: str | None, after: str | None, revision: int | None
) -> PendingInput:
    """Move pending input before or after another one of its thread; by default to the front."""
    if before is not None and after is not None:
        raise UsageError("input is moved before another one or after it, not both")
    if item_id in (before, after):
        raise UsageError(f"input {item_id!r:.80} can't be moved before or after itself; name another one")

    def change(items: Sequence[InputItem], item: InputItem) -> list[InputItem]:
        order = [other for other in items if other.id != item.id]
        there = before or after
        place = 0 if there is None else next((n for n, i in enumerate(order) if i.id == there), None)
        if place is None:
            raise UnknownInput(f"no input {there!r:.80} is pending on thread {item.thread_id!r}")
        order.insert(place + (after is not None), item)
        places = zip(order, items, strict=True)
        return [_next(one, position=was.position) for one, was in places if one.position != was.position]

    return await _change(store, item_id, revision, change)


def _next(item: InputItem, **changes: object) -> InputItem:
    return replace(item, revision=item.revision + 1, **changes)


Change = Callable[[Sequence[InputItem], InputItem], list[InputItem]]


async def _change(store: Store, item_id: str, revision: int | None, change: Change) -> PendingInput:
    without_run = False
    while True:
        stored, items, item = await _find(store, item_id)
        if revision is not None and revision != item.revision:
            raise Conflict(
                f"input {item_id!r} was changed meanwhile: it is at revision {item.revision}, not {revision}; "
                "read it again"
            )
        changed = change(items, item)
        if not changed:
            return _view(item)
        try:
            await store.commit(_commit(stored, changed, without_run))
        except Conflict:
            without_run = True  # A run took it, another caller changed it, or its thread's owner died.
            continue
        return _view(next((one for one in changed if one.id == item_id), item))


def _commit(stored: ThreadView, changed: list[InputItem], without_run: bool) -> Commit:
    """A commit of changed items, with the record of a waiting run so that its dispatch is settled again."""
    thread, run = stored.thread, stored.run
    if run is None or run.waiting is None or thread.claimed or without_run:
        return Commit(thread.id, pending=changed)
    return Commit(thread.id, run.identity, version=thread.version, runs=[run], pending=changed)


async def _find(store: Store, item_id: str) -> tuple[ThreadView, list[InputItem], InputItem]:
    known = await store.item(item_id)
    stored = None if known is None else await store.load(known.thread_id)
    items = [] if stored is None else [item for item in stored.inbox if isinstance(item, InputItem)]
    item = next((one for one in items if one.id == item_id), None)
    if stored is None or item is None:
        was = "" if known is None else f"; it was {'taken in' if known.status == 'taken' else known.status}"
        raise UnknownInput(f"no input {item_id!r:.80} is pending{was}")
    if item.task is not None:
        raise UnknownInput(f"input {item_id!r:.80} belongs to a task: cancel the task instead")
    return stored, items, item
