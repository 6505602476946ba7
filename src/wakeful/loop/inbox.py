"""The inbox of an active run: items that wait for no boundary are applied as they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..types.inbox import CancelItem, InboxItem, NotifyItem, PauseItem, UnpauseItem
from .activation import Activation

__all__ = ["apply_inbox", "deliver_items"]

_IMMEDIATE = (CancelItem, PauseItem, UnpauseItem, NotifyItem)


def deliver_items(act: Activation, items: Sequence[InboxItem], inbox_head: int) -> None:
    """Update the view of the inbox, unless a newer one was read before."""
    if inbox_head >= act.inbox_head:
        # The run may have taken an item before its sender's notification arrives.
        act.view.inbox = {item.id: item for item in items if item.id not in act.taken}
        act.inbox_head = inbox_head
    apply_inbox(act)


def apply_inbox(act: Activation) -> None:
    """Apply the items that wait for no boundary: cancel, pause, unpause and notify."""
    for item in [i for i in act.view.inbox.values() if isinstance(i, _IMMEDIATE)]:
        del act.view.inbox[item.id]
        act.take(item.id)
        if item.run_id != act.identity.run_id:
            continue
        match item:
            case CancelItem():
                act.attached |= item.by_owner
                inside = asyncio.current_task() is act.cancellation.task
                act.cancel(item.reason, interrupt=not inside, leave_tasks=item.leaves_tasks)
            case NotifyItem():
                act.attached = False
            case PauseItem() | UnpauseItem():
                act.set_run(paused=isinstance(item, PauseItem))
    if act.executor is not None and act.view.live:
        act.executor.nudge()
    if act.on_inbox is not None:
        act.on_inbox()
