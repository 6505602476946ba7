"""Whether a stored thread is due, and for what."""

from __future__ import annotations

from ..stores import ThreadView
from ..types.inbox import InboxItem
from ..types.runs import RunRecord
from .results import begins_run

__all__ = ["is_due", "next_input"]


def next_input(stored: ThreadView, now: int) -> InboxItem | None:
    """The item that starts the next run of a thread without an open run."""
    return next((i for i in stored.inbox if begins_run(i) and (i.at is None or i.at <= now)), None)


def is_due(stored: ThreadView, run: RunRecord, now: int) -> bool:
    """Whether a waiting run has an item of a kind that wakes it, or its timer has passed."""
    waiting = run.waiting
    if waiting is None:
        return False
    wakes = ["cancel", *["steer" if kind == "input" else kind for kind in waiting.wakes]]
    return (waiting.until is not None and waiting.until <= now) or any(
        i.wake in wakes and (i.at is None or i.at <= now) for i in stored.inbox
    )
