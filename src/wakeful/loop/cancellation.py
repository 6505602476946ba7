"""Cancellation of the task that runs an activation: by request, or by its caller."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["Cancellation"]


class Cancellation:
    """Tells an activation's own cancellations from those of the caller, who owns the task.

    asyncio counts cancellations of a task. `_requested` of them are ours and are taken back with `uncancel`; those
    above `_pending`, the count when the activation began, are the caller's.
    """

    __slots__ = ("_pending", "_requested", "by_caller", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = None
        # Whether the caller has cancelled the task, and must get its `CancelledError` in the end.
        self.by_caller = False
        self._pending = self._requested = 0

    def bind(self) -> None:
        """Watch the current task."""
        self.task = asyncio.current_task()
        self._pending = 0 if self.task is None else self.task.cancelling()

    @property
    def requested(self) -> bool:
        """Whether `request` was called and not yet taken back."""
        return self._requested > 0

    @property
    def is_pending(self) -> bool:
        """Whether the task is being cancelled, by a request or by its caller."""
        return self._requested > 0 or (self.task is not None and self.task.cancelling() > self._pending)

    def request(self) -> None:
        """Cancel the task."""
        if self.task is not None:
            self._requested += 1
            self.task.cancel()

    def take_back(self) -> None:
        """Undo the requests in the task's count."""
        while self._requested:
            self._requested -= 1
            if self.task is not None:
                self.task.uncancel()

    def take_callers(self) -> bool:
        """Whether the caller has cancelled the task since the last time; recorded in `by_caller`."""
        if not self._is_callers() or self.task is None:
            return False
        self._pending = self.task.cancelling()
        self.by_caller = True
        return True

    async def absorb(self) -> None:
        """Absorb a cancellation that came too late: the run is over, and only its caller may be cancelled."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.take_back()
            self.by_caller = self._is_callers()

    def _is_callers(self) -> bool:
        return self.task is not None and self.task.cancelling() > self._pending
