"""Sending input to a thread, whichever process runs it."""

from __future__ import annotations

from msgspec.structs import replace

from ..errors import ThreadBusy
from ..stores import Store
from ..types.inbox import InboxItem, InputItem, InputPolicy
from ..types.mail import Receipt
from .control import cancel
from .dispatcher import Dispatcher
from .results import NewRun, first_item, item_of

__all__ = ["send"]


async def send(dispatch: Dispatcher, new: NewRun, policy: InputPolicy | None) -> Receipt:
    """Put input into a thread's inbox, or start a run in the background if the thread is free.

    A repeated request returns the receipt of the first one.
    """
    dispatch.check_open()
    if new.at is not None or dispatch.worker.must_claim or dispatch.leaves_to_others(new.agent_id):
        await dispatch.check_room()
    # A worker that is asked may start and its reply be lost: that run must not be rejected for or interrupted.
    ask = policy not in ("reject", "interrupt")
    first: InboxItem | None = None
    if not await dispatch.deliver_if_idle(item_of(new, policy or "queue"), ask=ask):
        await _send_to_busy(dispatch, new, policy)
        first = await first_item(dispatch.env.store, new.request)
    thread_id = new.thread_id if first is None else first.thread_id
    if dispatch.execute:
        await dispatch.start_if_due(thread_id)
    return Receipt(await _message_id(dispatch.env.store, new, first), thread_id)


async def _message_id(store: Store, new: NewRun, first: InboxItem | None) -> str:
    """The id of the first request's message. A run that took it at once has it as its first message."""
    message = new.message if first is None else first.message if isinstance(first, InputItem) else None
    if message is None and first is not None and first.taken_by is not None:
        run = await store.run(first.taken_by)
        messages = [] if run is None else await store.messages(run.thread_id, after=run.first_seq - 1, limit=1)
        message = messages[0] if messages else None
    return "" if message is None else message.id


async def _send_to_busy(dispatch: Dispatcher, new: NewRun, policy: InputPolicy | None) -> None:
    item = item_of(new, policy or "queue")
    if (known := await dispatch.env.store.item(item.id)) is not None:
        # It was delivered before, perhaps to another thread; notify the run again.
        await dispatch.deliver(replace(item, thread_id=known.thread_id))
        return
    thread = await dispatch.env.store.thread(new.thread_id)
    has_run = thread is not None and thread.open_run_id is not None
    stored = await dispatch.env.store.load(new.thread_id) if has_run else None
    is_busy = stored is not None or (thread is not None and thread.claimed)
    if is_busy and policy == "reject":
        raise ThreadBusy(f"thread {new.thread_id!r} has an open run; wait for it or choose another policy")
    if policy is None:
        waiting = stored.run.waiting if stored is not None and stored.run is not None else None
        steers = waiting is not None and ("input" in waiting.wakes or waiting.reason == "timer")
        policy = "steer" if steers else "queue"
    await dispatch.deliver(item_of(new, policy))
    if is_busy and policy == "interrupt" and stored is not None and stored.run is not None:
        await cancel(dispatch, stored.run.id, "interrupted by new input", leave_tasks=True)
